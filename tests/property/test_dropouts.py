"""A drop in any phase costs only what the thresholds say: thousands of patterns, each foretold.

A pattern says which devices fall silent for good at the opening of which phase; the network is
perfect otherwise. What must come of it is counted from the thresholds and the ring alone, and
compared: the very survivors and their exact sum, or the very reason why there is none.

`pytest -m long -n 2 tests/property/test_dropouts.py` runs 10,000 patterns; a few hundred without.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import pytest

from edgefl.errors import ConfigError
from edgefl.protocol.graph import RingGraph, committee
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.plan import Thresholds
from edgefl.protocol.reasons import AbortReason, AdversaryClass, Phase, phases_of
from edgefl.protocol.round_messages import MaskedInput, RevealedShares
from tests.round_harness import Device, least_floor
from tests.watched_harness import QuickHarness

MALICIOUS = AdversaryClass.MALICIOUS
PATTERNS_PER_TEST = 100
N_TESTS_LONG = 100
Rng = np.random.Generator


class DropHarness(QuickHarness):
    """Keeps no more of what devices send than the sum needs."""

    def _record(self, device: Device, session_id: bytes, message: DeviceMessage) -> None:
        device.sent.append((session_id, message))
        if isinstance(message, MaskedInput):
            self.masked_versions.setdefault((session_id, device.name), set()).add(message.packed)

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
    kind = rng.choice(["small", "medium", "sparse"], p=[0.84, 0.1, 0.06])
    lowest, highest = {"small": (3, 8), "medium": (9, 20), "sparse": (24, 40)}[str(kind)]
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
    share = rng.choice([0.1, 0.25, 0.5])
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
    return {
        harness.keys.devices[end]: phases[int(rng.integers(len(phases)))] for end in ends
    }


def committee_members(harness: DropHarness, rng: Rng) -> dict[str, Phase]:
    """Members of the committee alone, late: around as many as may be missing."""
    signers = sorted(_whole_cohort(harness).signers)
    if not signers:
        return random_drops(harness, rng)
    limits = _whole_cohort(harness).limits
    most = min(len(signers), len(signers) - limits.certificate + int(rng.integers(0, 2)))
    chosen = rng.permutation(signers)[:most]
    late = (Phase.MASKED_INPUT, Phase.CERTIFICATE, Phase.UNMASKING)
    return {harness.keys.devices[int(s)]: late[int(rng.integers(3))] for s in chosen}


def around_one_device(harness: DropHarness, rng: Rng) -> dict[str, Phase]:
    """Neighbours of one device in one phase, to its threshold or one beyond; it may go too."""
    cohort, phases = _whole_cohort(harness), phases_of(harness.adversary)
    victim = int(rng.choice(sorted(cohort.near)))
    near = rng.permutation(sorted(cohort.near[victim]))
    kept = cohort.limits.neighbourhood - int(rng.integers(0, 2))
    phase = phases[int(rng.integers(1, len(phases)))]
    drops = {harness.keys.devices[int(member)]: phase for member in near[kept:]}
    if rng.random() < 0.3:
        drops[harness.keys.devices[victim]] = Phase.MASKED_INPUT
    return drops


def to_the_floor(harness: DropHarness, rng: Rng) -> dict[str, Phase]:
    """As many devices as the survivor floor allows, or one more, in one or two phases."""
    phases = phases_of(harness.adversary)
    n_dropped = len(harness.devices) - harness.floor + int(rng.integers(0, 2))
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


def try_pattern(number: int) -> AbortReason:
    """Run one pattern of many; the number is all there is to repeat it."""
    rng = np.random.default_rng([number, 2026])
    harness = make_harness(rng)
    drops = KINDS[number % len(KINDS)](harness, rng)
    foretold = foretell(harness, drops)
    try:
        run(harness, drops, is_noticed=bool(rng.integers(2)))
        check(harness, foretold)
    except AssertionError as error:
        shown = {name: phase.name for name, phase in drops.items()}
        error.add_note(f"pattern {number}: {len(harness.devices)} devices, {shown}, {foretold}")
        raise
    return foretold.reason


@pytest.mark.parametrize("batch", range(3))
def test_some_patterns(batch: int) -> None:
    reasons = Counter(try_pattern(number) for number in _numbers(batch))
    assert reasons[AbortReason.NONE] > PATTERNS_PER_TEST // 3, "most rounds survive their drops"
    assert len(reasons) > 3, "some do not, for several reasons"


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("batch", range(N_TESTS_LONG))
def test_ten_thousand_patterns(batch: int) -> None:
    reasons = Counter(try_pattern(number) for number in _numbers(batch))
    assert reasons[AbortReason.NONE] > PATTERNS_PER_TEST // 3


def _numbers(batch: int) -> range:
    return range(batch * PATTERNS_PER_TEST, (batch + 1) * PATTERNS_PER_TEST)
