"""A device's own data file: every defect gives one line, and no file runs code."""

import io
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.data import load_npz
from edgefl.errors import DataError


def write(tmp_path, **arrays):
    path = tmp_path / "data.npz"
    np.savez(path, **arrays)
    return path


def good(n=4):
    return {"x": np.arange(n * 6, dtype=np.float64).reshape(n, 3, 2), "y": np.arange(n) % 2}


def refusal(path, **limits):
    with pytest.raises(DataError) as caught:
        load_npz(path, **limits)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    return message


def test_other_number_types_are_converted(tmp_path):
    data = load_npz(write(tmp_path, **good()), input_shape=(3, 2), classes=2)
    assert data.x.dtype == np.float32
    assert data.y.dtype == np.int64
    assert data.x[1, 2, 1] == 11
    small = load_npz(write(tmp_path, x=np.ones((2, 3), np.int8), y=np.ones(2, np.uint8)))
    assert small.examples == 2


@pytest.mark.parametrize("missing", ["x", "y"])
def test_missing_arrays_are_named(tmp_path, missing):
    arrays = {key: value for key, value in good().items() if key != missing}
    assert f"E-DATA-KEYS: expected arrays named x and y; found no {missing}" in refusal(
        write(tmp_path, **arrays)
    )


def test_empty_data_are_refused(tmp_path):
    path = write(tmp_path, x=np.zeros((0, 3)), y=np.zeros(0, int))
    assert "E-DATA-EMPTY" in refusal(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_the_first_value_that_is_not_finite_is_named(tmp_path, bad):
    arrays = good()
    arrays["x"][2, 1, 0] = bad
    arrays["x"][3, 0, 0] = bad
    message = refusal(write(tmp_path, **arrays))
    assert "E-DATA-NOT-FINITE" in message
    assert "[2, 1, 0]" in message


def test_another_shape_is_shown_beside_the_models(tmp_path):
    message = refusal(write(tmp_path, **good()), input_shape=(64, 6))
    assert "E-DATA-SHAPE" in message
    assert "[64, 6]" in message
    assert "[3, 2]" in message


@pytest.mark.parametrize(("label", "limits"), [(2, {"classes": 2}), (-1, {}), (-1, {"classes": 2})])
def test_labels_out_of_range_are_named(tmp_path, label, limits):
    arrays = good()
    arrays["y"][3] = label
    message = refusal(write(tmp_path, **arrays), **limits)
    assert "E-DATA-LABEL" in message
    assert f"{label} at index 3" in message


@pytest.mark.parametrize(
    ("x", "y", "code"),
    [
        (np.array([["a"]]), np.zeros(1, int), "E-DATA-DTYPE"),
        (np.ones((1, 2)), np.ones(1), "E-DATA-DTYPE"),
        (np.ones((1, 2), complex), np.zeros(1, int), "E-DATA-DTYPE"),
        (np.ones((2, 2)), np.zeros(3, int), "E-DATA-LENGTH"),
        (np.ones((2, 2)), np.zeros((2, 1), int), "E-DATA-LENGTH"),
        (np.float32(1), np.zeros(1, int), "E-DATA-LENGTH"),
    ],
)
def test_arrays_of_other_kinds_are_refused(tmp_path, x, y, code):
    assert code in refusal(write(tmp_path, x=x, y=y))


def test_missing_and_foreign_files_are_refused(tmp_path):
    assert "E-DATA-MISSING" in refusal(tmp_path / "none.npz")
    assert "E-DATA-UNREADABLE" in refusal(tmp_path)
    for content in (b"", b"text", pickle.dumps([1]), b"PK\x03\x04"):
        path = tmp_path / "foreign.npz"
        path.write_bytes(content)
        assert "E-DATA-DAMAGED" in refusal(path)
    np.save(tmp_path / "single.npy", np.ones(3))
    assert "E-DATA-DAMAGED" in refusal(tmp_path / "single.npy")


class Trap:
    fired = False

    def __reduce__(self):
        return (_fire, ())


def _fire():
    Trap.fired = True


def test_a_pickle_inside_is_refused_and_never_run(tmp_path):
    objects = np.array([Trap()], dtype=object)
    assert "E-DATA-DAMAGED" in refusal(write(tmp_path, x=objects, y=np.zeros(1, int)))
    assert not Trap.fired


def test_a_header_that_claims_too_much_is_refused(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"shape": (10**13,), "fortran_order": False, "descr": "<f8"}
    )
    path = tmp_path / "huge.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.getvalue())
        archive.writestr("y.npy", header.getvalue())
    assert "E-DATA-DAMAGED" in refusal(path)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_flipped_byte_gives_data_or_a_data_error(data, tmp_path_factory):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **good())
    content = bytearray(buffer.getvalue())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / "flipped.npz"
    path.write_bytes(bytes(content))
    try:
        read = load_npz(path)
    except DataError:
        return
    assert np.isfinite(read.x).all()
