"""Sign and address what the gateway says, and count the bytes of each device."""

from dataclasses import dataclass

from broker.downloads import EXPIRY_S, Downloads
from broker.round_record import RoundBytes
from edgefl import __version__
from edgefl._native import SigningKey
from edgefl.errors import ConfigError
from edgefl.protocol import topics
from edgefl.protocol.bulk import may_be_whole
from edgefl.protocol.enrolment_messages import EnrolmentAnswer
from edgefl.protocol.envelope import AGGREGATOR, NO_SESSION, Header, seal_envelope
from edgefl.protocol.messages import AggregatorMessage
from edgefl.protocol.round_messages import Call
from edgefl.protocol.service_messages import AggregatorStatus
from edgefl.transfer.manifest import DEFAULT_CHUNK_BYTES, TRANSFER_ID_BYTES
from edgefl.transfer.messages import TRANSFER_ANSWERS, RefusalReason, TransferRefusal
from edgefl.transport.core_events import Publish
from edgefl.types import DeviceId, FleetName


@dataclass(slots=True)
class Traffic:
    """Payload bytes of one device since the last reset."""

    up_bytes: int = 0
    down_bytes: int = 0


class Mailer:
    """The gateway's pen.

    Args:
        fleet: The fleet's name.
        signing_key: The gateway's identity.
        chunk_bytes: Largest chunk, where the broker and the device take it.
        streams_chunks: Whether the link cuts the chunks of downloads by itself.
    """

    def __init__(
        self,
        fleet: FleetName,
        signing_key: SigningKey,
        *,
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        streams_chunks: bool = False,
    ) -> None:
        """Start with nothing counted."""
        self._fleet = fleet
        self._key = signing_key
        self._traffic: dict[str, Traffic] = {}
        self._now_s = 0.0
        self.downloads = Downloads(
            fleet,
            signing_key,
            count=self._count_down,
            chunk_bytes=chunk_bytes,
            streams_chunks=streams_chunks,
        )

    def at(self, now_s: float) -> None:
        """Note the time: of messages that travel in chunks it matters when they were offered."""
        self._now_s = now_s

    def to_device(
        self, device: str, message: AggregatorMessage, header: Header | None = None
    ) -> Publish:
        """Return a message to one device; without a header it belongs to no round.

        Of a message that does not fit into one packet it is the offer: the rest follows in chunks
        when the device asks for them.
        """
        topic = topics.downlink(self._fleet, DeviceId(device))
        header = header or Header(sender=AGGREGATOR)
        chunk_bytes = self.downloads.chunk_bytes_for(device)
        if may_be_whole(message, chunk_bytes):
            payload = seal_envelope(self._key, topic, header, message)
            fits = len(payload) <= chunk_bytes
            if fits and not self.downloads.is_swallowed(device, payload):
                self._count_down(device, len(payload))
                # A grant is of a moment: a device that was away offers anew.
                expiry_s = EXPIRY_S if isinstance(message, TRANSFER_ANSWERS) else None
                return Publish(topic=topic, payload=payload, expiry_s=expiry_s)
        try:
            return self.downloads.offer(device, message, header, self._now_s)
        except ConfigError as error:
            return self._unsendable(device, error)

    def _unsendable(self, device: str, error: ConfigError) -> Publish:
        """Return the word that something does not come; the operator is told why."""
        self.downloads.report_unsendable(device, error)
        refusal = TransferRefusal(
            transfer_id=bytes(TRANSFER_ID_BYTES), reason=RefusalReason.TOO_LARGE
        )
        return self.to_device(device, refusal)

    def to_claim(self, claim: str, message: EnrolmentAnswer) -> Publish:
        """Return an answer to a board that wants in."""
        topic = topics.claim_downlink(self._fleet, claim)
        payload = seal_envelope(self._key, topic, Header(sender=AGGREGATOR), message)
        return Publish(topic=topic, payload=payload)

    def call(self, call: Call) -> Publish:
        """Return a call to every device."""
        topic = topics.calls(self._fleet)
        header = round_header(call, NO_SESSION)
        return Publish(
            topic=topic,
            payload=seal_envelope(self._key, topic, header, call),
            expiry_s=call.closes_in_ms / 1000,
        )

    def status(
        self,
        *,
        epoch: int,
        least_agent_version: str,
        most_sleep_s: int,
        moved_to: tuple[str, ...] = (),
    ) -> Publish:
        """Return the retained status."""
        topic = topics.aggregator(self._fleet)
        status = AggregatorStatus(
            identity_key=self._key.public_key,
            epoch=epoch,
            least_agent_version=least_agent_version,
            most_sleep_s=most_sleep_s,
            gateway_version=__version__,
            chunk_bytes=self.downloads.most_chunk_bytes,
            moved_to=moved_to,
        )
        payload = seal_envelope(self._key, topic, Header(sender=AGGREGATOR), status)
        return Publish(topic=topic, payload=payload, retain=True)

    def count_up(self, device: str, size_bytes: int) -> None:
        """Count what a device sent."""
        self._of(device).up_bytes += size_bytes

    def reset_traffic(self) -> None:
        """Start to count anew."""
        self._traffic = {}

    def total_bytes(self) -> RoundBytes:
        """Return what all devices together sent and received since the last reset."""
        traffic = self._traffic.values()
        return RoundBytes(
            up=sum(one.up_bytes for one in traffic),
            down=sum(one.down_bytes for one in traffic),
            devices=len(traffic),
        )

    def _count_down(self, device: str, size_bytes: int) -> None:
        self._of(device).down_bytes += size_bytes

    def _of(self, device: str) -> Traffic:
        return self._traffic.setdefault(device, Traffic())


def round_header(call: Call, session_id: bytes) -> Header:
    """Return the header of the aggregator's messages in a round."""
    return Header(
        session_id=session_id,
        round_number=call.round_number,
        attempt=call.attempt,
        sender=AGGREGATOR,
    )
