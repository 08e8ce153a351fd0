"""Whom the demo kills and when: decided from what is seen on MQTT, never by a hook in an agent.

A device dies in a phase when it is killed right after its message of the phase before: the next one
never comes. To die in CHECK_IN it is killed after its last message of the round before.
"""

from collections import Counter
from dataclasses import dataclass, field

from edgefl.protocol.reasons import Phase
from edgefl.protocol.round_messages import (
    CheckIn,
    MaskedInput,
    RevealedShares,
    SharedKeys,
    SurvivorVote,
)

_COMPLETES = {
    CheckIn.kind: Phase.CHECK_IN,
    SharedKeys.kind: Phase.SHARE_KEYS,
    MaskedInput.kind: Phase.MASKED_INPUT,
    SurvivorVote.kind: Phase.CERTIFICATE,
    RevealedShares.kind: Phase.UNMASKING,
}
GATEWAY = "the gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A message of a device, as anyone on the broker sees it."""

    device: str
    kind: int
    round_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """Somebody to kill now.

    Attributes:
        victim: A device, or `GATEWAY`.
        phase: The phase in which it dies.
        round_number: The round of that phase.
    """

    victim: str
    phase: Phase
    round_number: int


@dataclass(slots=True)
class KillPlan:
    """Kills by round and phase.

    Attributes:
        wanted: How many devices are to die, by round and phase.
        phases: Of a round, in order.
        gateway_deaths: In which rounds the gateway dies, and in which phase. It dies with the first
            device that is seen to have completed the phase before.
    """

    wanted: dict[tuple[int, Phase], int]
    phases: tuple[Phase, ...]
    gateway_deaths: dict[int, Phase]
    _killed: set[str] = field(default_factory=set)

    def on_seen(self, seen: Seen) -> Kill | None:
        """Decide whether a device that was just seen dies now."""
        phase = self._next_phase(seen.kind)
        if phase is None or seen.device in self._killed:
            return None
        round_number = seen.round_number + (1 if phase is Phase.CHECK_IN else 0)
        if self.gateway_deaths.get(round_number) is phase:
            del self.gateway_deaths[round_number]
            return Kill(victim=GATEWAY, phase=phase, round_number=round_number)
        left = self.wanted.get((round_number, phase), 0)
        if left == 0:
            return None
        self.wanted[round_number, phase] = left - 1
        self._killed.add(seen.device)
        return Kill(victim=seen.device, phase=phase, round_number=round_number)

    def _next_phase(self, kind: int) -> Phase | None:
        """Return the phase in which a device dies that is killed after such a message."""
        completed = _COMPLETES.get(kind)
        if completed not in self.phases:
            return None
        return self.phases[(self.phases.index(completed) + 1) % len(self.phases)]

    def revived(self, device: str) -> None:
        """Note that a device runs again and may die again."""
        self._killed.discard(device)

    def ask_again(self, phase: Phase, round_number: int) -> None:
        """Want one more death in a phase: the last victim was quicker than its killer."""
        key = (round_number, phase)
        self.wanted[key] = max(1, self.wanted.get(key, 0))

    @property
    def open_wishes(self) -> Counter[Phase]:
        """How many deaths are still wanted, by phase."""
        wishes: Counter[Phase] = Counter()
        for (_, phase), count in self.wanted.items():
            wishes[phase] += count
        return wishes


def make_kill_plan(
    *, rounds: int, devices: int, survivor_floor: int, phases: tuple[Phase, ...]
) -> KillPlan:
    """Spread the kills over the run.

    Every phase loses a device in a round of its own, then one round loses one in each phase at
    once (at least four of 16), and a late one loses four before their masked input. The gateway,
    and its MQTT with it, dies twice: before masked inputs come, and while they are summed.

    Args:
        rounds: Rounds of the task.
        devices: The cohort.
        survivor_floor: Fewer survivors would only abort the round.
        phases: Of a round, in order.
    """
    spare = devices - survivor_floor

    def at(share: float) -> int:
        return min(rounds, max(2, round(share * rounds)))

    wanted: dict[tuple[int, Phase], int] = {}

    def want(share: float, phase: Phase, count: int) -> None:
        planned = sum(number for (r, _), number in wanted.items() if r == at(share))
        room = max(0, min(count, spare - planned))
        if room:
            wanted[at(share), phase] = wanted.get((at(share), phase), 0) + room

    for share, phase in zip((0.15, 0.25, 0.35, 0.4), phases[1:], strict=False):
        want(share, phase, 1)
    for phase in phases:
        want(0.5, phase, 1)
    want(0.85, Phase.MASKED_INPUT, 4)
    deaths = {at(0.6): Phase.MASKED_INPUT, at(0.7): phases[phases.index(Phase.MASKED_INPUT) + 1]}
    return KillPlan(wanted=wanted, phases=phases, gateway_deaths=deaths)
