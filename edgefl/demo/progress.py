"""The demo's live lines: one that changes while a round runs, and one that stays for each event."""

import sys
from collections import Counter
from typing import TextIO

from broker.console import format_report
from broker.events import Reported
from edgefl.demo.chaos import GATEWAY, Kill, Seen
from edgefl.demo.record import Event
from edgefl.protocol.round_messages import (
    CheckIn,
    MaskedInput,
    RevealedShares,
    SharedKeys,
    SurvivorVote,
)

_COMPLETES = {
    CheckIn.kind: "CHECK_IN",
    SharedKeys.kind: "SHARE_KEYS",
    MaskedInput.kind: "MASKED_INPUT",
    SurvivorVote.kind: "CERTIFICATE",
    RevealedShares.kind: "UNMASKING",
}


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
        self._phase: Event = {}
        self._arrived: set[str] = set()

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
        how = " in" if kill.victim == GATEWAY else ", to die in"
        self.say(
            f"        kill -9 {kill.victim}{how} {kill.phase.name} of round {kill.round_number}"
        )

    def event(self, event: Event) -> None:
        """Show one of the gateway's events."""
        kind = event["kind"]
        if kind == "phase":
            self._phase, self._arrived = event, set()
            self._show_phase()
        elif kind == "round":
            self.say(self._round_line(event))
        elif kind == "evaluated":
            head = f"round {event['round']:2d}/{self._rounds}"
            int8 = event.get("int8_accuracy")
            beside = "" if int8 is None else f" as float32, {int8:.3f} as int8,"
            self.say(f"{head}  accuracy {event['accuracy']:.3f}{beside} on people held out")
        elif kind in ("key-epoch", "key-epoch-aborted"):
            self.say("        " + format_report(Reported(kind=kind, fields=dict(event))))
        elif kind == "waiting":
            self.say(f"        waiting for {event['for']}: {event['have']}/{event['need']}")

    def seen(self, seen: Seen) -> None:
        """Count a device's message towards the phase that is shown."""
        phase = _COMPLETES.get(seen.kind)
        if phase is not None and phase == self._phase.get("phase"):
            self._arrived.add(seen.device)
            self._show_phase()

    def _show_phase(self) -> None:
        phase = self._phase
        self.live(
            f"round {phase['round']:2d}/{self._rounds} {phase['phase']}: {len(self._arrived)} of "
            f"{phase['expected']} arrived, {phase['needed']} needed"
        )

    def _round_line(self, event: Event) -> str:
        head = f"round {event['round']:2d}/{self._rounds}"
        if event["outcome"] != "COMMITTED":
            where = f" in {event['in_phase']}" if "in_phase" in event else ""
            return f"{head}  ABORTED by name: {event['reason']}{where}; model and ledger kept"
        drops = Counter(f"{drop['phase']} {drop['reason']}" for drop in event["dropouts"])
        dropped = ", ".join(f"{count}x {what}" for what, count in sorted(drops.items())) or "none"
        arrived = " ".join(f"{count['arrived']}/{count['needed']}" for count in event["phases"])
        return (
            f"{head}  {event['survivors']} devices in the sum, check held; arrived/needed by phase "
            f"{arrived}; dropped: {dropped}; {event['up_bytes_per_device'] / 1000:.1f} kB up; "
            f"epsilon {event['epsilon_server']:.0f} server, {event['epsilon_release']:.0f} release"
        )
