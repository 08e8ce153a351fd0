"""What devices send: who may speak is decided here, and each kind of message handed on."""

import hashlib
import math

from broker.admission import admit
from broker.admissions import Admissions
from broker.enrolment_requests import EnrolmentRequests
from broker.events import GatewayEffect, Reported
from broker.key_epochs import KeyEpochs
from broker.mailer import Mailer
from broker.population import Population
from broker.reports import refused_report
from broker.round_driver import RoundDriver
from broker.round_opening import RoundOpener
from broker.settings import GatewaySettings
from broker.sightings import Sightings
from broker.uploads import Uploads
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import topics
from edgefl.protocol.bulk import transfer_id_of
from edgefl.protocol.enrolment_messages import RenewalRequest
from edgefl.protocol.envelope import Header, open_envelope, require_device_message
from edgefl.protocol.epoch_messages import EPOCH_DEVICE_MESSAGES
from edgefl.protocol.events import DeviceOnline
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.one_upload_messages import OneUpload
from edgefl.protocol.presence import PresenceKind, parse_presence
from edgefl.protocol.round_messages import MaskedInput
from edgefl.protocol.service_messages import Blob, GetBlob, Hello, Receipt, Rejection
from edgefl.transfer.messages import TRANSFER_ANSWERS, TransferOffer
from edgefl.transport.core_events import Acknowledge, Arrived
from edgefl.types import DeviceId

_INPUT_KINDS = frozenset({MaskedInput.kind, OneUpload.kind})
_CLEAR_PAUSE_S = 1.0
_LONGEST_LIST_BYTES = 4 << 20
"""Shares for the largest neighbourhood, or a deposit for the largest committee."""


class Uplinks:
    """The gateway's ear. A peer's bytes raise nothing.

    Args:
        settings: Fleet, and the oldest agent that is served.
        mailer: Addresses the answers.
        population: Who is known, and online.
        key_epochs: Takes what belongs to the set-up of keys.
        requests: Is told of hellos.
        opener: Takes deposits.
        rounds: Takes what belongs to a round.
        sightings: Remembers, for the operator, how devices were last seen.
        admissions: Says who may take part, and takes what belongs to enrolment.
        uploads: Puts together what comes in chunks.
    """

    def __init__(
        self,
        *,
        settings: GatewaySettings,
        mailer: Mailer,
        population: Population,
        key_epochs: KeyEpochs,
        requests: EnrolmentRequests,
        opener: RoundOpener,
        rounds: RoundDriver,
        sightings: Sightings,
        admissions: Admissions,
        uploads: Uploads,
    ) -> None:
        """Prepare."""
        self._settings = settings
        self._mailer = mailer
        self._population = population
        self._key_epochs = key_epochs
        self._requests = requests
        self._desk = opener.desk
        self._rounds = rounds
        self._sightings = sightings
        self._admissions = admissions
        self._uploads = uploads
        self._cleared_for = 0
        self._cleared_at_s = -math.inf

    def on_arrived(self, event: Arrived, now_s: float) -> list[GatewayEffect]:
        """Take a packet from a device's topic."""
        claim = topics.claim_of(event.topic)
        if claim is not None:
            return [*self._admissions.on_arrived(claim, event), *acknowledge(event)]
        upload = topics.upload_of(event.topic)
        if upload is not None:
            return [*self._on_chunk(*upload, event.payload, now_s), *acknowledge(event)]
        try:
            device = topics.device_of(event.topic)
            if event.topic == topics.status(self._settings.fleet, device):
                return [*self._on_status(device, event.payload, now_s), *acknowledge(event)]
            return self._on_envelope(device, event, now_s)
        except (WireError, RemoteProtocolError) as error:
            return [refused_report(error.code, event.topic), *acknowledge(event)]

    # ------------------------------------------------------------ presence

    def _on_status(self, device: DeviceId, payload: bytes, now_s: float) -> list[GatewayEffect]:
        presence = parse_presence(payload)
        if presence.kind is PresenceKind.OFFLINE:
            self._population.is_leaving(device, now_s)
            return []
        self._population.note_presence(device, presence)
        if presence.kind is PresenceKind.SLEEPING:
            # One that wakes in time answers a call that waits for it at the broker.
            is_soon = presence.wakes_in_s <= self._rounds.most_sleep_s
            self._population.falls_asleep(
                device,
                presence.wakes_in_s,
                now_s,
                is_counted_on=presence.is_available and is_soon,
            )
            return []
        return self._on_heard(device, now_s)

    def _on_heard(self, device: str, now_s: float) -> list[GatewayEffect]:
        is_news = self._population.is_heard(device)
        if self._population.key_of(device) is not None:
            self._sightings.note_heard(device, now_s)
        if not is_news:
            return []
        return self._rounds.feed(DeviceOnline(device=device), now_s)

    # ------------------------------------------------------------ signed messages

    def _on_envelope(self, device: DeviceId, event: Arrived, now_s: float) -> list[GatewayEffect]:
        envelope = open_envelope(event.topic, event.payload)
        message = require_device_message(envelope.message)
        if envelope.header.sender != device:
            raise WireError("E-WIRE-SENDER", "the sender that the topic names", "another")
        said_key = message.identity_key if isinstance(message, Hello) else None
        key = said_key or self._population.key_of(device)
        if key is None:
            # Its hello got lost; it says hello again at the next connection.
            return acknowledge(event)
        envelope.require_signed_by(key)
        self._mailer.count_up(device, len(event.payload))
        if isinstance(message, Hello):
            return [
                *self._on_hello(device, message, event.payload, now_s),
                *acknowledge(event),
            ]
        effects = self._on_heard(device, now_s)
        transferred = self._on_transfer(device, envelope.header, message, now_s)
        if transferred is not None:
            return [*effects, *transferred, *acknowledge(event)]
        is_settled, told = self._hand_on(device, envelope.header, message, now_s)
        effects += told
        safe = acknowledge(event)
        if is_settled:
            receipt = Receipt(digest=hashlib.sha256(event.payload).digest())
            safe = [self._mailer.to_device(device, receipt), *safe]
        return [*effects, *self._once_stored(message, safe)]

    def _on_hello(
        self, device: DeviceId, message: Hello, payload: bytes, now_s: float
    ) -> list[GatewayEffect]:
        least, enrolment = self._settings.least_agent_version, self._key_epochs.enrolment
        digest = hashlib.sha256(payload).digest()
        refusal = self._admissions.refusal_of(device, message.identity_key)
        if refusal is not None:
            rejection = Rejection(code="E-NOT-ENROLLED", text=refusal, digest=digest)
            return [self._mailer.to_device(device, rejection)]
        admitted = admit(device, message, digest, self._population, enrolment, least)
        if isinstance(admitted, Rejection):
            return [self._mailer.to_device(device, admitted)]
        effects: list[GatewayEffect] = [self._mailer.to_device(device, Receipt(digest=digest))]
        if admitted:
            effects.append(Reported(kind="device-new", fields={"device": device}))
        self._requests.note_hello()
        effects += self._on_heard(device, now_s)
        self._population.note_backend(device, message.backend)
        self._mailer.downloads.note_chunk_bytes(device, message.chunk_bytes)
        effects += self._mailer.downloads.on_hello(device, now_s)
        self._sightings.note_hello(device, message.agent_version, now_s)
        effects += self._admissions.on_hello(device)
        effects += self._key_epochs.on_hello(device, message, now_s)
        return [*effects, *self._rounds.remind_if_waited_for(device, now_s)]

    def _on_get_blob(self, device: str, message: GetBlob) -> list[GatewayEffect]:
        content = self._rounds.blob(message.sha256)
        return [] if content is None else [self._mailer.to_device(device, Blob(content=content))]

    def _hand_on(
        self, device: str, header: Header, message: DeviceMessage, now_s: float
    ) -> tuple[bool, list[GatewayEffect]]:
        """Return whether a receipt may be given, and what to do before."""
        current, attempt = self._rounds.current, header.attempt
        cohort = None if current is None else current.machine.population
        is_settled, effects = self._desk.receive(device, attempt, message, cohort)
        if isinstance(message, EPOCH_DEVICE_MESSAGES):
            effects += self._key_epochs.on_message(device, message, now_s)
        elif isinstance(message, RenewalRequest):
            effects += self._admissions.on_renewal(device, message)
        elif attempt > 0:
            effects += self._rounds.on_message(device, header, message, now_s)
        return is_settled, effects

    # ------------------------------------------------------------ transfers

    def on_moved(self, device: str, transfer_id: bytes, now_s: float) -> list[GatewayEffect]:
        """Note that the endpoint has put chunks of an upload into the stage."""
        effects = self._uploads.on_moved(device, transfer_id, now_s)
        return [*effects, *self._on_whole(device, transfer_id, now_s)]

    def _on_chunk(
        self, device: str, transfer_id: bytes, packet: bytes, now_s: float
    ) -> list[GatewayEffect]:
        effects = self._uploads.on_chunk(device, transfer_id, packet, now_s)
        return [*effects, *self._on_whole(device, transfer_id, now_s)]

    def _on_transfer(
        self, device: str, header: Header, message: DeviceMessage, now_s: float
    ) -> list[GatewayEffect] | None:
        """Take what is about a transfer; None for any other message."""
        if isinstance(message, GetBlob):
            return self._on_get_blob(device, message)
        if isinstance(message, TransferOffer):
            return self._on_offer(device, header, message, now_s)
        if isinstance(message, TRANSFER_ANSWERS):
            return [*self._mailer.downloads.on_answer(device, message, now_s)]
        return None

    def _on_offer(
        self, device: str, header: Header, offer: TransferOffer, now_s: float
    ) -> list[GatewayEffect]:
        """Give a slot, or say at once what need not travel at all."""
        current, is_input = self._rounds.current, offer.message_kind in _INPUT_KINDS
        if header.attempt > 0 and not self._rounds.is_open_for(device, header.attempt):
            told = self._rounds.on_message(device, header, offer, now_s)
            return [*told, *self._uploads.say_not_wanted(device, header, offer)]
        is_in_sum = is_input and current is not None and current.machine.has_input_of(device)
        if is_in_sum or self._uploads.is_done(device, header, offer):
            done = self._uploads.say_done(device, header, offer)
            return self._rounds.until_stored(done) if is_input else done
        # An upload that is too late for its round may still bring a deposit for the next one.
        is_late = offer.message_kind == MaskedInput.kind and current is not None
        if is_late and current is not None and not current.machine.takes(MaskedInput):
            return self._uploads.say_not_wanted(device, header, offer)
        self._clear_away(0 if current is None else current.call.attempt, now_s)
        answers = self._uploads.on_offer(
            device, header, offer, now_s, largest_bytes=self._largest_bytes(header, offer)
        )
        # The endpoint's word that all is there is lost where too many wait for their turn here.
        return [*answers, *self._on_whole(device, transfer_id_of(offer, header), now_s)]

    def _clear_away(self, attempt: int, now_s: float) -> None:
        """Forget uploads of rounds that are over, or of devices that were put out.

        They must not be in the way of others; but looking at all of them for each of thousands that
        offer at once would take longer than the offers.
        """
        if attempt == self._cleared_for and now_s < self._cleared_at_s + _CLEAR_PAUSE_S:
            return
        self._cleared_for, self._cleared_at_s = attempt, now_s
        self._uploads.keep_only(self._is_wanted)

    def _is_wanted(self, device: str, attempt: int) -> bool:
        if self._population.key_of(device) is None:
            return False
        return attempt == 0 or self._rounds.is_open_for(device, attempt)

    def _largest_bytes(self, header: Header, offer: TransferOffer) -> int:
        """Return the size of the open round's vector, or of the longest list: no device gets more.

        Without this one device could fill the memory that all uploads share.
        """
        if offer.message_kind not in _INPUT_KINDS:
            return _LONGEST_LIST_BYTES
        current = self._rounds.current
        plan = None if current is None or header.attempt == 0 else current.machine.plan
        if plan is None:
            return 0
        return plan.vector_bytes + _LONGEST_LIST_BYTES

    def _on_whole(self, device: str, transfer_id: bytes, now_s: float) -> list[GatewayEffect]:
        whole, effects = self._uploads.take_whole(device, transfer_id)
        if whole is None:
            return effects
        try:
            is_settled, told = self._hand_on(device, whole.header, whole.message, now_s)
        except (WireError, RemoteProtocolError) as error:
            return [refused_report(error.code, device), *self._uploads.settle(whole)]
        if not is_settled:
            self._uploads.let_go(whole)
            return told
        return [*told, *self._once_stored(whole.message, self._uploads.settle(whole))]

    def _once_stored(
        self, message: DeviceMessage, receipts: list[GatewayEffect]
    ) -> list[GatewayEffect]:
        """Return receipts now, or have the round give them when the sum is stored."""
        is_input = message.kind in _INPUT_KINDS
        return self._rounds.until_stored(receipts) if is_input else receipts


def acknowledge(event: Arrived) -> list[GatewayEffect]:
    """Return what tells the link that a packet is safe; nothing where it does not ask."""
    return [] if event.ticket is None else [Acknowledge(ticket=event.ticket)]
