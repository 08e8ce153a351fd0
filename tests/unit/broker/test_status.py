"""What is told of a gateway at a glance: its rounds' own figures, and nobody's name."""

import json
import math

import pytest

from broker.problems import (
    LOW_DISK_BYTES,
    device_problems,
    disk_problems,
    refusal_problems,
    round_problems,
    spend_problems,
)
from broker.round_summary import percentile, summarise
from broker.status import CURIOUS_ONLY, OPERATOR_SIGNS, TaskFact, status_document, task_document
from tests.status_facts import a_round, some_facts, stopped


def test_the_document_is_plain_json_without_names() -> None:
    text = json.dumps(status_document(some_facts()), allow_nan=False)
    assert "secret-name" not in text
    status = json.loads(text)
    assert status["trust"] == CURIOUS_ONLY
    assert status["open_round"]["phase"] == "MASKED_INPUT"
    assert status["summary"]["rounds"] == len(status["rounds"]) == 33
    assert status["rounds"][-2]["accuracy"] == pytest.approx(0.9 - 0.7 / 30)
    assert status["rounds"][-1]["accuracy"] is None


def test_a_stopped_gateway_has_no_open_round_and_says_so() -> None:
    status = status_document(stopped(some_facts()))
    assert status["is_running"] is False
    assert status["open_round"] is None
    assert OPERATOR_SIGNS != CURIOUS_ONLY


def test_a_task_without_noise_has_no_bound() -> None:
    task = TaskFact(
        name="t", outcome="running", committed=0, wanted=3, spend=None,
        epsilon_budget=math.inf, delta=1e-5,
    )  # fmt: skip
    document = task_document(task)
    assert document["has_noise"] is False
    assert document["epsilon_budget"] is None


def test_funnel_and_dropouts_add_up() -> None:
    rounds = [a_round(1, lost=1), a_round(2, lost=3), a_round(3, lost=8)]
    summary = summarise(rounds)
    assert summary["outcomes"] == {"ABORTED": 1, "COMMITTED": 2}
    assert summary["abort_reasons"] == {"BELOW_SURVIVOR_FLOOR": 1}
    funnel = {row["phase"]: (row["expected"], row["arrived"]) for row in summary["funnel"]}
    assert funnel == {
        "CHECK_IN": (24, 24),
        "SHARE_KEYS": (24, 24),
        "MASKED_INPUT": (24, 12),
        "UNMASKING": (12, 12),
    }
    assert summary["drops"] == [
        {"phase": "MASKED_INPUT", "reason": "offline", "count": 3},
        {"phase": "MASKED_INPUT", "reason": "timed-out", "count": 9},
    ]
    assert summary["up_bytes"] == 3 * 8 * 300_000
    assert summary["round_time_s"]["count"] == 2


@pytest.mark.parametrize(
    ("values", "percent", "wanted"),
    [([], 50, None), ([3.0], 99, 3.0), ([1.0, 2.0, 3.0, 4.0], 50, 2.0), (range(1, 101), 99, 99)],
)
def test_percentiles_are_values_that_occurred(
    values: list[float], percent: int, wanted: float | None
) -> None:
    assert percentile(values, percent) == wanted


def test_problems_are_said_with_what_to_do() -> None:
    assert disk_problems(LOW_DISK_BYTES) == []
    assert disk_problems(LOW_DISK_BYTES - 1)[0].code == "disk-low"
    good, bad = a_round(1, lost=0), a_round(2, lost=8)
    assert round_problems([bad, bad, good]) == []
    assert round_problems([good, bad, bad]) == []
    (problem,) = round_problems([good, bad, bad, bad])
    assert problem.code == "rounds-failing"
    assert "3 rounds" in problem.text
    assert "BELOW_SURVIVOR_FLOOR in MASKED_INPUT" in problem.text
    assert spend_problems({"a": (7.1, 8.0), "b": (7.3, 8.0), "c": (0.0, math.inf)})[
        0
    ].text.startswith("task b")
    assert refusal_problems({"E-A": 60, "E-B": 39}) == []
    assert "E-A" in refusal_problems({"E-A": 60, "E-B": 40})[0].text
    codes = [
        problem.code
        for problem in device_problems(
            known=3, reached=0, pending=2, has_task=True, is_linked=False
        )
    ]
    assert codes == ["no-link", "enrolment-waiting", "no-device-online"]
    assert device_problems(known=3, reached=1, pending=0, has_task=True, is_linked=True) == []
