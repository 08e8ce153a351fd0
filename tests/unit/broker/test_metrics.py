"""What Prometheus reads: parsed by its own parser, bounded, and without names."""

import math
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from broker.events import Reported
from broker.metrics import MOST_TASKS, OTHER_TASKS, GatewayMetrics
from broker.reports import more_report, refused_report
from broker.status import GatewayFacts
from tests.status_facts import some_facts

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def _samples(metrics: GatewayMetrics) -> Samples:
    text = metrics.render().decode()
    assert "secret-name" not in text
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.name.startswith("edgefl_"), family.name
        assert family.documentation.endswith("."), family.name
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, key
            found[key] = sample.value
    return found


def _round(task: str = "wake", outcome: str = "COMMITTED") -> Reported:
    return Reported(
        kind="round",
        fields={
            "task": task,
            "outcome": outcome,
            "reason": "NONE",
            "phases": [
                {"phase": "CHECK_IN", "duration_s": 0.2},
                {"phase": "MASKED_INPUT", "duration_s": 40.0},
            ],
            "dropouts": [
                {"device": "secret-name-1", "phase": "MASKED_INPUT", "reason": "offline"},
                {"device": "secret-name-2", "phase": "MASKED_INPUT", "reason": "offline"},
            ],
            "up_bytes": 1000,
            "down_bytes": 50,
        },
    )


def test_rounds_are_counted() -> None:
    metrics = GatewayMetrics(some_facts)
    for _ in range(3):
        metrics.on_report(_round())
    metrics.on_report(refused_report("E-WIRE-CBOR", "secret-name-3"))
    metrics.on_report(more_report("E-WIRE-CBOR", 41, 60.0))
    samples = _samples(metrics)
    done = (("outcome", "COMMITTED"), ("reason", "NONE"), ("task", "wake"))
    assert samples["edgefl_rounds_total", done] == 3
    lost = (("phase", "MASKED_INPUT"), ("reason", "offline"))
    assert samples["edgefl_round_dropouts_total", lost] == 6
    assert samples["edgefl_round_payload_bytes_total", (("direction", "up"),)] == 3000
    assert samples["edgefl_refused_messages_total", (("code", "E-WIRE-CBOR"),)] == 42
    at_most_30 = (("le", "30.0"), ("phase", "MASKED_INPUT"))
    at_most_60 = (("le", "60.0"), ("phase", "MASKED_INPUT"))
    assert samples["edgefl_phase_duration_seconds_bucket", at_most_30] == 0
    assert samples["edgefl_phase_duration_seconds_bucket", at_most_60] == 3


def test_gauges_are_read_when_asked_for() -> None:
    facts = [some_facts()]
    metrics = GatewayMetrics(lambda: facts[0])
    samples = _samples(metrics)
    assert samples["edgefl_devices", (("state", "online"),)] == 7
    assert samples["edgefl_open_phase", (("phase", "MASKED_INPUT"),)] == 1
    assert samples["edgefl_open_phase", (("phase", "CHECK_IN"),)] == 0
    assert samples["edgefl_open_phase_devices", (("count", "arrived"),)] == 3
    assert samples["edgefl_epsilon_spent", (("observer", "server"), ("task", "wake"))] == 3.3
    assert samples["edgefl_epsilon_budget", (("task", "wake"),)] == 8
    assert samples["edgefl_endpoint", (("counter", "connections"),)] == 8
    facts[0] = replace(
        facts[0], open_round=None, tasks=[replace(facts[0].tasks[0], epsilon_budget=math.inf)]
    )
    samples = _samples(metrics)
    assert samples["edgefl_open_phase", (("phase", "MASKED_INPUT"),)] == 0
    assert samples["edgefl_epsilon_budget", (("task", "wake"),)] == math.inf
    assert samples["edgefl_process_resident_memory_bytes", ()] > 1_000_000


def test_no_number_of_tasks_makes_endless_labels() -> None:
    base = some_facts()
    tasks = [replace(base.tasks[0], name=f"task-{index}") for index in range(3 * MOST_TASKS)]
    facts: GatewayFacts = replace(base, tasks=tasks)
    metrics = GatewayMetrics(lambda: facts)
    for task in tasks:
        metrics.on_report(_round(task.name))
    samples = _samples(metrics)
    named = [key for key in samples if key[0] == "edgefl_rounds_total"]
    assert len(named) == MOST_TASKS + 1
    other = (("outcome", "COMMITTED"), ("reason", "NONE"), ("task", OTHER_TASKS))
    assert samples["edgefl_rounds_total", other] == 2 * MOST_TASKS
