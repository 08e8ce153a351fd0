"""A drop in any phase costs only what the thresholds say: thousands of patterns, each foretold.

A pattern says which devices fall silent for good at the opening of which phase; the network is
perfect otherwise. What must come of it is counted from the thresholds and the ring alone, and
compared: the very survivors and their exact sum, or the very reason why there is none.

`pytest -m long -n 2 tests/property/test_dropouts.py` runs 10,000 patterns; a few hundred without.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np
import pytest

from edgefl.errors import ConfigError
from edgefl.protocol.envelope import NO_SESSION, Header
from edgefl.protocol.events import AggregatorSaid, DeviceSaid, Persist
from edgefl.protocol.graph import RingGraph, committee
from edgefl.protocol.messages import AggregatorMessage, DeviceMessage, Message
from edgefl.protocol.plan import Thresholds
from edgefl.protocol.reasons import AbortReason, AdversaryClass, Phase, phases_of
from edgefl.protocol.round_messages import Call, MaskedInput, RevealedShares
from tests.round_boards import MASK_KEYS, Device, Packet, least_floor
from tests.watched_harness import QuickHarness

MALICIOUS = AdversaryClass.MALICIOUS
GROUPS_PER_BATCH = 20
N_BATCHES_LONG = 63
"""63 batches of 20 cohorts, each with 8 patterns: 10,080."""
Rng = np.random.Generator


@dataclass
class Parcel(Packet):
    """A message on its way that was not written as bytes."""

    header: Header = field(kw_only=True)
    message: Message = field(kw_only=True)


class DropHarness(QuickHarness):
    """Hands messages over as they are, and keeps no more of them than the sum needs.

    The bytes on the wire, and what devices may show of each other, have tests of their own.
    """

    def inject(self, name: str, message: AggregatorMessage, header: Header) -> None:
        self.packets.append(
            Parcel(device=name, payload=b"", goes_up=False, header=header, message=message)
        )

    def _send_up(self, device: Device, message: DeviceMessage) -> None:
        machine = device.machine
        assert machine is not None
        header = Header(
            session_id=NO_SESSION if machine.plan is None else machine.plan.session_id,
            attempt=machine.call.attempt,
            sender=device.name,
        )
        device.sent.append((header.session_id, message))
        if isinstance(message, MaskedInput):
            versions = self.masked_versions.setdefault((header.session_id, device.name), set())
            versions.add(message.packed)
        self.packets.append(
            Parcel(device=device.name, payload=b"", goes_up=True, header=header, message=message)
        )

    def _deliver_up(self, packet: Parcel) -> None:
        self.tell(
            DeviceSaid(
                device=packet.device, session_id=packet.header.session_id, message=packet.message
            )
        )

    def _deliver_down(self, packet: Parcel) -> None:
        device = self.devices[packet.device]
        if not device.has_power:
            return
        self.settle(device)
        if isinstance(packet.message, Call):
            self._answer(device, packet.message)
        elif device.machine is not None:
            device.effects.extend(device.machine.handle(AggregatorSaid(message=packet.message)))

    def _persist(self, device: Device, effect: Persist) -> None:
        device.persist(effect)

    def crash(self, device: Device) -> None:
        # Silent for the rest of the round; what comes of lost memory is tried elsewhere.
        device.machine = None
        device.effects.clear()
        device.jobs.clear()

    def next_round(self) -> None:
        """Call everybody again, with the next one-time key and another graph."""
        self.packets.clear()
        for device in self.devices.values():
            self.crash(device)
            device.is_silent, device.flash = False, None
            device.sent.clear()
        self.vectors.clear()
        self.start_attempt()

    @property
    def has_reveals(self) -> bool:
        return any(
            isinstance(message, RevealedShares)
            for device in self.devices.values()
            for _, message in device.sent
        )


@dataclass(frozen=True, kw_only=True)
class Foretold:
    """What a pattern must lead to: a reason, or the survivors in the sum."""

    reason: AbortReason
    survivors: frozenset[int] = frozenset()


class Cohort:
    """The ring, the thresholds and the committee, by epoch position, as the design defines them.

    Written without the classes under test but for the draw of the ring and of the committee.
    """

    def __init__(self, harness: DropHarness, checked_in: frozenset[int]) -> None:
        epoch, index = harness.keys.epoch, harness.aggregator.call.key_index
        self.limits: Thresholds = harness.setup().thresholds(len(checked_in))
        is_malicious = harness.adversary is MALICIOUS
        members = sorted(range(epoch.size) if is_malicious else checked_in)
        graph = RingGraph(
            size=len(members), degree=self.limits.degree, seed=epoch.graph_seed(index)
        )
        ring = [members[place] for place in graph.ring_order()]
        self.reach = self.limits.degree // 2
        self.ring = ring
        self.near = {
            member: frozenset(self._around(place)) - {member} & checked_in
            if not graph.is_complete
            else checked_in - {member}
            for place, member in enumerate(ring)
        }
        self.signers: frozenset[int] = frozenset()
        if self.limits.committee:
            seed = epoch.committee_seed(index)
            self.signers = frozenset(committee(epoch.size, seed, self.limits.committee))

    def _around(self, place: int) -> list[int]:
        steps = range(-self.reach, self.reach + 1)
        return [self.ring[(place + step) % len(self.ring)] for step in steps]

    def windows_hold(self, alive: Collection[int]) -> bool:
        """Count every window of the ring."""
        size = len(self.ring)
        return all(
            sum(self.ring[(first + step) % size] in alive for step in range(self.reach))
            >= self.limits.window
            for first in range(size)
        )

    def holders(self, owner: int, among: Collection[int]) -> int:
        return len(self.near[owner].intersection(among))


def foretell(harness: DropHarness, drops: dict[str, Phase]) -> Foretold:
    """Count what must come of a pattern."""
    members = {name: harness.keys.epoch_position_of(name) for name in harness.devices}

    def without(before: frozenset[int], phase: Phase) -> frozenset[int]:
        return before - {members[name] for name, when in drops.items() if when is phase}

    called = frozenset(position for position in members.values() if position is not None)
    checked_in = without(called, Phase.CHECK_IN)
    if len(checked_in) < harness.floor:
        return Foretold(reason=AbortReason.TOO_FEW_CHECKED_IN)
    try:
        cohort = Cohort(harness, checked_in)
    except ConfigError:
        return Foretold(reason=AbortReason.TOO_FEW_CHECKED_IN)
    if not cohort.windows_hold(checked_in):
        return Foretold(reason=AbortReason.NEIGHBOURHOOD_LOST)
    shared = without(checked_in, Phase.SHARE_KEYS)
    if len(shared) < harness.floor:
        return Foretold(reason=AbortReason.TOO_FEW_SHARED_KEYS)
    return _after_sharing(harness, cohort, shared, without)


def _after_sharing(
    harness: DropHarness,
    cohort: Cohort,
    shared: frozenset[int],
    without: Callable[[frozenset[int], Phase], frozenset[int]],
) -> Foretold:
    least, sharers = cohort.limits.neighbourhood, shared
    while cut := {member for member in sharers if cohort.holders(member, sharers) < least}:
        sharers -= cut
    if len(sharers) < harness.floor or not cohort.windows_hold(sharers):
        return Foretold(reason=AbortReason.NEIGHBOURHOOD_LOST)
    alive = without(sharers, Phase.MASKED_INPUT)
    if len(alive) < harness.floor:
        return Foretold(reason=AbortReason.BELOW_SURVIVOR_FLOOR)
    wanted = [owner for owner in sharers if owner in alive or cohort.holders(owner, alive)]
    if not cohort.windows_hold(alive) or any(
        cohort.holders(owner, alive) < least for owner in wanted
    ):
        return Foretold(reason=AbortReason.NEIGHBOURHOOD_LOST)
    voting = without(alive, Phase.CERTIFICATE)
    if len(voting & cohort.signers) < cohort.limits.certificate:
        return Foretold(reason=AbortReason.TOO_FEW_SIGNATURES)
    answering = without(voting, Phase.UNMASKING)
    if any(cohort.holders(owner, answering) < least for owner in wanted):
        return Foretold(reason=AbortReason.TOO_FEW_UNMASKED)
    return Foretold(reason=AbortReason.NONE, survivors=alive)


# ---------------------------------------------------------------- patterns


def make_harness(rng: Rng) -> DropHarness:
    """Draw a cohort: mostly small, as these are quick; some sparse graphs of up to 40."""
    kind = rng.choice(["small", "medium", "sparse"], p=[0.8, 0.14, 0.06])
    lowest, highest = {"small": (3, 7), "medium": (8, 20), "sparse": (24, 40)}[str(kind)]
    n_devices = int(rng.integers(lowest, highest + 1))
    adversary = AdversaryClass(int(rng.integers(1, 4)))
    is_sparse = kind == "sparse"
    corrupt = int(rng.choice([0, 50])) if is_sparse else 0
    dropped = int(rng.choice([50, 100])) if is_sparse else 0
    floor = least_floor(
        n_devices, adversary=adversary, corrupt_permille=corrupt, drop_permille=dropped
    )
    return DropHarness(
        n_devices,
        floor=int(rng.integers(floor, n_devices + 1)) if rng.random() < 0.2 else floor,
        seed=int(rng.integers(1 << 30)),
        dimension=5,
        adversary=adversary,
        corrupt_permille=corrupt,
        drop_permille=dropped,
    )


def random_drops(harness: DropHarness, rng: Rng) -> dict[str, Phase]:
    """Any devices, in any phases."""
    phases = phases_of(harness.adversary)
    share = rng.choice([0.05, 0.15, 0.35])
    return {
        name: phases[int(rng.integers(len(phases)))]
        for name in harness.devices
        if rng.random() < share
    }


def both_ends_of_an_edge(harness: DropHarness, rng: Rng) -> dict[str, Phase]:
    """Two neighbours, each in a phase of its own, and now and then a third device."""
    phases = phases_of(harness.adversary)
    cohort = _whole_cohort(harness)
    first = int(rng.choice(sorted(cohort.near)))
    ends = [first, int(rng.choice(sorted(cohort.near[first])))]
    if rng.random() < 0.3:
        ends.append(int(rng.choice(sorted(cohort.near))))
    return {harness.keys.devices[end]: phases[int(rng.integers(len(phases)))] for end in ends}


def committee_members(harness: DropHarness, rng: Rng) -> dict[str, Phase]:
    """Members of the committee alone, late: around as many as may be missing."""
    signers = sorted(_whole_cohort(harness).signers)
    if not signers:
        return random_drops(harness, rng)
    limits = _whole_cohort(harness).limits
    most = min(len(signers), len(signers) - limits.certificate + int(rng.random() < 0.3))
    chosen = rng.permutation(signers)[:most]
    late = (Phase.MASKED_INPUT, Phase.CERTIFICATE, Phase.UNMASKING)
    return {harness.keys.devices[int(s)]: late[int(rng.integers(3))] for s in chosen}


def around_one_device(harness: DropHarness, rng: Rng) -> dict[str, Phase]:
    """Neighbours of one device in one phase, to its threshold or one beyond; it may go too."""
    cohort, phases = _whole_cohort(harness), phases_of(harness.adversary)
    victim = int(rng.choice(sorted(cohort.near)))
    near = rng.permutation(sorted(cohort.near[victim]))
    kept = cohort.limits.neighbourhood - int(rng.random() < 0.3)
    phase = phases[int(rng.integers(1, len(phases)))]
    drops = {harness.keys.devices[int(member)]: phase for member in near[kept:]}
    if rng.random() < 0.3:
        drops[harness.keys.devices[victim]] = Phase.MASKED_INPUT
    return drops


def to_the_floor(harness: DropHarness, rng: Rng) -> dict[str, Phase]:
    """As many devices as the survivor floor allows, or one more, in one or two phases."""
    phases = phases_of(harness.adversary)
    n_dropped = len(harness.devices) - harness.floor + int(rng.random() < 0.3)
    names = rng.permutation(list(harness.devices))[:n_dropped]
    chosen = [phases[int(rng.integers(len(phases)))] for _ in range(2)]
    return {str(name): chosen[int(rng.integers(2))] for name in names}


KINDS: tuple[Callable[[DropHarness, Rng], dict[str, Phase]], ...] = (
    random_drops,
    both_ends_of_an_edge,
    committee_members,
    around_one_device,
    to_the_floor,
)


def _whole_cohort(harness: DropHarness) -> Cohort:
    return Cohort(harness, frozenset(range(harness.keys.epoch.size)))


# ---------------------------------------------------------------- tests


def run(harness: DropHarness, drops: dict[str, Phase], *, is_noticed: bool) -> None:
    """Let each device go silent when its phase opens, noticed by the broker or by the timers."""
    for phase in phases_of(harness.adversary):
        while harness.aggregator.phase < phase and harness.outcome is None:
            harness.run_until(phase)
            if harness.aggregator.phase < phase:
                assert harness.fire_timer(), "the round stands still"
        for name in (name for name, when in drops.items() if when is phase):
            harness.silence(harness.devices[name])
            if is_noticed:
                harness.say_offline(name)
    harness.run_to_end()


def check(harness: DropHarness, foretold: Foretold) -> None:
    outcome = harness.outcome
    assert outcome is not None
    report = outcome.report
    assert report.abort_reason is foretold.reason
    assert harness.bad_messages == []
    if foretold.reason is not AbortReason.NONE:
        assert outcome.total is None
        assert harness.has_reveals <= (foretold.reason is AbortReason.TOO_FEW_UNMASKED)
        return
    assert report.outcome is Phase.COMMITTED
    survivors = {harness.keys.epoch_position_of(name) for name in report.survivors}
    assert survivors == foretold.survivors
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


def try_patterns(group: int) -> list[AbortReason]:
    """Run patterns on one cohort, a round each; the number is all there is to repeat them."""
    rng = np.random.default_rng([group, 2026])
    harness = make_harness(rng)
    reasons = []
    for number in range(MASK_KEYS):
        if number:
            harness.next_round()
        drops = KINDS[(group + number) % len(KINDS)](harness, rng)
        foretold = foretell(harness, drops)
        try:
            run(harness, drops, is_noticed=bool(rng.integers(2)))
            check(harness, foretold)
        except Exception as error:
            shown = {name: phase.name for name, phase in drops.items()}
            error.add_note(
                f"group {group}, round {number}: {harness.adversary.name}, "
                f"{len(harness.devices)} devices, {shown}, {foretold}"
            )
            raise
        reasons.append(foretold.reason)
    return reasons


@pytest.mark.timeout(600)
@pytest.mark.parametrize("batch", range(2))
def test_hundreds_of_patterns(batch: int) -> None:
    reasons = try_batch(batch)
    assert len(reasons) > 4, "some rounds end without a sum, for several reasons"


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("batch", range(N_BATCHES_LONG))
def test_ten_thousand_patterns(batch: int) -> None:
    try_batch(batch)


def try_batch(batch: int) -> Counter[AbortReason]:
    groups = range(batch * GROUPS_PER_BATCH, (batch + 1) * GROUPS_PER_BATCH)
    reasons = Counter(reason for group in groups for reason in try_patterns(group))
    assert reasons.total() == GROUPS_PER_BATCH * MASK_KEYS
    assert reasons[AbortReason.NONE] > reasons.total() // 4, "many rounds survive their drops"
    return reasons
