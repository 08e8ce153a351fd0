"""`edgefl task pause|resume|cancel`: what the operator wants of a task that was handed in."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from edgefl.cli.options import add_common, add_json, default_state_dir
from edgefl.errors import EdgeflError

_WORDS = {
    "pause": "let the open round end, and open no further one; kept over restarts",
    "resume": "go on with a paused task",
    "cancel": "abort the open round by name and end the task; its newest model stays",
}
_OUTCOMES = {"pause": "paused", "resume": "running", "cancel": "cancelled"}
_PATIENCE_S = 5.0
_LOOK_S = 0.2


def add_control(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-commands."""
    for verb, text in _WORDS.items():
        parser = commands.add_parser(
            verb,
            help=text,
            description=f"{text[0].upper()}{text[1:]}. A running gateway notices within a second, "
            "one that does not run at its next start.",
        )
        parser.add_argument("name", help="the task's name")
        parser.add_argument("--state", type=Path, help="the gateway's state folder")
        add_json(parser)
        add_common(parser)
        parser.set_defaults(run=run_control, verb=verb)


def run_control(options: argparse.Namespace) -> int:
    """Put the word down, and say whether the gateway has taken it up."""
    from broker.task_wishes import TaskWish, write_wish

    state_dir = options.state or default_state_dir("gateway")
    wish = TaskWish.RUN if options.verb == "resume" else TaskWish(options.verb)
    write_wish(state_dir, options.name, wish)
    outcome, is_running = _wait(state_dir, options.name, _OUTCOMES[options.verb])
    if options.json:
        line = {"task": options.name, "outcome": outcome, "gateway_runs": is_running}
        sys.stdout.write(json.dumps(line) + "\n")
        return 0
    when = "" if is_running else ", when the gateway starts next"
    sys.stdout.write(f"task {options.name}: {outcome}{when}\n")
    return 0


def _wait(state_dir: Path, name: str, wanted: str) -> tuple[str, bool]:
    """Return how the task stands as soon as that is what is wanted, and whether the gateway runs.

    A task that had ended before stays as it ended.
    """
    from broker.status_client import view_gateway

    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            status: dict[str, Any] = view_gateway(state_dir).status()
        except EdgeflError:
            return wanted, False  # Starting or ending: it will find the word.
        found = {task["task"]: str(task["outcome"]) for task in status["tasks"]}.get(name, wanted)
        if not status["is_running"]:
            return wanted if found in {"running", "paused"} else found, False
        is_over = found not in {"running", "paused"}
        if found == wanted or is_over or time.monotonic() > deadline_s:
            return found, True
        time.sleep(_LOOK_S)
