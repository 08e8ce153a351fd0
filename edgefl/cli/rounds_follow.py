"""Follows a gateway's rounds: a line for each phase, and every 10 s what is waited for.

It reads `events.jsonl`, so it goes on over restarts of the gateway, and begins before its start.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from broker.console import format_report
from broker.events import Reported
from broker.history import WEAKENS
from broker.status_client import view_gateway
from edgefl.cli.shown import printable
from edgefl.errors import ConfigError, EdgeflError

NOTICE_S: Final = 10.0
_LOOK_S: Final = 0.2
_SHOWN: Final = frozenset(
    {
        "phase",
        "round",
        "resumed",
        "waiting",
        "evaluated",
        "gateway",
        "task",
        "task-wish",
        "task-refused",
        "task-ended",
    }
)
_EXIT_CODES: Final = {"done": 0, "budget": 3}
_FAILED: Final = 1

Event = dict[str, Any]


def follow(state_dir: Path, *, task: str | None, is_json: bool, names_devices: bool) -> int:
    """Print lines until interrupted; with a task, until it ends.

    Returns:
        0 when the task is done, 3 when its budget is spent, 1 when it failed.

    Raises:
        ConfigError: E-GATEWAY-STATE: there is no such folder.
    """
    if not state_dir.is_dir():
        raise ConfigError(
            "E-GATEWAY-STATE",
            f"a gateway's state folder at {state_dir}",
            "none",
            "give the folder that 'edgefl gateway run' has with --state",
        )
    if names_devices:
        sys.stderr.write(f"edgefl: {WEAKENS}\n")
    tail = EventTail(state_dir / "events.jsonl")
    ended = None if task is None else _outcome_so_far(state_dir, task)
    said_s = time.monotonic()
    while ended is None:
        for event in tail.read_new():
            if not is_shown(event, task):
                continue
            _say(event if names_devices else without_names(event), is_json=is_json)
            said_s = time.monotonic()
            if task is not None and event["kind"] == "task-ended":
                ended = str(event["outcome"])
        if ended is None and time.monotonic() - said_s >= NOTICE_S:
            _say(_wait_of(state_dir), is_json=is_json)
            said_s = time.monotonic()
        time.sleep(0 if ended is not None else _LOOK_S)
    return _EXIT_CODES.get(ended, _FAILED)


class EventTail:
    """Reads the lines that are added to a file from now on; it need not be there yet.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        """Begin at the end of what is there."""
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def read_new(self) -> Iterator[Event]:
        """Return the new events; a half-written line waits, a line that is none is left out."""
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_size < self._offset:
                    self._offset = 0  # Another file of that name, or one that was cut.
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and isinstance(event.get("kind"), str):
                yield event


def is_shown(event: Event, task: str | None) -> bool:
    """Tell whether an event is about rounds, and about the task that is asked for."""
    if event["kind"] not in _SHOWN:
        return False
    return task is None or event.get("task", task) == task


def without_names(event: Event) -> Event:
    """Return an event without the names of devices."""
    if event["kind"] == "gateway":
        return event
    kept = {name: value for name, value in event.items() if name not in {"silent", "trained_on"}}
    drops = event.get("dropouts")
    if isinstance(drops, list):
        kept["dropouts"] = [
            {name: value for name, value in drop.items() if name != "device"}
            for drop in drops
            if isinstance(drop, dict)
        ]
    return kept


def _outcome_so_far(state_dir: Path, task: str) -> str | None:
    """Return how a task ended, or None while it is worked on or not yet handed in."""
    try:
        status: Event = view_gateway(state_dir).status()
    except EdgeflError:
        return None
    for known in status["tasks"]:
        if known["task"] == task and known["outcome"] != "running":
            return str(known["outcome"])
    return None


def _wait_of(state_dir: Path) -> Event:
    """Return what is waited for, where the gateway itself has said nothing for long."""
    now_s = round(time.time(), 3)
    try:
        status: Event = view_gateway(state_dir).status()
    except EdgeflError as error:
        return {"time": now_s, "kind": "waiting", "for": f"the gateway ({error.code})"}
    if not status["is_running"]:
        return {"time": now_s, "kind": "waiting", "for": "the gateway, which does not run"}
    wait = status["waiting"]
    if wait is None:
        return {"time": now_s, "kind": "waiting", "for": "a task"}
    return {"time": now_s, "kind": "waiting", **wait}


def _say(event: Event, *, is_json: bool) -> None:
    if is_json:
        text = json.dumps(event)
    elif event["kind"] == "waiting" and "have" not in event:
        text = f"waiting for {event['for']}"
    else:
        fields = {name: value for name, value in event.items() if name not in {"time", "kind"}}
        text = format_report(Reported(kind=event["kind"], fields=fields))
    clock = "" if is_json else time.strftime("%H:%M:%S ", time.localtime(event.get("time")))
    sys.stdout.write(f"{clock}{printable(text)}\n")
    sys.stdout.flush()
