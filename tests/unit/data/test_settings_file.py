"""The settings file of a source: strict, by name, with hints."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.data.settings import BadRows, Kind, Layout, TargetRule, TimeUnit
from edgefl.data.settings_file import read_settings
from edgefl.data.source import open_source
from edgefl.errors import ConfigError
from tests.unit.data.recordings import refusal, rows, write_csv

WHOLE = """
[source]
kind = "csv"
path = "log.csv"
bad_rows = "refuse"

[csv]
delimiter = ","
decimal = "."
encoding = "utf-8"
names = ["t", "a", "b", "k"]

[columns]
time = "t"
time_unit = "ms"
channels = ["a", "b"]
label = "k"
scale = [0.5, 2]
offset = 1

[window]
length = 4
stride = 2
layout = "channel-first"
shape = [2, 1, 4]
max_gap_s = 1
label_rule = "whole"
values = "float32"

[labels]
classes = ["rest", "walk"]
unlabelled = ["?"]

[keep]
most_windows = 5
most_bytes = 1000
most_age_days = 2.5
most_read_bytes = 4000
"""
LEAST = """
[source]
kind = "csv"
path = "log.csv"
[columns]
channels = ["a", "b"]
label = "k"
[window]
length = 2
"""


def save(tmp_path, text):
    path = tmp_path / "sensor.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_entry_is_taken(tmp_path):
    found = read_settings(save(tmp_path, WHOLE))
    assert (found.kind, found.path, found.bad_rows) == (
        Kind.CSV,
        tmp_path / "log.csv",
        BadRows.REFUSE,
    )
    assert found.columns.names == ("t", "a", "b", "k")
    assert found.columns.time_unit is TimeUnit.MS
    assert (found.columns.scale, found.columns.offset) == ((0.5, 2.0), (1.0, 1.0))
    window = found.windowing
    assert (window.length, window.stride, window.layout) == (4, 2, Layout.CHANNEL_FIRST)
    assert (window.shape, window.max_gap_s) == ((2, 1, 4), 1.0)
    assert window.target_rule is TargetRule.WHOLE
    assert (found.labels.classes, found.labels.unlabelled) == (("rest", "walk"), ("?",))
    keep = found.retention
    assert (keep.most_windows, keep.most_bytes, keep.most_age_days, keep.most_read_bytes) == (
        5,
        1000,
        2.5,
        4000,
    )
    assert found.csv.names == ("t", "a", "b", "k")


def test_the_least_that_suffices(tmp_path):
    found = read_settings(save(tmp_path, LEAST))
    assert (found.windowing.stride, found.windowing.target_rule) == (2, TargetRule.MAJORITY)
    assert found.bad_rows is BadRows.DROP
    write_csv(tmp_path / "log.csv", *rows(4))
    source = open_source(str(tmp_path / "sensor.toml"))
    assert source.name == "sensor.toml"
    assert source.read().examples == 2


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[keep]", "[kepe]", r"only the tables .*'?kepe.* did you mean keep\?"),
        ("length", "lenght", r"length = a whole number in \[window\]"),
        ("stride = 2", "strid = 2", r"entries of \[window\].*strid.*did you mean stride\?"),
        ("most_bytes", "most_byte", r"most_byte; did you mean most_bytes"),
        ("length = 4", "length = 4.5", r"whole number.*found 4\.5"),
        ("length = 4", "length = true", "found True"),
        ("length = 4", "length = 0", "1 to 65536 rows in sensor.toml; found 0"),
        ("length = 4", "length = 5", r"shape of 10 values .*\[2, 1, 4\]"),
        ("shape = [2, 1, 4]", "shape = [-2, -1, 4]", "whole numbers above 0"),
        ('path = "log.csv"', 'path = "a\\u0000.csv"', "a text"),
        ('kind = "csv"', 'kind = "cvs"', "'csv' or 'sqlite' or 'npz' or 'python'"),
        ('path = "log.csv"', "", r"path = a text in \[source\]"),
        ('path = "log.csv"', 'path = ""', r"path = a text in \[source\]"),
        ('label = "k"', "", "either a label column or target columns"),
        ('label = "k"', 'label = "a"', "each column in one place.*a in two"),
        ('label = "k"', 'targets = ["k"]', "label_rule = last or mean"),
        ('"whole"', '"mean"', "majority, last or whole"),
        ('channels = ["a", "b"]', "channels = []", "1 to 4096 channels"),
        ('channels = ["a", "b"]', 'channels = "a"', "a list of texts"),
        ('time = "t"', "", "a time column for max_gap_s"),
        ("scale = [0.5, 2]", "scale = [0.5]", "one scale for each of 2"),
        ("scale = [0.5, 2]", "scale = inf", "finite"),
        ("scale = [0.5, 2]", 'scale = ["x"]', "scale = a number"),
        ('values = "float32"', 'values = "int64"', "no scale and no offset for int64"),
        ('["rest", "walk"]', '["rest", "rest"]', "each label once"),
        ('unlabelled = ["?"]', 'unlabelled = ["walk"]', "each label once"),
        ("most_windows = 5", "most_windows = 0", "most_windows of 1 or more"),
        ("most_age_days = 2.5", "most_age_days = 0", "most_age_days above 0"),
        ("max_gap_s = 1", "max_gap_s = -1", "max_gap_s above 0"),
        ('delimiter = ","', 'delimiter = ", "', "one character"),
        ('decimal = "."', 'decimal = ","', "another delimiter"),
        ('encoding = "utf-8"', 'encoding = "utf-16"', "encoding = utf-8, ascii"),
        ("[window]", "[[window]]", "a table"),
        ("[labels]", "labels = 3\n[columns.more]", "TOML|a table|entries"),
        ("[window]", "[window", "TOML in"),
    ],
)
def test_what_is_not_usable_is_named(tmp_path, old, new, expected):
    assert WHOLE.count(old) == 1
    error = refusal(lambda: read_settings(save(tmp_path, WHOLE.replace(old, new))))
    assert error.code == "E-DATA-CONFIG"
    assert re.search(expected, str(error)), str(error)
    assert "sensor.toml" in str(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[source]\nkind = "npz"\npath = "x"\n[window]\nlength = 2', r"no table \[window\]"),
        ('[source]\nkind = "npz"\npath = "x"\n[csv]\ndecimal = ","', r"no table \[csv\]"),
        ('[source]\nkind = "csv"\npath = "x"', r"a table \[columns\]"),
        ('[source]\nkind = "sqlite"\npath = "x"\n[columns]\n[window]', r"table = a text"),
        ('[source]\nkind = "python"\npath = "x"\nentry = "a:b"', "entries of .source.*path"),
        ('[source]\nkind = "npz"\npath = "x"\ntable = "t"', "entries of .source.*table"),
        ('[source]\nkind = "python"\nentry = "a:b"\n[keep]\nmost_age_days = 1', "no most_age_days"),
        ("", "kind ="),
    ],
)
def test_entries_of_other_kinds_are_refused(tmp_path, text, expected):
    error = refusal(lambda: read_settings(save(tmp_path, text)))
    assert re.search(expected, str(error)), str(error)


def test_files_that_cannot_be_read(tmp_path):
    assert "No such file" in str(refusal(lambda: open_source(str(tmp_path / "none.toml"))))
    path = tmp_path / "sensor.toml"
    path.write_bytes(b"\xff")
    assert "TOML" in str(refusal(lambda: read_settings(path)))
    path.write_bytes(b"#" * 2_000_000)
    assert "at most" in str(refusal(lambda: read_settings(path)))


def test_a_python_entry_is_found_beside_the_settings(tmp_path):
    (tmp_path / "mine.py").write_text("def f(): return [[1.0]], [0]")
    path = save(tmp_path, '[source]\nkind = "python"\nentry = "mine.py:f"')
    assert open_source(str(path)).read().examples == 1


@given(
    line=st.integers(0, len(WHOLE.splitlines()) - 1),
    text=st.text(st.characters(codec="utf-8"), max_size=20),
)
def test_any_line_gives_settings_or_one_error(line, text, tmp_path_factory):
    lines = WHOLE.splitlines()
    lines[line] = text
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text("\n".join(lines), encoding="utf-8", newline="")
    try:
        read_settings(path)
    except ConfigError as error:
        assert error.code == "E-DATA-CONFIG"  # noqa: PT017 - an error is one of two good outcomes
