"""A gateway's facts, made up, for tests of what is shown of them."""

from dataclasses import replace

from broker.history import Metric
from broker.problems import Problem
from broker.round_record import RoundBytes, RoundRecord, RoundSpend, closed_round
from broker.status import BrokerFact, DiskFact, GatewayFacts, OpenRoundFact, TaskFact, WaitFact
from edgefl.protocol.reasons import AbortReason, DropReason, Phase
from edgefl.protocol.report import Dropout, PhaseCount, RoundReport

_PHASES = (Phase.CHECK_IN, Phase.SHARE_KEYS, Phase.MASKED_INPUT, Phase.UNMASKING)


def a_round(
    attempt: int, *, round_number: int = 1, lost: int = 1, duration_s: float = 4.0
) -> RoundRecord:
    """Return a round of 8 devices; one that loses more than 3 is aborted while they train."""
    is_done = lost <= 3
    arrived = 8 - lost
    phases = _PHASES if is_done else _PHASES[:3]
    survivors = tuple(f"secret-name-{index}" for index in range(arrived if is_done else 0))
    report = RoundReport(
        task="wake",
        round_number=round_number,
        attempt=attempt,
        outcome=Phase.COMMITTED if is_done else Phase.ABORTED,
        abort_reason=AbortReason.NONE if is_done else AbortReason.BELOW_SURVIVOR_FLOOR,
        phases=tuple(
            PhaseCount(
                phase=phase,
                expected=8 if phase <= Phase.MASKED_INPUT else arrived,
                needed=5,
                arrived=8 if phase < Phase.MASKED_INPUT else arrived,
                duration_s=duration_s / len(phases),
            )
            for phase in phases
        ),
        dropouts=tuple(
            Dropout(
                device=f"secret-name-{7 - index}",
                phase=Phase.MASKED_INPUT,
                reason=DropReason.TIMED_OUT if index else DropReason.OFFLINE,
            )
            for index in range(lost)
        ),
        survivors=survivors,
        unmasked=len(survivors),
        sum_check_held=True if is_done else None,
        charged=is_done,
    )
    return closed_round(
        report,
        closed_at_s=1_000_000.0 + 10 * attempt,
        traffic=RoundBytes(up=8 * 300_000, down=8 * 450_000, devices=8),
        spend=RoundSpend(server=0.1 * attempt, release=0.05 * attempt, two_devices=0.25 * attempt),
        backends=dict.fromkeys(survivors, "onnx/cpu"),
    )


def some_facts() -> GatewayFacts:
    """Return a gateway in the middle of its 31st round."""
    rounds = []
    round_number = 1
    for attempt in range(1, 34):
        lost = 5 if attempt % 11 == 0 else attempt % 3
        record = a_round(
            attempt, round_number=round_number, lost=lost, duration_s=3 + attempt % 7 * 0.8
        )
        rounds.append(record)
        round_number += record.is_committed
    metrics = {
        number: Metric(
            task="wake",
            round_number=number,
            accuracy=0.9 - 0.7 / number,
            loss=2.0 / number,
            examples=400,
        )
        for number in range(1, round_number)
    }
    return GatewayFacts(
        fleet="field-station",
        version="0.1.0",
        at_s=1_000_345.0,
        started_at_s=990_000.0,
        is_automatic=True,
        broker=BrokerFact(
            kind="endpoint",
            addresses=("mqtts://192.0.2.7:8883", "wss://192.0.2.7:8443/mqtt"),
            is_linked=True,
            counters={"connections": 8, "queued_messages": 0},
        ),
        devices={
            "known": 11,
            "online": 7,
            "asleep": 1,
            "offline": 3,
            "accepted": 9,
            "pending": 2,
            "rejected": 0,
            "revoked": 0,
        },
        key_epoch_members=9,
        open_round=OpenRoundFact(
            task="wake",
            round_number=round_number,
            attempt=34,
            phase=Phase.MASKED_INPUT,
            expected=8,
            needed=5,
            arrived=3,
            since_s=4.2,
        ),
        waiting=WaitFact(what="MASKED_INPUT", have=3, need=5),
        tasks=[
            TaskFact(
                name="wake",
                outcome="running",
                committed=round_number - 1,
                wanted=60,
                spend=RoundSpend(server=3.3, release=1.65, two_devices=8.25),
                epsilon_budget=8.0,
                delta=1e-5,
                metrics=metrics,
            )
        ],
        rounds=rounds,
        disk=DiskFact(free_bytes=12_400_000_000, state_bytes=3_210_000),
        refusals={"E-WIRE-CBOR": 7},
        problems=[
            Problem(
                code="enrolment-waiting",
                text="2 devices wait to be enrolled: see 'edgefl devices'",
            )
        ],
    )


def stopped(facts: GatewayFacts) -> GatewayFacts:
    """Return the same gateway, not running."""
    return replace(
        facts,
        started_at_s=None,
        open_round=None,
        waiting=None,
        broker=replace(facts.broker, is_linked=None),
    )
