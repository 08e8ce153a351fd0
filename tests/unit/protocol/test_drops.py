"""Devices that die in each phase, around the number that the phase needs."""

from itertools import combinations

import numpy as np
import pytest

from edgefl.protocol.graph import RingGraph
from edgefl.protocol.reasons import OPEN_PHASES, AbortReason, AdversaryClass, DropReason, Phase
from edgefl.protocol.report import DropKind
from edgefl.protocol.round_messages import (
    CheckIn,
    RevealedShares,
    SharedKeys,
    SurvivorVote,
)
from edgefl.protocol.session_graph import SessionGraph
from tests.round_boards import LIMITS
from tests.round_harness import RoundHarness

CURIOUS, SEMI, MALICIOUS = AdversaryClass
# Seven devices share with all others; four shares open a secret, so that five must survive.
N_DEVICES, FLOOR = 7, 5
SHORTFALL = {
    Phase.CHECK_IN: AbortReason.TOO_FEW_CHECKED_IN,
    Phase.SHARE_KEYS: AbortReason.TOO_FEW_SHARED_KEYS,
    Phase.MASKED_INPUT: AbortReason.BELOW_SURVIVOR_FLOOR,
    Phase.UNMASKING: AbortReason.TOO_FEW_UNMASKED,
}
CASES = [
    (adversary, phase)
    for adversary in AdversaryClass
    for phase in OPEN_PHASES
    if phase is not Phase.CERTIFICATE
]
SPARSE = {"corrupt_permille": 50, "drop_permille": 200}


def check_sum(harness: RoundHarness) -> None:
    """Check a committed round: the sum is exactly that of what the survivors hid."""
    outcome = harness.outcome
    assert outcome is not None
    assert outcome.report.outcome is Phase.COMMITTED
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))
    assert outcome.total_weight == len(outcome.report.survivors)


@pytest.mark.parametrize("left", [FLOOR - 1, FLOOR, FLOOR + 1, N_DEVICES])
@pytest.mark.parametrize(("adversary", "phase"), CASES)
def test_silence_costs_the_silent_alone(adversary: AdversaryClass, phase: Phase, left: int) -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR, adversary=adversary)
    harness.run_until(phase)
    silent = list(harness.devices.values())[left:]
    for device in silent:
        harness.silence(device)
    outcome = harness.run_to_end()
    report = outcome.report
    if left < FLOOR:
        assert report.outcome is Phase.ABORTED
        assert report.abort_reason is SHORTFALL[phase]
        assert outcome.total is None
        assert report.survivors == ()
        assert not any(
            isinstance(message, RevealedShares)
            for device in harness.devices.values()
            for _, message in device.sent
        ) or (phase is Phase.UNMASKING)
        assert report.of_kind(DropKind.TERMINATED) == tuple(harness.devices)[:left]
        return
    assert len(report.survivors) == (N_DEVICES if phase is Phase.UNMASKING else left)
    check_sum(harness)
    assert [drop.device for drop in report.dropouts] == [device.name for device in silent]
    assert {drop.phase for drop in report.dropouts} <= {phase}
    assert {drop.reason for drop in report.dropouts} <= {DropReason.TIMED_OUT}
    is_in_sum = phase is Phase.UNMASKING
    kind = DropKind.AFTER_MASKED_INPUT if is_in_sum else DropKind.BEFORE_MASKED_INPUT
    assert report.of_kind(kind) == tuple(device.name for device in silent)
    assert report.of_kind(DropKind.TERMINATED) == ()


@pytest.mark.parametrize("left", [FLOOR - 1, FLOOR, FLOOR + 1])
@pytest.mark.parametrize(("adversary", "phase"), CASES[-4:])
def test_devices_known_to_be_offline_are_not_waited_for(
    adversary: AdversaryClass, phase: Phase, left: int
) -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR, adversary=adversary)
    harness.run_until(phase)
    for device in list(harness.devices.values())[left:]:
        harness.silence(device)
        harness.say_offline(device.name)
    started_s = harness.now_s
    outcome = harness.run_to_end()
    assert harness.now_s == started_s, "no timer was needed"
    assert (outcome.report.outcome is Phase.COMMITTED) == (left >= FLOOR)
    assert {drop.reason for drop in outcome.report.dropouts} == {DropReason.OFFLINE}


@pytest.mark.parametrize("adversary", list(AdversaryClass))
def test_a_silent_device_in_every_phase_of_one_round(adversary: AdversaryClass) -> None:
    harness = RoundHarness(14, floor=9, adversary=adversary)
    names = list(harness.devices)
    phases = [
        phase for phase in OPEN_PHASES if phase is not Phase.CERTIFICATE or adversary is MALICIOUS
    ]
    for phase, name in zip(phases, names, strict=False):
        harness.run_until(phase)
        while harness.aggregator.phase < phase:
            harness.fire_timer()
            harness.run_until(phase)
        harness.silence(harness.devices[name])
    outcome = harness.run_to_end()
    check_sum(harness)
    # Three times it costs an update; who falls silent afterwards is missed in unmasking at most.
    lost = {drop.device: drop.phase for drop in outcome.report.dropouts}
    assert {name: lost.pop(name) for name in names[:3]} == dict(
        zip(names[:3], phases, strict=False)
    )
    assert set(lost) <= set(names[3 : len(phases)])
    assert set(lost.values()) <= {Phase.UNMASKING}
    assert outcome.report.survivors == tuple(names[3:])


# ---------------------------------------------------------------- CERTIFICATE


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        (3, AbortReason.TOO_FEW_SIGNATURES),
        (4, AbortReason.TOO_FEW_UNMASKED),
        (5, AbortReason.NONE),
        (6, AbortReason.NONE),
    ],
)
def test_committee_members_fall_silent(left: int, reason: AbortReason) -> None:
    """Four of seven must sign, and five must then answer."""
    harness = RoundHarness(N_DEVICES, floor=FLOOR, adversary=MALICIOUS)
    harness.run_until(Phase.CERTIFICATE)
    for device in list(harness.devices.values())[left:]:
        harness.silence(device)
    outcome = harness.run_to_end()
    assert outcome.report.abort_reason is reason
    if reason is AbortReason.TOO_FEW_SIGNATURES:
        assert harness.charged_survivors == [], "nothing is spent for a sum that is not opened"
        assert not outcome.report.charged
    if reason is AbortReason.NONE:
        assert len(outcome.report.survivors) == N_DEVICES
        check_sum(harness)


def test_the_vote_ends_as_soon_as_there_is_a_certificate() -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR, adversary=MALICIOUS)
    harness.run_until(Phase.CERTIFICATE)
    votes = 0
    while harness.aggregator.phase is Phase.CERTIFICATE:
        harness.deliver_all_down()
        for device in harness.devices.values():
            harness.settle(device)
        harness.deliver(0)
        votes += 1
    assert votes == 4
    assert harness.aggregator.phase is Phase.UNMASKING
    check_sum_of_rest = harness.run_to_end()
    assert check_sum_of_rest.report.dropouts == ()
    check_sum(harness)


def test_without_committee_members_enough_among_the_survivors_nobody_is_asked() -> None:
    harness = RoundHarness(30, adversary=MALICIOUS, floor=12, **SPARSE)
    harness.run_until(Phase.MASKED_INPUT)
    plan = harness.aggregator.plan
    assert plan is not None
    committee = SessionGraph.of(plan, harness.keys.epoch).committee
    thresholds = plan.thresholds
    assert len(committee) == thresholds.committee < 30
    for member in committee[thresholds.certificate - 1 :]:
        harness.silence(harness.devices[harness.keys.devices[member]])
    outcome = harness.run_to_end()
    assert outcome.report.abort_reason is AbortReason.TOO_FEW_SIGNATURES
    assert outcome.report.phases[-1].phase is Phase.MASKED_INPUT


# ---------------------------------------------------------------- spare shares


def test_unmasking_ends_when_every_secret_has_spare_shares() -> None:
    """Seven of twelve open a secret; ten answers give each owner nine or ten shares."""
    harness = RoundHarness(12)
    harness.run_until(Phase.UNMASKING)
    for name in ("d03", "d08"):
        harness.silence(harness.devices[name])
    started_s = harness.now_s
    outcome = harness.run_to_end()
    # A moment for those who may only be slow, and not the whole time of the phase.
    assert harness.now_s == started_s + LIMITS.stragglers_s
    assert outcome.report.dropouts == ()
    assert outcome.report.unmasked == 10
    check_sum(harness)


def test_without_spare_shares_the_last_one_is_waited_for() -> None:
    harness = RoundHarness(12)
    harness.run_until(Phase.UNMASKING)
    silent = ("d03", "d07", "d08")
    for name in silent:
        harness.silence(harness.devices[name])
    started_s = harness.now_s
    outcome = harness.run_to_end()
    assert harness.now_s == started_s + 30
    assert tuple(drop.device for drop in outcome.report.dropouts) == silent
    check_sum(harness)


# ---------------------------------------------------------------- sparse graphs


def sparse(
    n_devices: int = 26, adversary: AdversaryClass = CURIOUS, **changes: int
) -> RoundHarness:
    return RoundHarness(n_devices, adversary=adversary, **(SPARSE | changes))


def graph_of(harness: RoundHarness) -> SessionGraph:
    plan = harness.aggregator.plan
    assert plan is not None
    assert plan.thresholds.degree < plan.size - 1
    return SessionGraph.of(plan, harness.keys.epoch)


@pytest.mark.parametrize("adversary", list(AdversaryClass))
def test_sparse_sums_are_exact_with_a_silent_device_in_every_phase(
    adversary: AdversaryClass,
) -> None:
    harness = sparse(30, adversary, floor=20)
    names = list(harness.devices)
    phases = [Phase.CHECK_IN, Phase.SHARE_KEYS, Phase.MASKED_INPUT, Phase.UNMASKING]
    for phase, name in zip(phases, names[::7], strict=False):
        harness.run_until(phase)
        while harness.aggregator.phase < phase:
            harness.fire_timer()
            harness.run_until(phase)
        harness.silence(harness.devices[name])
    outcome = harness.run_to_end()
    graph_of(harness)
    check_sum(harness)
    assert set(names) - set(outcome.report.survivors) == set(names[:21:7])


@pytest.mark.parametrize("phase", [Phase.SHARE_KEYS, Phase.MASKED_INPUT, Phase.UNMASKING])
def test_both_ends_of_one_edge_fall_silent(phase: Phase) -> None:
    harness = sparse()
    harness.run_until(phase)
    other = graph_of(harness).neighbours(5)[0]
    ends = {harness.name_of(5), harness.name_of(other)}
    for name in ends:
        harness.silence(harness.devices[name])
    outcome = harness.run_to_end()
    check_sum(harness)
    is_lost = phase is not Phase.UNMASKING
    assert set(harness.devices) - set(outcome.report.survivors) == (ends if is_lost else set())


def silence_around(
    harness: RoundHarness, centre: int, kept: int, *, silence_centre: bool
) -> set[str]:
    """Silence all but some neighbours of one device, so that nobody else loses too many."""
    graph, plan = graph_of(harness), harness.aggregator.plan
    assert plan is not None
    neighbours = set(graph.neighbours(centre))
    for chosen in combinations(sorted(neighbours), kept):
        gone = (neighbours - set(chosen)) | ({centre} if silence_centre else set())
        # Whatever becomes of the centre, the others are to hold without it.
        left = set(range(plan.size)) - gone - {centre}
        if all(
            len(left.intersection(graph.neighbours(position))) >= plan.thresholds.neighbourhood
            for position in set(range(plan.size)) - {centre}
        ):
            break
    else:
        raise AssertionError("no such choice")
    names = {harness.name_of(position) for position in gone}
    for name in names:
        harness.silence(harness.devices[name])
    return names


@pytest.mark.parametrize("is_silent", [False, True])
@pytest.mark.parametrize("extra", [0, 1])
def test_the_threshold_of_its_neighbours_brings_back_a_devices_secret(
    extra: int, is_silent: bool
) -> None:
    """Of a survivor the self seed, of a dropped device the mask key; one neighbour decides."""
    harness = sparse()
    harness.run_until(Phase.MASKED_INPUT)
    plan = harness.aggregator.plan
    assert plan is not None
    kept = plan.thresholds.neighbourhood - 1 + extra
    silence_around(harness, 5, kept, silence_centre=is_silent)
    outcome = harness.run_to_end()
    if extra:
        check_sum(harness)
        assert (harness.name_of(5) in outcome.report.survivors) != is_silent
    else:
        assert outcome.report.abort_reason is AbortReason.NEIGHBOURHOOD_LOST
        assert harness.charged_survivors == []


def test_a_device_whose_neighbourhood_is_gone_is_cut_off_and_others_go_on() -> None:
    """Before masks are made, losing its neighbours costs a device its update and nobody else."""
    harness = sparse()
    harness.run_until(Phase.SHARE_KEYS)
    plan = harness.aggregator.plan
    assert plan is not None
    kept = plan.thresholds.neighbourhood - 1
    silent = silence_around(harness, 5, kept, silence_centre=False)
    outcome = harness.run_to_end()
    check_sum(harness)
    alone = harness.name_of(5)
    cut_off = [drop.device for drop in outcome.report.dropouts if drop.reason is DropReason.CUT_OFF]
    assert cut_off == [alone]
    assert set(outcome.report.survivors) == set(harness.devices) - silent - {alone}
    sent = [type(message) for _, message in harness.devices[alone].sent]
    assert sent == [CheckIn, SharedKeys], "it was not asked for more"
    harness.progress()
    assert [end.counted for end in harness.devices[alone].finished] == [False]


def test_an_arc_of_the_ring_without_survivors_is_not_proposed() -> None:
    """Where a malicious gateway is feared, the aggregator does not ask for what is refused."""
    harness = sparse(30, MALICIOUS, floor=12)
    harness.run_until(Phase.MASKED_INPUT)
    graph, plan = graph_of(harness), harness.aggregator.plan
    assert plan is not None
    everybody = set(range(plan.size))
    arc: set[int] = set()
    for position in graph.neighbours(3):
        if not graph.windows_hold(everybody - arc):
            break
        arc.add(position)
    assert not graph.windows_hold(everybody - arc)
    for position in arc:
        harness.silence(harness.devices[harness.name_of(position)])
    assert len(everybody - arc) >= harness.floor
    outcome = harness.run_to_end()
    assert outcome.report.abort_reason is AbortReason.NEIGHBOURHOOD_LOST
    assert not any(
        isinstance(message, SurvivorVote | RevealedShares)
        for device in harness.devices.values()
        for _, message in device.sent
    )


def test_a_cohort_with_an_arc_missing_shares_nothing() -> None:
    """Who did not check in is dropped as well, where the ring is drawn over the key epoch."""
    harness = sparse(30, MALICIOUS, floor=12)
    epoch = harness.keys.epoch
    sizes = harness.setup().thresholds(30)
    ring = RingGraph(size=30, degree=sizes.degree, seed=epoch.graph_seed(0))
    for member in ring.ring_order()[: sizes.degree // 2 - sizes.window + 1]:
        name = harness.keys.devices[member]
        harness.silence(harness.devices[name])
        harness.say_offline(name)
    outcome = harness.run_to_end()
    assert outcome.report.abort_reason is AbortReason.NEIGHBOURHOOD_LOST
    assert [count.phase for count in outcome.report.phases] == [Phase.CHECK_IN]


def test_members_of_the_key_epoch_who_are_not_called_count_as_dropped() -> None:
    absent = frozenset({"d02", "d17"})
    harness = RoundHarness(30, adversary=MALICIOUS, absent=absent, **SPARSE)
    outcome = harness.run_to_end()
    check_sum(harness)
    assert set(outcome.report.survivors) == set(harness.members) - absent
    assert outcome.report.dropouts == ()
