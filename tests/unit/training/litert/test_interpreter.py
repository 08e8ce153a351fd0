"""Which interpreter is taken, and what is said where none fits."""

import importlib.machinery
import importlib.metadata
import importlib.util
import types

import pytest

from edgefl.errors import EnvironmentProblem
from edgefl.training.litert.runtime import interpreter
from edgefl.training.litert.runtime.interpreter import RELEASES, load_interpreter, require_version

LITERT, TFLITE = RELEASES


@pytest.fixture
def environment(monkeypatch):
    """Return a function that pretends that some packages are installed, with their versions."""

    def pretend(numpy="1.26.4", **packages):
        installed = {name.replace("_", "-"): version for name, version in packages.items()}
        modules = {
            release.module.partition(".")[0]: installed.get(release.distribution)
            for release in RELEASES
        }
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name: importlib.machinery.ModuleSpec(name, None) if modules.get(name) else None,
        )
        monkeypatch.setattr(importlib.metadata, "version", installed.__getitem__)
        monkeypatch.setattr(interpreter.np, "__version__", numpy)
        monkeypatch.setattr(
            importlib,
            "import_module",
            lambda name: types.SimpleNamespace(Interpreter=lambda **kwargs: (name, kwargs)),
        )

    return pretend


def test_ai_edge_litert_comes_first(environment):
    environment(ai_edge_litert="2.3.0", tflite_runtime="2.14.0")
    found = load_interpreter()
    assert (found.distribution, found.version) == ("ai-edge-litert", "2.3.0")
    assert found.create(num_threads=1) == ("ai_edge_litert.interpreter", {"num_threads": 1})


def test_tflite_runtime_is_taken_where_it_is_alone(environment):
    environment(tflite_runtime="2.14.0")
    assert load_interpreter().distribution == "tflite-runtime"


def test_neither_names_both_and_the_extras(environment):
    environment()
    with pytest.raises(EnvironmentProblem, match=r"E-LITERT-MISSING.*\[litert\].*\[tflite\]"):
        load_interpreter()


def test_numpy_2_beside_tflite_runtime_is_one_clear_error(environment):
    environment(numpy="2.4.6", tflite_runtime="2.14.0")
    with pytest.raises(EnvironmentProblem, match=r"E-LITERT-NUMPY.*numpy 2\.4\.6.*'numpy<2'"):
        load_interpreter()


def test_numpy_2_is_fine_beside_ai_edge_litert(environment):
    environment(numpy="2.4.6", ai_edge_litert="2.3.0", tflite_runtime="2.14.0")
    assert load_interpreter().distribution == "ai-edge-litert"


@pytest.mark.parametrize(
    ("release", "version"),
    [
        (LITERT, "2.0.3"),
        (LITERT, "1.4.0"),
        (LITERT, "3.0.0"),
        (LITERT, "unknown"),
        (TFLITE, "2.13.0"),
        (TFLITE, "2.15.0"),
    ],
)
def test_releases_outside_the_range_are_refused(release, version):
    with pytest.raises(EnvironmentProblem, match=r"E-LITERT-VERSION.*from 2\..* to before"):
        require_version(release, version)


@pytest.mark.parametrize(
    ("release", "version"),
    [(LITERT, "2.1.0"), (LITERT, "2.3.0"), (LITERT, "2.9.0rc1"), (TFLITE, "2.14.0")],
)
def test_releases_within_the_range_are_taken(release, version):
    require_version(release, version)


def test_a_library_that_does_not_load_is_named(environment, monkeypatch):
    environment(ai_edge_litert="2.3.0")

    def broken(_name):
        raise ImportError("version `GLIBC_2.34' not found")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(EnvironmentProblem, match=r"E-LITERT-BROKEN.*GLIBC_2\.34"):
        load_interpreter()
