"""Prometheus metrics of a gateway: counters from its reports, gauges read when they are asked for.

No device's name is a label, and every label has few values: tasks beyond `MOST_TASKS` share one.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from broker.events import Json, Reported
from broker.status import GatewayFacts, TaskFact
from edgefl.protocol.reasons import OPEN_PHASES

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MOST_TASKS: Final = 64
OTHER_TASKS: Final = "other"
_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600)


class GatewayMetrics:
    """The metrics of one gateway.

    Args:
        facts: Returns how the gateway stands now.
    """

    def __init__(self, facts: Callable[[], GatewayFacts]) -> None:
        """Make every metric, so that each is there from the first look on."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # They would double the number of series.
        self._registry = CollectorRegistry()
        self._tasks: set[str] = set()
        self._rounds = Counter(
            "edgefl_rounds",
            "Closed rounds since the start, by task and outcome.",
            ["task", "outcome", "reason"],
            registry=self._registry,
        )
        self._dropouts = Counter(
            "edgefl_round_dropouts",
            "Devices lost in closed rounds since the start, by phase and reason.",
            ["phase", "reason"],
            registry=self._registry,
        )
        self._phase_time = Histogram(
            "edgefl_phase_duration_seconds",
            "How long phases of closed rounds took.",
            ["phase"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._round_time = Histogram(
            "edgefl_round_duration_seconds",
            "How long closed rounds took.",
            ["outcome"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._bytes = Counter(
            "edgefl_round_payload_bytes",
            "Payload bytes of closed rounds since the start, over all devices.",
            ["direction"],
            registry=self._registry,
        )
        self._refused = Counter(
            "edgefl_refused_messages",
            "Messages refused since the start, by error code.",
            ["code"],
            registry=self._registry,
        )
        for direction in ("up", "down"):
            self._bytes.labels(direction)
        for phase in OPEN_PHASES:
            self._phase_time.labels(phase.name)
        self._registry.register(_Gauges(facts, self._task_label))
        ProcessCollector(namespace="edgefl", registry=self._registry)

    def render(self) -> bytes:
        """Return the text that Prometheus reads."""
        return generate_latest(self._registry)

    def on_report(self, report: Reported) -> None:
        """Count what the gateway tells its operator."""
        if report.kind == "round":
            self._on_round(report.fields)
        elif report.kind == "refused":
            self._refused.labels(str(report.fields["code"])).inc()
        elif report.kind == "refused-more":
            self._refused.labels(str(report.fields["code"])).inc(_number(report.fields["more"]))

    def _on_round(self, fields: Mapping[str, Json]) -> None:
        outcome, reason = str(fields["outcome"]), str(fields["reason"])
        self._rounds.labels(self._task_label(str(fields["task"])), outcome, reason).inc()
        phases = list(_rows(fields.get("phases")))
        for phase in phases:
            self._phase_time.labels(str(phase["phase"])).observe(_number(phase["duration_s"]))
        if phases:
            spent_s = sum(_number(phase["duration_s"]) for phase in phases)
            self._round_time.labels(outcome).observe(spent_s)
        for drop in _rows(fields.get("dropouts")):
            self._dropouts.labels(str(drop["phase"]), str(drop["reason"])).inc()
        self._bytes.labels("up").inc(_number(fields.get("up_bytes")))
        self._bytes.labels("down").inc(_number(fields.get("down_bytes")))

    def _task_label(self, name: str) -> str:
        """Return a task's name, or the common one where there are too many."""
        if name not in self._tasks and len(self._tasks) >= MOST_TASKS:
            return OTHER_TASKS
        self._tasks.add(name)
        return name


class _Gauges(Collector):
    """What stands now, as gauges."""

    def __init__(self, facts: Callable[[], GatewayFacts], task_label: Callable[[str], str]) -> None:
        self._facts = facts
        self._task_label = task_label

    def describe(self) -> Iterable[Metric]:
        """Return nothing: to register must not look at a gateway that has not started."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Look at the gateway."""
        facts = self._facts()
        yield _gauge("edgefl_uptime_seconds", "Seconds since the start.", _uptime_s(facts))
        yield _gauge(
            "edgefl_broker_linked",
            "1 where the broker is reached.",
            1.0 if facts.broker.is_linked else 0.0,
        )
        yield _labelled(
            "edgefl_devices",
            "Devices by state; each is counted once by its link and once by its enrolment.",
            "state",
            facts.devices,
        )
        yield _labelled(
            "edgefl_open_phase",
            "1 for the phase of the open round.",
            "phase",
            {phase.name: float(_is_open(facts, phase.name)) for phase in OPEN_PHASES},
        )
        yield _labelled(
            "edgefl_open_phase_devices",
            "Devices of the open phase: waited for, needed, and arrived.",
            "count",
            _open_counts(facts),
        )
        yield _labelled(
            "edgefl_endpoint",
            "Transfers under way, and counters of the endpoint.",
            "counter",
            facts.broker.counters,
        )
        yield from _task_gauges(facts.tasks, self._task_label)
        yield _gauge("edgefl_disk_free_bytes", "Room left on the disk.", facts.disk.free_bytes)
        yield _gauge(
            "edgefl_state_bytes", "Size of the gateway's own files.", facts.disk.state_bytes
        )
        yield _gauge("edgefl_problems", "Things that are wrong.", len(facts.problems))


def _task_gauges(tasks: Iterable[TaskFact], label: Callable[[str], str]) -> Iterator[Metric]:
    spent = GaugeMetricFamily(
        "edgefl_epsilon_spent",
        "Epsilon spent at the task's delta, by who observes it.",
        labels=["task", "observer"],
    )
    budget = GaugeMetricFamily(
        "edgefl_epsilon_budget", "Epsilon at which a task stops.", labels=["task"]
    )
    committed = GaugeMetricFamily(
        "edgefl_task_rounds_committed", "Rounds that brought a model.", labels=["task"]
    )
    wanted = GaugeMetricFamily(
        "edgefl_task_rounds_wanted", "Rounds that a task asks for.", labels=["task"]
    )
    accuracy = GaugeMetricFamily(
        "edgefl_model_accuracy_ratio", "Accuracy of a task's newest model.", labels=["task"]
    )
    loss = GaugeMetricFamily("edgefl_model_loss", "Loss of a task's newest model.", labels=["task"])
    for name, task in {label(task.name): task for task in tasks}.items():
        committed.add_metric([name], task.committed)
        wanted.add_metric([name], task.wanted)
        budget.add_metric([name], task.epsilon_budget)
        if task.spend is not None:
            spent.add_metric([name, "server"], task.spend.server)
            spent.add_metric([name, "release"], task.spend.release)
            spent.add_metric([name, "two-devices"], task.spend.two_devices)
        if task.metrics:
            newest = task.metrics[max(task.metrics)]
            loss.add_metric([name], newest.loss)
            accuracy.add_metric([name], math.nan if newest.accuracy is None else newest.accuracy)
    yield from (spent, budget, committed, wanted, accuracy, loss)


def _is_open(facts: GatewayFacts, phase: str) -> bool:
    return facts.open_round is not None and facts.open_round.phase.name == phase


def _open_counts(facts: GatewayFacts) -> dict[str, float]:
    current = facts.open_round
    if current is None:
        return {"expected": 0, "needed": 0, "arrived": 0}
    return {
        "expected": current.expected,
        "needed": current.needed,
        "arrived": current.arrived,
    }


def _uptime_s(facts: GatewayFacts) -> float:
    return 0.0 if facts.started_at_s is None else max(0.0, time.time() - facts.started_at_s)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _rows(value: Json) -> Iterator[dict[str, Json]]:
    if isinstance(value, list):
        yield from (row for row in value if isinstance(row, dict))


def _number(value: Json) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
