"""The history of closed rounds: whole, bounded, and without names where it must have none."""

import json
import math

import pytest

from broker import history
from broker.events import EvaluationEnded
from broker.history import HistoryReader, RoundHistory, members_of
from broker.round_record import (
    OTHER_BACKENDS,
    RoundBytes,
    RoundRecord,
    RoundSpend,
    aborted_round,
    closed_round,
    record_from_json,
    record_to_json,
)
from edgefl.errors import StorageError
from edgefl.protocol.reasons import AbortReason, DropReason, Phase
from edgefl.protocol.report import Dropout, PhaseCount, RoundReport
from edgefl.storage.memory import MemoryStore


def _report(attempt: int = 7, *, survivors: tuple[str, ...] = ("a", "b", "c")) -> RoundReport:
    is_committed = bool(survivors)
    return RoundReport(
        task="spar",
        round_number=3,
        attempt=attempt,
        outcome=Phase.COMMITTED if is_committed else Phase.ABORTED,
        abort_reason=AbortReason.NONE if is_committed else AbortReason.BELOW_SURVIVOR_FLOOR,
        phases=(
            PhaseCount(phase=Phase.CHECK_IN, expected=5, needed=3, arrived=5, duration_s=0.25),
            PhaseCount(
                phase=Phase.MASKED_INPUT,
                expected=5,
                needed=3,
                arrived=len(survivors),
                duration_s=1.5,
            ),
        ),
        dropouts=(
            Dropout(device="zebra", phase=Phase.MASKED_INPUT, reason=DropReason.TIMED_OUT),
            Dropout(device="yak", phase=Phase.MASKED_INPUT, reason=DropReason.TIMED_OUT),
        ),
        survivors=survivors,
        unmasked=len(survivors),
        sum_check_held=True if is_committed else None,
        charged=is_committed,
    )


def _record(report: RoundReport, *, epsilon: float = 1.5) -> RoundRecord:
    return closed_round(
        report,
        closed_at_s=1002.0,
        traffic=RoundBytes(up=1000, down=500, devices=5),
        spend=RoundSpend(server=epsilon, release=epsilon, two_devices=2 * epsilon),
        backends={"a": "onnx/cpu", "b": "onnx/cpu", "c": "litert/cpu"},
    )


@pytest.mark.parametrize("epsilon", [1.5, math.inf])
def test_a_record_is_read_as_it_was_written(epsilon: float) -> None:
    record = _record(_report(), epsilon=epsilon)
    text = json.dumps(record_to_json(record), allow_nan=False)
    assert record_from_json(json.loads(text)) == record
    assert record.duration_s == 1.75
    assert record.opened_at_s == 1000.25


def test_a_round_in_which_nobody_reported_is_kept_like_any_other() -> None:
    store = MemoryStore()
    kept = RoundHistory(store)
    kept.close_round(_record(_report(survivors=())), members_of(_report(survivors=())))
    (record,) = HistoryReader(store).rounds()
    assert record.survivors == 0
    assert record.phases[-1].arrived == 0
    assert record.phases[-1].expected == 5
    assert record.in_phase is Phase.MASKED_INPUT
    assert record.reason is AbortReason.BELOW_SURVIVOR_FLOOR


def test_no_name_is_in_the_rounds_and_every_name_in_the_members() -> None:
    store = MemoryStore()
    report = _report(survivors=("aardvark", "bee", "cow"))
    RoundHistory(store).close_round(_record(report), members_of(report))
    names = ["aardvark", "bee", "cow", "zebra", "yak"]
    (round_key,), (members_key,) = store.keys("round/"), store.keys("members/")
    assert not any(name.encode() in (store.get(round_key) or b"") for name in names)
    assert all(name.encode() in (store.get(members_key) or b"") for name in names)
    (members,) = HistoryReader(store).members()
    assert members.survivors == ("aardvark", "bee", "cow")
    assert members.dropouts == {
        "zebra": "MASKED_INPUT/timed-out",
        "yak": "MASKED_INPUT/timed-out",
    }


def test_the_oldest_rounds_go_with_their_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "ROUNDS_KEPT", 3)
    monkeypatch.setattr(history, "MEMBERS_KEPT", 2)
    store = MemoryStore()
    kept = RoundHistory(store)
    for attempt in range(1, 6):
        report = _report(attempt)
        kept.close_round(_record(report), members_of(report))
        if attempt == 1:
            kept.note_metric(
                EvaluationEnded(task="spar", round_number=3, accuracy=0.5, loss=1.0, examples=4)
            )
            kept = RoundHistory(store)  # as after a restart
    reader = HistoryReader(store)
    assert [record.attempt for record in reader.rounds()] == [3, 4, 5]
    assert [record.attempt for record in reader.rounds(2)] == [4, 5]
    assert [members.attempt for members in reader.members()] == [4, 5]
    assert store.keys("metric/") == []


def test_the_same_round_closed_twice_counts_once() -> None:
    store = MemoryStore()
    kept = RoundHistory(store)
    for _ in range(2):
        kept.close_round(_record(_report()), members_of(_report()))
    assert len(HistoryReader(store).rounds()) == 1


def test_metrics_are_found_by_round_and_by_task_alone() -> None:
    store = MemoryStore()
    kept = RoundHistory(store)
    for task, accuracy in (("spar", 0.75), ("spar2", None)):
        kept.note_metric(
            EvaluationEnded(
                task=task,
                round_number=2,
                accuracy=accuracy,
                loss=0.5,
                examples=9,
                int8_accuracy=0.7,
            )
        )
    metrics = HistoryReader(store).metrics("spar")
    assert {number: metric.accuracy for number, metric in metrics.items()} == {2: 0.75}
    assert metrics[2].int8_accuracy == 0.7
    assert HistoryReader(store).metrics("spar2")[2].accuracy is None


def test_a_crashed_round_has_no_known_beginning() -> None:
    record = aborted_round(
        task="spar",
        round_number=2,
        attempt=9,
        reason=AbortReason.GATEWAY_RESTARTED,
        in_phase=Phase.SHARE_KEYS,
        found_at_s=50.0,
    )
    assert record_from_json(record_to_json(record)) == record
    assert record.opened_at_s is None
    assert record.spend is None


def test_many_kinds_of_backends_are_counted_together() -> None:
    record = closed_round(
        _report(),
        closed_at_s=1.0,
        traffic=RoundBytes(),
        spend=RoundSpend(server=0.0, release=0.0, two_devices=0.0),
        backends={f"d{index}": f"kind-{index}" for index in range(100)} | {"x": ""},
    )
    assert len(record.backends) == 17
    assert record.backends[OTHER_BACKENDS] == 84


@pytest.mark.parametrize(
    "stored", [b"null", b"[]", b"{", b'{"task": 1}', b'{"outcome": "CHECK_IN"}']
)
def test_a_row_of_something_else_is_named(stored: bytes) -> None:
    store = MemoryStore()
    store.put("round/0000000001", stored)
    with pytest.raises(StorageError, match="E-HISTORY"):
        HistoryReader(store).rounds()
