"""What an operator is told about a gateway, running or stopped: facts, and one document of them.

The document names no device: who takes part is asked for apart, and with the operator's token.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.events import Json
from broker.history import Metric
from broker.problems import Problem
from broker.round_record import RoundRecord, RoundSpend, record_to_json
from broker.round_summary import summarise
from edgefl.protocol.reasons import Phase

FORMAT: Final = 1
CURIOUS_ONLY: Final = "honest-but-curious gateway only"
"""Said on every page where the enrolment key is on the gateway itself."""
PAUSED: Final = "paused"
OPERATOR_SIGNS: Final = "roster signed by an operator"
ROUNDS_SHOWN: Final = 200
_LAST_ROUNDS: Final = 50
"""Rounds that the funnel, the dropouts and the times are taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFact:
    """One task, and where it stands.

    Attributes:
        outcome: "running", "paused", or how it ended.
        reason: Why it ended; empty while it runs.
        committed: Rounds that brought a model.
        wanted: Rounds that were asked for.
        spend: None where nothing was released.
        epsilon_budget: Infinite without noise.
        metrics: Measured models, by round.
    """

    name: str
    outcome: str
    reason: str = ""
    committed: int
    wanted: int
    spend: RoundSpend | None
    epsilon_budget: float
    delta: float
    metrics: Mapping[int, Metric] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRoundFact:
    """The round that is open.

    Attributes:
        since_s: Seconds since its phase began; None where that is not known.
    """

    task: str
    round_number: int
    attempt: int
    phase: Phase
    expected: int
    needed: int
    arrived: int
    since_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFact:
    """What is waited for."""

    what: str
    have: int
    need: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFact:
    """How devices reach the gateway.

    Attributes:
        kind: "endpoint" for its own, "external" for another's.
        addresses: Where it listens.
        is_linked: None where the gateway does not run.
        counters: Of transfers and of the endpoint: connections, queued messages and so on.
    """

    kind: str
    addresses: tuple[str, ...]
    is_linked: bool | None
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFact:
    """Room where the state lies, and what the state takes of it."""

    free_bytes: int
    state_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFacts:
    """All that a status is made of.

    Attributes:
        at_s: When they were gathered, in seconds since 1970.
        started_at_s: None for a stopped gateway.
        process_id: Of the gateway; None for a stopped one.
        is_automatic: The gateway itself enrols: its pages say for which gateways that is safe.
        devices: How many are in each state.
        key_epoch_members: None where no key epoch is open.
        rounds: The last closed ones, newest last.
        refusals: How many messages were refused in this life, by code.
        problems: What is wrong.
    """

    fleet: str
    version: str
    at_s: float
    started_at_s: float | None
    process_id: int | None = None
    is_automatic: bool
    broker: BrokerFact
    devices: Mapping[str, int]
    key_epoch_members: int | None
    open_round: OpenRoundFact | None
    waiting: WaitFact | None
    tasks: Sequence[TaskFact]
    rounds: Sequence[RoundRecord]
    disk: DiskFact
    refusals: Mapping[str, int] = field(default_factory=dict)
    problems: Sequence[Problem] = ()

    @property
    def is_running(self) -> bool:
        """Tell whether the gateway runs."""
        return self.started_at_s is not None


def status_document(facts: GatewayFacts) -> dict[str, Json]:
    """Return the status as JSON has it: no infinities, no names of devices."""
    return {
        "format": FORMAT,
        "edgefl": facts.version,
        "fleet": facts.fleet,
        "at_s": round(facts.at_s, 3),
        "is_running": facts.is_running,
        "started_at_s": facts.started_at_s,
        "process_id": facts.process_id,
        "trust": CURIOUS_ONLY if facts.is_automatic else OPERATOR_SIGNS,
        "is_curious_only": facts.is_automatic,
        "broker": {
            "kind": facts.broker.kind,
            "addresses": list(facts.broker.addresses),
            "is_linked": facts.broker.is_linked,
            "counters": dict(facts.broker.counters),
        },
        "devices": dict(facts.devices),
        "key_epoch_members": facts.key_epoch_members,
        "open_round": _open_round(facts.open_round),
        "waiting": _waiting(facts.waiting),
        "tasks": [task_document(task) for task in facts.tasks],
        "summary": summarise(list(facts.rounds)[-_LAST_ROUNDS:]),
        "rounds": round_rows(list(facts.rounds)[-ROUNDS_SHOWN:], facts.tasks),
        "disk": {"free_bytes": facts.disk.free_bytes, "state_bytes": facts.disk.state_bytes},
        "refusals": dict(facts.refusals),
        "problems": [{"code": problem.code, "text": problem.text} for problem in facts.problems],
    }


def task_document(task: TaskFact) -> dict[str, Json]:
    """Return one task."""
    spend = task.spend
    newest = task.metrics[max(task.metrics)] if task.metrics else None
    return {
        "task": task.name,
        "outcome": task.outcome,
        "reason": task.reason,
        "committed": task.committed,
        "rounds": task.wanted,
        "has_noise": math.isfinite(task.epsilon_budget),
        "epsilon_server": None if spend is None else _finite(spend.server),
        "epsilon_release": None if spend is None else _finite(spend.release),
        "epsilon_two_devices": None if spend is None else _finite(spend.two_devices),
        "epsilon_budget": _finite(task.epsilon_budget),
        "delta": task.delta,
        "accuracy": None if newest is None else _known(newest.accuracy),
        "loss": None if newest is None else _finite(newest.loss),
        "metrics": [
            {"round": number, "accuracy": _known(metric.accuracy), "loss": _finite(metric.loss)}
            for number, metric in sorted(task.metrics.items())[-ROUNDS_SHOWN:]
        ],
    }


def round_rows(rounds: Sequence[RoundRecord], tasks: Sequence[TaskFact]) -> list[Json]:
    """Return closed rounds in short, each with the metric of the model that it brought."""
    metrics = {task.name: task.metrics for task in tasks}
    return [_round_row(record, metrics.get(record.task, {})) for record in rounds]


def measured_round(record: RoundRecord, metrics: Mapping[int, Metric]) -> dict[str, Json]:
    """Return a closed round whole, with the metric of the model that it brought."""
    metric = metrics.get(record.round_number) if record.is_committed else None
    reported, asked = _reported(record)
    return {
        **record_to_json(record),
        "reported": reported,
        "asked": asked,
        "accuracy": None if metric is None else _known(metric.accuracy),
        "loss": None if metric is None else _finite(metric.loss),
    }


def _reported(record: RoundRecord) -> tuple[int, int]:
    """Return how many devices sent what the deciding phase asks for, and how many were to.

    It is the phase in which an attempt was aborted; for one that brought a model, the updates'.
    """
    decisive = record.in_phase or Phase.MASKED_INPUT
    for phase in record.phases:
        if phase.phase is decisive:
            return phase.arrived, phase.expected
    return 0, record.phases[-1].expected if record.phases else 0


def _round_row(record: RoundRecord, metrics: Mapping[int, Metric]) -> dict[str, Json]:
    metric = metrics.get(record.round_number) if record.is_committed else None
    spend = record.spend
    return {
        "task": record.task,
        "round": record.round_number,
        "attempt": record.attempt,
        "closed_at_s": round(record.closed_at_s, 3),
        "duration_s": round(record.duration_s, 3),
        "outcome": record.outcome.name,
        "reason": record.reason.name,
        "in_phase": None if record.in_phase is None else record.in_phase.name,
        "called": record.phases[0].expected if record.phases else 0,
        "survivors": record.survivors,
        "dropped": sum(drop.count for drop in record.drops),
        "up_bytes": record.traffic.up,
        "down_bytes": record.traffic.down,
        "epsilon_server": None if spend is None else _finite(spend.server),
        "accuracy": None if metric is None else _known(metric.accuracy),
        "loss": None if metric is None else _finite(metric.loss),
    }


def _open_round(fact: OpenRoundFact | None) -> dict[str, Json] | None:
    if fact is None:
        return None
    return {
        "task": fact.task,
        "round": fact.round_number,
        "attempt": fact.attempt,
        "phase": fact.phase.name,
        "expected": fact.expected,
        "needed": fact.needed,
        "arrived": fact.arrived,
        "since_s": None if fact.since_s is None else round(fact.since_s, 1),
    }


def _waiting(fact: WaitFact | None) -> dict[str, Json] | None:
    return None if fact is None else {"for": fact.what, "have": fact.have, "need": fact.need}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _known(value: float | None) -> float | None:
    return None if value is None else _finite(value)
