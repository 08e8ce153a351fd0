"""What a simulation says at its end: one dictionary for machines, one table for people."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from broker.events import Json
from edgefl.errors import ConfigError
from firmware_sim.fleet import Scenario, SimulationResult

REPORT_FORMAT = 1
_REAL_SHARDS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What a run took on this machine.

    Attributes:
        wall_s: Time by the clock.
        cpu_s: Processor time of this process.
        training_s: Part of `wall_s` spent in local training.
        peak_memory_bytes: Largest resident memory.
    """

    wall_s: float
    cpu_s: float
    training_s: float
    peak_memory_bytes: int


def make_report(scenario: Scenario, result: SimulationResult, effort: Effort) -> dict[str, Json]:
    """Return the report; everything but the values of `effort` follows from the seed."""
    committed = [row for row in result.rounds if row["outcome"] == "COMMITTED"]
    survivors = sum(cast("int", row["survivors"]) for row in committed)
    last = committed[-1] if committed else {}
    devices = len(scenario.examples)
    accuracies: dict[str, Json] = {
        str(number): accuracy for number, accuracy in sorted(result.accuracies.items())
    }
    return {
        "format": REPORT_FORMAT,
        "devices": devices,
        "seed": scenario.seed,
        "outcome": result.outcome,
        "rounds": scenario.task.rounds,
        "rounds_committed": len(committed),
        "attempts": len(result.rounds),
        "exact_sum": bool(committed) and all(row["sum_check_held"] for row in committed),
        "accuracy": result.accuracies[max(result.accuracies)] if result.accuracies else None,
        "accuracies": accuracies,
        "dropouts": _count_dropouts(result),
        "aborts": dict(_count_aborts(result)),
        "deaths": result.deaths,
        "empty_battery_deaths": result.empty_battery_deaths,
        "transmissions_lost": result.transmissions_lost,
        "epsilon_server": last.get("epsilon_server"),
        "epsilon_release": last.get("epsilon_release"),
        "epsilon_two_devices": last.get("epsilon_two_devices"),
        "delta": scenario.task.delta,
        "boards_per_shard": -(-devices // _REAL_SHARDS),
        "up_bytes_per_device": last.get("up_bytes_per_device"),
        "virtual_s": result.virtual_s,
        "wall_s": effort.wall_s,
        "cpu_s": effort.cpu_s,
        "training_s": effort.training_s,
        "peak_memory_bytes": effort.peak_memory_bytes,
        "device_rounds": survivors,
        "device_rounds_per_s": survivors / effort.wall_s,
        "parameters_sha256": hashlib.sha256(result.parameters).hexdigest(),
        "transcript_sha256": result.transcript_sha256,
        "ledger_head": result.ledger_head,
    }


def _count_dropouts(result: SimulationResult) -> dict[str, Json]:
    """Count the devices that left an attempt, by phase and reason."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in result.rounds:
        for drop in cast("list[dict[str, str]]", row.get("dropouts", [])):
            counts[drop["phase"], drop["reason"]] += 1
    phases: dict[str, Json] = {}
    for (phase, reason), count in sorted(counts.items()):
        cast("dict[str, Json]", phases.setdefault(phase, {}))[reason] = count
    return phases


def _count_aborts(result: SimulationResult) -> Counter[str]:
    return Counter(str(row["reason"]) for row in result.rounds if row["outcome"] == "ABORTED")


def format_table(report: dict[str, Json]) -> str:
    """Return the table for a terminal.

    Raises:
        ConfigError: The dictionary is no report of this version.
    """
    if report.get("format") != REPORT_FORMAT:
        raise ConfigError(
            "E-SIM-REPORT",
            f"a simulation report of format {REPORT_FORMAT}",
            f"format {report.get('format')!r}",
            "make one with 'edgefl sim run --out FILE.json'",
        )
    try:
        rows = list(_rows(report))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(
            "E-SIM-REPORT",
            "a whole simulation report",
            f"{type(error).__name__}: {error}",
            "make one with 'edgefl sim run --out FILE.json'",
        ) from error
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def _rows(report: dict[str, Json]) -> Iterator[tuple[str, str]]:
    def number(name: str) -> float:
        return float(cast("float", report[name]))

    yield "devices", f"{report['devices']} (seed {report['seed']})"
    yield (
        "rounds",
        f"{report['rounds_committed']} of {report['rounds']} committed in {report['attempts']} "
        f"attempts; the task ended as {report['outcome']!r}",
    )
    aborts = cast("dict[str, int]", report["aborts"])
    if aborts:
        yield "aborted", ", ".join(f"{count} x {reason}" for reason, count in aborts.items())
    accuracies = cast("dict[str, float]", report["accuracies"])
    if accuracies:
        shown = ", ".join(f"{number}: {value:.3f}" for number, value in accuracies.items())
        yield "accuracy", f"by round, on two people held out: {shown}"
    for phase, reasons in cast("dict[str, dict[str, int]]", report["dropouts"]).items():
        shown = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        yield f"dropouts in {phase}", shown
    yield (
        "deaths",
        f"{report['deaths']} boards lost power, {report['empty_battery_deaths']} of them with an "
        f"empty battery; {report['transmissions_lost']} transmissions lost",
    )
    if report["epsilon_server"] is not None:
        yield from _privacy_rows(report)
    yield "virtual time", f"{number('virtual_s'):.1f} s"
    yield (
        "wall time",
        f"{number('wall_s'):.1f} s ({number('training_s'):.1f} s training; "
        f"{number('cpu_s'):.1f} s of processor)",
    )
    yield "memory", f"{number('peak_memory_bytes') / 1e6:.0f} MB at most"
    yield (
        "speed",
        f"{number('device_rounds_per_s'):.1f} device-rounds per second "
        f"({report['device_rounds']} updates in committed sums)",
    )
    yield "transcript", str(report["transcript_sha256"])


def _privacy_rows(report: dict[str, Json]) -> Iterator[tuple[str, str]]:
    server, release = report["epsilon_server"], report["epsilon_release"]
    two = report["epsilon_two_devices"]
    yield (
        "epsilon",
        f"{server:.1f} against the gateway, {release:.1f} against readers of the models, {two:.1f} "
        f"for a person with two boards, at delta {report['delta']:g}",
    )
    boards = 2 * cast("int", report["boards_per_shard"])
    yield (
        "honestly",
        f"one person's recordings are behind up to {boards} of these boards, and the first two "
        "figures are for one board: that person's epsilon is far larger; figures like these show "
        "the mechanism and protect nobody",
    )
