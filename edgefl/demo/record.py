"""What happened in the run, gathered from the gateway's `events.jsonl`."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefl.protocol.reasons import Phase

# Aborts that are no fault: the round lost too many devices, or the demo killed its gateway.
_EXCUSED = frozenset(
    {
        "TOO_FEW_CHECKED_IN",
        "TOO_FEW_SHARED_KEYS",
        "BELOW_SURVIVOR_FLOOR",
        "GATEWAY_RESTARTED",
    }
)

Event = dict[str, Any]


class EventTail:
    """Reads the lines that were appended since the last look."""

    def __init__(self, path: Path) -> None:
        """Start at the beginning of the file, which need not exist yet."""
        self._path = path
        self._offset = 0

    def read_new(self) -> list[Event]:
        """Return the new events; a half-written last line waits for the next look."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


@dataclass(slots=True)
class RunRecord:
    """The run so far."""

    rounds: list[Event] = field(default_factory=list)
    accuracies: dict[int, float] = field(default_factory=dict)
    int8_accuracy: float | None = None
    task_outcome: str | None = None

    def add(self, event: Event) -> None:
        """Take one event."""
        if event["kind"] == "round":
            self.rounds.append(event)
        elif event["kind"] == "evaluated":
            self.accuracies[event["round"]] = event["accuracy"]
            self.int8_accuracy = event.get("int8_accuracy", self.int8_accuracy)
        elif event["kind"] == "task-ended":
            self.task_outcome = event["outcome"]

    @property
    def committed(self) -> list[Event]:
        """Committed rounds."""
        return [event for event in self.rounds if event["outcome"] == "COMMITTED"]

    @property
    def unexcused(self) -> list[Event]:
        """Aborted attempts that had kept their survivor floor."""
        return [
            event
            for event in self.rounds
            if event["outcome"] != "COMMITTED" and event["reason"] not in _EXCUSED
        ]

    @property
    def sum_check_held(self) -> bool:
        """Tell whether every opened sum agreed with its check coordinates."""
        opened = [e for e in self.rounds if e.get("sum_check_held") is not None]
        return bool(opened) and all(event["sum_check_held"] for event in opened)

    def dropouts_by_phase(self, phases: Iterable[Phase]) -> dict[str, int]:
        """Return dropouts in all attempts, by phase; each of `phases` is named."""
        counted = Counter(
            drop["phase"] for event in self.rounds for drop in event.get("dropouts", ())
        )
        return {phase.name: counted[phase.name] for phase in phases}

    def most_dropouts_in_a_round(self) -> int:
        """Return the most devices lost in one committed round."""
        return max((len(event["dropouts"]) for event in self.committed), default=0)

    def bytes_per_device(self) -> float:
        """Return the bytes that a device sent and received over the run, mean over devices."""
        return float(
            sum(
                event.get("up_bytes_per_device", 0.0) + event.get("down_bytes_per_device", 0.0)
                for event in self.rounds
            )
        )

    def uplink_bytes_per_device_round(self) -> float:
        """Return the bytes that a device sends in a committed round, mean."""
        sent = [event["up_bytes_per_device"] for event in self.committed]
        return sum(sent) / len(sent) if sent else 0.0
