"""The signed envelope around every message."""

from dataclasses import dataclass

from edgefl._native import SigningKey, verify
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import topics
from edgefl.protocol.limits import MAX_ATTEMPT, SIGNATURE_BYTES
from edgefl.protocol.messages import (
    AGGREGATOR_MESSAGES,
    DEVICE_MESSAGES,
    AggregatorMessage,
    DeviceMessage,
    Message,
    type_of,
)
from edgefl.protocol.wire import as_body, as_bytes, as_int, as_list, as_text, decode, encode

WIRE_VERSION = 1
SESSION_ID_BYTES = 32
NO_SESSION = bytes(SESSION_ID_BYTES)
"""The session id of messages that come before a plan exists."""
AGGREGATOR = topics.AGGREGATOR
"""The sender name of the aggregator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a message belongs to.

    Attributes:
        session_id: SHA-256 of the session plan, or zeros before there is one.
        round_number: From 1; 0 outside of a round.
        attempt: From 1; 0 outside of a round.
        sender: Device id, or "aggregator".
    """

    session_id: bytes = NO_SESSION
    round_number: int = 0
    attempt: int = 0
    sender: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A message with its header, and what its signature covers."""

    header: Header
    message: Message
    signed: bytes
    signature: bytes

    def require_signed_by(self, public_key: bytes) -> None:
        """Check the signature.

        Raises:
            RemoteProtocolError: The signature is not by `public_key` over this topic and these
                bytes.
        """
        if not verify(public_key, self.signed, self.signature):
            raise RemoteProtocolError(
                "E-SIGNATURE",
                f"a message signed by the pinned key of {self.header.sender}",
                "another signature",
            )


def seal_envelope(key: SigningKey, topic: str, header: Header, message: Message) -> bytes:
    """Return the signed bytes to publish on `topic`."""
    body = encode(message.to_body())
    signature = key.sign(_signed_bytes(message.kind, topic, header, body))
    return encode(
        [
            WIRE_VERSION,
            message.kind,
            header.session_id,
            header.round_number,
            header.attempt,
            header.sender,
            body,
            signature,
        ]
    )


def open_envelope(topic: str, payload: bytes) -> Envelope:
    """Parse bytes that arrived on `topic`. The signature is not yet checked.

    Raises:
        WireError: The bytes are not a message of a version and kind that this process knows.
    """
    parts = as_list(decode(payload), 8)
    version = as_int(parts[0], 0, 2**16) if parts else 0
    if version != WIRE_VERSION or len(parts) != 8:
        raise WireError(
            "E-WIRE-VERSION",
            f"wire version {WIRE_VERSION}",
            f"version {version}",
            "update the older side",
        )
    kind = as_int(parts[1], 0, 255)
    header = Header(
        session_id=as_bytes(parts[2], SESSION_ID_BYTES),
        round_number=as_int(parts[3], 0, MAX_ATTEMPT),
        attempt=as_int(parts[4], 0, MAX_ATTEMPT),
        sender=as_text(parts[5], 64),
    )
    message_type = type_of(kind)
    body = as_bytes(parts[6])
    return Envelope(
        header=header,
        message=message_type.from_body(as_body(decode(body))),
        signed=_signed_bytes(kind, topic, header, body),
        signature=as_bytes(parts[7], SIGNATURE_BYTES),
    )


def require_device_message(message: Message) -> DeviceMessage:
    """Return `message` if it is one that devices send.

    Raises:
        WireError: It is one that the aggregator sends.
    """
    if not isinstance(message, DEVICE_MESSAGES):
        raise WireError("E-WIRE-KIND", "a message of a device", type(message).__name__)
    return message


def require_aggregator_message(message: Message) -> AggregatorMessage:
    """Return `message` if it is one that the aggregator sends.

    Raises:
        WireError: It is one that devices send.
    """
    if not isinstance(message, AGGREGATOR_MESSAGES):
        raise WireError("E-WIRE-KIND", "a message of the aggregator", type(message).__name__)
    return message


def _signed_bytes(kind: int, topic: str, header: Header, body: bytes) -> bytes:
    return encode(
        [
            "edgefl/1 envelope",
            WIRE_VERSION,
            kind,
            topic,
            header.session_id,
            header.round_number,
            header.attempt,
            header.sender,
            body,
        ]
    )
