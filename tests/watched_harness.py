"""A round harness that notes every keystream, share and signature, and whose gateway can restart.

What is written to flash is compared with the machine's whole state, which is quicker than to
restore it each time: devices that lose power show that it can be restored.
"""

import dataclasses
import functools

from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol.certificate import certificate_statement
from edgefl.protocol.events import (
    AggregatorEffect,
    Cancelled,
    Charge,
    Charged,
    Masked,
    MaskJob,
    Persist,
)
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.reasons import AbortReason
from edgefl.protocol.round_journal import JournalPart, decode_entry, encode_entry
from edgefl.protocol.round_messages import MaskedInput, RevealedShares, SharedKeys, SurvivorVote
from edgefl.protocol.round_setup import RoundSetup
from edgefl.protocol.wire import decode, encode
from tests.round_boards import Device, Packet, bytes_of, kinds_revealed, ring_vector_of
from tests.round_harness import RoundHarness
from tests.round_watch import RoundWatch, broken


class QuickHarness(RoundHarness):
    """Each attempt is a round of its own; devices' flash is compared, not read back.

    The gateway stores its journal before it says anything, as batches are.

    Attributes:
        saves_inputs: The sum is stored with every masked input; else when their phase closes.
        dies_before_commit: What the gateway does next is never stored, and never said.
    """

    saves_inputs = True
    dies_before_commit = False

    def setup(self) -> RoundSetup:
        setup = super().setup()
        call = dataclasses.replace(setup.call, round_number=self.attempt)
        return dataclasses.replace(setup, call=call)

    def _persist(self, device: Device, effect: Persist) -> None:
        machine = device.machine
        assert machine is not None
        assert effect.snapshot == machine.snapshot(), "the whole state is written"
        device.persist(effect)
        device.last_attempt = machine.call.attempt
        device.persisted.add(bytes_of(machine.last_message()))

    def gateway_restarts(self, offline: frozenset[str] = frozenset()) -> None:
        """Lose the round, as gateways do; the key epoch is read back, and the next round called."""
        stored = encode(self.keys.to_list())
        self.keys = MemberKeys.from_value(decode(stored), self.keys.roster)
        self.start_attempt(offline)

    def start_attempt(self, offline: frozenset[str] = frozenset()) -> None:
        self.stored: list[bytes] = []
        self.stored_total: bytes | None = None
        super().start_attempt(offline)

    def gateway_resumes(self) -> None:
        """Die, and go on with the round from what is stored."""
        self.charges.clear()
        self.unmask_jobs.clear()
        self.timer_s = None
        self.aggregator = self.new_aggregator(frozenset())
        entries = tuple(decode_entry(entry) for entry in self.stored)
        self.aggregator.replay(JournalPart(entries=entries, total=self.stored_total), self.now_s)
        self._carry_out(self.aggregator.resume(self.now_s))

    def _carry_out(self, effects: tuple[AggregatorEffect, ...]) -> None:
        if self.dies_before_commit:
            return
        part = self.aggregator.take_journal(with_inputs=self.saves_inputs)
        self.stored += [encode_entry(entry) for entry in part.entries]
        self.stored_total = self.stored_total if part.total is None else part.total
        for effect in effects:
            if isinstance(effect, Charge) and self.was_charged:
                self._find_row(effect)
            else:
                super()._carry_out((effect,))

    def _find_row(self, effect: Charge) -> None:
        """The ledger row was written in an earlier life; fewer survivors would have less noise."""
        is_covered = effect.n_survivors >= self.charged_survivors[-1]
        lost = Cancelled(reason=AbortReason.GATEWAY_RESTARTED)
        self.tell(Charged() if is_covered else lost)

    def deliver_damaged(self, packet: Packet, payload: bytes) -> None:
        """Deliver other bytes than were sent; they must be refused, and change nothing."""
        device = self.devices[packet.device]
        self.settle(device)
        before = self._observed(device)
        self.packets.append(dataclasses.replace(packet, payload=payload))
        try:
            self.deliver(len(self.packets) - 1)
        except (WireError, RemoteProtocolError):
            pass
        else:
            broken("damaged bytes are refused", f"{len(payload)} bytes were taken")
        if self._observed(device) != before:
            broken("damaged bytes change nothing", device.name)

    def _observed(self, device: Device) -> tuple[object, ...]:
        machine, aggregator = device.machine, self.aggregator
        return (
            None if machine is None else machine.snapshot(),
            device.epoch.snapshot(),
            list(device.effects),
            aggregator.phase,
            aggregator.arrived,
            aggregator.waiting_for(),
            len(self.packets),
            len(self.bad_messages),
        )


class WatchedHarness(QuickHarness):
    """Notes what leaves devices."""

    @functools.cached_property
    def watch(self) -> RoundWatch:
        return RoundWatch()

    def _mask(self, device: Device, job: MaskJob) -> Masked:
        assert self.keys.devices[job.plan.epoch_positions[job.own]] == device.name
        values = ring_vector_of(job)
        masked = self.watch.run(job, device.name)
        self.vectors[masked.packed] = values
        self.hidden[masked.packed] = (job.update, job.weight)
        return masked

    def _record(self, device: Device, session_id: bytes, message: DeviceMessage) -> None:
        device.sent.append((session_id, message))
        if isinstance(message, MaskedInput):
            self.masked_versions.setdefault((session_id, device.name), set()).add(message.packed)
            self.watch.note_masked(session_id, device.name, message.packed)
        elif isinstance(message, SharedKeys):
            machine = device.machine
            assert machine is not None
            self.watch.note_key(session_id, machine._session().own, machine._mask_secret())
        elif isinstance(message, RevealedShares):
            assert device.flash is not None
            kinds = kinds_revealed(device, device.flash, message)
            self.watch.note_revealed(session_id, device.name, kinds)
        elif isinstance(message, SurvivorVote):
            self._note_vote(device, session_id)

    def _note_vote(self, device: Device, session_id: bytes) -> None:
        machine = device.machine
        assert machine is not None
        proposal = machine._state.proposal
        assert proposal is not None
        statement = certificate_statement(session_id, proposal.survivors, proposal.dropped)
        self.watch.note_vote(session_id, device.name, statement)
