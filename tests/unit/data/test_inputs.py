"""Reading for prediction: labels, or values, are not needed, and are kept where there are some."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from edgefl.data.reading import LeftOut
from edgefl.data.row_source import RowSource
from edgefl.data.schema import DataSchema
from edgefl.data.settings import (
    BadRows,
    Columns,
    CsvFormat,
    Kind,
    Labels,
    Layout,
    Retention,
    SourceSettings,
    TargetRule,
    Windowing,
)
from edgefl.data.source import open_source
from edgefl.training.base import TrainingData
from tests.unit.data.recordings import COLUMNS, csv_settings, refusal, rows, write_csv, write_table

SCHEMA = DataSchema(input_shape=(2, 2), classes=3)
VALUES = DataSchema(input_shape=(2,), values=2)


def read(path, **changes):
    return RowSource(csv_settings(path, **changes), path.name).read_inputs(SCHEMA)


def known(data):
    """Return each row's label, None where there is none."""
    pairs = zip(data.y.tolist(), data.has_target.tolist(), strict=True)
    return [label if has_target else None for label, has_target in pairs]


def table(path, **changes):
    settings = {"columns": COLUMNS, "windowing": Windowing(length=2, stride=2)} | changes
    return RowSource(SourceSettings(kind=Kind.SQLITE, path=path, table="log", **settings), "log")


# ------------------------------------------------------------------ rows


def test_labelled_rows_give_the_windows_of_training(tmp_path):
    path = write_csv(tmp_path / "log.csv", *rows(4, "1"), *rows(3, "2", 4), *rows(4, "0", 20))
    for changes in ({}, {"windowing": Windowing(length=2, stride=1, max_gap_s=5.0)}):
        source = RowSource(csv_settings(path, **changes), path.name)
        trained, found = source.read(SCHEMA), source.read_inputs(SCHEMA)
        assert np.array_equal(found.x, trained.x)
        assert np.array_equal(found.y, trained.y)
        assert found.has_target.all()


@pytest.mark.parametrize("label", ["", "?", "running", "-1", "1.5", "nan"])
def test_rows_without_a_usable_label_count(tmp_path, label):
    path = write_csv(tmp_path / "log.csv", *rows(2), *rows(2, label, 2), *rows(2, "2", 4))
    data = read(path)
    assert data.examples == 3
    assert known(data) == [1, None, 2]
    assert data.spans_s.tolist() == [[0, 1], [2, 3], [4, 5]]
    source = RowSource(csv_settings(path, bad_rows=BadRows.REFUSE), path.name)
    assert source.read_inputs(SCHEMA).examples == 3
    reading = RowSource(csv_settings(path), path.name).examine(SCHEMA, needs_targets=False)
    assert reading.left_out_text() == ""


def test_a_label_beyond_the_models_classes_is_none(tmp_path):
    assert known(read(write_csv(tmp_path / "log.csv", *rows(2, "2"), *rows(2, "3", 2)))) == [
        2,
        None,
    ]


@pytest.mark.parametrize("rule", [TargetRule.MAJORITY, TargetRule.LAST, TargetRule.WHOLE])
def test_a_window_has_a_label_if_all_its_rows_have_one(tmp_path, rule):
    labels = ["1", "", "", "1", "1", "1", "0", "2"]
    log = [rows(1, label, start)[0] for start, label in enumerate(labels)]
    windowing = Windowing(length=2, stride=2, target_rule=rule)
    last = None if rule is TargetRule.WHOLE else 2
    data = read(write_csv(tmp_path / "log.csv", *log), windowing=windowing)
    assert known(data) == [None, None, 1, last]


def test_bad_rows_and_gaps_count_as_in_training(tmp_path):
    log = [*rows(2, ""), "2,x,0,1", *rows(2, "", 3), "bad", *rows(1, "", 6)]
    path = write_csv(tmp_path / "log.csv", *log)
    data = read(path)
    assert data.x[:, :, 0].tolist() == [[0.5, 1.5], [3.5, 4.5]]
    assert refusal(lambda: read(path, bad_rows=BadRows.REFUSE)).code == "E-DATA-ROWS"
    reading = RowSource(csv_settings(path), path.name).examine(SCHEMA, needs_targets=False)
    assert reading.left_out == {
        LeftOut.NOT_A_NUMBER: 1,
        LeftOut.WIDTH: 1,
        LeftOut.SHORT_RUN: 1,
    }


def test_the_newest_windows_are_kept_and_come_last(tmp_path):
    path = write_csv(tmp_path / "log.csv", *rows(20, ""))
    data = read(path, retention=Retention(most_windows=3))
    assert data.x[:, 0, 0].tolist() == [14.5, 16.5, 18.5]
    newest = data.newest(2)
    assert newest.x[:, 0, 0].tolist() == [16.5, 18.5]
    assert newest.spans_s.tolist() == [[16, 17], [18, 19]]
    assert newest.examples == len(newest.y) == len(newest.has_target) == 2
    assert data.newest(99).examples == 3


def test_the_label_column_may_be_absent_in_some_files_or_all(tmp_path):
    write_csv(tmp_path / "1.csv", "0,5,0", "1,5,0", header="t,a,b")
    assert known(read(tmp_path)) == [None]
    write_csv(tmp_path / "2.csv", "2,1,0,2", "2,2,0,2", header="k,a,b,t")
    write_csv(tmp_path / "3.csv", "3,7,0", "3,8,0", header="t,a,b")
    data = read(tmp_path)
    assert known(data) == [None, 2, None]
    assert data.x[:, 0, 0].tolist() == [5, 1, 7]
    source = RowSource(csv_settings(tmp_path), "log")
    assert source.read(SCHEMA).examples == 1


def test_other_columns_must_be_there(tmp_path):
    path = write_csv(tmp_path / "log.csv", "0,5,1", "1,5,1", header="t,a,k")
    error = refusal(lambda: read(path))
    assert error.code == "E-DATA-COLUMN"
    assert "'b'" in error.expected
    assert "'k'" not in error.expected


def test_without_a_header_each_row_still_has_all_fields(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("0,1,2,\n1,1,2,\n")
    assert known(read(path, csv=CsvFormat(names=("t", "a", "b", "k")))) == [None]


def test_a_short_spelling_needs_no_label_column(tmp_path):
    path = write_csv(tmp_path / "log.csv", "0,1,2", "1,3,4", header="time_s,a,b")
    data = open_source(str(path)).read_inputs(SCHEMA)
    assert data.x.tolist() == [[[1, 2], [3, 4]]]
    assert known(data) == [None]
    assert refusal(open_source(str(path)).read).code == "E-DATA-COLUMN"


@pytest.mark.parametrize("field", ["", "x", "nan", "1e300", "inf"])
@pytest.mark.parametrize("rule", [TargetRule.LAST, TargetRule.MEAN])
def test_values_that_are_missing_are_no_defect(tmp_path, field, rule):
    columns = Columns(channels=("a",), targets=("v", "w"))
    path = write_csv(
        tmp_path / "log.csv", f"1,5,{field}", "2,5,6", "3,1,2", "4,3,4", header="a,v,w"
    )
    source = RowSource(
        csv_settings(
            path,
            columns=columns,
            windowing=Windowing(length=2, stride=2, layout=Layout.FLAT, target_rule=rule),
            bad_rows=BadRows.REFUSE,
        ),
        "log",
    )
    data = source.read_inputs(VALUES)
    assert data.x.tolist() == [[1, 2], [3, 4]]
    assert data.has_target.tolist() == [False, True]
    assert data.y[1].tolist() == ([3, 4] if rule is TargetRule.LAST else [2, 3])
    assert data.spans_s is None


def test_columns_of_values_may_be_absent(tmp_path):
    columns = Columns(channels=("a",), targets=("v", "w"))
    path = write_csv(tmp_path / "log.csv", "1,5", "2,5", header="a,v")
    windowing = Windowing(length=2, stride=2, layout=Layout.FLAT, target_rule=TargetRule.LAST)
    source = RowSource(csv_settings(path, columns=columns, windowing=windowing), "log")
    assert source.read_inputs(VALUES).has_target.tolist() == [False]


def test_names_of_classes_go_along(tmp_path):
    path = write_csv(tmp_path / "log.csv", *rows(2, "walk"), *rows(2, "fly", 2))
    data = read(path, labels=Labels(classes=("rest", "walk", "run")))
    assert data.class_names == ("rest", "walk", "run")
    assert known(data) == [1, None]


def test_a_table_with_and_without_labels(tmp_path):
    path = write_table(
        tmp_path / "log.db", [(0, 1, 2, 1), (1, 3, 4, 1), (2, 5, 6, None), (3, 7, 8, 1)]
    )
    data = table(path).read_inputs(SCHEMA)
    assert known(data) == [1, None]
    assert data.spans_s.tolist() == [[0, 1], [2, 3]]
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE log DROP COLUMN k")
        database.execute("CREATE VIEW later AS SELECT t AS time_s, a, b FROM log")
    assert np.array_equal(table(path).read_inputs(SCHEMA).x, data.x)
    assert refusal(lambda: table(path).read(SCHEMA)).code == "E-DATA-COLUMN"
    view = open_source(f"{path}:later").read_inputs(SCHEMA)
    assert np.array_equal(view.x, data.x)
    assert known(view) == [None, None]


# ------------------------------------------------------------------ ready examples

X = np.arange(12, dtype=np.float32).reshape(3, 2, 2)


@pytest.mark.parametrize(
    ("y", "labels"),
    [
        (None, [None, None, None]),
        ([0, 2, 1], [0, 2, 1]),
        ([0, -1, 3], [0, None, None]),
        ([0.5, 1.5, 2.5], [None, None, None]),
        (["a", "b", "c"], [None, None, None]),
        ([0, 1], [None, None, None]),
        ([0, 1, 2, 2], [None, None, None]),
        ([[0.0], [1.0], [2.0]], [None, None, None]),
        (3, [None, None, None]),
    ],
)
def test_an_npz_with_any_y_or_none(tmp_path, y, labels):
    path = tmp_path / "mine.npz"
    np.savez(path, x=X, **({} if y is None else {"y": y}))
    data = open_source(str(path)).read_inputs(SCHEMA)
    assert np.array_equal(data.x, X)
    assert known(data) == labels
    is_refused = y is not None and labels == [None, None, None]
    assert bool(data.notes) is is_refused


def test_values_of_an_npz(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, x=X[:, 0], y=[[1.0, 2.0], [np.nan, 1.0], [np.inf, 0.0]])
    data = open_source(str(path)).read_inputs(VALUES)
    assert data.has_target.tolist() == [True, False, False]
    np.savez(path, x=X[:, 0], y=[1.0, 2.0, 3.0])
    assert not open_source(str(path)).read_inputs(VALUES).has_target.any()


def test_x_must_fit_and_be_finite(tmp_path):
    path = tmp_path / "mine.npz"
    for x, code in (
        (X[:, 0], "E-DATA-SHAPE"),
        (np.where(X == 5, np.nan, X), "E-DATA-NOT-FINITE"),
        (X[:0], "E-DATA-EMPTY"),
        (np.full((1, 2, 2), "a"), "E-DATA-DTYPE"),
        (np.float32(1), "E-DATA-LENGTH"),
    ):
        np.savez(path, x=x)
        assert refusal(lambda: open_source(str(path)).read_inputs(SCHEMA)).code == code
    np.savez(path, y=[1])
    assert refusal(lambda: open_source(str(path)).read_inputs(SCHEMA)).code == "E-DATA-KEYS"


def test_a_folder_of_npz_files_with_and_without_y(tmp_path):
    np.savez(tmp_path / "1.npz", x=X, y=[0, 1, 2])
    np.savez(tmp_path / "2.npz", x=X + 100)
    np.savez(tmp_path / "3.npz", x=X + 200, y=[2, 1])
    data = open_source(str(tmp_path)).read_inputs(SCHEMA)
    assert known(data) == [0, 1, 2, *[None] * 6]
    assert data.x[3:, 0, 0].tolist() == [100, 104, 108, 200, 204, 208]


def test_bad_examples_are_left_out_whatever_their_targets(tmp_path):
    (tmp_path / "s.toml").write_text(
        '[source]\nkind = "npz"\npath = "mine.npz"\nbad_rows = "drop"\n[keep]\nmost_windows = 2\n'
        '[labels]\nclasses = ["a", "b"]\n'
    )
    np.savez(tmp_path / "mine.npz", x=[[1, 1], [np.nan, 2], [3, 3]], y=np.full((3, 2), np.nan))
    data = open_source(str(tmp_path / "s.toml")).read_inputs(VALUES)
    assert data.x.tolist() == [[3, 3]]


@pytest.mark.parametrize(
    ("returned", "labels"),
    [
        ("X", [None, None]),
        ("(X, None)", [None, None]),
        ("(X, [0, 1])", [0, 1]),
        ("(X, [1, -1])", [1, None]),
        ("(X, ['a', None])", [None, None]),
        ("(X, [1])", [None, None]),
        ("([[[1, 2], [3, 4]]], [2])", [2]),
    ],
)
def test_a_function_may_return_x_alone(tmp_path, returned, labels):
    path = tmp_path / "mine.py"
    path.write_text(f"import numpy\nX = numpy.ones((2, 2, 2))\ndef f(): return {returned}\n")
    assert known(open_source(f"{path}:f").read_inputs(SCHEMA)) == labels


def test_training_needs_y_from_a_function(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import numpy\ndef f(): return numpy.ones((2, 2, 2))\ndef g(): return [1, 2, 3]\n"
    )
    error = refusal(open_source(f"{path}:f").read)
    assert error.code == "E-DATA-PYTHON"
    assert "x alone" in error.found
    # A list may be meant as rows or as x and y.
    assert refusal(open_source(f"{path}:g").read_inputs).code == "E-DATA-PYTHON"


def test_the_shipped_recordings_carry_labels_and_names():
    source = open_source("spar:1-left")
    data, trained = source.read_inputs(), source.read()
    assert np.array_equal(data.x, trained.x)
    assert known(data) == trained.y.tolist()
    assert data.class_names[0] == "PEN"
    assert isinstance(trained, TrainingData)
