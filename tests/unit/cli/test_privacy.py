"""`edgefl privacy`: the figures are those of the accounting, and a damaged ledger is said aloud."""

import json
import math
from pathlib import Path

import pytest

from broker.ledger import LedgerFile
from edgefl.privacy.epsilons import epsilon_report
from edgefl.privacy.ledger import make_release
from edgefl.privacy.plan import PrivacyPlan, make_privacy_plan

_PLAN_WORDS = ("--noise-multiplier", 0.8, "--rounds", 12, "--cohort", 40, "--dimension", 500)


def _plan(noise_multiplier: float = 0.8) -> PrivacyPlan:
    return make_privacy_plan(
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
        n_cohort=40,
        survivor_floor=30,
        colluders=2,
        dimension=500,
        delta=1e-6,
        epsilon_budget=1e6,
        rounds=12,
    )


def _ledger(path: Path, releases: int) -> str:
    plan = _plan()
    with LedgerFile.create(path) as ledger:
        for number in range(releases):
            ledger.append(
                make_release(
                    plan,
                    task="shoulder",
                    round_number=number + 1,
                    attempt=number + 1,
                    session_id=bytes([number]) * 32,
                    n_survivors=31,
                )
            )
        return ledger.ledger.head


def test_the_figures_are_those_of_the_accounting(run) -> None:
    ran = run(
        "privacy", "epsilon", *_PLAN_WORDS, "--survivor-floor", 30, "--colluders", 2,
        "--delta", "1e-6", "--json",
    )  # fmt: skip
    facts = json.loads(ran.out)
    report = epsilon_report(_plan(), 12)
    assert facts["epsilon_server"] == pytest.approx(report.server, rel=1e-12)
    assert facts["epsilon_two_devices"] == pytest.approx(report.two_devices, rel=1e-12)
    assert facts["epsilon_release"] == pytest.approx(report.release, rel=1e-12)
    assert facts["epsilon_server_published_orders"] >= facts["epsilon_server"]
    assert facts["cohort_for_epsilon_8"] > 0


def test_people_get_each_observer_by_name(run) -> None:
    shown = run("privacy", "epsilon", *_PLAN_WORDS).out
    for words in ("against the gateway", "readers of the models", "two devices", "epsilon 8"):
        assert words in shown


def test_without_noise_nothing_is_finite(run) -> None:
    words = ("--noise-multiplier", 0, "--rounds", 1, "--cohort", 10, "--dimension", 10)
    facts = json.loads(run("privacy", "epsilon", *words, "--json").out)
    assert facts["epsilon_server"] is None
    assert facts["cohort_for_epsilon_8"] is None
    assert "infinite" in run("privacy", "epsilon", *words).out


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (("--noise-multiplier", "nan"), "E-NOISE-MULTIPLIER"),
        (("--noise-multiplier", "-1"), "E-NOISE-MULTIPLIER"),
        (("--clip-norm", "0"), "E-CLIP-NORM"),
        (("--clip-norm", "nan"), "E-CLIP-NORM"),
        (("--clip-norm", "inf"), "E-CLIP-NORM"),
        (("--survivor-floor", "41"), "E-SURVIVOR-FLOOR"),
        (("--colluders", "99"), "E-COLLUDERS"),
        (("--rounds", "0"), "E-ROUNDS"),
        (("--delta", "1"), "E-DELTA"),
        (("--dimension", "0"), "E-DIMENSION"),
    ],
)
def test_impossible_plans_are_one_line(run, changed: tuple, code: str) -> None:
    refused = run("privacy", "epsilon", *_PLAN_WORDS, *changed)
    assert refused.code == 2
    assert refused.error().startswith(f"{code}: expected ")


def test_a_whole_ledger_is_shown_and_verified(run, tmp_path: Path) -> None:
    head = _ledger(tmp_path / "ledger.jsonl", 3)
    verified = json.loads(run("privacy", "verify", tmp_path / "ledger.jsonl", "--json").out)
    assert verified == {"valid": True, "entries": 3, "head": head, "torn_bytes": 0}
    shown = json.loads(run("privacy", "show", "--state", tmp_path, "--delta", "1e-6", "--json").out)
    assert shown["tasks"] == {"shoulder": 3}
    assert shown["epsilon_server"] == pytest.approx(_plan().epsilon_after(3), rel=1e-9)
    assert "3 releases" in run("privacy", "show", "--state", tmp_path).out


def test_every_changed_byte_is_noticed(run, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    head = _ledger(path, 2)
    whole = path.read_bytes()
    assert run("privacy", "verify", path, "--head", head).code == 0
    for position in range(0, len(whole) - 1, 97):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        refused = run("privacy", "verify", path, "--head", head)
        assert refused.code == 6, position
        assert refused.error().startswith("E-LEDGER-")


def test_a_ledger_that_was_cut_back_is_noticed_by_its_head(run, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    head = _ledger(path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    assert run("privacy", "verify", path).code == 0
    refused = run("privacy", "verify", path, "--head", head)
    assert refused.code == 6
    assert refused.error().startswith("E-LEDGER-ROLLED-BACK")


def test_a_torn_last_line_is_said_and_changes_no_file(run, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    _ledger(path, 2)
    with path.open("ab") as file:
        file.write(b'{"attempt":')
    before = path.read_bytes()
    ran = run("privacy", "verify", path)
    assert ran.code == 0
    assert "unfinished last line of 11 bytes" in ran.out
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["ledger.jsonl"]


def test_a_missing_ledger_and_an_impossible_delta_are_one_line(run, tmp_path: Path) -> None:
    missing = run("privacy", "show", "--state", tmp_path)
    assert (missing.code, missing.error().split(":")[0]) == (6, "E-LEDGER-MISSING")
    _ledger(tmp_path / "ledger.jsonl", 1)
    for delta in ("0", "1", "nan"):
        refused = run("privacy", "show", "--state", tmp_path, "--delta", delta)
        assert (refused.code, refused.error().split(":")[0]) == (2, "E-DELTA")


def test_an_unlimited_charge_is_no_number_in_json(run, tmp_path: Path) -> None:
    plan = make_privacy_plan(
        clip_norm=1.0,
        noise_multiplier=0.0,
        n_cohort=10,
        survivor_floor=7,
        colluders=1,
        dimension=50,
        delta=1e-6,
        epsilon_budget=math.inf,
        rounds=1,
    )
    with LedgerFile.create(tmp_path / "ledger.jsonl") as ledger:
        ledger.append(
            make_release(
                plan, task="t", round_number=1, attempt=1, session_id=b"s" * 32, n_survivors=8
            )
        )
    shown = json.loads(run("privacy", "show", "--state", tmp_path, "--json").out)
    assert shown["epsilon_server"] is None
