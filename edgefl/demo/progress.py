"""The demo's live lines: one that changes while a round runs, and one that stays for each event."""

import sys
from collections import Counter
from typing import TextIO

from edgefl.demo.chaos import BROKER, GATEWAY, Kill
from edgefl.demo.record import Event


class Progress:
    """Prints to a terminal or to a file.

    Args:
        rounds: Rounds of the task.
        stream: Where to.
    """

    def __init__(self, rounds: int, stream: TextIO = sys.stdout) -> None:
        """Print nothing yet."""
        self._rounds = rounds
        self._stream = stream
        self._is_live = stream.isatty()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._stream.write(("\r\x1b[K" if self._is_live else "") + text + "\n")
        self._stream.flush()

    def live(self, text: str) -> None:
        """Print a line that the next one replaces; only on a terminal."""
        if self._is_live:
            self._stream.write("\r\x1b[K" + text[:110])
            self._stream.flush()

    def killed(self, kill: Kill) -> None:
        """Say who was killed."""
        if kill.victim in (BROKER, GATEWAY):
            self.say(f"        kill -9 {kill.victim} in round {kill.round_number}")
        else:
            where = f"{kill.phase.name} of round {kill.round_number}"
            self.say(f"        kill -9 {kill.victim}, to die in {where}")

    def event(self, event: Event) -> None:
        """Show one of the gateway's events."""
        kind = event["kind"]
        if kind == "phase":
            self.live(
                f"round {event['round']:2d}/{self._rounds} {event['phase']}: "
                f"{event['expected']} devices, {event['needed']} needed"
            )
        elif kind == "progress":
            self.live(
                f"round {event['round']:2d}/{self._rounds} {event['phase']}: "
                f"{event['arrived']}/{event['expected']} arrived, {event['needed']} needed"
            )
        elif kind == "round":
            self.say(self._round_line(event))
        elif kind == "evaluated":
            head = f"round {event['round']:2d}/{self._rounds}"
            self.say(f"{head}  accuracy {event['accuracy']:.3f} on people held out")
        elif kind == "waiting":
            self.say(f"        waiting for {event['for']}: {event['have']}/{event['need']}")

    def _round_line(self, event: Event) -> str:
        head = f"round {event['round']:2d}/{self._rounds}"
        if event["outcome"] != "COMMITTED":
            where = f" in {event['in_phase']}" if "in_phase" in event else ""
            return f"{head}  ABORTED by name: {event['reason']}{where}; model and ledger kept"
        drops = Counter(f"{drop['phase']} {drop['reason']}" for drop in event["dropouts"])
        dropped = ", ".join(f"{count}x {what}" for what, count in sorted(drops.items())) or "none"
        return (
            f"{head}  {event['survivors']} devices in the sum, check held; dropped: {dropped}; "
            f"{event['up_bytes_per_device'] / 1000:.1f} kB up; "
            f"epsilon {event['epsilon_server']:.0f} server, {event['epsilon_release']:.0f} release"
        )
