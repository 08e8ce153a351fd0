"""A user's function as a source: its errors are one line with the user's file and line."""

import sys

import numpy as np
import pytest

from edgefl.data.python_entry import is_entry
from edgefl.data.schema import DataSchema
from edgefl.data.source import open_source
from tests.unit.data.recordings import refusal

GOOD = """
import numpy as np
calls = 0

def windows():
    global calls
    calls += 1
    return np.ones((calls, 2)), [0] * calls
"""


def script(tmp_path, text, function="windows"):
    path = tmp_path / "sensor.py"
    path.write_text(text)
    return open_source(f"{path}:{function}")


def test_the_function_is_called_anew_each_time(tmp_path):
    source = script(tmp_path, GOOD)
    assert source.read().examples == 1
    data = source.read(DataSchema(input_shape=(2,), classes=1))
    assert data.examples == 2
    assert data.x.dtype == np.float32


def test_no_code_runs_before_the_first_reading(tmp_path):
    script(tmp_path, "raise RuntimeError('ran')")


def test_an_installed_module_is_found_by_name(tmp_path, monkeypatch):
    (tmp_path / "my_sensor_package.py").write_text(GOOD)
    monkeypatch.syspath_prepend(str(tmp_path))
    source = open_source("my_sensor_package:windows")
    assert source.name == "my_sensor_package:windows"
    assert source.read().examples == 1
    del sys.modules["my_sensor_package"]


@pytest.mark.parametrize(
    ("text", "found", "line"),
    [
        ("def windows():\n    return 1 / 0\n", "ZeroDivisionError: division by zero", 2),
        ("import nothing_like_this\n", "ModuleNotFoundError", 1),
        ("def windows()\n", "SyntaxError", 1),
        ("def windows():\n    exit(3)\n", "SystemExit: 3", 2),
        ("def windows():\n    raise ValueError('a\\nb')\n", "ValueError: a b", 2),
        (
            "import json\ndef windows():\n    return json.loads('x')\n",
            "JSONDecodeError",
            3,
        ),
        (
            "import numpy\ndef windows():\n    return numpy.linalg.inv(numpy.zeros((2, 2)))\n",
            "LinAlgError: Singular matrix",
            3,
        ),
    ],
)
def test_an_error_in_it_is_one_line_with_its_place(tmp_path, text, found, line):
    error = refusal(script(tmp_path, text).read)
    assert error.code == "E-DATA-PYTHON"
    assert found in error.found
    assert f"sensor.py:{line})" in error.found
    assert error.__cause__ is not None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("windows = 3", "int"),
        ("def other(): ...", "none"),
        ("def windows(): return None", "NoneType"),
        ("def windows(): return [1], [2], [3]", "list"),
        ("def windows(): return [[1.0], [1.0, 2.0]], [0, 1]", "different lengths"),
        ("def windows(): return [[1.0]], [0, 1]", "[1, 1] and y of shape [2]"),
        ("def windows(): return 1.0, 0", "x of shape []"),
    ],
)
def test_other_results_are_refused(tmp_path, text, found):
    text = text.replace("return [1], [2], [3]", "return ([1], [2], [3])")
    error = refusal(script(tmp_path, text).read)
    assert error.code == "E-DATA-PYTHON"
    assert found.replace("list", "tuple") in str(error)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def windows(): return [['a']], [0]", "E-DATA-DTYPE"),
        ("def windows(): return [[object()]], [0]", "E-DATA-DTYPE"),
        ("def windows(): return [[1.0]], [0.5]", "E-DATA-DTYPE"),
        ("def windows(): return [[float('nan')]], [0]", "E-DATA-NOT-FINITE"),
        ("def windows(): return [[1.0]], [-1]", "E-DATA-LABEL"),
        ("def windows(): return [], []", "E-DATA"),
    ],
)
def test_its_examples_are_checked_as_any_others(tmp_path, text, code):
    assert refusal(script(tmp_path, text).read).code.startswith(code)


def test_what_is_missing_is_named(tmp_path):
    assert "no such file" in str(refusal(open_source(f"{tmp_path / 'none.py'}:f").read))
    assert "no_such_module_here" in str(refusal(open_source("no_such_module_here:f").read))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b:c", True),
        ("folder/a.py:c", True),
        ("a:b.c", False),
        ("folder/a:c", False),
        ("a", False),
        (":c", False),
        ("a:", False),
    ],
)
def test_spellings(text, expected):
    assert is_entry(text) is expected


def test_a_dataclass_in_a_script_works(tmp_path):
    text = (
        "from __future__ import annotations\nimport dataclasses\n"
        "@dataclasses.dataclass\nclass Row:\n    value: float\n"
        "def windows(): return [[Row(2.0).value]], [0]\n"
    )
    assert script(tmp_path, text).read().x.tolist() == [[2.0]]
