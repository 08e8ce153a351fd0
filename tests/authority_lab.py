"""A gateway's authority, tokens and boards' requests, for tests of enrolment."""

import datetime
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from broker.claims import Claim
from broker.enrolment_desk import EnrolmentDesk
from broker.enrolments import Enrolments
from broker.mailer import Mailer
from broker.tls_authority import TlsAuthority
from broker.tls_folder import TlsFolder
from broker.tokens import make_token
from edgefl._native import Seed, SigningKey
from edgefl.agent.device_keys import CertificateWish, new_wish, sign_with
from edgefl.protocol import topics
from edgefl.protocol.claim_token import ClaimToken
from edgefl.protocol.enrolment_messages import EnrolmentAnswer, EnrolmentRequest, claimed_bytes
from edgefl.protocol.envelope import Header, open_envelope, seal_envelope
from edgefl.storage.base import KeyValueStore
from edgefl.storage.memory import MemoryStore
from edgefl.transport.core_events import Publish
from edgefl.types import FleetName

FLEET = FleetName("home")
NOW = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
GATEWAY = SigningKey.from_seed(Seed.from_bytes(b"\x07" * 32))


def new_key() -> SigningKey:
    return SigningKey.from_seed(Seed.generate())


@dataclass
class Board:
    """A board that wants in."""

    name: str
    key: SigningKey = field(default_factory=new_key)
    wish: CertificateWish | None = None

    def request(self, token: ClaimToken, **changed: object) -> tuple[str, bytes]:
        """Return topic and payload of a request, with some part of it made up."""
        wish = self.wish = self.wish or new_wish(self.name)
        parts = {
            "fleet": FLEET,
            "claim": token.claim,
            "device": self.name,
            "identity_key": self.key.public_key,
            "certificate_request": wish.request,
        }
        signed = {**parts, **{k: v for k, v in changed.items() if k in parts}}
        content = claimed_bytes(**signed)
        request = EnrolmentRequest(
            identity_key=self.key.public_key,
            agent_version="1.0",
            certificate_request=signed["certificate_request"],
            claim_signature=changed.get("claim_signature") or sign_with(token.key, content),
        )
        topic = topics.claim_uplink(FLEET, token.claim)
        signer = changed.get("signer") or self.key
        return topic, seal_envelope(signer, topic, Header(sender=self.name), request)


class Lab:
    """A desk with real certificates and a memory for its state."""

    def __init__(self, folder: Path, store: KeyValueStore | None = None) -> None:
        self.folder = folder
        self.now = NOW
        self.tls = (
            TlsFolder(folder)
            if TlsFolder.exists(folder)
            else TlsFolder.create(folder, fleet=FLEET, hosts=["localhost"], now=NOW)
        )
        self.store = store or MemoryStore()
        self.desk = EnrolmentDesk(
            Enrolments(self.store),
            authority=TlsAuthority(self.tls),
            mailer=Mailer(FLEET, GATEWAY),
            fleet=FLEET,
            wall_clock_s=lambda: self.now.timestamp(),
        )
        self.claims: dict[str, Claim] = {}

    def token(self, **options: object) -> ClaimToken:
        chosen = {"uses": 1, "life": datetime.timedelta(hours=24), **options}
        token, claim = make_token(
            self.tls.authority,
            fleet=FLEET,
            gateways=("mqtts://localhost:8883",),
            trusted=self.tls.trusted,
            gateway_key=GATEWAY.public_key,
            enrolment_key=None,
            now=self.now,
            **chosen,
        )
        self.claims[claim.claim] = claim
        self.desk.on_claims(self.claims)
        return token

    def ask(self, board: Board, token: ClaimToken, **changed: object) -> EnrolmentAnswer:
        topic, payload = board.request(token, **changed)
        effects = self.desk.on_request(token.claim, topic, payload)
        answer = answer_in(effects)
        assert answer.digest == hashlib.sha256(payload).digest()
        return answer


def answer_in(effects: list) -> EnrolmentAnswer:
    (published,) = [effect for effect in effects if isinstance(effect, Publish)]
    envelope = open_envelope(published.topic, published.payload)
    envelope.require_signed_by(GATEWAY.public_key)
    assert isinstance(envelope.message, EnrolmentAnswer)
    return envelope.message
