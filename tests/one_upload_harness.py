"""Drive one-upload rounds in memory: deposits, rounds over one key epoch, and what may go wrong.

Built on the harness of the other mode; packets, flash, time and jobs are the same.
"""

from collections.abc import Collection
from dataclasses import replace

from edgefl.errors import ConfigError, EdgeflError
from edgefl.protocol import topics
from edgefl.protocol.certificate import CertificateSignature
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.envelope import (
    Envelope,
    Header,
    open_envelope,
    require_device_message,
)
from edgefl.protocol.epoch_events import PersistEpoch
from edgefl.protocol.events import AggregatorSaid, Persist, SendUp
from edgefl.protocol.messages import AggregatorMessage, DeviceMessage
from edgefl.protocol.one_upload_aggregator import OneUploadAggregator
from edgefl.protocol.one_upload_collection import OneUploadCollection
from edgefl.protocol.one_upload_deposit import OneUploadDeposit
from edgefl.protocol.one_upload_deposits import DepositBook
from edgefl.protocol.one_upload_device import OneUploadRound
from edgefl.protocol.one_upload_messages import (
    Deposit,
    DepositCall,
    OneUpload,
    OneUploadAnnouncement,
)
from edgefl.protocol.one_upload_session import OneUploadSession
from edgefl.protocol.one_upload_sharing import (
    CommitteeChannels,
    SealedShare,
    SealingKey,
    ShareContext,
    ShareKind,
)
from edgefl.protocol.one_upload_sizes import DepositTerms, one_upload_thresholds
from edgefl.protocol.one_upload_state import OneUploadState
from edgefl.protocol.reasons import AdversaryClass, RoundMode
from edgefl.protocol.round_messages import Call, RevealedShares, SurvivorVote
from edgefl.protocol.session_graph import SessionGraph
from edgefl.types import DeviceId
from tests.epoch_harness import DAY, FLEET
from tests.round_boards import (
    MASK_KEYS,
    POLICY,
    Device,
    Packet,
    bytes_of,
    restored_epoch,
)
from tests.round_harness import RoundHarness

EXPERIMENTAL = replace(POLICY, allows_experimental=True)


def least_floor(n_devices: int, terms: DepositTerms, n_cohort: int | None = None) -> int:
    """Return the least survivor floor of a fleet whose roster is the key epoch."""
    cohort = n_devices if n_cohort is None else n_cohort
    found = one_upload_thresholds(
        terms,
        epoch_size=n_devices,
        cohort_size=cohort,
        roster_size=n_devices,
        survivor_floor=n_devices,
    )
    return max(found.neighbourhood + 1, found.certificate if found.committee == n_devices else 2)


class OneUploadHarness(RoundHarness):
    """n devices, one aggregator, and the network between them, in the one-upload mode.

    Args:
        n_devices: Members of the key epoch.
        without_deposit: Members that do not deposit for the first index.
        floor: Survivor floor; the least possible for everybody's deposits if not given.

    Attributes:
        books: Deposits by index.
        kinds_by_index: By (key index, owner's epoch position), the kinds of share that were
            revealed of it, in whatever session.
        votes: By index and lists, the signatures of honest devices.
        deposits_sent: Bytes of every deposit, by (device, index).
    """

    def __init__(
        self,
        n_devices: int,
        *,
        without_deposit: Collection[str] = (),
        floor: int | None = None,
        adversary: AdversaryClass = AdversaryClass.HONEST_BUT_CURIOUS,
        corrupt_permille: int = 0,
        drop_permille: int = 0,
        **others: object,
    ) -> None:
        self.terms = DepositTerms(
            adversary=adversary, corrupt_permille=corrupt_permille, drop_permille=drop_permille
        )
        self._without_deposit = frozenset(without_deposit)
        self.books: dict[int, DepositBook] = {}
        self.deposit_flash: dict[str, bytes] = {}
        self.deposits_sent: dict[tuple[str, int], set[bytes]] = {}
        self.kinds_by_index: dict[tuple[int, int], set[str]] = {}
        self.votes: dict[int, dict[tuple[bytes, bytes], dict[str, CertificateSignature]]] = {}
        super().__init__(
            n_devices,
            floor=floor or least_floor(n_devices, self.terms),
            adversary=adversary,
            corrupt_permille=corrupt_permille,
            drop_permille=drop_permille,
            **others,  # type: ignore[arg-type]
        )

    def _board(self, name: str, epoch_flash: bytes, seed: int, index: int) -> Device:
        board = super()._board(name, epoch_flash, seed, index)
        board.policy = EXPERIMENTAL
        return board

    # ------------------------------------------------------------ the aggregator

    def start_attempt(self, offline: frozenset[str] = frozenset()) -> None:
        """Start the round of the next index with whoever has deposited for it."""
        self._count_attempt()
        if self.attempt == 1:
            self._make_book(0)
            for name in sorted(self.devices.keys() - self._without_deposit):
                self.call_for_deposit(name)
                self.deliver_all()
                self.deliver_all()
        self.deposits = self.books[self.attempt - 1]
        self.next_deposits = None if self.attempt >= MASK_KEYS else self._make_book(self.attempt)
        self.aggregator = OneUploadAggregator(
            setup=self.setup(),
            deposits=self.deposits,
            next_deposits=self.next_deposits,
            offline=offline,
            now_s=self.now_s,
        )
        self._carry_out(self.aggregator.begin(self.now_s))

    @property
    def called(self) -> frozenset[str]:
        return self.deposits.devices

    def next_call(self) -> Call:
        return replace(
            super().next_call(), mode=RoundMode.ONE_UPLOAD, nonce=bytes(32), closes_in_ms=0
        )

    def _make_book(self, index: int) -> DepositBook:
        return self.books.setdefault(index, DepositBook(self.keys, index, self.terms))

    def call_for_deposit(self, name: str, index: int | None = None) -> None:
        """Ask a device for a deposit outside of a round; for the next round if not given."""
        book = self._make_book(self.attempt if index is None and self.outcome else index or 0)
        self.send_outside(name, book.call_to(name))

    def send_outside(self, name: str, message: AggregatorMessage) -> None:
        """Send a message that belongs to no round."""
        self.inject(name, message, Header(sender="aggregator"))

    # ------------------------------------------------------------ the network

    def _deliver_up(self, packet: Packet) -> None:
        envelope = open_envelope(topics.uplink(FLEET, DeviceId(packet.device)), packet.payload)
        message = require_device_message(envelope.message)
        if isinstance(message, Deposit):
            self.books[message.key_index].take(packet.device, message)
            return
        super()._deliver_up(packet)

    def _take_down(self, device: Device, envelope: Envelope, message: AggregatorMessage) -> None:
        if isinstance(message, DepositCall):
            self.deposit(device, message)
            return
        machine = device.machine
        if machine is not None and envelope.header.session_id == machine.plan.session_id:
            device.effects.extend(machine.handle(AggregatorSaid(message=message)))
        elif isinstance(message, OneUploadAnnouncement):
            self.take_part(device, message)

    def take_part(self, device: Device, message: OneUploadAnnouncement) -> None:
        """Answer an announcement; whatever the device was doing before is over."""
        try:
            machine = OneUploadRound.answer(
                message,
                identity=device.identity,
                policy=device.policy,
                entropy=device.entropy,
                epoch=device.epoch,
                gateway_key=self.gateway_key.public_key,
                today=DAY,
            )
        except EdgeflError as error:
            device.refused.append(error)
            return
        device.jobs.clear()
        device.machine = machine
        device.effects.extend(machine.begin())

    def deposit(
        self, device: Device, call: DepositCall, effects_before_death: int | None = None
    ) -> None:
        """Answer a call for a deposit, or die on the way."""
        try:
            machine = OneUploadDeposit.answer(
                call,
                policy=device.policy,
                entropy=device.entropy,
                epoch=device.epoch,
                gateway_key=self.gateway_key.public_key,
                today=DAY,
            )
        except EdgeflError as error:
            device.refused.append(error)
            return
        for effect in machine.begin()[:effects_before_death]:
            self._carry_out_deposit(device, effect)
        if effects_before_death is not None:
            self.crash(device)

    def resend_deposit(self, device: Device) -> None:
        """Let a device send its stored deposit again."""
        stored = self.deposit_flash.get(device.name)
        if stored is not None and device.has_power:
            self.settle(device)
            for effect in OneUploadDeposit.restore(stored, epoch=device.epoch).resume():
                self._carry_out_deposit(device, effect)

    def _carry_out_deposit(self, device: Device, effect: object) -> None:
        if isinstance(effect, Persist):
            self.deposit_flash[device.name] = effect.snapshot
        elif isinstance(effect, PersistEpoch):
            device.persist_epoch(effect.snapshot)
        elif isinstance(effect, SendUp) and isinstance(effect.message, Deposit):
            stored = OneUploadDeposit.restore(
                self.deposit_flash[device.name], epoch=device.epoch_on_flash
            )
            assert stored.message == effect.message, "sent before it was persisted"
            self._note_deposit(device, effect.message)
            self._send(device, Header(sender=device.name), effect.message)

    def _note_deposit(self, device: Device, deposit: Deposit) -> None:
        index = deposit.key_index
        assert device.epoch_on_flash.keys.use_of(index) is not None, "the index is not marked"
        self.deposits_sent.setdefault((device.name, index), set()).add(bytes_of(deposit))

    # ------------------------------------------------------------ the devices

    def restored(
        self, device: Device, flash: bytes, epoch: DeviceEpoch | None = None
    ) -> OneUploadRound:
        return OneUploadRound.restore(
            flash,
            spooled=device.spool,
            identity=device.identity,
            entropy=device.entropy,
            epoch=epoch or device.epoch,
        )

    def work(self, device: Device) -> None:
        # What is still to be carried out may end the round, and its jobs with it.
        self.settle(device)
        super().work(device)

    def resend(self, device: Device) -> None:
        machine = device.machine
        if machine is not None and not machine.phase.is_final:
            self.settle(device)
            last = None if device.machine is None else machine.last_message()
            if last is not None:
                self._send_up(device, last)

    def _persist(self, device: Device, effect: Persist) -> None:
        device.persist(effect)
        stored_epoch = restored_epoch(device.identity, device.epoch_flash)
        machine = self.restored(device, effect.snapshot, stored_epoch)
        last = machine.last_message()
        if last is not None:
            device.persisted.add(bytes_of(last))

    def _send_up(self, device: Device, message: DeviceMessage) -> None:
        assert bytes_of(message) in device.persisted, "sent before it was persisted"
        machine = device.machine
        assert machine is not None
        plan = machine.plan
        use = device.epoch_on_flash.keys.use_of(plan.key_index)
        assert use is not None
        assert use.session_id == plan.session_id, "the index is not bound to the session"
        self._record(device, plan.session_id, message)
        header = Header(
            session_id=plan.session_id,
            round_number=plan.round_number,
            attempt=plan.attempt,
            sender=device.name,
        )
        self._send(device, header, message)

    def _record(self, device: Device, session_id: bytes, message: DeviceMessage) -> None:
        device.sent.append((session_id, message))
        if isinstance(message, OneUpload):
            versions = self.masked_versions.setdefault((session_id, device.name), set())
            versions.add(message.packed)
            if message.next_deposit is not None:
                self._note_deposit(device, message.next_deposit)
        if isinstance(message, SurvivorVote):
            self._note_vote(device, message)
        if isinstance(message, RevealedShares):
            assert device.flash is not None
            state = OneUploadState.from_bytes(device.flash, device.spool)
            index = state.plan.key_index
            for owner, kind in self.kinds_revealed(device, state, message).items():
                self.kinds_by_index.setdefault((index, owner), set()).add(kind)

    def _note_vote(self, device: Device, message: SurvivorVote) -> None:
        assert device.flash is not None
        state = OneUploadState.from_bytes(device.flash, device.spool)
        proposal, proof = state.require_proposal(), self.keys.member_proof(device.name)
        lists = self.votes.setdefault(state.plan.key_index, {})
        lists.setdefault((proposal.survivors, proposal.dropped), {})[device.name] = (
            CertificateSignature(
                entry=proof.entry,
                roster_position=proof.roster_position,
                roster_path=proof.roster_path,
                signature=message.signature,
            )
        )

    def kinds_revealed(
        self, device: Device, state: OneUploadState, message: RevealedShares
    ) -> dict[int, str]:
        """Tell of each share that a device sends which of its owner's secrets it belongs to."""
        session = OneUploadSession(state.plan, state.peers, device.epoch.keys)
        proposal, positions = state.require_proposal(), state.plan.epoch_positions
        others = [owner for owner in range(state.plan.size) if owner != session.own]
        shares = dict(message.shares)
        assert shares.pop(session.own) == state.own_share
        kinds = {positions[session.own]: ShareKind.SELF_SEED.name}
        for kind in ShareKind:
            opened = session._channels.open_all(
                {
                    positions[owner]: SealedShare(
                        owner_key=key, context=session._context(kind), sealed=sealed
                    )
                    for owner, key, sealed in zip(
                        others, proposal.owners, proposal.sealed, strict=True
                    )
                }
            )
            for owner in others:
                share = opened.get(positions[owner])
                if share is not None and shares.get(owner) == share:
                    kinds[positions[owner]] = kind.name
                    del shares[owner]
        assert not shares, "a share that nobody made"
        return kinds

    # ------------------------------------------------------------ whole runs

    @property
    def committee(self) -> list[str]:
        """Members of the committee of the open round that are in its plan."""
        members = [self.keys.devices[position] for position in self.deposits.committee.members]
        return [name for name in members if name in self.deposits.devices]

    @property
    def session(self) -> OneUploadCollection:
        """What the aggregator has collected."""
        session = self.aggregator._open.session
        assert isinstance(session, OneUploadCollection)
        return session

    @property
    def can_go_on(self) -> bool:
        """Tell whether those who have deposited for the next index can have a round."""
        if self.next_deposits is None or len(self.next_deposits.devices) < self.floor:
            return False
        try:
            one_upload_thresholds(
                self.terms,
                epoch_size=self.keys.epoch.size,
                cohort_size=len(self.next_deposits.devices),
                roster_size=self.keys.roster.size,
                survivor_floor=self.floor,
            )
        except ConfigError:
            return False
        return True

    @property
    def graph(self) -> SessionGraph:
        """The graph of the open round."""
        plan = self.aggregator.plan
        assert plan is not None
        return SessionGraph.of(plan, self.keys.epoch)

    def opened_deposits(self, owner: str) -> dict[int, bytes]:
        """Let every holder open its share of a device's mask key; by the holder's position."""
        found = {}
        position = self.keys.epoch_position_of(owner)
        assert position is not None
        key = SealingKey.of(self.keys.member_proof(owner))
        context = ShareContext(key_index=self.deposits.key_index, kind=ShareKind.MASK_KEY)
        for holder, sealed in self.deposits.sealed_for(owner).items():
            keys = self.devices[self.keys.devices[holder]].epoch.keys
            share = SealedShare(owner_key=key, context=context, sealed=sealed)
            found[holder] = CommitteeChannels(keys).open_all({position: share})[position]
        return found
