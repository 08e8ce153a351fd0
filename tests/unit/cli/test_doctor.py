"""`edgefl doctor`: what is wrong fails it, what is merely absent does not."""

import datetime
import json
import socket
from pathlib import Path

import pytest

import edgefl
from edgefl.cli import doctor, packages
from edgefl.cli.doctor import Status


def test_this_installation_is_sound(run, tmp_path: Path) -> None:
    ran = run("doctor", "--state", tmp_path, "--port", 0, "--json")
    report = json.loads(ran.out)
    assert ran.code == 0
    assert report["ok"] is True
    names = {check["name"] for check in report["checks"]}
    assert {"python", "native core", "import package", "backend onnx/cpu", "clock"} <= names
    assert not list(tmp_path.iterdir()), "a check left something behind"


def test_a_package_that_does_not_load_is_named_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cbor2").mkdir()
    (tmp_path / "cbor2" / "__init__.py").write_text("raise ImportError('libm.so.9: no such file')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in doctor.sys.modules if name.split(".")[0] == "cbor2"]:
        monkeypatch.delitem(doctor.sys.modules, name)
    check = doctor.check_required("cbor2", "cbor2")
    assert check.status is Status.WRONG
    assert "libm.so.9" in check.found
    assert "pip install" in check.advice


def test_an_absent_package_is_a_note_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda _: None)
    check = doctor.check_optional("onnx")
    assert check.status is Status.NOTE
    assert "edgefl-runtime[prepare]" in check.advice


def test_a_second_owner_of_the_import_package_is_wrong(tmp_path: Path) -> None:
    assert edgefl.second_owner(tmp_path) is None
    (tmp_path / "edgefl_runtime-0.1.0.dist-info").mkdir()
    assert edgefl.second_owner(tmp_path) is None
    (tmp_path / "edgefl-0.1.0.dist-info").mkdir()
    other = edgefl.second_owner(tmp_path)
    assert other == "edgefl-0.1.0"
    check = doctor.check_owner(other, ["edgefl-runtime"])
    assert check.status is Status.WRONG
    assert "pip uninstall -y edgefl" in check.advice
    assert doctor.check_owner(None, ["edgefl-runtime", "edgefl"]).status is Status.WRONG
    assert doctor.check_owner(None, ["edgefl-runtime"]).status is Status.OK


def test_the_command_stops_where_the_wrong_package_owns_the_name(
    run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(edgefl, "DISTRIBUTION")
    refused = run("doctor")
    assert refused.code == 4
    assert refused.error().startswith("E-PACKAGE-OWNER")


def test_a_folder_that_cannot_be_written_is_wrong(run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = run("doctor", "--state", tmp_path / "file" / "state", "--port", 0)
    assert ran.code == 4
    line = next(line for line in ran.out.splitlines() if "state folder" in line)
    assert line.startswith("wrong")
    assert "--state" in line


def test_a_taken_port_is_a_note() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        check = doctor.check_port(taken.getsockname()[1])
    assert check.status is Status.NOTE
    assert "--port" in check.advice


def test_a_clock_that_was_never_set_is_wrong() -> None:
    boot = datetime.datetime(1970, 1, 1, 0, 3, tzinfo=datetime.UTC)
    check = doctor.check_clock(boot)
    assert check.status is Status.WRONG
    assert "1970-01-01" in check.found
    assert doctor.check_clock(datetime.datetime.now(tz=datetime.UTC)).status is Status.OK


def test_a_small_word_on_a_large_machine_gets_the_advice_that_helps() -> None:
    check = doctor.check_word_size(2**31 - 1, "aarch64")
    assert check.status is Status.NOTE
    assert "64-bit image" in check.advice
    assert doctor.check_word_size(2**63 - 1, "aarch64").status is Status.OK


def test_a_port_out_of_range_is_one_line(run) -> None:
    refused = run("doctor", "--port", 65536)
    assert refused.code == 2
    assert refused.error().startswith("E-PORT")
