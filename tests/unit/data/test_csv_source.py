"""Text files of rows: what is read, what is left out; bad bytes spoil only their own row."""

import logging
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.data.reading import LeftOut
from edgefl.data.row_source import RowSource
from edgefl.data.schema import DataSchema
from edgefl.data.settings import (
    BadRows,
    Columns,
    CsvFormat,
    Labels,
    Retention,
    TargetRule,
    TimeUnit,
    Windowing,
)
from edgefl.data.source import open_source
from edgefl.errors import DataError
from tests.unit.data.recordings import COLUMNS, csv_settings, refusal, rows, write_csv

SINGLE = Windowing(length=1, stride=1)


def examine(path, schema=None, **changes):
    return RowSource(csv_settings(path, **changes), path.name).examine(schema)


def firsts(reading):
    """Return channel a of the first row of each window."""
    return reading.x.reshape(len(reading.x), -1)[:, 0].tolist()


def test_rows_become_windows(tmp_path):
    path = write_csv(tmp_path / "log.csv", *rows(5))
    reading = examine(path)
    assert reading.x.tolist() == [[[0.5, 0], [1.5, -1]], [[2.5, -2], [3.5, -3]]]
    assert reading.y.tolist() == [1, 1]
    assert (reading.rows, reading.files) == (5, 1)
    assert (reading.first_time_s, reading.last_time_s) == (0, 3)
    assert reading.left_out_text() == ""


def test_scale_and_offset_are_applied_by_channel(tmp_path):
    columns = Columns(
        time="t", channels=("b", "a"), label="k", scale=(2.0, 4.0), offset=(1.0, -1.0)
    )
    reading = examine(write_csv(tmp_path / "log.csv", *rows(2)), columns=columns)
    assert reading.x.tolist() == [[[1, 1], [-1, 5]]]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("9,1,2", LeftOut.WIDTH),
        ("9,1,2,1,", LeftOut.WIDTH),
        ("9,one,2,1", LeftOut.NOT_A_NUMBER),
        ("9,1.2.3,2,1", LeftOut.NOT_A_NUMBER),
        ("9,nan,2,1", LeftOut.MISSING_VALUE),
        ("9,,2,1", LeftOut.MISSING_VALUE),
        ("9,NA,2,1", LeftOut.MISSING_VALUE),
        ("9,inf,2,1", LeftOut.MISSING_VALUE),
        ("9,1e39,2,1", LeftOut.MISSING_VALUE),
        (",1,2,1", LeftOut.BAD_TIME),
        ("noon,1,2,1", LeftOut.BAD_TIME),
        ("9,1,2,", LeftOut.UNLABELLED),
        ("9,1,2,nan", LeftOut.UNLABELLED),
        ("9,1,2,sitting", LeftOut.UNKNOWN_LABEL),
        ("9,1,2,1.5", LeftOut.UNKNOWN_LABEL),
        ("9,1,2,-1", LeftOut.UNKNOWN_LABEL),
        ("9,1,2,70000", LeftOut.UNKNOWN_LABEL),
        ("9,1\0,2,1", LeftOut.GARBLED),
        ('9,"1,2,1', LeftOut.GARBLED),
        ("x" * 70_000, LeftOut.GARBLED),
    ],
)
def test_a_bad_row_is_left_out_and_counted_with_its_place(tmp_path, row, reason):
    path = write_csv(tmp_path / "log.csv", *rows(3), row, *rows(2, start=10))
    reading = examine(path)
    assert firsts(reading) == [0.5, 10.5]
    assert reading.left_out == {reason: 1}
    place = "log.csv" if len(row) > 100 else "log.csv line 5"
    assert reading.first_places == {reason: place}
    assert reading.rows == 6
    if reason is LeftOut.UNLABELLED:
        # Whoever labels by hand has such rows; they are no defect.
        assert len(examine(path, bad_rows=BadRows.REFUSE).x) == 2
        return
    error = refusal(lambda: examine(path, bad_rows=BadRows.REFUSE))
    assert error.code == "E-DATA-ROWS"
    assert place in error.found


def test_no_window_spans_a_row_that_was_left_out(tmp_path):
    path = write_csv(tmp_path / "log.csv", "0,0,0,1", "1,nan,0,1", "2,2,0,1", "3,3,0,1")
    reading = examine(path)
    assert firsts(reading) == [2]
    assert reading.left_out[LeftOut.SHORT_RUN] == 1
    # The user may say that so short a gap does no harm.
    bridged = examine(path, windowing=Windowing(length=2, stride=2, max_gap_s=2.5))
    assert firsts(bridged) == [0]


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("bad", ["9,nan,0,1", "9,0", ""])
def test_a_row_left_out_where_batches_meet_still_breaks_the_window(
    tmp_path, monkeypatch, bad, before
):
    monkeypatch.setattr("edgefl.data.rows._MOST_ROWS_AT_ONCE", 2)
    path = write_csv(tmp_path / "log.csv", *rows(before), bad, *rows(4, start=10))
    columns = Columns(channels=("a", "b"), label="k")
    reading = examine(path, columns=columns, windowing=Windowing(length=4, stride=4))
    assert firsts(reading) == ([10.5] if bad else [0.5])


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_line_ends_marks_and_delimiters_of_other_systems(tmp_path, end, start, delimiter):
    lines = [row.replace(",", delimiter) for row in rows(2)]
    header = start + " t,a ,b,k".replace(",", delimiter)
    path = write_csv(tmp_path / "log.csv", *lines, header=header, end=end)
    assert firsts(examine(path)) == [0.5]


def test_decimal_commas_are_read_when_asked_for_and_else_explained(tmp_path):
    lines = ["0;1,5;2,25;1", "1;2,5;3;1"]
    path = write_csv(tmp_path / "log.csv", *lines, header="t;a;b;k")
    reading = examine(path)
    assert reading.left_out == {LeftOut.NOT_A_NUMBER: 2}
    assert any("decimal = ','" in note for note in reading.notes)
    assert firsts(examine(path, csv=CsvFormat(decimal=","))) == [1.5]


def test_quoted_fields_may_hold_the_delimiter(tmp_path):
    labels = Labels(classes=("up, fast", 'say "hi"'))
    lines = ['0,1,2,"up, fast"', '1,1,2,"say ""hi"""']
    reading = examine(
        write_csv(tmp_path / "log.csv", *lines, header='"t",a,b,"k"'),
        labels=labels,
        windowing=SINGLE,
    )
    assert reading.y.tolist() == [0, 1]


def test_names_become_class_numbers_and_strangers_are_named(tmp_path):
    path = write_csv(
        tmp_path / "log.csv", "0,0,0,rest", "1,0,0,wlak", "2,0,0,walk", "3,0,0,?", "4,0,0,wlak"
    )
    labels = Labels(classes=("rest", "walk"), unlabelled=("?",))
    reading = examine(path, labels=labels, windowing=SINGLE)
    assert reading.y.tolist() == [0, 1]
    assert reading.left_out == {LeftOut.UNKNOWN_LABEL: 2, LeftOut.UNLABELLED: 1}
    assert reading.unknown_labels == {"wlak": 2}
    assert reading.class_names == ("rest", "walk")


def test_a_line_that_is_still_being_written_is_left_for_the_next_pass(tmp_path):
    path = write_csv(tmp_path / "log.csv", *rows(2))
    with path.open("ab") as file:
        file.write(b"2,2.5,-2,")
    reading = examine(path)
    assert firsts(reading) == [0.5]
    assert reading.left_out == {LeftOut.UNFINISHED: 1}
    with path.open("ab") as file:
        file.write(b"1\n3,3.5,-3,1\n")
    assert firsts(examine(path)) == [0.5, 2.5]


def test_a_logger_that_starts_again_may_repeat_its_header(tmp_path):
    path = write_csv(tmp_path / "log.csv", *rows(3), "t,a,b,k", *rows(2, start=3))
    reading = examine(path)
    assert firsts(reading) == [0.5, 3.5]
    assert reading.rows == 5
    assert reading.left_out == {}


def test_a_long_gap_starts_a_new_window(tmp_path):
    path = write_csv(tmp_path / "log.csv", *rows(3), *rows(3, start=100))
    windowing = Windowing(length=2, stride=1, max_gap_s=5.0)
    assert firsts(examine(path, windowing=windowing)) == [0.5, 1.5, 100.5, 101.5]


@pytest.mark.parametrize(
    ("unit", "times"),
    [
        (TimeUnit.MS, ["1000", "1500"]),
        (TimeUnit.US, ["1e6", "1500000"]),
        (TimeUnit.NS, ["1000000000", "1500000000"]),
        (TimeUnit.ISO8601, ["1970-01-01T00:00:01Z", "1970-01-01 00:00:01.5"]),
        (TimeUnit.ISO8601, ["1970-01-01T02:00:01+02:00", "1970-01-01T00:00:01.500+00:00"]),
    ],
)
def test_units_of_time(tmp_path, monkeypatch, unit, times):
    columns = Columns(time="t", time_unit=unit, channels=("a", "b"), label="k")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        # A row whose time is not readable makes the parser look at each by itself.
        for bad in ((), ("?,0,0,1",)):
            path = write_csv(tmp_path / "log.csv", *(f"{one},0,0,1" for one in times), *bad)
            reading = examine(path, columns=columns)
            assert (reading.first_time_s, reading.last_time_s) == (1.0, 1.5)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_folder_is_read_in_the_order_people_count(tmp_path):
    for number in (10, 9, 1):
        write_csv(tmp_path / f"log-{number}.csv", *rows(2, start=number * 10))
    write_csv(tmp_path / ".log-2.csv", *rows(2))
    write_csv(tmp_path / "log-11.csv.part", *rows(2))
    (tmp_path / "deeper.csv").mkdir()
    reading = examine(tmp_path)
    assert firsts(reading) == [10.5, 90.5, 100.5]
    assert reading.files == 3


def test_no_window_spans_two_files(tmp_path):
    write_csv(tmp_path / "1.csv", *rows(3))
    write_csv(tmp_path / "2.csv", *rows(3, start=3))
    assert firsts(examine(tmp_path)) == [0.5, 3.5]


def test_a_bad_file_among_good_ones_is_left_out_and_named(tmp_path):
    write_csv(tmp_path / "1.csv", *rows(2))
    write_csv(tmp_path / "2.csv", "1,2", header="t,a")
    (tmp_path / "3.csv").write_bytes(b"")
    reading = examine(tmp_path)
    assert reading.left_out == {LeftOut.BAD_FILE: 1, LeftOut.UNFINISHED: 1}
    assert any("2.csv" in note and "'b', 'k'" in note for note in reading.notes)
    (tmp_path / "1.csv").unlink()
    (tmp_path / "0.csv").write_text("t,a,b")
    assert refusal(lambda: examine(tmp_path)).code == "E-DATA-COLUMN"
    (tmp_path / "2.csv").unlink()
    assert refusal(lambda: examine(tmp_path)).code == "E-DATA-EMPTY"


def test_columns_may_stand_in_another_order_in_each_file(tmp_path):
    write_csv(tmp_path / "1.csv", *rows(2))
    write_csv(tmp_path / "2.csv", "1,-7,7,0", "1,-7,7,1", header="k,b,a,t")
    assert firsts(examine(tmp_path)) == [0.5, 7]


def test_only_the_newest_bytes_are_read(tmp_path):
    for number in range(3):
        write_csv(tmp_path / f"{number}.csv", *rows(100, start=number * 100))
    whole = sum(path.stat().st_size for path in tmp_path.iterdir())
    size_bytes = (tmp_path / "2.csv").stat().st_size
    reading = examine(
        tmp_path, windowing=SINGLE, retention=Retention(most_read_bytes=size_bytes + 200)
    )
    found = firsts(reading)
    assert found[-100:] == [row + 0.5 for row in range(200, 300)]
    assert 5 < len(found) - 100 < 20
    assert found[0] == 200 - (len(found) - 100) + 0.5
    assert reading.files == 2
    assert whole - reading.skipped_bytes < size_bytes + 250
    # Where in the file a line stands is not known then, and not made up.
    path = write_csv(tmp_path / "2.csv", *rows(50), "1,nan,0,1", *rows(5))
    tail = examine(path, windowing=SINGLE, retention=Retention(most_read_bytes=100))
    assert tail.first_places[LeftOut.MISSING_VALUE] == "2.csv"


def test_files_without_a_header_take_names_from_the_settings(tmp_path):
    path = write_csv(tmp_path / "log.csv", *rows(1), header="9,9.5,9,1")
    form = CsvFormat(names=("t", "a", "b", "k"))
    reading = examine(path, csv=form, windowing=SINGLE)
    assert firsts(reading) == [9.5, 0.5]


def test_other_encodings(tmp_path):
    columns = Columns(channels=("Höhe",), label="k")
    path = tmp_path / "log.csv"
    path.write_bytes("Höhe,k\n1,0\n".encode("cp1252"))
    error = refusal(lambda: examine(path, columns=columns, windowing=SINGLE))
    assert error.code == "E-DATA-ENCODING"
    form = CsvFormat(encoding="cp1252")
    assert firsts(examine(path, columns=columns, windowing=SINGLE, csv=form)) == [1]
    path.write_bytes("Höhe,k\n1,0\n".encode("utf-16"))
    assert "UTF-16" in str(refusal(lambda: examine(path, columns=columns, windowing=SINGLE)))


def test_missing_columns_are_named_with_those_that_are_near(tmp_path):
    path = write_csv(tmp_path / "log.csv", "1,2,3,4", header="time,acc_x,acc_y,activity")
    columns = Columns(time="tme", channels=("acc_x", "acc_z"), label="activity")
    error = refusal(lambda: examine(path, columns=columns))
    assert error.code == "E-DATA-COLUMN"
    assert "'tme', 'acc_z'" in error.expected
    assert "did you mean time?" in error.advice


@pytest.mark.parametrize("content", [b"", b"\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_no_data_yet(tmp_path, content):
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    assert refusal(lambda: examine(path)).code == "E-DATA-EMPTY"


def test_no_example_says_why(tmp_path):
    path = write_csv(tmp_path / "log.csv", *rows(2, label=""), "1,nan,1,1")
    error = refusal(lambda: RowSource(csv_settings(path), "log.csv").read())
    assert error.code == "E-DATA-EMPTY"
    assert (
        "3 rows; rows without a label: 2, rows with a missing value, NaN or infinity: 1"
        in error.found
    )
    assert refusal(lambda: examine(tmp_path / "none.csv")).code == "E-DATA-MISSING"
    (tmp_path / "folder").mkdir()
    assert refusal(lambda: examine(tmp_path / "folder")).code == "E-DATA-EMPTY"


def test_a_recording_that_is_too_short_says_so(tmp_path):
    path = write_csv(tmp_path / "log.csv", *rows(1))
    assert examine(path).left_out == {LeftOut.SHORT_RUN: 1}


def test_new_rows_count_at_the_next_reading(tmp_path):
    path = write_csv(tmp_path / "log.csv", *rows(2))
    source = RowSource(csv_settings(path), "log.csv")
    assert source.read().examples == 1
    write_csv(path, *rows(6))
    assert source.read().examples == 3


def test_what_is_left_out_is_logged_without_values(tmp_path, caplog):
    path = write_csv(tmp_path / "log.csv", *rows(2), "7,nan,1234.5,1")
    with caplog.at_level(logging.INFO):
        RowSource(csv_settings(path), "log.csv").read()
    assert "1 examples; left out: rows with a missing value, NaN or infinity: 1" in caplog.text
    assert "1234.5" not in caplog.text


def test_target_values_are_columns(tmp_path):
    path = write_csv(tmp_path / "log.csv", "0,1,60,1.5", "1,2,62,nan", "2,3,64,2.5")
    columns = Columns(time="t", channels=("a",), targets=("b", "k"))
    windowing = Windowing(length=1, stride=1, target_rule=TargetRule.LAST)
    reading = examine(path, columns=columns, windowing=windowing)
    assert reading.y.dtype == np.float32
    assert reading.y.tolist() == [[60, 1.5], [64, 2.5]]
    assert reading.faulty_values == {"k": 1}
    schema = DataSchema(input_shape=(1, 1), values=2)
    assert reading.training_data(schema, "log.csv").examples == 2


def test_tokens_must_be_whole(tmp_path):
    path = write_csv(tmp_path / "log.csv", "0,7,0,1", "1,7.5,0,1", "2,9,0,1")
    columns = Columns(time="t", channels=("a",), label="k")
    reading = examine(
        path, columns=columns, windowing=Windowing(length=1, stride=1, is_tokens=True)
    )
    assert reading.x.tolist() == [[[7]], [[9]]]
    assert reading.x.dtype == np.int64


@pytest.mark.parametrize(
    ("shape", "expected"), [((2, 2), (2, 2)), ((3, 2), (3, 2)), ((2, 3), (2, 3)), ((2,), (2,))]
)
def test_a_short_spelling_goes_by_names_and_the_models_input(tmp_path, shape, expected):
    path = write_csv(tmp_path / "log.csv", *rows(6), header="time_s,ax,ay,label")
    data = open_source(str(path)).read(DataSchema(input_shape=shape, classes=2))
    assert data.x.shape == (6 * 2 // int(np.prod(expected)), *expected)


def test_a_short_spelling_of_values(tmp_path):
    path = write_csv(tmp_path / "log.csv", *rows(2), header="time_ms,ax,target_a,target_b")
    data = open_source(str(path)).read(DataSchema(input_shape=(1,), values=2))
    assert data.y.tolist() == [[0, 1], [-1, 1]]


def test_a_short_spelling_that_does_not_suffice(tmp_path):
    path = write_csv(tmp_path / "log.csv", *rows(6), header="time_s,ax,ay,label")
    source = open_source(str(path))
    alone = source.examine()
    assert alone.x.shape == (6, 1, 2)
    assert alone.notes == ("without a model each row is looked at by itself",)
    for shape in ((64, 6), (1, 2, 2), (3,), ()):
        error = refusal(lambda shape=shape: source.read(DataSchema(input_shape=shape)))
        assert error.code == "E-DATA-WINDOW"
    write_csv(path, *rows(6))
    assert refusal(source.read).code == "E-DATA-COLUMN"


@settings(max_examples=150)
@given(content=st.binary(max_size=400), is_after_header=st.booleans())
def test_any_bytes_give_examples_or_a_data_error(content, is_after_header, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes((b"t,a,b,k\n" if is_after_header else b"") + content)
    try:
        data = RowSource(csv_settings(path, windowing=SINGLE), "any.csv").read()
    except DataError as error:
        assert "\n" not in str(error)  # noqa: PT017 - an error is one of two good outcomes
        return
    assert np.isfinite(data.x).all()


@settings(max_examples=100)
@given(position=st.integers(0, 10_000), junk=st.binary(min_size=1, max_size=40))
def test_junk_within_a_file_spoils_only_the_lines_it_touches(position, junk, tmp_path_factory):
    content = write_csv(tmp_path_factory.getbasetemp() / "junk.csv", *rows(60)).read_bytes()
    start = 8 + position % (len(content) - 8)
    path = tmp_path_factory.getbasetemp() / "junk.csv"
    path.write_bytes(content[:start] + junk.replace(b"\n", b"") + content[start:])
    reading = RowSource(csv_settings(path, windowing=SINGLE), "junk.csv").examine()
    assert len(reading.x) >= 59


def test_columns_are_settled_once(tmp_path):
    assert COLUMNS.names == ("t", "a", "b", "k")
    assert examine(write_csv(tmp_path / "log.csv", *rows(2))).channels == ("a", "b")
