"""What devices were last seen to be: when they were heard, and what they run.

For the operator's eyes: no decision hangs on it, so nothing of it is durable, and a restarted
gateway begins with nothing.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Sighting:
    """One device, as it was last heard.

    Attributes:
        heard_at_s: By the clock that the core is given.
        agent_version: Empty before its hello.
    """

    heard_at_s: float
    agent_version: str = ""


class Sightings:
    """Last seen, by device. Only known devices may be noted: that bounds its memory."""

    def __init__(self) -> None:
        """Start with nobody seen."""
        self._seen: dict[str, Sighting] = {}

    def of(self, device: str) -> Sighting | None:
        """Return how a device was last seen; None for not in this life of the gateway."""
        return self._seen.get(device)

    def note_heard(self, device: str, now_s: float) -> None:
        """Note a sign of life."""
        seen = self._seen.get(device)
        if seen is None:
            self._seen[device] = Sighting(heard_at_s=now_s)
        else:
            seen.heard_at_s = now_s

    def note_hello(self, device: str, agent_version: str, now_s: float) -> None:
        """Note what a device runs."""
        self.note_heard(device, now_s)
        self._seen[device].agent_version = agent_version
