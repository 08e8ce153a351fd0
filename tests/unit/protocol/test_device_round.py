"""A device in an honest round: what it masks, what it takes no notice of, how it ends."""

import dataclasses

import numpy as np
import pytest

from edgefl._native import RingSum
from edgefl.errors import LocalProtocolError, PrivacyError, WireError
from edgefl.privacy.plan_wire import WIRE_FIELDS
from edgefl.protocol import masked_input
from edgefl.protocol.device import DeviceRound
from edgefl.protocol.events import AggregatorSaid, DeviceFinished, Masked, Trained
from edgefl.protocol.messages import AggregatorMessage
from edgefl.protocol.reasons import AbortReason, AdversaryClass, LeaveReason, Phase
from edgefl.protocol.round_messages import (
    Leave,
    MaskedInput,
    PlanAnnouncement,
    RevealedShares,
    RoundClosed,
    RoutedShares,
    SharedKeys,
    SurvivorProposal,
    UnmaskRequest,
)
from edgefl.protocol.wire import as_body, decode, encode
from edgefl.types import Update
from tests.device_fixtures import LIAR
from tests.device_harness import Table
from tests.hostile_gateway import SEMI, VICTIM, announce, small, small_in, sparse_in
from tests.played_device import Device

DIMENSION = 7


# ---------------------------------------------------------------- what is masked


def masked_by(table: Table, update: Update | None, examples: int = 1) -> Device:
    """Let the victim train, and return it."""
    table.run_to(Phase.MASKED_INPUT)
    device = table.devices[VICTIM]
    device.update, device.examples, device.trains = update, examples, update is not None
    device.say(table.routed(VICTIM))
    return device


def test_the_sum_of_all_is_the_sum_of_the_vectors() -> None:
    """Without drops the pairwise masks cancel, and the self masks alone are left."""
    table = sparse_in(Phase.UNMASKING)
    total, expected = RingSum(DIMENSION + 4, 20), np.zeros(DIMENSION, dtype=np.int64)
    masks = []
    for device in table.devices.values():
        (masked,), (job,) = device.sent_of(MaskedInput), device.mask_jobs
        total.add_packed(masked.packed)
        masks.append(job.session.self_mask(job.self_seed, job.own, removing=True))
        alone = dataclasses.replace(job, neighbours=())
        hidden = RingSum(DIMENSION + 4, 20)
        hidden.add_packed(masked_input.run(alone).packed)
        hidden.apply_masks(masks[-1:])
        expected += np.frombuffer(hidden.values(DIMENSION), dtype="<u4")
    total.apply_masks(masks)
    assert total.checks_hold(table.plan.session_id)
    assert total.values(DIMENSION) == (expected % 2**20).astype("<u4").tobytes()


@pytest.mark.parametrize(
    ("examples", "bound", "weight"),
    [(0, 9, 1), (1, 9, 1), (5, 9, 5), (9, 9, 9), (10**9, 9, 9), (5, 1, 1)],
)
def test_the_weight_is_bounded(examples: int, bound: int, weight: int) -> None:
    device = masked_by(small(weight_bound=bound), np.ones(DIMENSION, dtype=np.float32), examples)
    assert [job.weight for job in device.mask_jobs] == [weight]


def test_without_data_and_noise_the_device_leaves() -> None:
    device = masked_by(small(), None)
    assert device.leaves == [LeaveReason.TRAINING_FAILED.name]
    assert device.sent_of(MaskedInput) == []


def test_without_data_a_zero_with_full_noise_is_sent() -> None:
    """Else taking part would tell something about the data."""
    device = masked_by(small(noise=0.4), None)
    (job,) = device.mask_jobs
    assert job.weight == 1
    assert not job.update.any()
    assert job.plan.privacy.noise_share_variance > 0
    assert len(device.sent_of(MaskedInput)) == 1


def test_an_update_of_zeros_passes() -> None:
    assert masked_by(small(), np.zeros(DIMENSION, dtype=np.float32)).sent_of(MaskedInput)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_is_never_masked(value: float) -> None:
    update = np.zeros(DIMENSION, dtype=np.float32)
    update[3] = value
    with pytest.raises(PrivacyError, match="E-UPDATE-NOT-FINITE"):
        masked_by(small(), update)


def test_an_update_of_another_shape_is_a_mistake_of_this_process() -> None:
    with pytest.raises(LocalProtocolError, match="E-UPDATE-SHAPE"):
        masked_by(small(), np.zeros(DIMENSION + 1, dtype=np.float32))


def test_a_second_masked_input_is_a_mistake_of_this_process() -> None:
    device = small_in(Phase.UNMASKING).devices[VICTIM]
    assert device.machine is not None
    with pytest.raises(LocalProtocolError, match="E-DEVICE-MASKED-TWICE"):
        device.machine.handle(Masked(packed=b"another"))


@pytest.mark.parametrize("phase", [Phase.MASKED_INPUT, Phase.UNMASKING])
def test_a_round_begins_once(phase: Phase) -> None:
    device = small_in(phase).devices[VICTIM]
    assert device.machine is not None
    with pytest.raises(LocalProtocolError, match="E-DEVICE-BEGIN"):
        device.machine.begin()


def test_the_same_job_is_not_given_twice() -> None:
    table = small_in(Phase.MASKED_INPUT)
    device = table.devices[VICTIM]
    device.is_busy = True
    device.say(table.routed(VICTIM))
    device.say(table.routed(VICTIM))
    assert device.machine is not None
    device.carry_out(device.machine.resume())
    assert len(device.jobs) == 1


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, 1e300])
def test_a_clip_norm_out_of_range_is_refused(clip_norm: float) -> None:
    table = small_in(Phase.SHARE_KEYS)
    body = dict(as_body(decode(table.plan.to_bytes())))
    (key,) = [key for key, (name, _) in WIRE_FIELDS.items() if name == "clip_norm"]
    plan = encode(body | {19: dict(as_body(body[19])) | {key: clip_norm}})
    honest = table.announcement(VICTIM)
    device = announce(table, dataclasses.replace(honest, plan=plan))
    assert [type(error) for error in device.refused] == [WireError]
    assert device.sent_of(SharedKeys) == []


def test_a_refusal_for_policy_names_what_was_wanted() -> None:
    table = small()
    device = table.devices[VICTIM]
    device.policy = dataclasses.replace(device.policy, adversary_classes=frozenset({LIAR}))
    announce(table)
    (error,) = device.refused
    assert error.expected == "an adversary class of MALICIOUS"
    assert "HONEST_BUT_CURIOUS" in error.found


# ---------------------------------------------------------------- what comes at a wrong time


def messages(table: Table, name: str) -> dict[type, AggregatorMessage]:
    """Return one message of every kind for a device that has shared keys."""
    return {
        PlanAnnouncement: table.announcement(name),
        RoutedShares: table.routed(name),
        SurvivorProposal: table.proposal(),
        UnmaskRequest: table.request(),
    }


TABLE_PHASES = {
    Phase.CHECK_IN: Phase.SHARE_KEYS,
    Phase.SHARE_KEYS: Phase.MASKED_INPUT,
    Phase.MASKED_INPUT: Phase.UNMASKING,
    Phase.CERTIFICATE: Phase.UNMASKING,
    Phase.UNMASKING: Phase.UNMASKING,
}


def device_in(phase: Phase) -> Device:
    """Return a committee member in a phase of its own."""
    table = small_in(TABLE_PHASES[phase], LIAR)
    device = table.devices[table.committee[0]]
    if phase in (Phase.CERTIFICATE, Phase.UNMASKING):
        device.say(table.proposal())
    if phase is Phase.UNMASKING:
        device.say(table.request())
    return device


EXPECTED = {
    phase: {kind for at, kind in DeviceRound._TRANSITIONS if at is phase} for phase in Phase
}
UNEXPECTED = [
    (phase, kind)
    for phase in Phase
    if not phase.is_final
    for kind in (PlanAnnouncement, RoutedShares, SurvivorProposal, UnmaskRequest, Trained, Masked)
    if kind not in EXPECTED[phase]
]


@pytest.mark.parametrize(("phase", "kind"), UNEXPECTED)
def test_what_a_phase_does_not_expect_changes_nothing(phase: Phase, kind: type) -> None:
    device = device_in(phase)
    assert device.machine is not None
    assert device.machine.phase is phase
    full = messages(small_in(Phase.UNMASKING, LIAR), device.name)
    own = {
        Trained: Trained(update=np.zeros(DIMENSION, dtype=np.float32)),
        Masked: Masked(packed=b"late"),
    }
    before = device.machine.snapshot()
    event = own.get(kind) or AggregatorSaid(message=full[kind])
    (refused,) = device.machine.handle(event)  # type: ignore[arg-type]
    assert "E-UNEXPECTED" in repr(refused)
    assert device.machine.snapshot() == before


@pytest.mark.parametrize(
    ("phase", "kind"),
    [
        (phase, kind)
        for phase in Phase
        for kind in sorted(EXPECTED[phase], key=repr)
        if kind not in (RoundClosed, Trained, Masked)
    ],
)
def test_repeats_change_nothing_and_give_the_same_bytes(phase: Phase, kind: type) -> None:
    device = device_in(phase)
    assert device.machine is not None
    full = messages(small_in(Phase.UNMASKING, LIAR), device.name)
    device.say(full[kind])
    after = device.flash.round
    sent = list(device.sent)
    device.say(full[kind])
    assert device.codes == []
    assert device.flash.round == after
    assert all(message in sent for message in device.sent)


@pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.is_final])
@pytest.mark.parametrize("counted", [False, True])
def test_the_end_is_taken_in_every_phase(phase: Phase, counted: bool) -> None:
    device = device_in(phase)
    ending = Phase.COMMITTED if counted else Phase.ABORTED
    reason = AbortReason.NONE if counted else AbortReason.CANCELLED
    device.say(RoundClosed(phase=ending, reason=reason, counted=counted))
    assert device.finished == [
        DeviceFinished(phase=ending, abort_reason=reason, left=None, counted=counted)
    ]


@pytest.mark.parametrize("adversary", list(AdversaryClass))
def test_an_ordinary_device_sends_three_messages_after_its_check_in(
    adversary: AdversaryClass,
) -> None:
    table = small_in(Phase.UNMASKING, adversary)
    lists = table.proposal()
    for name in table.committee:
        table.devices[name].say(lists)
    for name in table.members:
        table.devices[name].say(table.request())
    for name, device in table.devices.items():
        assert len(device.sent) == (5 if name in table.committee else 4)


@pytest.mark.parametrize("adversary", [SEMI, LIAR])
def test_who_left_answers_nothing_more(adversary: AdversaryClass) -> None:
    table = small_in(Phase.UNMASKING, adversary)
    device = table.devices[VICTIM]
    assert device.machine is not None
    machine = device.machine
    device.carry_out(machine.leave(LeaveReason.NOT_AVAILABLE))
    (refused,) = machine.handle(AggregatorSaid(message=table.request()))
    assert "E-UNEXPECTED" in repr(refused)
    assert [type(message) for message in device.sent[-1:]] == [Leave]
    assert device.sent_of(RevealedShares) == []
