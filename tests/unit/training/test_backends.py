"""Backends are tried in real child processes, with packages that crash, hang or lack a part."""

import dataclasses
import subprocess
import sys

import pytest

from edgefl.errors import EnvironmentProblem
from edgefl.training import backends
from edgefl.training.backends import Backend, ProbedBackend, backend_for, choose_backend, probe
from edgefl.training.kinds import Provider, Runtime
from edgefl.training.probe import package_version
from edgefl.training.selftest import PROBE_CASE, case_names, load_case, run_case

ONNX = Backend(runtime=Runtime.ONNX)
CUDA = Backend(runtime=Runtime.ONNX, provider=Provider.CUDA)
LITERT = Backend(runtime=Runtime.LITERT)


@pytest.fixture
def fake_package(tmp_path, monkeypatch):
    """Put a module of one's own before the installed one, in this process's children only."""

    def install(name, code):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return install


def test_the_installed_onnxruntime_infers_and_trains():
    found = probe(ONNX)
    assert (found.infers, found.trains, found.reason) == (True, True, "")
    assert found.version == package_version(Runtime.ONNX)
    assert "onnxruntime" not in str(found) or "training yes" in str(found)


def test_a_package_that_crashes_is_a_reason(fake_package):
    fake_package("onnxruntime", "import os\nos.abort()\n")
    found = probe(ONNX)
    assert (found.infers, found.trains) == (False, False)
    assert "signal 6" in found.reason


def test_a_package_that_hangs_is_a_reason(fake_package):
    fake_package("onnxruntime", "import time\ntime.sleep(60)\n")
    assert probe(ONNX, timeout_s=2).reason == "no answer within 2 s"


def test_a_package_without_what_is_needed_is_a_reason(fake_package):
    fake_package("onnxruntime", "__version__ = '0.1'\n")
    found = probe(ONNX)
    assert (found.infers, found.trains) == (False, False)
    assert "no attribute" in found.reason


def test_a_processor_that_the_package_lacks_is_a_reason():
    found = probe(CUDA)
    assert not found.trains
    assert "E-PROVIDER" in found.reason


def test_a_runtime_that_computes_wrongly_does_not_train():
    case = load_case(PROBE_CASE)
    wrong = type(case)(**{**_fields(case), "update": case.update * 1.01})
    result = run_case(wrong, ONNX)
    assert (result.infers, result.trains) == (True, False)
    assert "updates differ" in result.reason
    wrong = type(case)(**{**_fields(case), "outputs": case.outputs + 0.1})
    result = run_case(wrong, ONNX)
    assert not result.infers
    assert "outputs differ" in result.reason


@pytest.mark.parametrize("name", case_names())
def test_every_case_of_the_selftest_holds_here(name):
    case = load_case(name)
    for program in case.bundle.manifest.programs:
        result = run_case(case, Backend(runtime=program.runtime))
        assert (result.infers, result.trains) == (True, True), result
        # Far within what is allowed, so that another processor's rounding is no alarm.
        assert result.worst < case.tolerance / 3


def test_what_is_asked_for_and_missing_is_one_line():
    with pytest.raises(EnvironmentProblem) as caught:
        choose_backend(provider=Provider.CUDA)
    assert caught.value.code == "E-NO-BACKEND"
    assert "onnx/cuda" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_installed_is_said(monkeypatch):
    monkeypatch.setattr(backends, "may_be_there", lambda _: False)
    with pytest.raises(EnvironmentProblem, match=r"E-NO-BACKEND.*edgefl-runtime\[onnx\]"):
        choose_backend()


def test_the_bundle_decides_among_the_backends_that_work():
    manifest = load_case(PROBE_CASE).bundle.manifest
    able = [ProbedBackend(backend=one, infers=True, trains=True) for one in (LITERT, ONNX)]
    only_onnx = _with_programs(manifest, Runtime.ONNX)
    assert backend_for(only_onnx, able) == ONNX
    with pytest.raises(EnvironmentProblem, match="E-BUNDLE-RUNTIME"):
        backend_for(only_onnx, able[:1])


def test_probing_loads_nothing_into_this_process():
    code = (
        "import sys; from edgefl.training.backends import probe, Backend; "
        "from edgefl.training.kinds import Runtime; found = probe(Backend(runtime=Runtime.ONNX)); "
        "assert found.trains, found; "
        "sys.exit('onnxruntime' in sys.modules or 'onnx' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _fields(case):
    return {name: getattr(case, name) for name in case.__dataclass_fields__}


def _with_programs(manifest, *runtimes):
    kept = tuple(program for program in manifest.programs if program.runtime in runtimes)
    return dataclasses.replace(manifest, programs=kept)


def test_the_cases_are_what_their_script_makes():
    code = "import sys; from tests.vectors.make_selftest import main; sys.argv[1:] = ['--check']; "
    ran = subprocess.run(
        [sys.executable, "-c", code + "sys.exit(main())"], check=False, capture_output=True
    )
    assert ran.returncode == 0, ran
