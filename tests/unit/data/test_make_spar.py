"""The conversion script on made-up recordings, and on pickles that try to run something."""

import hashlib
import importlib.util
import io
import os
import pickle
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from edgefl.data import load_spar

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_spar", ROOT / "scripts" / "make_spar.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def document(**changes):
    rng = np.random.default_rng(0)
    made_up = {
        "X": [rng.normal(size=(300, 6)), rng.normal(size=(127, 6)), rng.normal(size=(128, 6))],
        "y": np.array([2, 0, 6]),
        "subject": np.array([10, 1, 3]),
        "side": np.array([1.0, 0.0, 0.0]),
        "X_labels": ["ax", "ay", "az", "wx", "wy", "wz"],
        "y_labels": ["PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW"],
    }
    return made_up | changes


def object_npy(value):
    """As the source was written: protocol 2, so that bytes travel through `_codecs.encode`."""
    array = np.empty((), dtype=object)
    array[()] = value
    target = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        target, {"shape": (), "fortran_order": False, "descr": "|O"}
    )
    target.write(pickle.dumps(array, protocol=2))
    return target.getvalue()


def read(script, value):
    content = object_npy(value)
    return script.read_recordings(content, hashlib.sha256(content).hexdigest())


def test_windows_are_cut_without_overlap_and_sorted(script):
    recordings = read(script, document())
    arrays = script.cut_windows(recordings)
    # 300 samples give two windows, 127 none, 128 one.
    assert arrays["window"].shape == (3, 64, 6)
    assert arrays["person"].tolist() == [3, 10, 10]
    assert arrays["side"].tolist() == [0, 1, 1]
    assert arrays["label"].tolist() == [6, 2, 2]
    second = document()["X"][0][128:256]
    mean = (second[0] + second[1]) / 2
    assert arrays["window"][2, 0].tolist() == np.rint(mean * 32 / [1, 1, 1, 3, 3, 3]).tolist()


def test_values_beyond_full_scale_saturate(script):
    loud = document(X=[np.full((128, 6), sign * 50.0) for sign in (1, -1, 1)])
    windows = script.cut_windows(read(script, loud))["window"]
    assert set(np.unique(windows).tolist()) == {-127, 127}


def test_equal_input_gives_equal_bytes(script):
    first, second = (script.pack_arrays(script.cut_windows(read(script, document()))) for _ in "ab")
    assert first == second
    with np.load(io.BytesIO(first), allow_pickle=False) as archive:
        assert sorted(archive.files) == ["label", "person", "side", "window"]


def test_the_wheel_is_opened_and_the_hash_is_pinned(script, tmp_path, capsys, monkeypatch):
    content = object_npy(document())
    wheel, target = tmp_path / "made-up.whl", tmp_path / "out.npz"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(script.WHEEL_MEMBER, content)
    assert script.main([str(wheel), str(target)]) == 2
    assert script.SOURCE_SHA256 in capsys.readouterr().err
    assert not target.exists()
    monkeypatch.setattr(script, "SOURCE_SHA256", hashlib.sha256(content).hexdigest())
    assert script.main([str(wheel), str(target)]) == 0
    assert capsys.readouterr().out.startswith("3 windows")
    assert target.exists()


def test_a_wheel_without_the_data_is_refused(script, tmp_path, capsys):
    wheel = tmp_path / "other.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other.py", "")
    assert script.main([str(wheel), str(tmp_path / "out.npz")]) == 2
    assert "watch_dataset.npy" in capsys.readouterr().err
    assert script.main([str(tmp_path / "none"), str(tmp_path / "out.npz")]) == 2


class RunsACommand:
    def __reduce__(self):
        return (os.system, ("touch ran-by-pickle",))


class ReadsAFile:
    def __reduce__(self):
        return (open, ("make-believe-secret",))


class DecodesWithAnyCodec:
    def __reduce__(self):
        import _codecs

        return (_codecs.encode, ("data", "rot13"))


class RebuildsSomethingElse:
    def __reduce__(self):
        from numpy._core.multiarray import _reconstruct

        return (_reconstruct, (np.ndarray, (10**9,), b"d"))


@pytest.mark.parametrize(
    ("trap", "complaint"),
    [
        (RunsACommand(), r"posix\.system|nt\.system"),
        (ReadsAFile(), r"\.open"),
        (DecodesWithAnyCodec(), "rot13"),
        (RebuildsSomethingElse(), "array rebuild"),
    ],
)
def test_pickles_that_ask_for_more_are_refused(script, trap, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(script.UnsafePickleError, match=complaint):
        script.unpickle_object_npy(object_npy(trap))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"X_labels": ["a"]}, "channels"),
        ({"y_labels": ["a"]}, "exercises"),
        ({"subject": np.array([11, 1, 1])}, "person 11"),
        ({"y": np.array([7, 0, 0])}, "label 7"),
        ({"X": [np.zeros((128, 5))] * 3}, "shape"),
        ({"X": [np.full((128, 6), np.nan)] * 3}, "finite"),
        ({"X": [np.zeros((128, 6), int)] * 3}, "float64"),
    ],
)
def test_other_layouts_are_refused(script, changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        read(script, document(**changes))


def test_ordinary_arrays_are_no_source(script):
    plain = io.BytesIO()
    np.save(plain, np.ones(3))
    with pytest.raises(ValueError, match="one object"):
        script.unpickle_object_npy(plain.getvalue())


def test_the_shipped_file_has_the_scripts_grid_and_content(script):
    shipped = ROOT / "edgefl" / "data" / "spar.npz"
    with np.load(shipped, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in ("window", "label", "person", "side")}
    assert script.content_sha256(arrays) == (
        "99cff6095debeeecf97d3332bdc050c1b58e5bbad3ebb7c0e6695a4c8abad66b"
    )
    left = arrays["side"] == 0
    assert np.array_equal(load_spar().windows[left] * 32, arrays["window"][left])
