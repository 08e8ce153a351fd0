"""A gateway that signs whatever it likes, with corrupt devices on its side, and the honest others.

It keeps every message that it was sent, in all sessions, and knows the identity keys and votes of
its colluders. The honest devices write to a flash and may lose power; what leaves them is noted.
"""

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from edgefl.errors import EdgeflError, WireError
from edgefl.protocol.certificate import (
    CertificateSignature,
    SurvivorCertificate,
    certificate_statement,
)
from edgefl.protocol.epoch_events import PersistEpoch, PublishBundle, SendEpochUp
from edgefl.protocol.epoch_messages import (
    EpochAggregatorMessage,
    EpochClosed,
    EpochInvitation,
    EpochOpened,
    NonceReveal,
)
from edgefl.protocol.events import DeviceEffect, SendUp, Trained, TrainJob
from edgefl.protocol.key_bundle import KeyBundle, MaskKeyProof
from edgefl.protocol.key_epoch import (
    EpochRecord,
    commit_gateway_nonce,
    commitments_root,
    hash_bundles,
)
from edgefl.protocol.merkle import MerkleTree
from edgefl.protocol.messages import AggregatorMessage
from edgefl.protocol.peer_proof import PeerProof
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.round_messages import (
    Call,
    CheckIn,
    MaskedInput,
    PlanAnnouncement,
    RevealedShares,
    RoutedShares,
    SharedKeys,
    SurvivorProposal,
    SurvivorVote,
    UnmaskRequest,
)
from edgefl.protocol.session_graph import SessionGraph
from edgefl.protocol.session_keys import call_id_of
from edgefl.protocol.thresholds import thresholds_for
from edgefl.protocol.wire import encode_bitmap
from tests.device_harness import LIAR, Table
from tests.epoch_harness import FLEET, signing_key
from tests.played_device import Device
from tests.round_watch import KEY, SEED, RoundWatch

MASK_KEYS = 8
OUTSIDER = signing_key("nobody's identity")


@dataclass
class WatchedDevice(Device):
    """A device of which all that leaves it is noted.

    Attributes:
        mail: What it sent, with the session that it was sent in.
        answered: The requests that it revealed shares for, by session.
        records: By key epoch, the records that it showed its nonce for.
        bundles: By key epoch, the bundles that it published.
    """

    watch: RoundWatch = field(default_factory=RoundWatch)
    is_corrupt: bool = False
    mail: list[tuple[bytes | None, object]] = field(default_factory=list)
    answered: list[tuple[bytes, UnmaskRequest]] = field(default_factory=list)
    records: defaultdict[int, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    bundles: dict[int, set[KeyBundle]] = field(default_factory=lambda: defaultdict(set))

    def restore(self) -> None:
        try:
            super().restore()
        except WireError:
            # As drivers do: a round that does not fit the keys on flash is over for the device.
            self.flash.round = None

    def work(self) -> None:
        machine, job = self.machine, self.jobs.pop(0)
        assert machine is not None
        if isinstance(job, TrainJob):
            update = self._trained(job)
            self.carry_out(machine.handle(Trained(update=update, examples=self.examples)))
        else:
            self.carry_out(machine.handle(self.watch.run(job, self.name)))

    def _carry_out_one(self, effect: DeviceEffect) -> None:
        super()._carry_out_one(effect)
        if isinstance(effect, SendUp):
            self._note(effect.message)

    def _note(self, message: object) -> None:
        machine = self.machine
        assert machine is not None
        session_id = None if machine.plan is None else machine.plan.session_id
        self.mail.append((session_id, message))
        if session_id is None or (self.is_corrupt and not isinstance(message, SharedKeys)):
            return
        state = machine._state
        if isinstance(message, SharedKeys):
            self.watch.note_key(session_id, machine._session().own, machine._mask_secret())
        elif isinstance(message, MaskedInput):
            self.watch.note_masked(session_id, self.name, message.packed)
        elif isinstance(message, SurvivorVote):
            lists = state.proposal
            assert lists is not None
            statement = certificate_statement(session_id, lists.survivors, lists.dropped)
            self.watch.note_vote(session_id, self.name, statement)
        elif isinstance(message, RevealedShares):
            assert state.unmask_request is not None
            self.answered.append((session_id, state.unmask_request))
            opened = machine._session().open_shares(state.require_routed())
            kinds = {}
            for owner, share in message.shares:
                assert share in opened[owner]
                kinds[owner] = KEY if share == opened[owner][0] else SEED
            self.watch.note_revealed(session_id, self.name, kinds)

    def hear_of_epoch(self, message: EpochAggregatorMessage) -> None:
        """Take a message about key epochs, and note what is published for it."""
        try:
            received = type(message).from_body(message.to_body())
        except EdgeflError:
            return
        for effect in self.epoch.handle(received, 0.0):
            if isinstance(effect, PersistEpoch):
                self.flash.epoch = effect.snapshot
            elif isinstance(effect, PublishBundle):
                bundle = effect.message.bundle
                self.bundles[bundle.key_epoch].add(bundle)
            elif isinstance(effect, SendEpochUp) and isinstance(effect.message, NonceReveal):
                assert isinstance(received, EpochClosed)
                self.records[received.record.key_epoch].add(effect.message.record_hash)


class LyingGateway:
    """All honest devices, and a gateway with every right but to enrol.

    Args:
        table: Of which size and class the sessions are.
        corrupt: The devices that work for the gateway; they keep to the protocol themselves, and
            the gateway votes and reveals in their names.
    """

    def __init__(self, table: Table, corrupt: Collection[str]) -> None:
        self.table = table
        self.keys = table.keys
        self.watch = RoundWatch()
        self.corrupt = frozenset(corrupt)
        self.devices = {
            name: WatchedDevice(
                name=name,
                flash=device.flash,
                policy=device.policy,
                gateway_key=device.gateway_key,
                today=device.today,
                seeds=device.seeds,
                watch=self.watch,
                is_corrupt=name in self.corrupt,
            )
            for name, device in table.devices.items()
        }
        self.calls: list[Call] = []
        self.plans: list[tuple[Call, SessionPlan]] = []
        self.records: list[EpochRecord] = []

    @property
    def honest(self) -> dict[str, WatchedDevice]:
        return {n: device for n, device in self.devices.items() if not device.is_corrupt}

    def say(self, name: str, message: AggregatorMessage | None) -> None:
        """Sign a message for a device; what has no form that can be read reaches nobody."""
        if message is None:
            return
        try:
            type(message).from_body(message.to_body())
        except EdgeflError:
            return
        self.devices[name].say(message)

    # ------------------------------------------------------------ check-in

    def make_call(self, key_index: int, attempt: int, round_number: int) -> Call:
        name = f"{len(self.calls)}/{key_index}".encode()
        call = dataclasses.replace(
            self.table.call,
            key_index=key_index,
            attempt=attempt,
            round_number=round_number,
            nonce=hashlib.sha256(name).digest(),
        )
        self.calls.append(call)
        return call

    def checked_in(self, call: Call) -> dict[str, MaskKeyProof]:
        call_id = call_id_of(FLEET, call)
        return {
            name: message.mask_key
            for name, device in self.devices.items()
            for _, message in device.mail
            if isinstance(message, CheckIn) and message.call_id == call_id
        }

    # ------------------------------------------------------------ plans

    def make_plan(self, call: Call, cohort: Collection[str], **changes: object) -> SessionPlan:
        """Return a plan over a cohort, with other values where that is asked.

        Raises:
            EdgeflError: There is no such plan.
        """
        honest = self.table.make_plan(call)
        base = self.keys.epoch.size if honest.adversary is LIAR else len(cohort)
        plan = dataclasses.replace(
            honest,
            cohort=encode_bitmap([name in cohort for name in self.keys.devices]),
            thresholds=thresholds_for(
                adversary=honest.adversary,
                base_size=base,
                roster_size=self.keys.roster.size,
                corrupt_permille=honest.corrupt_permille,
                drop_permille=honest.drop_permille,
                survivor_floor=honest.thresholds.survivor_floor,
            ),
        )
        plan = dataclasses.replace(plan, **changes)  # type: ignore[arg-type]
        self.plans.append((call, plan))
        return plan

    def members(self, plan: SessionPlan) -> list[str]:
        return [self.keys.devices[position] for position in plan.epoch_positions]

    def graph(self, plan: SessionPlan) -> SessionGraph:
        return SessionGraph.of(plan, self.keys.epoch)

    def neighbours(self, plan: SessionPlan, name: str) -> list[str]:
        members = self.members(plan)
        return [members[place] for place in self.graph(plan).neighbours(members.index(name))]

    def committee(self, plan: SessionPlan) -> list[str]:
        members = self.members(plan)
        drawn = [self.keys.devices[position] for position in self.graph(plan).committee]
        return [name for name in drawn if name in members]

    def announcement(
        self, call: Call, plan: SessionPlan, name: str, swapped: int | None = None
    ) -> PlanAnnouncement | None:
        """Return a plan with the proofs of neighbours, two of them in each other's place."""
        if name not in self.members(plan):
            return None
        found = self.checked_in(call)
        near = [peer for peer in self.neighbours(plan, name) if peer in found]
        proofs: list[PeerProof] = [self.keys.peer_proof(peer, found[peer]) for peer in near]
        if swapped is not None and len(proofs) > 1:
            first, second = swapped % len(proofs), (swapped + 1) % len(proofs)
            proofs[first], proofs[second] = proofs[second], proofs[first]
        places = [self.members(plan).index(peer) for peer in near]
        return PlanAnnouncement(plan=plan.to_bytes(), peers=tuple(zip(places, proofs, strict=True)))

    # ------------------------------------------------------------ shares and lists

    def sharers(self, plan: SessionPlan) -> dict[str, SharedKeys]:
        return {
            name: message
            for name, device in self.devices.items()
            for session_id, message in device.mail
            if isinstance(message, SharedKeys) and session_id == plan.session_id
        }

    def routed(
        self, plan: SessionPlan, name: str, missing: Collection[str], spoilt: int | None = None
    ) -> RoutedShares | None:
        """Return what the neighbours sealed for a device, one ciphertext of it changed."""
        if name not in self.members(plan):
            return None
        shared = {n: keys for n, keys in self.sharers(plan).items() if n not in missing}
        sealed = [
            shared[peer].sealed[self.neighbours(plan, peer).index(name)]
            for peer in self.neighbours(plan, name)
            if peer in shared
        ]
        if spoilt is not None and sealed:
            place = spoilt % len(sealed)
            sealed[place] = sealed[place][:-1] + bytes([sealed[place][-1] ^ 1])
        return RoutedShares(sharers=self.bitmap(plan, shared), sealed=tuple(sealed))

    def bitmap(self, plan: SessionPlan, names: Iterable[str]) -> bytes:
        chosen = set(names)
        return encode_bitmap([name in chosen for name in self.members(plan)])

    def lists(
        self, plan: SessionPlan, dropped: Collection[str], missing: Collection[str] = ()
    ) -> SurvivorProposal:
        sharers = set(self.sharers(plan)) - set(missing)
        return SurvivorProposal(
            survivors=self.bitmap(plan, sharers - set(dropped)),
            dropped=self.bitmap(plan, sharers & set(dropped)),
        )

    def request(
        self, plan: SessionPlan, lists: SurvivorProposal, *, is_forged: bool = False
    ) -> UnmaskRequest:
        """Return a request with all votes that the gateway has or can make for its lists."""
        certificate = None
        if plan.thresholds.committee:
            signatures = self._signatures(plan, lists, is_forged=is_forged)
            certificate = SurvivorCertificate(signatures=signatures)
        return UnmaskRequest(
            survivors=lists.survivors, dropped=lists.dropped, certificate=certificate
        )

    def _signatures(
        self, plan: SessionPlan, lists: SurvivorProposal, *, is_forged: bool
    ) -> tuple[CertificateSignature, ...]:
        statement = certificate_statement(plan.session_id, lists.survivors, lists.dropped)
        found = []
        for name in self.committee(plan):
            position = self.keys.roster.position_of(name)
            assert position is not None
            signatures = self._votes(plan, name, statement)
            if is_forged and not signatures:
                signatures = [OUTSIDER.sign(statement)]
            found += [
                CertificateSignature(
                    entry=self.keys.roster.entries[position],
                    roster_position=position,
                    roster_path=self.keys.roster.path(position),
                    signature=signature,
                )
                for signature in signatures[:1]
            ]
        return tuple(sorted(found, key=lambda one: one.roster_position))

    def _votes(self, plan: SessionPlan, name: str, statement: bytes) -> list[bytes]:
        """Return a member's signatures over a statement, if it gave one or is corrupt."""
        if name in self.corrupt:
            return [signing_key(name).sign(statement)]
        device = self.devices[name]
        made = signing_key(name).sign(statement)  # Ed25519 gives the same bytes each time.
        return [
            made
            for session_id, message in device.mail
            if isinstance(message, SurvivorVote)
            and session_id == plan.session_id
            and message.signature == made
        ]

    # ------------------------------------------------------------ key epochs

    def invite(self, key_epoch: int, mask_key_count: int) -> None:
        header = self.keys.roster.epoch
        message = EpochInvitation(
            key_epoch=key_epoch,
            roster_number=header.number,
            roster_hash=header.hash,
            mask_key_count=mask_key_count,
        )
        for device in self.devices.values():
            device.hear_of_epoch(message)

    def close(self, key_epoch: int, nonce: int, targets: Collection[str]) -> None:
        """Show some devices a record of the key epoch, with a gateway nonce of one's choice."""
        published = {
            name: next(iter(device.bundles[key_epoch]))
            for name, device in self.devices.items()
            if device.bundles.get(key_epoch)
        }
        if len(published) < 2:
            return
        header = self.keys.roster.epoch
        names = [entry.device for entry in self.keys.roster.entries if entry.device in published]
        commitments = [published[name].nonce_commitment for name in names]
        record = EpochRecord(
            fleet=FLEET,
            key_epoch=key_epoch,
            roster_number=header.number,
            roster_hash=header.hash,
            roster_size=header.size,
            members=encode_bitmap([e.device in published for e in self.keys.roster.entries]),
            commitments_root=commitments_root(commitments),
            bundles_hash=hash_bundles([published[name] for name in names]),
            gateway_commitment=commit_gateway_nonce(FLEET, key_epoch, bytes([nonce] * 32)),
        )
        self.records.append(record)
        tree = MerkleTree(commitments)
        for name in targets:
            if name in names:
                path = tree.path(names.index(name))
                self.devices[name].hear_of_epoch(EpochClosed(record=record, path=path))

    def open_with_nonces_of_its_own(self, targets: Collection[str]) -> None:
        """Pretend that a key epoch is open, whose members never showed their nonces."""
        for record in self.records[-2:]:
            message = EpochOpened(
                record_hash=record.digest,
                nonces=tuple(bytes([1] * 32) for _ in record.positions),
                gateway_nonce=bytes([1] * 32),
            )
            for name in targets:
                self.devices[name].hear_of_epoch(message)

    # ------------------------------------------------------------ what it could know

    def colluding_neighbours(self, session_id: bytes, owner: int) -> int:
        """Return how many neighbours of a position of a session's cohort are corrupt."""
        plan = self.watch.plans[session_id]
        return len(self.corrupt.intersection(self.neighbours(plan, self.members(plan)[owner])))

    def colluding_signers(self) -> Mapping[bytes, int]:
        """Return how many members of each session's committee sign whatever the gateway asks."""
        return {
            plan.session_id: len(self.corrupt.intersection(self.committee(plan)))
            for _, plan in self.plans
            if plan.session_id in self.watch.plans
        }
