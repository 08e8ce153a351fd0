"""A gateway that says what it likes to devices in the one-upload mode."""

import dataclasses
from collections.abc import Collection

from edgefl.protocol.certificate import (
    CertificateSignature,
    SurvivorCertificate,
    certificate_statement,
)
from edgefl.protocol.events import AggregatorSaid, Refused, SendUp
from edgefl.protocol.one_upload_device import OneUploadRound
from edgefl.protocol.one_upload_messages import CommitteeProposal, OneUploadAnnouncement
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import AdversaryClass, Phase
from edgefl.protocol.round_messages import RevealedShares, SurvivorVote, UnmaskRequest
from edgefl.protocol.wire import encode_bitmap
from tests.epoch_harness import signing_key
from tests.one_upload_harness import OneUploadHarness
from tests.round_boards import Device

CURIOUS, SEMI, MALICIOUS = AdversaryClass
VICTIM = "d02"
SPARSE = {"corrupt_permille": 50, "drop_permille": 100}


class Gateway:
    """A gateway that says what it likes to devices whose uploads it has.

    Args:
        harness: A round; its own aggregator is not asked.
    """

    def __init__(self, harness: OneUploadHarness) -> None:
        self.harness = harness
        plan = harness.aggregator.plan
        assert plan is not None
        self.plan: SessionPlan = plan
        self.members = [harness.keys.devices[member] for member in plan.epoch_positions]

    def collect_uploads(self) -> "Gateway":
        self.harness.run_until(Phase.CERTIFICATE)
        self.harness.packets.clear()
        return self

    def device(self, name: str) -> Device:
        return self.harness.devices[name]

    def announcement(
        self, name: str = VICTIM, plan: SessionPlan | None = None
    ) -> OneUploadAnnouncement:
        session = self.harness.aggregator._open.session
        assert session is not None
        message = session.announce_to(self.members.index(name))
        return message if plan is None else dataclasses.replace(message, plan=plan.to_bytes())

    def proposal(self, name: str, dropped: Collection[str] = ()) -> CommitteeProposal:
        """Return lists of the gateway's choice, with ciphertexts that fit to them."""
        session = self.harness.aggregator._open.session
        assert session is not None
        honest = session.proposal_to(self.members.index(name))
        others = [member for member in self.members if member != name]
        holder = self.harness.keys.epoch_position_of(name)
        assert holder is not None
        deposited = {owner: self.harness.deposits.sealed_for(owner)[holder] for owner in others}
        return dataclasses.replace(
            honest,
            survivors=encode_bitmap([member not in dropped for member in self.members]),
            dropped=encode_bitmap([member in dropped for member in self.members]),
            sealed=tuple(
                deposited[owner] if owner in dropped else sealed
                for owner, sealed in zip(others, honest.sealed, strict=True)
            ),
        )

    def signature(
        self, signer: str, lists: CommitteeProposal, session_id: bytes | None = None
    ) -> CertificateSignature:
        proof = self.harness.keys.member_proof(signer)
        statement = certificate_statement(
            session_id or self.plan.session_id, lists.survivors, lists.dropped
        )
        return CertificateSignature(
            entry=proof.entry,
            roster_position=proof.roster_position,
            roster_path=proof.roster_path,
            signature=signing_key(signer).sign(statement),
        )

    def request(
        self,
        lists: CommitteeProposal,
        signers: Collection[str] | None = None,
        session_id: bytes | None = None,
    ) -> UnmaskRequest:
        """Return a request with a certificate, for which the test may use any device's key."""
        if signers is None:
            signers = self.harness.committee[: self.plan.thresholds.certificate]
        found = [self.signature(signer, lists, session_id) for signer in signers]
        return UnmaskRequest(
            survivors=lists.survivors,
            dropped=lists.dropped,
            certificate=SurvivorCertificate(
                signatures=tuple(sorted(found, key=lambda one: one.roster_position))
            ),
        )

    def say(self, name: str, message: CommitteeProposal | UnmaskRequest) -> list[object]:
        """Say something to a device, and return what it sends."""
        device = self.device(name)
        assert isinstance(device.machine, OneUploadRound)
        effects = device.machine.handle(AggregatorSaid(message=message))
        device.refused += [effect.error for effect in effects if isinstance(effect, Refused)]
        return [effect.message for effect in effects if isinstance(effect, SendUp)]

    def codes(self, name: str) -> list[str]:
        return [error.code for error in self.device(name).refused]


def opened(adversary: AdversaryClass = CURIOUS, n_devices: int = 8, **options: int) -> Gateway:
    return Gateway(OneUploadHarness(n_devices, adversary=adversary, **options)).collect_uploads()


def revealed(messages: list[object]) -> list[RevealedShares]:
    return [message for message in messages if isinstance(message, RevealedShares)]


def voted(messages: list[object]) -> bool:
    return any(isinstance(message, SurvivorVote) for message in messages)
