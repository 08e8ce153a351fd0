"""Devices of one key epoch, and a gateway that is played by hand, message by message.

The gateway has no machine of its own: a test sends whatever it likes, honest or not.
"""

import copy
import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from edgefl._native import SigningKey
from edgefl.protocol.certificate import (
    CertificateSignature,
    SurvivorCertificate,
    certificate_statement,
)
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.plan import SessionPlan, TrainingPlan
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.reasons import ALL_PRGS, AdversaryClass, Phase, RoundMode
from edgefl.protocol.round_messages import (
    Call,
    CheckIn,
    PlanAnnouncement,
    RevealedShares,
    RoutedShares,
    SharedKeys,
    SurvivorProposal,
    UnmaskRequest,
)
from edgefl.protocol.session_graph import SessionGraph
from edgefl.protocol.session_keys import call_id_of
from edgefl.protocol.thresholds import thresholds_for
from edgefl.protocol.wire import encode_bitmap
from tests.device_fixtures import CURIOUS, GATEWAY, LIAR, TODAY, Flash, opened_fleet
from tests.epoch_harness import FLEET, CountedSeeds, EpochFleet, signing_key
from tests.played_device import Device
from tests.round_boards import POLICY, privacy_plan


class Table:
    """Devices around a gateway that is played by hand; honest unless a test says otherwise.

    Args:
        n_devices: Members of the key epoch.
        adversary: Class of the plan.
        floor: Survivor floor.
        absent: Members that do not check in.
        policy: Of every device.
        fleet: With an open key epoch of so many members; one that all tests use if not given.
    """

    def __init__(
        self,
        n_devices: int = 6,
        *,
        adversary: AdversaryClass = CURIOUS,
        floor: int = 5,
        corrupt_permille: int = 0,
        drop_permille: int = 0,
        noise: float = 0.0,
        weight_bound: int = 1,
        dimension: int = 7,
        absent: Collection[str] = (),
        policy: DevicePolicy = POLICY,
        gateway_key: SigningKey = GATEWAY,
        today: int = TODAY,
        fleet: EpochFleet | None = None,
    ) -> None:
        fleet = fleet or opened_fleet(n_devices)
        keys = fleet.gateway.keys
        assert keys is not None
        self.keys: MemberKeys = keys
        self.devices = {
            name: Device(
                name=name,
                flash=Flash(epoch=board.flash or b""),
                policy=policy,
                gateway_key=gateway_key.public_key,
                today=today,
                seeds=CountedSeeds(b"round " + name.encode()),
            )
            for name, board in fleet.boards.items()
        }
        self.call = Call(
            task="count",
            round_number=1,
            attempt=1,
            mode=RoundMode.SECAGG,
            key_epoch=keys.epoch.key_epoch,
            key_index=0,
            nonce=hashlib.sha256(b"call").digest(),
            closes_in_ms=30_000,
        )
        self.members = [name for name in self.devices if name not in absent]
        base = n_devices if adversary is LIAR else len(self.members)
        self._privacy = privacy_plan(len(self.members), floor, dimension, noise, weight_bound)
        self._adversary = adversary
        self._corrupt_permille, self._drop_permille = corrupt_permille, drop_permille
        self._thresholds = thresholds_for(
            adversary=adversary,
            base_size=base,
            roster_size=keys.roster.size,
            corrupt_permille=corrupt_permille,
            drop_permille=drop_permille,
            survivor_floor=floor,
        )
        self.plan = self.make_plan()

    # ------------------------------------------------------------ what the gateway says

    def make_plan(self, call: Call | None = None) -> SessionPlan:
        call, record = call or self.call, self.keys.epoch.record
        members = {self.keys.epoch_position_of(name) for name in self.members}
        return SessionPlan(
            fleet=FLEET,
            task=call.task,
            round_number=call.round_number,
            attempt=call.attempt,
            call_id=call_id_of(FLEET, call),
            mode=call.mode,
            adversary=self._adversary,
            prgs=ALL_PRGS,
            key_epoch=call.key_epoch,
            record_sha256=record.digest,
            key_index=call.key_index,
            epoch_size=self.keys.epoch.size,
            cohort=encode_bitmap([index in members for index in range(self.keys.epoch.size)]),
            thresholds=self._thresholds,
            corrupt_permille=self._corrupt_permille,
            drop_permille=self._drop_permille,
            bundle_sha256=bytes(32),
            parameters_sha256=bytes(32),
            dimension=self._privacy.dimension,
            training=TrainingPlan(local_epochs=1, batch_size=4, learning_rate=0.1),
            privacy=self._privacy,
            ledger_head=bytes(32),
        )

    @property
    def graph(self) -> SessionGraph:
        return SessionGraph.of(self.plan, self.keys.epoch)

    def position(self, name: str) -> int:
        return self.members.index(name)

    def neighbours(self, name: str) -> list[str]:
        return [self.members[position] for position in self.graph.neighbours(self.position(name))]

    @property
    def committee(self) -> list[str]:
        """Members of the committee that checked in."""
        drawn = [self.keys.devices[position] for position in self.graph.committee]
        return [name for name in drawn if name in self.members]

    def announcement(self, name: str, plan: SessionPlan | None = None) -> PlanAnnouncement:
        plan = plan or self.plan
        proofs = []
        for neighbour in self.neighbours(name):
            (check_in, *_) = self.devices[neighbour].sent_of(CheckIn)
            proof = self.keys.require_mask_key(neighbour, check_in.mask_key, self.call.key_index)
            proofs.append((self.position(neighbour), proof))
        return PlanAnnouncement(plan=plan.to_bytes(), peers=tuple(proofs))

    def routed(self, name: str, missing: Collection[str] = ()) -> RoutedShares:
        """Return what neighbours shared with a device, of those that are not missing."""
        sealed = []
        for neighbour in self.neighbours(name):
            if neighbour in missing:
                continue
            (shared, *_) = self.devices[neighbour].sent_of(SharedKeys)
            index = self.neighbours(neighbour).index(name)
            sealed.append(shared.sealed[index])
        return RoutedShares(
            sharers=self.bitmap(set(self.members) - set(missing)), sealed=tuple(sealed)
        )

    def bitmap(self, names: Iterable[str]) -> bytes:
        chosen = set(names)
        return encode_bitmap([name in chosen for name in self.members])

    def proposal(
        self, dropped: Collection[str] = (), missing: Collection[str] = ()
    ) -> SurvivorProposal:
        alive = set(self.members) - set(dropped) - set(missing)
        return SurvivorProposal(survivors=self.bitmap(alive), dropped=self.bitmap(dropped))

    def signature(
        self, signer: str, lists: SurvivorProposal, key: SigningKey | None = None
    ) -> CertificateSignature:
        position = self.keys.roster.position_of(signer)
        assert position is not None
        statement = certificate_statement(self.plan.session_id, lists.survivors, lists.dropped)
        return CertificateSignature(
            entry=self.keys.roster.entries[position],
            roster_position=position,
            roster_path=self.keys.roster.path(position),
            signature=(key or signing_key(signer)).sign(statement),
        )

    def certificate(
        self, lists: SurvivorProposal, signers: Sequence[str] | None = None
    ) -> SurvivorCertificate:
        if signers is None:
            signers = self.committee[: self.plan.thresholds.certificate]
        found = [self.signature(signer, lists) for signer in signers]
        return SurvivorCertificate(
            signatures=tuple(sorted(found, key=lambda one: one.roster_position))
        )

    def request(
        self,
        dropped: Collection[str] = (),
        missing: Collection[str] = (),
        certificate: SurvivorCertificate | None = None,
    ) -> UnmaskRequest:
        """Return an unmask request, with a certificate where the session needs one."""
        lists = self.proposal(dropped, missing)
        if certificate is None and self.plan.thresholds.committee:
            certificate = self.certificate(lists)
        return UnmaskRequest(
            survivors=lists.survivors, dropped=lists.dropped, certificate=certificate
        )

    # ------------------------------------------------------------ honest steps

    def run_to(self, phase: Phase, missing: Collection[str] = ()) -> "Table":
        """Let every member do its part up to the beginning of a phase at the gateway.

        SHARE_KEYS: all have checked in; MASKED_INPUT: all but `missing` have shared keys;
        UNMASKING: all but them have sent their masked inputs.
        """
        self.call_members()
        if phase is Phase.SHARE_KEYS:
            return self
        sharers = [name for name in self.members if name not in missing]
        for name in sharers:
            self.devices[name].say(self.announcement(name))
        if phase is Phase.MASKED_INPUT:
            return self
        for name in sharers:
            self.devices[name].say(self.routed(name, missing))
        return self

    def twin(self) -> "Table":
        """Return a table in the same situation, for a test to spoil."""
        other = copy.copy(self)
        other.devices = {name: device.twin() for name, device in self.devices.items()}
        return other

    def call_members(self) -> None:
        for name in self.members:
            self.devices[name].answer(self.call)

    def changed(self, **changes: object) -> SessionPlan:
        """Return the plan with other values."""
        return replace(self.plan, **changes)  # type: ignore[arg-type]

    def reveals(self) -> dict[str, list[RevealedShares]]:
        return {name: device.sent_of(RevealedShares) for name, device in self.devices.items()}
