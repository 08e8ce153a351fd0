"""`.npz` files and folders of them, in bounded memory."""

import io
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

from edgefl.data.example_source import NpzSource
from edgefl.data.reading import LeftOut
from edgefl.data.schema import DataSchema
from edgefl.data.settings import BadRows, Kind, Retention, SourceSettings
from edgefl.data.source import open_source
from tests.unit.data.recordings import refusal

NOW_S = 1_800_000_000.0
DAY_S = 86_400.0


def source(path, *, now_s=NOW_S, **changes):
    settings = SourceSettings(kind=Kind.NPZ, path=path, **changes)
    return NpzSource(settings, path.name, now=lambda: now_s)


def write(path, first, count=4, *, age_s=1000.0, save=np.savez, shape=(3,)):
    x = np.zeros((count, *shape)) + np.arange(first, first + count).reshape(-1, *[1] * len(shape))
    save(path, x=x, y=np.arange(count) % 2)
    os.utime(path, (NOW_S - age_s, NOW_S - age_s))
    return path


def firsts(reading):
    return reading.x[:, 0].tolist()


def test_the_newest_examples_of_a_file_stay(tmp_path):
    for save in (np.savez, np.savez_compressed):
        path = write(tmp_path / "a.npz", 0, 100, save=save)
        reading = source(path, retention=Retention(most_windows=7)).examine()
        assert firsts(reading) == list(range(93, 100))
        assert reading.y.tolist() == [one % 2 for one in range(93, 100)]
        assert reading.left_out == {LeftOut.TOO_MANY: 93}


def test_columns_in_fortran_order_are_the_same_examples(tmp_path):
    x = np.arange(24.0).reshape(4, 3, 2)
    np.savez(tmp_path / "f.npz", x=np.asfortranarray(x), y=np.arange(4))
    reading = source(tmp_path / "f.npz", retention=Retention(most_windows=3)).examine()
    assert np.array_equal(reading.x, x[1:])


def test_memory_follows_the_limit_and_not_the_file(tmp_path):
    x = np.zeros((40_000, 100), np.float32)
    np.savez_compressed(tmp_path / "big.npz", x=x, y=np.zeros(len(x), int))
    size_bytes = x.nbytes
    del x
    limited = source(tmp_path / "big.npz", retention=Retention(most_bytes=1_000_000))
    tracemalloc.start()
    try:
        assert limited.examine().x.shape == (2500, 100)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 6_000_000 < size_bytes


def test_a_bomb_is_refused_by_its_own_figures(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"shape": (5_000_000,), "fortran_order": False, "descr": "<f4"}
    )
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("x.npy", "y.npy"):
            with archive.open(name, "w") as member:
                member.write(header.getvalue())
                for _ in range(20):
                    member.write(bytes(1_000_000))
    assert path.stat().st_size < 100_000
    limited = source(path, retention=Retention(most_read_bytes=30_000_000))
    assert refusal(limited.examine).code == "E-DATA-TOO-LARGE"


def npz_of(path, header, content):
    start = io.BytesIO()
    np.lib.format.write_array_header_1_0(start, header)
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("x.npy", "y.npy"):
            archive.writestr(name, start.getvalue() + content)
    return path


def test_no_memory_is_taken_on_a_headers_word(tmp_path):
    header = {"shape": (15_000_000,), "fortran_order": False, "descr": "<i4"}
    path = npz_of(tmp_path / "claims.npz", header, bytes(1000))
    tracemalloc.start()
    try:
        assert refusal(source(path).examine).code == "E-DATA-DAMAGED"
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_bytes_after_an_array_are_damage(tmp_path):
    header = {"shape": (3,), "fortran_order": False, "descr": "<i4"}
    assert len(source(npz_of(tmp_path / "whole.npz", header, bytes(12))).examine().x) == 3
    path = npz_of(tmp_path / "more.npz", header, bytes(13))
    assert refusal(source(path).examine).code == "E-DATA-DAMAGED"


def test_a_folder_gives_the_newest_files_oldest_first(tmp_path):
    for number in (10, 9, 8):
        write(tmp_path / f"part-{number}.npz", number * 100)
    reading = source(tmp_path, retention=Retention(most_windows=6)).examine()
    assert firsts(reading) == [902, 903, 1000, 1001, 1002, 1003]
    assert reading.files == 2
    assert reading.left_out == {LeftOut.TOO_MANY: 2}


def test_a_file_still_being_written_waits_for_the_next_reading(tmp_path):
    write(tmp_path / "1.npz", 0)
    whole = write(tmp_path / "2.npz", 10).read_bytes()
    torn = tmp_path / "2.npz"
    torn.write_bytes(whole[:100])
    os.utime(torn, (NOW_S - 5, NOW_S - 5))
    reading = source(tmp_path, bad_rows=BadRows.REFUSE).examine()
    assert firsts(reading) == [0, 1, 2, 3]
    assert reading.left_out == {LeftOut.UNFINISHED: 1}
    # Long afterwards nobody is writing it any more.
    os.utime(torn, (NOW_S - 500, NOW_S - 500))
    assert refusal(source(tmp_path, bad_rows=BadRows.REFUSE).examine).code == "E-DATA-ROWS"
    reading = source(tmp_path).examine()
    assert firsts(reading) == [0, 1, 2, 3]
    assert reading.left_out == {LeftOut.BAD_FILE: 1}


def test_files_of_another_shape_are_named(tmp_path):
    write(tmp_path / "1.npz", 0, shape=(5,))
    write(tmp_path / "2.npz", 10)
    reading = source(tmp_path).examine()
    assert firsts(reading) == [10, 11, 12, 13]
    assert "1.npz holds examples of shape [5], newer files of [3]" in reading.notes


def test_files_changed_long_ago_are_passed_over(tmp_path):
    write(tmp_path / "1.npz", 0, age_s=3 * DAY_S)
    write(tmp_path / "2.npz", 10, age_s=1 * DAY_S)
    reading = source(tmp_path, retention=Retention(most_age_days=2)).examine()
    assert firsts(reading) == [10, 11, 12, 13]
    assert "most_age_days" in reading.notes[0]
    error = refusal(source(tmp_path, retention=Retention(most_age_days=0.5)).examine)
    assert error.code == "E-DATA-EMPTY"


def test_bad_examples_are_left_out_or_named_as_the_user_wishes(tmp_path):
    path = tmp_path / "a.npz"
    x = np.arange(8.0).reshape(4, 2)
    x[1, 0] = np.nan
    np.savez(path, x=x, y=np.array([0, 1, 2, 3]))
    reading = source(path).examine()
    assert reading.y.tolist() == [0, 2, 3]
    assert reading.left_out == {LeftOut.BAD_EXAMPLE: 1}
    error = refusal(open_source(str(path)).read)
    assert error.code == "E-DATA-NOT-FINITE"
    assert "[1, 0]" in error.found


def test_tokens_and_values_take_the_models_type(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([[3, 4]], np.int32), y=np.array([2.5]))
    schema = DataSchema(input_shape=(2,), takes_tokens=True, values=1)
    data = open_source(str(tmp_path / "a.npz")).read(schema)
    assert data.x.dtype == np.int64
    assert data.y.tolist() == [[2.5]]
    np.savez(tmp_path / "b.npz", x=np.ones((1, 2)), y=np.ones((1, 3), np.float64))
    data = open_source(str(tmp_path / "b.npz")).read(DataSchema(input_shape=(2,), values=3))
    assert data.y.dtype == np.float32
    error = refusal(lambda: open_source(str(tmp_path / "b.npz")).read(schema))
    assert error.code == "E-DATA-DTYPE"


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        (DataSchema(input_shape=(4,)), "E-DATA-SHAPE"),
        (DataSchema(input_shape=(3,), classes=1), "E-DATA-LABEL"),
        (DataSchema(input_shape=(3,), takes_tokens=True), "E-DATA-DTYPE"),
    ],
)
def test_examples_that_do_not_fit_the_model(tmp_path, schema, code):
    path = write(tmp_path / "a.npz", 0)
    error = refusal(lambda: source(path).read(schema))
    assert error.code == code


def test_no_file_at_all(tmp_path):
    assert refusal(source(tmp_path / "none.npz").examine).code == "E-DATA-MISSING"
    assert refusal(source(tmp_path).examine).code == "E-DATA-EMPTY"
