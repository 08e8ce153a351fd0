"""Ask a gateway to let this device in, with a claim token; wait until somebody has decided.

What is begun goes on after a power cut or an interruption: token, key and request are files until
the answer is stored.
"""

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from edgefl import __version__
from edgefl.agent.device_keys import (
    CertificateWish,
    certified,
    claim_pem,
    new_wish,
    sign_with,
    to_pem,
)
from edgefl.agent.enrolled import Enrolled, TlsFiles
from edgefl.agent.reminder import Reminder
from edgefl.errors import (
    EdgeflError,
    PolicyRefusal,
    ProtocolError,
    StorageError,
    TransportError,
    WireError,
)
from edgefl.protocol import topics
from edgefl.protocol.claim_token import ClaimToken
from edgefl.protocol.enrolment_messages import (
    EnrolmentAnswer,
    EnrolmentRequest,
    EnrolmentState,
    claimed_bytes,
)
from edgefl.protocol.envelope import Header, open_envelope, seal_envelope
from edgefl.protocol.identity import DeviceIdentity
from edgefl.storage.files import read_file
from edgefl.transport.base import Inbound, LinkDown, LinkDownReason, LinkUp, Transport
from edgefl.types import DeviceId, FleetName

_LOGGER = logging.getLogger(__name__)

_MAX_PEM_BYTES: Final = 64 * 1024
_FIRST_RESEND_S: Final = 3.0
_LAST_RESEND_S: Final = 60.0
_TLS_PATIENCE_S: Final = 5.0
"""How long a certificate that this side refuses may stay the only answer. A date is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicant:
    """A device that wants in.

    Attributes:
        gateways: URLs to be used from now on.
    """

    identity: DeviceIdentity
    token: ClaimToken
    gateways: tuple[str, ...]
    files: TlsFiles

    @property
    def device(self) -> str:
        """The name that it wants."""
        return self.identity.device


class Enrolment:
    """One device's request, until it is decided.

    Args:
        applicant: Who asks.
        say: Takes lines for the user.
        wait_s: Give up after this time; None waits for ever.
    """

    def __init__(
        self, applicant: Applicant, *, say: Callable[[str], None], wait_s: float | None
    ) -> None:
        """Prepare the request; a key that an earlier run has made is used again.

        Raises:
            StorageError: A file is damaged or cannot be written.
        """
        self._applicant = applicant
        self._say = say
        self._wait_s = wait_s
        self._wish = _read_or_make_wish(applicant)
        self._payload = _request_of(applicant, self._wish)
        self._digest = hashlib.sha256(self._payload).digest()
        self._is_linked = False
        self._is_pending = False
        self._tls_trouble: str | None = None
        self._why_down = ""

    async def run(self, transport: Transport) -> Enrolled:
        """Ask until there is an answer, and store what it brings.

        Args:
            transport: The link, not yet started.

        Raises:
            PolicyRefusal: E-ENROL-REJECTED.
            TransportError: No gateway, or no decision, within the time; or TLS refuses it.
        """
        fleet, claim = FleetName(self._applicant.token.fleet), self._applicant.token.claim
        await transport.subscribe(topics.claim_downlink(fleet, claim))
        await transport.start()
        asking = asyncio.create_task(self._ask(transport), name="ask")
        watching = asyncio.create_task(self._watch(), name="watch")
        listening = asyncio.create_task(self._listen(transport), name="listen")
        try:
            done, _ = await asyncio.wait(
                {asking, watching, listening}, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                answer = task.result()
                if answer is not None:
                    return self._keep(answer)
            raise TransportError("E-ENROL-LINK", "a link until the answer", "one that was closed")
        finally:
            for task in (asking, watching, listening):
                task.cancel()
            await asyncio.gather(asking, watching, listening, return_exceptions=True)
            await transport.close()

    async def _ask(self, transport: Transport) -> None:
        """Send the request again and again, more and more slowly."""
        applicant = self._applicant
        topic = topics.claim_uplink(FleetName(applicant.token.fleet), applicant.token.claim)
        delay_s = _FIRST_RESEND_S
        while True:
            if self._is_linked:
                await transport.publish(topic, self._payload)
                await asyncio.sleep(delay_s * (1 + secrets.randbelow(1000) / 4000))
                delay_s = min(2 * delay_s, _LAST_RESEND_S)
            else:
                await asyncio.sleep(0.05)

    async def _watch(self) -> None:
        """Say what is waited for; give up when it is time."""
        started_s = time.monotonic()
        reminder = Reminder(started_s)
        tls_since_s: float | None = None
        while True:
            await asyncio.sleep(0.1)
            now_s = time.monotonic()
            tls_since_s = (tls_since_s or now_s) if self._tls_trouble else None
            if tls_since_s is not None and now_s - tls_since_s >= _TLS_PATIENCE_S:
                raise TransportError(
                    "E-TLS", "a gateway that the token vouches for", self._tls_trouble or ""
                )
            if self._wait_s is not None and now_s - started_s >= self._wait_s:
                raise self._out_of_time()
            if reminder.is_due(now_s):
                self._say(f"{self._state()} for {now_s - started_s:.0f} s")

    def _state(self) -> str:
        if self._is_pending:
            return f"waiting for the operator ('edgefl devices accept {self._applicant.device}')"
        if self._is_linked:
            return "waiting for the gateway's answer"
        why = f": {self._why_down}" if self._why_down else ""
        return f"waiting for a link to {', '.join(self._applicant.gateways)}{why}"

    def _out_of_time(self) -> TransportError:
        code = "E-ENROL-PENDING" if self._is_pending else "E-NO-GATEWAY"
        return TransportError(
            code,
            f"a decision within {self._wait_s:g} s",
            self._state(),
            "run 'edgefl agent enrol' again; it goes on where it was",
        )

    async def _listen(self, transport: Transport) -> EnrolmentAnswer | None:
        async for event in transport.events():
            if isinstance(event, LinkUp):
                self._is_linked, self._tls_trouble = True, None
            elif isinstance(event, LinkDown):
                self._on_down(event)
            elif isinstance(event, Inbound):
                answer = self._read(event)
                if answer is not None and answer.state is EnrolmentState.ACCEPTED:
                    return answer
        return None

    def _on_down(self, event: LinkDown) -> None:
        self._is_linked, self._why_down = False, event.detail
        _LOGGER.info("no link: %s %s", event.reason.value, event.detail)
        is_tls = event.reason is LinkDownReason.TLS
        # A clock may yet be set; a wrong name or authority stays wrong.
        self._tls_trouble = event.detail if is_tls and "time:" not in event.detail else None

    def _read(self, event: Inbound) -> EnrolmentAnswer | None:
        """Return the gateway's answer to this request; others' are not for this device."""
        try:
            envelope = open_envelope(event.topic, event.payload)
            envelope.require_signed_by(self._applicant.token.gateway_key)
        except (WireError, ProtocolError) as error:
            _LOGGER.warning("ignored: %s", error)
            return None
        answer = envelope.message
        if not isinstance(answer, EnrolmentAnswer) or answer.digest != self._digest:
            return None
        if answer.state is EnrolmentState.REJECTED:
            raise PolicyRefusal(
                "E-ENROL-REJECTED",
                "a gateway that lets this device in",
                answer.reason,
                "ask its operator, or for another token",
            )
        if answer.state is EnrolmentState.PENDING and not self._is_pending:
            self._is_pending = True
            self._say(f"pending: {self._state()}")
        return answer

    def _keep(self, answer: EnrolmentAnswer) -> Enrolled:
        """Store what the answer brings: last the file that says that it is done."""
        applicant, files = self._applicant, self._applicant.files
        device = certified(self._wish, answer.certificate, answer.authorities, applicant.device)
        files.write(files.trusted, to_pem(answer.authorities))
        files.write(files.device, device)
        key = applicant.token.enrolment_key
        enrolled = Enrolled(
            device=DeviceId(applicant.device),
            fleet=FleetName(applicant.token.fleet),
            gateways=applicant.gateways,
            enrolment_key=None if key is None else key.hex(),
            state_dir=files.state_dir,
        )
        enrolled.write()
        # What an earlier certificate was known by is read anew at the next start.
        life = files.device.with_name("life.json")
        for path in (files.token, files.claim, files.request, life):
            path.unlink(missing_ok=True)
        return enrolled


def begin(applicant: Applicant) -> None:
    """Store what connecting with the token needs.

    Raises:
        EdgeflError: The token is damaged, or a file cannot be written.
    """
    token, files = applicant.token, applicant.files
    files.write(files.token, token.to_text().encode())
    files.write(files.claim, claim_pem(token.certificate, token.key))
    files.write(files.trusted, to_pem(token.authorities))


def stored_token(files: TlsFiles) -> ClaimToken | None:
    """Return the token of an enrolment that was begun; None where there is none."""
    with suppress(OSError, EdgeflError, UnicodeDecodeError):
        return ClaimToken.from_text(read_file(files.token, _MAX_PEM_BYTES).decode())
    return None


def _read_or_make_wish(applicant: Applicant) -> CertificateWish:
    path = applicant.files.request
    with suppress(FileNotFoundError):
        try:
            return CertificateWish.from_pem(read_file(path, _MAX_PEM_BYTES))
        except StorageError as error:
            # It was worth nothing without an answer.
            _LOGGER.warning("a new key is made: %s", error)
    wish = new_wish(applicant.device)
    applicant.files.write(path, wish.to_pem())
    return wish


def _request_of(applicant: Applicant, wish: CertificateWish) -> bytes:
    token, key = applicant.token, applicant.identity.signing_key
    claimed = claimed_bytes(
        fleet=token.fleet,
        claim=token.claim,
        device=applicant.device,
        identity_key=key.public_key,
        certificate_request=wish.request,
    )
    request = EnrolmentRequest(
        identity_key=key.public_key,
        agent_version=__version__,
        certificate_request=wish.request,
        claim_signature=sign_with(token.key, claimed),
    )
    topic = topics.claim_uplink(FleetName(token.fleet), token.claim)
    return seal_envelope(key, topic, Header(sender=applicant.device), request)
