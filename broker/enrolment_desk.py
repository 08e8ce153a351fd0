"""Decides who is let into the fleet: takes requests, renewals and the operator's orders.

Only what a token's own key and the board's own key have signed is looked at. What is stored is
bounded: by the uses of each token, and by the boards that may wait for the operator.
Not guaranteed: that the board which shows a token is the one that it was made for. That is what
comparing fingerprints is for.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from broker.certificate_pace import CertificatePace
from broker.claims import Claim
from broker.device_authority import DeviceAuthority
from broker.enrolment_events import CutSession, Order, RevocationsChanged, Verb
from broker.enrolment_reports import (
    admission_report,
    order_done,
    order_refused,
    request_refused_report,
)
from broker.enrolments import MAX_PENDING, Admission, EnrolmentRecord, Enrolments
from broker.events import GatewayEffect, Reported
from broker.mailer import Mailer
from edgefl.errors import ConfigError, ProtocolError, RemoteProtocolError
from edgefl.protocol.enrolment_messages import (
    CertificateIssued,
    EnrolmentAnswer,
    EnrolmentRequest,
    EnrolmentState,
    RenewalRequest,
    claimed_bytes,
    digest_of,
)
from edgefl.protocol.envelope import Envelope, open_envelope
from edgefl.protocol.limits import MAX_POPULATION
from edgefl.protocol.roster_epoch import fingerprint
from edgefl.protocol.topics import parse_device_id

_ANSWERS: Final = {
    Admission.PENDING: EnrolmentState.PENDING,
    Admission.ACCEPTED: EnrolmentState.ACCEPTED,
    Admission.REJECTED: EnrolmentState.REJECTED,
    Admission.REVOKED: EnrolmentState.REJECTED,
}


class EnrolmentDesk:
    """The gateway's side of enrolment.

    Args:
        enrolments: Who asked before.
        authority: Makes certificates.
        mailer: Signs and addresses the answers.
        fleet: The fleet's name.
        wall_clock_s: Seconds since 1970.
    """

    def __init__(
        self,
        enrolments: Enrolments,
        *,
        authority: DeviceAuthority,
        mailer: Mailer,
        fleet: str,
        wall_clock_s: Callable[[], float],
    ) -> None:
        """Know no token before `on_claims`."""
        self._enrolments = enrolments
        self._authority = authority
        self._mailer = mailer
        self._fleet = fleet
        self._wall_clock_s = wall_clock_s
        self._claims: Mapping[str, Claim] = {}
        self._digest = digest_of(authority.trusted)
        self._pace = CertificatePace()

    # ------------------------------------------------------------ questions

    @property
    def enrolments(self) -> Enrolments:
        """Who asked; for reading."""
        return self._enrolments

    def refusal_of(self, device: str, identity_key: bytes) -> str | None:
        """Return why a board may not take part; None where it may."""
        record = self._enrolments.get(device)
        if record is None or record.identity_key != identity_key:
            return "it is not enrolled here: run 'edgefl agent enrol' with a token"
        if record.admission is Admission.ACCEPTED:
            return None
        return {
            Admission.PENDING: "the operator has not accepted it: 'edgefl devices accept'",
            Admission.REJECTED: "the operator rejected it",
            Admission.REVOKED: "the operator revoked it",
        }[record.admission]

    def revocations(self) -> RevocationsChanged:
        """Return what no link may be opened with."""
        now_s = self._wall_clock_s()
        claims = self._claims.values()
        over = {one.claim for one in claims if one.is_revoked or one.expires_s <= now_s}
        # An expired certificate needs no entry: it has ended by itself.
        serials = {int(one.serial, 16) for one in claims if one.is_revoked}
        return RevocationsChanged(
            serials=self._enrolments.revoked_serials | serials,
            devices=self._enrolments.revoked_devices | over,
        )

    # ------------------------------------------------------------ tokens

    def on_claims(self, claims: Mapping[str, Claim]) -> list[GatewayEffect]:
        """Take the tokens that there are now."""
        self._claims = claims
        return [self.revocations()]

    # ------------------------------------------------------------ boards that want in

    def on_request(self, claim_name: str, topic: str, payload: bytes) -> list[GatewayEffect]:
        """Take a packet from a claim's topic.

        Raises:
            WireError: It is no message.
            RemoteProtocolError: Somebody made it up.
        """
        envelope = open_envelope(topic, payload)
        request = envelope.message
        if not isinstance(request, EnrolmentRequest):
            raise RemoteProtocolError("E-ENROL", "a request of a board that wants in", "another")
        digest = hashlib.sha256(payload).digest()
        try:
            claim = self._checked_claim(claim_name, envelope, request)
            record, effects = self._admit(claim, envelope.header.sender, request, digest)
        except ProtocolError as error:
            text = f"{error.code}: {error.expected}, not {error.found}"[:400]
            refused = self._answer(claim_name, EnrolmentState.REJECTED, digest, text)
            return [refused, request_refused_report(error.code, envelope.header.sender)]
        return [*effects, self._answer_of(record)]

    def _checked_claim(self, name: str, envelope: Envelope, request: EnrolmentRequest) -> Claim:
        """Return the claim of a request that its holder and its board have signed."""
        claim = self._claims.get(name)
        if claim is None:
            raise RemoteProtocolError("E-CLAIM", "a token of this gateway", "another one")
        if claim.is_revoked:
            raise RemoteProtocolError("E-CLAIM-REVOKED", "a token that is valid", "a revoked one")
        if claim.expires_s <= self._wall_clock_s():
            raise RemoteProtocolError("E-CLAIM-EXPIRED", "a token that is valid", "an expired one")
        device = envelope.header.sender
        try:
            parse_device_id(device)
        except ConfigError as error:
            raise RemoteProtocolError("E-ENROL-NAME", error.expected, error.found) from None
        envelope.require_signed_by(request.identity_key)
        claimed = claimed_bytes(
            fleet=self._fleet,
            claim=name,
            device=device,
            identity_key=request.identity_key,
            certificate_request=request.certificate_request,
        )
        certificate = bytes.fromhex(claim.certificate)
        if not self._authority.verify(certificate, request.claim_signature, claimed):
            raise RemoteProtocolError(
                "E-CLAIM-SIGNATURE", "a request signed with the token's key", "another signature"
            )
        self._authority.check(request.certificate_request, device)
        return claim

    def _admit(
        self, claim: Claim, device: str, request: EnrolmentRequest, digest: bytes
    ) -> tuple[EnrolmentRecord, list[GatewayEffect]]:
        """Return the record of a board that asks, and what to tell the operator."""
        known = self._enrolments.get(device)
        if known is not None and known.identity_key == request.identity_key:
            return self._ask_again(known, request, digest)
        self._require_free(known, device, request.identity_key)
        self._require_room(claim, device)
        record = EnrolmentRecord(
            device=device,
            identity_key=request.identity_key,
            admission=Admission.PENDING,
            claim=claim.claim,
            first_seen_s=int(self._wall_clock_s()),
            certificate_request=request.certificate_request,
            request_digest=digest,
        )
        is_back = known is not None and known.admission is Admission.REVOKED
        if claim.accepts_at_once(fingerprint(request.identity_key), was_revoked=is_back):
            admitted, effects = self._accept(record, "preauthorised")
        else:
            self._enrolments.put(record)
            admitted, effects = record, [admission_report(record, "")]
        # A name that was put out belongs to another board now: links may have it again.
        return admitted, [self.revocations(), *effects] if is_back else effects

    def _ask_again(
        self, known: EnrolmentRecord, request: EnrolmentRequest, digest: bytes
    ) -> tuple[EnrolmentRecord, list[GatewayEffect]]:
        """Answer a board that asked before; it may have lost its key for TLS."""
        is_same = known.certificate_request == request.certificate_request
        if is_same and known.request_digest == digest:
            return known, []
        record = replace(known, request_digest=digest)
        if known.admission is Admission.ACCEPTED and not (is_same and known.certificate):
            self._pace.require_enrolment(known.device, self._wall_clock_s())
            self._enrolments.require_room_to_revoke(len(known.issued))
            renewed = replace(record, certificate_request=request.certificate_request)
            return self._accept(renewed, "enrolled again")
        if known.admission is Admission.PENDING:
            record = replace(record, certificate_request=request.certificate_request)
        self._enrolments.put(record)
        return record, []

    def _require_free(self, known: EnrolmentRecord | None, device: str, key: bytes) -> None:
        other = self._enrolments.name_of(key)
        if other is not None and other != device:
            raise RemoteProtocolError(
                "E-ENROL-KEY-TWICE", "a key of its own for each board", f"the key of {other}"
            )
        is_held = known is not None and known.admission in (Admission.PENDING, Admission.ACCEPTED)
        if is_held:
            raise RemoteProtocolError(
                "E-ENROL-NAME-TAKEN",
                f"a name that no other board has; the operator can free {device} by 'edgefl "
                "devices reject' or 'revoke'",
                "a board with another key",
            )

    def _require_room(self, claim: Claim, device: str) -> None:
        used = self._enrolments.used(claim.claim)
        if device not in used and len(used) >= claim.uses:
            raise RemoteProtocolError(
                "E-CLAIM-USED", f"a token for at most {claim.uses} boards", "one board more"
            )
        if self._enrolments.pending_count >= MAX_PENDING:
            raise RemoteProtocolError(
                "E-ENROL-PENDING", f"at most {MAX_PENDING} boards that wait", "one more"
            )
        if len(self._enrolments.records) >= MAX_POPULATION:
            raise RemoteProtocolError(
                "E-POPULATION", f"at most {MAX_POPULATION} boards", "one more"
            )

    def _accept(
        self, record: EnrolmentRecord, why: str
    ) -> tuple[EnrolmentRecord, list[GatewayEffect]]:
        """Let a board in, or in again; whatever certificate it had before is withdrawn."""
        effects: list[GatewayEffect] = []
        if record.issued:
            record = self._enrolments.revoke_certificates(record, self._wall_clock_s())
            effects.append(self.revocations())
        certified, _ = self._certify(replace(record, admission=Admission.ACCEPTED))
        accepted = replace(certified, trusted_digest=self._digest)
        self._enrolments.put(accepted)
        return accepted, [*effects, admission_report(accepted, why)]

    def _certify(self, record: EnrolmentRecord) -> tuple[EnrolmentRecord, bool]:
        """Make a certificate for the newest request; tell whether an older one was revoked."""
        now_s = self._wall_clock_s()
        self._pace.note(record.device, now_s)
        issued = self._authority.issue(record.certificate_request, record.device, now_s)
        return self._enrolments.add_certificate(
            record, issued.certificate, issued.serial, issued.expires_s, now_s
        )

    # ------------------------------------------------------------ boards that are in

    def on_hello(self, device: str) -> list[GatewayEffect]:
        """Tell a board which authorities to trust, where it may not know."""
        record = self._enrolments.get(device)
        if record is None or record.trusted_digest == self._digest:
            return []
        return [self._mailer.to_device(device, self._issued(b""))]

    def on_renewal(self, device: str, request: RenewalRequest) -> list[GatewayEffect]:
        """Make the next certificate of a board, whose signature was checked.

        Raises:
            RemoteProtocolError: The request is for another name, or damaged; or this board asks
                for certificates without end.
        """
        record = self._enrolments.get(device)
        if record is None or record.admission is not Admission.ACCEPTED:
            return []
        if not request.certificate_request:
            # It has moved: trusts these authorities, and has a certificate of the newest.
            self._enrolments.put(replace(record, trusted_digest=request.trusted_digest))
            return []
        if request.certificate_request == record.certificate_request:
            return [self._mailer.to_device(device, self._issued(record.certificate))]
        self._authority.check(request.certificate_request, device)
        self._pace.require_renewal(record, self._wall_clock_s())
        self._enrolments.require_room_to_revoke(1)
        # The certificate before ends by itself: the board connects with it until it has this one.
        renewed, is_one_revoked = self._certify(
            replace(record, certificate_request=request.certificate_request)
        )
        self._enrolments.put(renewed)
        return [
            self._mailer.to_device(device, self._issued(renewed.certificate)),
            Reported(kind="certificate-renewed", fields={"device": device}),
            *([self.revocations()] if is_one_revoked else []),
        ]

    def on_authorities(self, online: Collection[str]) -> list[GatewayEffect]:
        """Tell the boards that are there what to trust from now on."""
        self._digest = digest_of(self._authority.trusted)
        effects: list[GatewayEffect] = []
        for device in sorted(online):
            effects += self.on_hello(device)
        return effects

    def behind_count(self) -> int:
        """Return how many boards are not known to trust the present authorities."""
        return sum(
            record.admission is Admission.ACCEPTED and record.trusted_digest != self._digest
            for record in self._enrolments.records
        )

    # ------------------------------------------------------------ the operator

    def on_order(self, order: Order) -> list[GatewayEffect]:
        """Carry out what the operator decided about one board."""
        record = self._enrolments.get(order.device)
        if record is None:
            return [order_refused(order, "E-NO-DEVICE", f"no board {order.device} has asked")]
        shown = fingerprint(record.identity_key)
        if order.fingerprint is not None and order.fingerprint != shown:
            text = f"{order.device} shows {shown}, not {order.fingerprint}: it is another board"
            return [order_refused(order, "E-FINGERPRINT", text)]
        if order.verb is Verb.ACCEPT:
            return self._on_accept(order, record)
        if order.verb is Verb.REJECT:
            return self._on_reject(order, record)
        return self._on_revoke(order, record)

    def _on_accept(self, order: Order, record: EnrolmentRecord) -> list[GatewayEffect]:
        if record.admission is Admission.ACCEPTED:
            return [order_done(order, f"{record.device} was accepted before")]
        if record.admission is Admission.REVOKED:
            text = f"{record.device} was revoked; it has to enrol anew, with a new key"
            return [order_refused(order, "E-DEVICE-REVOKED", text)]
        try:
            accepted, effects = self._accept(record, "by the operator")
        except RemoteProtocolError as error:
            return [order_refused(order, error.code, error.found)]
        text = f"{record.device} is accepted, key {fingerprint(record.identity_key)}"
        return [*effects, self._answer_of(accepted), order_done(order, text)]

    def _on_reject(self, order: Order, record: EnrolmentRecord) -> list[GatewayEffect]:
        if record.admission is not Admission.PENDING:
            text = (
                f"{record.device} is {record.admission.name.lower()}: only boards that wait can be"
            )
            return [order_refused(order, "E-NOT-PENDING", f"{text} rejected ('revoke' ends more)")]
        rejected = replace(record, admission=Admission.REJECTED)
        self._enrolments.put(rejected)
        return [
            admission_report(rejected, "by the operator"),
            self._answer_of(rejected),
            order_done(order, f"{record.device} is rejected"),
        ]

    def _on_revoke(self, order: Order, record: EnrolmentRecord) -> list[GatewayEffect]:
        if record.admission is Admission.REVOKED:
            return [order_done(order, f"{record.device} was revoked before")]
        bare = self._enrolments.revoke_certificates(record, self._wall_clock_s())
        revoked = replace(bare, admission=Admission.REVOKED)
        self._enrolments.put(revoked)
        return [
            self.revocations(),
            CutSession(device=record.device, reason="revoked by the operator"),
            admission_report(revoked, "by the operator"),
            order_done(order, f"{record.device} is revoked and its session cut"),
        ]

    # ------------------------------------------------------------ answers

    def _answer_of(self, record: EnrolmentRecord) -> GatewayEffect:
        reasons = {
            Admission.REJECTED: "the operator rejected this board",
            Admission.REVOKED: "the operator revoked this board; a new key needs a new folder",
        }
        return self._answer(
            record.claim,
            _ANSWERS[record.admission],
            record.request_digest,
            reasons.get(record.admission, ""),
            record.certificate if record.admission is Admission.ACCEPTED else b"",
        )

    def _answer(
        self,
        claim: str,
        state: EnrolmentState,
        digest: bytes,
        reason: str,
        certificate: bytes = b"",
    ) -> GatewayEffect:
        return self._mailer.to_claim(
            claim,
            EnrolmentAnswer(
                state=state,
                reason=reason,
                digest=digest,
                certificate=certificate,
                authorities=self._authority.trusted if certificate else (),
            ),
        )

    def _issued(self, certificate: bytes) -> CertificateIssued:
        return CertificateIssued(certificate=certificate, authorities=self._authority.trusted)
