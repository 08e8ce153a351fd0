"""What a gateway may ask for in vain: the device refuses, and what it holds stays with it."""

import dataclasses
from collections.abc import Callable

import pytest

from edgefl._native import Seed, SigningKey
from edgefl.protocol.device import call_id_of
from edgefl.protocol.envelope import AGGREGATOR, Header
from edgefl.protocol.messages import (
    AggregatorMessage,
    KeyAdvert,
    MaskedInput,
    PlanAnnouncement,
    RevealedShares,
    RoutedShares,
    SharedKeys,
    UnmaskRequest,
)
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.reasons import LeaveReason, Phase
from edgefl.protocol.wire import encode_bitmap
from tests.round_harness import (
    FLEET,
    POLICY,
    Device,
    RoundHarness,
    leaves_of,
    privacy_plan,
)

N_DEVICES, FLOOR = 6, 5
SMALL_ORDER_KEY = bytes(32)


def harness_in(phase: Phase, *, noise: float = 0.0, floor: int = FLOOR) -> RoundHarness:
    """Open a phase at the aggregator, and lose what it sent to the devices about it."""
    harness = RoundHarness(N_DEVICES, noise=noise, floor=floor)
    harness.run_until(phase)
    if phase is Phase.UNMASKING:
        harness.charge()
    assert harness.aggregator.phase is phase
    harness.packets.clear()
    return harness


def give(harness: RoundHarness, name: str, message: AggregatorMessage) -> Device:
    """Deliver a signed message of the current session, and let the device act on it."""
    plan, call = harness.aggregator.plan, harness.aggregator.call
    assert plan is not None
    header = Header(
        session_id=plan.session_id,
        round_number=call.round_number,
        attempt=call.attempt,
        sender=AGGREGATOR,
    )
    harness.inject(name, message, header)
    harness.deliver(len(harness.packets) - 1)
    device = harness.devices[name]
    harness.settle(device)
    return device


def sent_of(device: Device, kind: type) -> list[object]:
    return [message for _, message in device.sent if isinstance(message, kind)]


def resigned(harness: RoundHarness, plan: SessionPlan, name: str, **changes: bytes) -> SessionPlan:
    """Change one member's keys, signed by that member."""
    member = plan.members[int(name[1:])]
    changed = dataclasses.replace(member, **changes)
    signature = harness.devices[name].identity.signing_key.sign(changed.signed_bytes(plan.call_id))
    return with_member(plan, dataclasses.replace(changed, signature=signature))


def with_member(plan: SessionPlan, advert: KeyAdvert) -> SessionPlan:
    members = tuple(advert if member.device == advert.device else member for member in plan.members)
    return dataclasses.replace(plan, members=members)


def another_call(harness: RoundHarness, plan: SessionPlan) -> SessionPlan:
    call = dataclasses.replace(harness.aggregator.call, nonce=bytes(32))
    return dataclasses.replace(plan, call_id=call_id_of(FLEET, call))


def own_keys_swapped(harness: RoundHarness, plan: SessionPlan) -> SessionPlan:
    return resigned(harness, plan, "d00", mask_key=_stranger().identity_key)


def own_place_missing(harness: RoundHarness, plan: SessionPlan) -> SessionPlan:
    del harness
    return dataclasses.replace(plan, members=plan.members[1:], threshold=4)


def neighbour_keys_swapped(harness: RoundHarness, plan: SessionPlan) -> SessionPlan:
    del harness
    advert = dataclasses.replace(plan.members[3], mask_key=_stranger().identity_key)
    return with_member(plan, advert)


def neighbour_keys_of_another_call(harness: RoundHarness, plan: SessionPlan) -> SessionPlan:
    member = plan.members[3]
    signature = harness.devices["d03"].identity.signing_key.sign(member.signed_bytes(bytes(32)))
    return with_member(plan, dataclasses.replace(member, signature=signature))


def weak_mask_key(harness: RoundHarness, plan: SessionPlan) -> SessionPlan:
    return resigned(harness, plan, "d03", mask_key=SMALL_ORDER_KEY)


def weak_share_key(harness: RoundHarness, plan: SessionPlan) -> SessionPlan:
    return resigned(harness, plan, "d03", share_key=SMALL_ORDER_KEY)


def half_of_the_shares(harness: RoundHarness, plan: SessionPlan) -> SessionPlan:
    del harness
    return dataclasses.replace(plan, threshold=3)


def lower_floor(harness: RoundHarness, plan: SessionPlan) -> SessionPlan:
    del harness
    return dataclasses.replace(
        plan,
        survivor_floor=3,
        threshold=2,
        privacy=privacy_plan(N_DEVICES, 3, plan.dimension, 0.4),
    )


def epsilon_understated(harness: RoundHarness, plan: SessionPlan) -> SessionPlan:
    del harness
    privacy = dataclasses.replace(plan.privacy, epsilon_declared=0.5)
    return dataclasses.replace(plan, privacy=privacy)


def _stranger() -> KeyAdvert:
    public_key = SigningKey.from_seed(Seed.from_bytes(bytes(32))).public_key
    return KeyAdvert(
        device="x",
        identity_key=public_key,
        share_key=public_key,
        mask_key=public_key,
        signature=bytes(64),
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (another_call, "E-PLAN-CALL"),
        (own_keys_swapped, "E-PLAN-SELF"),
        (own_place_missing, "E-PLAN-SELF"),
        (neighbour_keys_swapped, "E-ADVERT-SIGNATURE"),
        (neighbour_keys_of_another_call, "E-ADVERT-SIGNATURE"),
        (weak_mask_key, "E-PUBLIC-KEY"),
        (weak_share_key, "E-PUBLIC-KEY"),
        (half_of_the_shares, "E-PLAN-THRESHOLD"),
        (lower_floor, "E-PLAN-FLOOR"),
        (epsilon_understated, "E-PLAN-EPSILON"),
    ],
)
def test_a_plan_is_refused(
    change: Callable[[RoundHarness, SessionPlan], SessionPlan], code: str
) -> None:
    harness = harness_in(Phase.SHARE_KEYS, noise=0.4)
    for device in harness.devices.values():
        device.policy = dataclasses.replace(POLICY, least_survivor_floor=FLOOR)
        harness.crash(device)
        harness.restart(device)
    plan = harness.aggregator.plan
    assert plan is not None
    device = give(harness, "d00", PlanAnnouncement(plan=change(harness, plan).to_bytes()))
    assert [error.code for error in device.refused] == [code]
    assert [leave.reason for leave in leaves_of(device)] == [LeaveReason.PLAN_REFUSED]
    assert sent_of(device, SharedKeys) == []
    assert device.machine is None


def test_the_untouched_plan_is_accepted() -> None:
    harness = harness_in(Phase.SHARE_KEYS, noise=0.4)
    plan = harness.aggregator.plan
    assert plan is not None
    device = give(harness, "d00", PlanAnnouncement(plan=plan.to_bytes()))
    assert device.refused == []
    assert len(sent_of(device, SharedKeys)) == 1


@pytest.mark.parametrize("cut", [0, 1, 40, -1])
def test_a_damaged_plan_is_refused(cut: int) -> None:
    harness = harness_in(Phase.SHARE_KEYS)
    plan = harness.aggregator.plan
    assert plan is not None
    device = give(harness, "d00", PlanAnnouncement(plan=plan.to_bytes()[:cut]))
    assert len(device.refused) == 1
    assert sent_of(device, SharedKeys) == []


def test_a_second_plan_for_the_same_call_gets_no_second_shares() -> None:
    harness = harness_in(Phase.SHARE_KEYS)
    plan = harness.aggregator.plan
    assert plan is not None
    give(harness, "d00", PlanAnnouncement(plan=plan.to_bytes()))
    other = dataclasses.replace(plan, ledger_head=bytes(32))
    device = give(harness, "d00", PlanAnnouncement(plan=other.to_bytes()))
    assert [error.code for error in device.refused] == ["E-CONTRADICTION"]
    assert len(sent_of(device, SharedKeys)) == 1
    harness.crash(device)
    harness.restart(device)
    give(harness, "d00", PlanAnnouncement(plan=other.to_bytes()))
    assert [error.code for error in device.refused] == ["E-CONTRADICTION"] * 2
    first, *again = sent_of(device, SharedKeys)
    assert all(message == first for message in again)


# ---------------------------------------------------------------- routed shares


def routed_for(harness: RoundHarness, name: str) -> RoutedShares:
    message = harness.aggregator.message_for(name)
    assert isinstance(message, RoutedShares)
    return message


def _flip(sealed: tuple[bytes, ...], index: int, byte: int) -> tuple[bytes, ...]:
    damaged = bytearray(sealed[index])
    damaged[byte] ^= 1
    return (*sealed[:index], bytes(damaged), *sealed[index + 1 :])


def tampered_nonce(routed: RoutedShares) -> RoutedShares:
    return dataclasses.replace(routed, sealed=_flip(routed.sealed, 2, 0))


def tampered_content(routed: RoutedShares) -> RoutedShares:
    return dataclasses.replace(routed, sealed=_flip(routed.sealed, 2, 50))


def tampered_tag(routed: RoutedShares) -> RoutedShares:
    return dataclasses.replace(routed, sealed=_flip(routed.sealed, 5, 119))


def swapped_owners(routed: RoutedShares) -> RoutedShares:
    sealed = list(routed.sealed)
    sealed[1], sealed[2] = sealed[2], sealed[1]
    return dataclasses.replace(routed, sealed=tuple(sealed))


def empty_ciphertext(routed: RoutedShares) -> RoutedShares:
    return dataclasses.replace(routed, sealed=(*routed.sealed[:-1], b""))


def without_self(routed: RoutedShares) -> RoutedShares:
    del routed
    return RoutedShares(sharers=encode_bitmap([False] + [True] * 5), sealed=(bytes(120),) * 5)


def too_few(routed: RoutedShares) -> RoutedShares:
    sharers = encode_bitmap([True] * 4 + [False] * 2)
    return RoutedShares(sharers=sharers, sealed=routed.sealed[:4])


def one_too_many(routed: RoutedShares) -> RoutedShares:
    return dataclasses.replace(routed, sealed=(*routed.sealed, routed.sealed[1]))


def spare_bits(routed: RoutedShares) -> RoutedShares:
    return dataclasses.replace(routed, sharers=b"\xff")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (tampered_nonce, "E-SEALED"),
        (tampered_content, "E-SEALED"),
        (tampered_tag, "E-SEALED"),
        (swapped_owners, "E-SEALED"),
        (empty_ciphertext, "E-SEALED"),
        (without_self, "E-SHARES-SELF"),
        (too_few, "E-SHARES-FEW"),
        (one_too_many, "E-SHARES-COUNT"),
        (spare_bits, "E-WIRE-BITMAP"),
    ],
)
def test_routed_shares_are_refused(
    change: Callable[[RoutedShares], RoutedShares], code: str
) -> None:
    harness = harness_in(Phase.MASKED_INPUT)
    device = give(harness, "d00", change(routed_for(harness, "d00")))
    assert [error.code for error in device.refused] == [code]
    assert [leave.reason for leave in leaves_of(device)] == [LeaveReason.REQUEST_REFUSED]
    assert device.jobs == []
    assert sent_of(device, MaskedInput) == []


def test_a_second_list_of_sharers_changes_nothing() -> None:
    harness = harness_in(Phase.MASKED_INPUT)
    routed = routed_for(harness, "d00")
    give(harness, "d00", routed)
    fewer = RoutedShares(sharers=encode_bitmap([True] * 5 + [False]), sealed=routed.sealed[:5])
    device = give(harness, "d00", fewer)
    assert [error.code for error in device.refused] == ["E-CONTRADICTION"]
    assert device.machine is not None
    assert device.machine.phase is Phase.MASKED_INPUT
    assert len(device.jobs) == 1
    outcome = _finish(harness)
    assert outcome is Phase.COMMITTED


def _finish(harness: RoundHarness) -> Phase:
    for name in harness.devices:
        harness.ask_again(name)
    return harness.run_to_end().report.outcome


# ---------------------------------------------------------------- unmask lists


def lists(alive: str, gone: str, size: int = N_DEVICES) -> UnmaskRequest:
    return UnmaskRequest(
        survivors=encode_bitmap([str(position) in alive for position in range(size)]),
        dropped=encode_bitmap([str(position) in gone for position in range(size)]),
    )


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (lists("012345", "5"), "E-UNMASK-BOTH"),
        (lists("012345", "012345"), "E-UNMASK-BOTH"),
        (lists("01234", ""), "E-UNMASK-LISTS"),
        (lists("", ""), "E-UNMASK-LISTS"),
        (lists("12345", "0"), "E-UNMASK-SELF"),
        (lists("0123", "45"), "E-UNMASK-FEW"),
        (lists("0", "12345"), "E-UNMASK-FEW"),
        (lists("012345", "", size=12), "E-WIRE-BITMAP"),
        (UnmaskRequest(survivors=b"\xff", dropped=b"\x00"), "E-WIRE-BITMAP"),
    ],
)
def test_unmask_lists_are_refused(request_: UnmaskRequest, code: str) -> None:
    harness = harness_in(Phase.UNMASKING)
    device = give(harness, "d00", request_)
    assert [error.code for error in device.refused] == [code]
    assert [leave.reason for leave in leaves_of(device)] == [LeaveReason.REQUEST_REFUSED]
    assert sent_of(device, RevealedShares) == []
    assert device.machine is None


def test_a_stranger_to_the_session_cannot_be_unmasked() -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    harness.run_until(Phase.SHARE_KEYS)
    harness.silence(harness.devices["d05"])
    harness.run_until(Phase.MASKED_INPUT)
    harness.fire_timer()
    harness.run_until(Phase.UNMASKING)
    harness.packets.clear()
    device = give(harness, "d00", lists("01234", "5"))
    assert [error.code for error in device.refused] == ["E-UNMASK-LISTS"]
    assert sent_of(device, RevealedShares) == []


@pytest.mark.parametrize("asked", ["012345", "01234"])
def test_no_share_leaves_before_the_masked_input(asked: str) -> None:
    harness = harness_in(Phase.MASKED_INPUT)
    give(harness, "d00", routed_for(harness, "d00"))
    gone = "".join(sorted(set("012345") - set(asked)))
    device = give(harness, "d00", lists(asked, gone))
    assert [error.code for error in device.refused] == ["E-UNMASK-EARLY"]
    assert sent_of(device, RevealedShares) == []


@pytest.mark.parametrize("phase", [Phase.SHARE_KEYS, Phase.MASKED_INPUT])
def test_an_unmask_request_in_an_early_phase_is_refused(phase: Phase) -> None:
    harness = harness_in(phase)
    device = give(harness, "d00", lists("012345", ""))
    assert [error.code for error in device.refused] == ["E-UNEXPECTED"]
    assert sent_of(device, RevealedShares) == []


@pytest.mark.parametrize("loses_power", [False, True])
def test_contradictory_lists_get_one_answer(loses_power: bool) -> None:
    harness = harness_in(Phase.UNMASKING)
    device = give(harness, "d00", lists("012345", ""))
    (answer,) = sent_of(device, RevealedShares)
    if loses_power:
        harness.crash(device)
        harness.restart(device)
        harness.settle(device)
    give(harness, "d00", lists("01234", "5"))
    give(harness, "d00", lists("012345", ""))
    assert [error.code for error in device.refused] == ["E-CONTRADICTION"]
    assert all(message == answer for message in sent_of(device, RevealedShares))
    assert all(len(kinds) == 1 for kinds in harness.revealed_kinds.values())


@pytest.mark.parametrize("split", range(N_DEVICES))
def test_two_views_never_open_both_secrets_of_a_device(split: int) -> None:
    """The gateway tells some devices that d00 survived, and the others that it dropped out."""
    harness = harness_in(Phase.UNMASKING)
    plan = harness.aggregator.plan
    assert plan is not None
    answers = {"self seed": 0, "mask key": 0}
    for index, name in enumerate(harness.devices):
        says_alive = index < split
        device = give(harness, name, lists("012345", "") if says_alive else lists("12345", "0"))
        if name != "d00" and sent_of(device, RevealedShares):
            answers["self seed" if says_alive else "mask key"] += 1
    assert sum(answers.values()) == N_DEVICES - 1
    assert min(answers.values()) < plan.threshold


def test_a_device_of_a_stricter_class_refuses_an_honest_but_curious_plan() -> None:
    harness = harness_in(Phase.SHARE_KEYS)
    device = harness.devices["d00"]
    device.policy = DevicePolicy(
        adversary_classes=frozenset(), least_survivor_floor=2, privacy=POLICY.privacy
    )
    harness.crash(device)
    harness.restart(device)
    plan = harness.aggregator.plan
    assert plan is not None
    give(harness, "d00", PlanAnnouncement(plan=plan.to_bytes()))
    assert [error.code for error in device.refused] == ["E-PLAN-POLICY"]
