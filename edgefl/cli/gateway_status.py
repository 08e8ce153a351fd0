"""`edgefl gateway status`: how a gateway stands, whether it runs or not."""

import argparse
import datetime
import json
import sys
from pathlib import Path
from typing import Any

from edgefl.cli.options import add_common, add_json, default_state_dir
from edgefl.cli.shown import printable, show_bytes, show_number, show_span

_NOT_RUNNING = 5
_LAST = 5

Document = dict[str, Any]


def add_status(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    status = commands.add_parser(
        "status",
        help="tell how a gateway stands",
        description="Tell how a gateway stands: since when it runs, its broker, the open phase, "
        "devices by state, the last rounds, epsilon against budget, disk, and what is wrong. Works "
        "from the state folder where it does not run. Exit code 5 if it does not run.",
    )
    status.add_argument("--state", type=Path, help="the gateway's state folder")
    add_json(status)
    add_common(status)
    status.set_defaults(run=run_status)


def run_status(options: argparse.Namespace) -> int:
    """Print the status."""
    from broker.status_client import view_gateway

    state_dir = options.state or default_state_dir("gateway")
    status: Document = view_gateway(state_dir).status()
    if options.json:
        sys.stdout.write(json.dumps(status) + "\n")
    else:
        sys.stdout.write(printable_lines(_lines(status, state_dir)))
    return 0 if status["is_running"] else _NOT_RUNNING


def printable_lines(lines: list[str]) -> str:
    """Return lines whose text, some of it from devices and tasks, cannot steer a terminal."""
    return "".join(printable(line) + "\n" for line in lines)


def _lines(status: Document, state_dir: Path) -> list[str]:
    return [
        *_head(status, state_dir),
        *_devices(status),
        *_now(status),
        *(line for task in status["tasks"] for line in _task(task)),
        *_rounds(status),
        f"disk: {show_bytes(status['disk']['free_bytes'])} free, state "
        f"{show_bytes(status['disk']['state_bytes'])}",
        *(f"PROBLEM {problem['code']}: {problem['text']}" for problem in status["problems"]),
    ]


def _head(status: Document, state_dir: Path) -> list[str]:
    fleet = status["fleet"] or "?"
    if not status["is_running"]:
        first = f"gateway of fleet {fleet}: not running; state in {state_dir}"
        return [first, *_trust(status)]
    started = datetime.datetime.fromtimestamp(status["started_at_s"]).astimezone()
    age = show_span(status["at_s"] - status["started_at_s"])
    broker = status["broker"]
    kind = "own endpoint" if broker["kind"] == "endpoint" else "external broker"
    link = "" if broker["is_linked"] else ", NOT REACHED"
    return [
        f"gateway of fleet {fleet}: running since {started:%Y-%m-%d %H:%M:%S} ({age})",
        f"{kind}: {', '.join(broker['addresses']) or '-'}{link}",
        *_trust(status),
    ]


def _trust(status: Document) -> list[str]:
    return [f"trust: {status['trust']}"]


def _devices(status: Document) -> list[str]:
    counts = status["devices"]
    links = [f"{counts[word]} {word}" for word in ("online", "asleep", "offline")]
    states = [
        f"{counts[word]} {word}"
        for word in ("accepted", "pending", "rejected", "revoked")
        if counts[word]
    ]
    there = f"{', '.join(links)}; " if status["is_running"] else ""
    return [f"devices: {counts['known']} known: {there}{', '.join(states) or 'none accepted'}"]


def _now(status: Document) -> list[str]:
    current, wait = status["open_round"], status["waiting"]
    if current is not None:
        since = "" if current["since_s"] is None else f", {show_span(current['since_s'])} so far"
        return [
            f"now: {current['task']} round {current['round']} (attempt {current['attempt']}) "
            f"{current['phase']}: {current['arrived']}/{current['expected']} devices, "
            f"{current['needed']} needed{since}"
        ]
    if wait is not None:
        return [f"now: waiting for {wait['for']}: {wait['have']}/{wait['need']}"]
    return ["now: no task is worked on"] if status["is_running"] else []


def _task(task: Document) -> list[str]:
    ended = "" if task["outcome"] == "running" else f" {task['outcome']}"
    reason = f" ({task['reason']})" if task["reason"] else ""
    words = [f"task {task['task']}{ended}: {task['committed']} of {task['rounds']} rounds{reason}"]
    if task["accuracy"] is not None:
        words.append(f"accuracy {task['accuracy']:.3f}")
    elif task["loss"] is not None:
        words.append(f"loss {task['loss']:.4g}")
    if not task["has_noise"]:
        words.append("no noise, so no bound on epsilon")
    elif task["epsilon_server"] is not None:
        words.append(
            f"epsilon {show_number(task['epsilon_server'])} of "
            f"{show_number(task['epsilon_budget'])} against the gateway, "
            f"{show_number(task['epsilon_release'])} release, "
            f"{show_number(task['epsilon_two_devices'])} two devices, delta {task['delta']:g}"
        )
    return ["; ".join(words)]


def _rounds(status: Document) -> list[str]:
    summary = status["summary"]
    if not summary["rounds"]:
        return ["rounds: none closed yet"]
    outcomes, time = summary["outcomes"], summary["round_time_s"]
    lines = [
        f"last {summary['rounds']} rounds: {outcomes.get('COMMITTED', 0)} committed, "
        f"{outcomes.get('ABORTED', 0)} aborted; median {show_span(time['p50'])}, p90 "
        f"{show_span(time['p90'])}; {show_bytes(summary['up_bytes'])} up, "
        f"{show_bytes(summary['down_bytes'])} down"
    ]
    if summary["drops"]:
        drops = ", ".join(
            f"{drop['count']} {drop['phase']}/{drop['reason']}" for drop in summary["drops"]
        )
        lines.append(f"dropped out: {drops}")
    return [*lines, *(_round(row) for row in status["rounds"][-_LAST:])]


def _round(row: Document) -> str:
    where = f" in {row['in_phase']}" if row["in_phase"] else ""
    how = "committed" if row["outcome"] == "COMMITTED" else f"{row['reason']}{where}"
    return (
        f"  {row['task']} round {row['round']} (attempt {row['attempt']}): {how}, "
        f"{row['survivors']} of {row['called']} in the sum, {show_span(row['duration_s'])}"
    )
