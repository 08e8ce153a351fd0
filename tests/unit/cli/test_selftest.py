"""`edgefl selftest crypto`: everything holds here, and what does not hold is code 6."""

import json

import pytest

from edgefl import _native
from edgefl.cli import selftest
from edgefl.errors import EnvironmentProblem


def test_the_report_has_its_documented_form(run) -> None:
    ran = run("selftest", "crypto", "--json")
    assert ran.code == 0
    report = json.loads(ran.out)
    assert set(report) == {"vectors", "backends"}
    assert report["vectors"] == {"passed": len(_native.selftest()), "failed": 0}
    rows = {(row["prg"], row["backend"], row["lane_bits"]) for row in report["backends"]}
    expected = {
        (prg, backend, lane_bits)
        for prg, backends in _native.backends().items()
        for backend in backends
        for lane_bits in (16, 32)
    }
    assert rows == expected
    assert len(report["backends"]) == len(rows)
    for row in report["backends"]:
        assert set(row) == {"prg", "backend", "lane_bits", "ns_per_coordinate"}
        assert 0.001 < row["ns_per_coordinate"] < 10_000


def test_people_see_which_code_is_used(run) -> None:
    ran = run("selftest", "crypto")
    assert ran.code == 0
    assert ran.out.startswith(f"{len(_native.selftest())} checks passed, 0 failed\n")
    for prg, backends in _native.backends().items():
        used = [line.split()[1] for line in ran.out.splitlines() if line.endswith("used")]
        assert backends[0] in used, prg
    declared = "yes" if _native.has_aes_hardware() else "no"
    assert ran.out.endswith(f"fleet: {declared}\n")


def test_a_failed_vector_is_an_integrity_error(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        selftest._native, "selftest", lambda: [("AES-128, FIPS 197 C.1", False), ("HKDF", True)]
    )
    ran = run("selftest", "crypto", "--json")
    assert ran.code == 6
    assert json.loads(ran.out)["vectors"] == {"passed": 1, "failed": 1}
    assert "E-SELFTEST: expected AES-128, FIPS 197 C.1" in ran.err


def test_code_that_is_not_there_is_refused() -> None:
    for prg, backend, lane_bits in [
        ("aes-128-ctr", "avx2", 32),
        ("chacha20", "vaes", 16),
        ("chacha20", "portable", 8),
        ("rc4", "portable", 16),
    ]:
        with pytest.raises(EnvironmentProblem, match="E-BACKEND"):
            _native.measure_backend(prg, backend, lane_bits)
