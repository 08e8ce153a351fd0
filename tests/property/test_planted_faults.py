"""Each promise that the round machines watch is broken once on purpose, and they notice.

A fault is planted in the code under test; the same machine that passes without it must fail, and
name the promise. Those that take a history of several steps are found with `-m long`.
"""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as Step
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from edgefl._native import Mask, Seed
from edgefl.errors import RemoteProtocolError
from edgefl.protocol import device_session, unmasking
from edgefl.protocol.aggregator import AggregatorRound
from edgefl.protocol.device import DeviceRound
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.device_state import DeviceState
from edgefl.protocol.epoch_messages import EpochClosed
from edgefl.protocol.events import TimerFired, Unmasked, UnmaskJob
from edgefl.protocol.mask_keys import MaskKeyBatch
from edgefl.protocol.reasons import Phase
from edgefl.protocol.round_journal import JournalEntry, RoundJournal, Took
from edgefl.protocol.round_messages import RoundClosed, SurvivorProposal, UnmaskRequest
from edgefl.protocol.round_phases import MaskedInputPhase
from edgefl.secagg import session as secagg_session
from edgefl.secagg.session import Session
from tests import device_harness, round_boards
from tests.property import test_round_machine
from tests.property.test_hostile_machine import HostileMachine
from tests.property.test_round_machine import LATE, RoundMachine
from tests.round_watch import RoundWatch

Fault = AbstractContextManager[object]
SETTINGS = settings(
    # The search ends at the first history that shows the fault; more cost only where none does.
    max_examples=600,
    stateful_step_count=40,
    phases=[Step.generate],
    derandomize=True,
    database=None,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A fault, the machine that must find it, and the promise that it breaks."""

    plant: Callable[[], Fault]
    machine: type[RuleBasedStateMachine]
    promise: str


# ---------------------------------------------------------------- faults in devices


def answers_every_unmask_request() -> Fault:
    again = {(Phase.UNMASKING, UnmaskRequest): DeviceRound._on_unmask_request}
    return mock.patch.dict(DeviceRound._TRANSITIONS, again)


def signs_every_list() -> Fault:
    again = {(Phase.CERTIFICATE, SurvivorProposal): DeviceRound._on_proposal}
    return mock.patch.dict(DeviceRound._TRANSITIONS, again)


def looks_at_no_certificate() -> Fault:
    return mock.patch("edgefl.protocol.device.check_certificate", return_value=None)


def reveals_for_any_number_of_survivors() -> Fault:
    check = device_session.check_lists

    def lenient(*lists: object, **terms: object) -> None:
        try:
            check(*lists, **terms)  # type: ignore[arg-type]
        except RemoteProtocolError as error:
            if error.code != "E-UNMASK-FEW":
                raise

    return mock.patch.object(device_session, "check_lists", lenient)


@contextmanager
def forgets_that_it_masked() -> Iterator[None]:
    to_bytes = DeviceState.to_bytes

    def without_input(state: DeviceState) -> bytes:
        is_masked = state.phase is Phase.MASKED_INPUT
        return to_bytes(dataclasses.replace(state, masked=None) if is_masked else state)

    with (
        mock.patch.object(DeviceState, "to_bytes", without_input),
        # Often the first thing to be noticed is that it takes the unmask request for an early one.
        mock.patch.object(test_round_machine, "LATE", LATE | {"E-UNMASK-EARLY"}),
    ):
        yield


def sends_before_it_writes() -> Fault:
    persist_and_send = DeviceRound._persist_and_send

    def wrong_way_round(machine: DeviceRound, message: object) -> tuple[object, ...]:
        return tuple(reversed(persist_and_send(machine, message)))  # type: ignore[arg-type]

    return mock.patch.object(DeviceRound, "_persist_and_send", wrong_way_round)


def waits_for_ever_for_masked_inputs() -> Fault:
    transitions = dict(DeviceRound._TRANSITIONS)
    for phase in (Phase.SHARE_KEYS, Phase.MASKED_INPUT):
        del transitions[phase, RoundClosed]
    return mock.patch.object(DeviceRound, "_TRANSITIONS", transitions)


@contextmanager
def takes_a_used_key_again() -> Iterator[None]:
    reserve_index = DeviceEpoch.reserve_index

    def reserve(epoch: DeviceEpoch, index: int, call_id: bytes) -> tuple[object, ...]:
        epoch._require_current().uses.pop(index, None)
        return reserve_index(epoch, index, call_id)

    with (
        mock.patch.object(DeviceEpoch, "reserve_index", reserve),
        mock.patch("edgefl.protocol.device.require_answerable", return_value=None),
        mock.patch.object(MaskKeyBatch, "destroy", return_value=True),
    ):
        yield


@contextmanager
def derives_one_key_for_all_indices() -> Iterator[None]:
    from_secret = MaskKeyBatch.from_epoch_secret

    def all_alike(secret: Seed, *, count: int, **names: object) -> MaskKeyBatch:
        key = from_secret(secret, count=1, **names).secret(0)  # type: ignore[arg-type]
        seeds = dict.fromkeys(range(count), key.export_seed())
        return MaskKeyBatch([key.public_key] * count, seeds)

    with (
        mock.patch.object(MaskKeyBatch, "from_epoch_secret", all_alike),
        # It is noticed before any key is revealed; here the last line of defence is tried.
        mock.patch.object(RoundWatch, "require_one_session_per_key"),
    ):
        _forget_key_epochs()
        try:
            yield
        finally:
            _forget_key_epochs()


def _forget_key_epochs() -> None:
    round_boards.opened_epoch.cache_clear()
    device_harness.opened_fleet.cache_clear()


def masks_itself_with_a_constant() -> Fault:
    def constant(_: Session, __: Seed, own: int, *, removing: bool = False) -> Mask:
        del own
        return secagg_session.Mask(Seed.from_bytes(bytes(32)), 1, removing)

    return mock.patch.object(Session, "self_mask", constant)


def draws_the_same_randomness_twice() -> Fault:
    return mock.patch.object(round_boards.InsecureEntropy, "fresh_bytes", return_value=bytes(32))


def shows_its_nonce_for_every_record() -> Fault:
    on_closed = DeviceEpoch._on_closed

    def forgetful(epoch: DeviceEpoch, message: EpochClosed, now_s: float) -> tuple[object, ...]:
        if epoch._state.pending is not None:
            epoch._state.pending.record = None
        return on_closed(epoch, message, now_s)

    return mock.patch.dict(DeviceEpoch._TRANSITIONS, {EpochClosed: forgetful})


# ---------------------------------------------------------------- faults in the aggregator


def adds_one_to_a_coordinate() -> Fault:
    run = unmasking.run

    def off_by_one(job: UnmaskJob) -> Unmasked:
        result = run(job)
        if result.total is not None:
            result.total[0] ^= 1
        return result

    return mock.patch.object(unmasking, "run", off_by_one)


def adds_repeated_inputs_again() -> Fault:
    from edgefl.protocol.collection import SessionCollection

    take = SessionCollection.take_masked_input

    def greedy(session: SessionCollection, position: int, message: object) -> None:
        is_repeated = position in session._inputs
        take(session, position, message)  # type: ignore[arg-type]
        if is_repeated:
            session._total.add_packed(message.packed)  # type: ignore[attr-defined]

    return mock.patch.object(SessionCollection, "take_masked_input", greedy)


def goes_on_with_any_number_of_survivors() -> Fault:
    return mock.patch.object(MaskedInputPhase, "needed", 1)


def never_loses_patience() -> Fault:
    return mock.patch.dict(AggregatorRound._EVENTS, {TimerFired: lambda *_: ()})


def looks_at_no_signature() -> Fault:
    return mock.patch("edgefl.protocol.envelope.verify", return_value=True)


def forgets_the_stored_sum() -> Fault:
    return mock.patch(
        "edgefl.protocol.collection.SessionCollection.restore_total", return_value=None
    )


def stores_the_sum_without_its_members() -> Fault:
    note = RoundJournal.note

    def note_all_but_inputs(journal: RoundJournal, entry: JournalEntry) -> None:
        is_input = isinstance(entry, Took) and entry.input_digest is not None
        note(journal, entry)
        if is_input:
            journal._move_inputs()
            journal._entries.pop()

    return mock.patch.object(RoundJournal, "note", note_all_but_inputs)


FAULTS = [
    Planted(plant=plant, machine=machine, promise=promise)
    for plant, machine, promise in (
        (adds_one_to_a_coordinate, RoundMachine, "exact ring sum"),
        (adds_repeated_inputs_again, RoundMachine, "SUM_CHECK_FAILED"),
        (answers_every_unmask_request, HostileMachine, "never both kinds of share"),
        (
            looks_at_no_certificate,
            HostileMachine,
            "without a certificate|never both kinds of share",
        ),
        (reveals_for_any_number_of_survivors, HostileMachine, "no reveal below the threshold"),
        (goes_on_with_any_number_of_survivors, RoundMachine, "no charge below the survivor floor"),
        (signs_every_list, HostileMachine, "one certificate per attempt"),
        (forgets_that_it_masked, RoundMachine, "one vector under one mask"),
        (sends_before_it_writes, RoundMachine, "sent before it was persisted"),
        (takes_a_used_key_again, HostileMachine, "one session per one-time key|one vector under"),
        (derives_one_key_for_all_indices, RoundMachine, "a revealed key opens no other round"),
        (never_loses_patience, RoundMachine, "no end from"),
        (waits_for_ever_for_masked_inputs, HostileMachine, "every run ends"),
        (masks_itself_with_a_constant, RoundMachine, "keystream is never reused"),
        (draws_the_same_randomness_twice, RoundMachine, "keystream is never reused"),
        (shows_its_nonce_for_every_record, HostileMachine, "one record per key epoch"),
        (looks_at_no_signature, RoundMachine, "damaged bytes are refused"),
        (forgets_the_stored_sum, RoundMachine, "SUM_CHECK_FAILED"),
        (stores_the_sum_without_its_members, RoundMachine, "SUM_CHECK_FAILED|no end from"),
    )
]


SLOW = (
    adds_repeated_inputs_again,
    derives_one_key_for_all_indices,
    forgets_that_it_masked,
    goes_on_with_any_number_of_survivors,
    reveals_for_any_number_of_survivors,
    signs_every_list,
    stores_the_sum_without_its_members,
    waits_for_ever_for_masked_inputs,
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            fault,
            id=fault.plant.__name__,
            marks=[pytest.mark.long] if fault.plant in SLOW else [],
        )
        for fault in FAULTS
    ],
)
def test_the_machines_find(fault: Planted) -> None:
    with ExitStack() as stack:
        stack.enter_context(fault.plant())
        with pytest.raises(AssertionError, match=fault.promise):
            run_state_machine_as_test(fault.machine, settings=SETTINGS)
