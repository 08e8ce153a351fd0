"""What devices send: who may speak is decided here, and each kind of message handed on."""

import hashlib

from broker.admission import admit
from broker.enrolment_requests import EnrolmentRequests
from broker.events import GatewayEffect, Reported
from broker.key_epochs import KeyEpochs
from broker.mailer import Mailer
from broker.population import Population
from broker.reports import refused_report
from broker.round_driver import RoundDriver
from broker.round_opening import RoundOpener
from broker.settings import GatewaySettings
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import topics
from edgefl.protocol.envelope import Envelope, open_envelope, require_device_message
from edgefl.protocol.epoch_messages import EPOCH_DEVICE_MESSAGES
from edgefl.protocol.events import DeviceOnline
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.presence import PresenceKind, parse_presence
from edgefl.protocol.service_messages import Blob, GetBlob, Hello, Receipt, Rejection
from edgefl.transport.core_events import Arrived
from edgefl.types import DeviceId


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
    ) -> None:
        """Prepare."""
        self._settings = settings
        self._mailer = mailer
        self._population = population
        self._key_epochs = key_epochs
        self._requests = requests
        self._desk = opener.desk
        self._rounds = rounds

    def on_arrived(self, event: Arrived, now_s: float) -> list[GatewayEffect]:
        """Take a packet from a device's topic."""
        try:
            device = topics.device_of(event.topic)
            if event.topic == topics.status(self._settings.fleet, device):
                return self._on_status(device, event.payload, now_s)
            return self._on_envelope(device, event, now_s)
        except (WireError, RemoteProtocolError) as error:
            return [refused_report(error.code, event.topic)]

    # ------------------------------------------------------------ presence

    def _on_status(self, device: DeviceId, payload: bytes, now_s: float) -> list[GatewayEffect]:
        presence = parse_presence(payload)
        if presence.kind is PresenceKind.OFFLINE:
            self._population.is_leaving(device, now_s)
            return []
        self._population.note_presence(device, presence)
        if presence.kind is PresenceKind.SLEEPING:
            self._population.falls_asleep(device, presence.wakes_in_s, now_s)
            return []
        return self._on_heard(device, now_s)

    def _on_heard(self, device: str, now_s: float) -> list[GatewayEffect]:
        if not self._population.is_heard(device):
            return []
        return self._rounds.feed(DeviceOnline(device=device), now_s)

    # ------------------------------------------------------------ signed messages

    def _on_envelope(self, device: DeviceId, event: Arrived, now_s: float) -> list[GatewayEffect]:
        envelope = open_envelope(event.topic, event.payload)
        message = require_device_message(envelope.message)
        if envelope.header.sender != device:
            raise WireError("E-WIRE-SENDER", "the sender that the topic names", "another")
        if isinstance(message, Hello):
            envelope.require_signed_by(message.identity_key)
            self._mailer.count_up(device, len(event.payload))
            return self._on_hello(device, message, event.payload, now_s)
        key = self._population.key_of(device)
        if key is None:
            return []  # Its hello got lost; it says hello again at the next connection.
        envelope.require_signed_by(key)
        self._mailer.count_up(device, len(event.payload))
        effects = self._on_heard(device, now_s)
        if isinstance(message, GetBlob):
            return [*effects, *self._on_get_blob(device, message)]
        is_settled, told = self._hand_on(device, envelope, message, now_s)
        effects += told
        if not is_settled:
            return effects
        receipt = Receipt(digest=hashlib.sha256(event.payload).digest())
        return [*effects, self._mailer.to_device(device, receipt)]

    def _on_hello(
        self, device: DeviceId, message: Hello, payload: bytes, now_s: float
    ) -> list[GatewayEffect]:
        least, enrolment = self._settings.least_agent_version, self._key_epochs.enrolment
        digest = hashlib.sha256(payload).digest()
        admitted = admit(device, message, digest, self._population, enrolment, least)
        if isinstance(admitted, Rejection):
            return [self._mailer.to_device(device, admitted)]
        effects: list[GatewayEffect] = [self._mailer.to_device(device, Receipt(digest=digest))]
        if admitted:
            effects.append(Reported(kind="device-new", fields={"device": device}))
        self._requests.note_hello()
        effects += self._on_heard(device, now_s)
        self._population.note_backend(device, message.backend)
        effects += self._key_epochs.on_hello(device, message, now_s)
        return [*effects, *self._rounds.remind_if_waited_for(device, now_s)]

    def _on_get_blob(self, device: DeviceId, message: GetBlob) -> list[GatewayEffect]:
        content = self._rounds.blob(message.sha256)
        return [] if content is None else [self._mailer.to_device(device, Blob(content=content))]

    def _hand_on(
        self, device: DeviceId, envelope: Envelope, message: DeviceMessage, now_s: float
    ) -> tuple[bool, list[GatewayEffect]]:
        """Return whether a receipt may be given, and what to do before."""
        current, attempt = self._rounds.current, envelope.header.attempt
        cohort = None if current is None else current.machine.population
        is_settled, effects = self._desk.receive(device, attempt, message, cohort)
        if isinstance(message, EPOCH_DEVICE_MESSAGES):
            effects += self._key_epochs.on_message(device, message, now_s)
        elif attempt > 0:
            effects += self._rounds.on_message(device, envelope.header, message, now_s)
        return is_settled, effects
