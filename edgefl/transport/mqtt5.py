"""What MQTT 5 adds, as paho's property lists: each has a substitute where a broker speaks 3.1.1."""

from dataclasses import dataclass

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edgefl.transport.base import Will
from edgefl.transport.settings import MqttSettings

SCHEMA = ("schema", "efl/1")
"""User property of every message: lets tools tell our messages apart without reading them."""
LARGEST_INBOUND_BYTES = 1 << 20
"""No message of ours is near it; a broker may not send a small board more."""

QUOTA_EXCEEDED = 0x97
SESSION_TAKEN_OVER = 0x8E
UNSUPPORTED_VERSION = 0x84
BAD_CLIENT_ID = 0x85
REFERRALS = frozenset({0x9C, 0x9D})
"""'Use another server' and 'server moved'."""
_LONGEST_DELAY_S = 0xFFFF_FFFE
_LONGEST_REASON_CHARS = 200
_NOT_AUTHORIZED = 0x87
# Not the word of an endpoint of ours that knows: an agent would stop for good at a guess.
_UNEXPLAINED = (
    "the broker does not say why (MQTT 3.1.1 cannot); the gateway's operator may have put this "
    "device out, or its certificate is for another name"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits:
    """What a broker said about itself when it took the connection; None: it did not say.

    Attributes:
        max_packet_bytes: Largest packet that it takes.
        receive_maximum: Messages that it takes ahead of its acknowledgements.
        session_expiry_s: How long it keeps the session; 3.1.1 cannot say.
        keepalive_s: Silence that it allows, where it is another than asked for.
        has_retain: False where it keeps no retained messages.
    """

    max_packet_bytes: int | None = None
    receive_maximum: int | None = None
    session_expiry_s: int | None = None
    keepalive_s: int | None = None
    has_retain: bool = True


def connect_properties(settings: MqttSettings) -> Properties:
    """Return the properties of CONNECT."""
    properties = _empty(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = 0 if settings.clean_start else settings.session_expiry_s
    properties.ReceiveMaximum = settings.receive_maximum
    properties.MaximumPacketSize = LARGEST_INBOUND_BYTES
    return properties


def will_properties(will: Will) -> Properties:
    """Return the properties of a will."""
    properties = _empty(PacketTypes.WILLMESSAGE)
    properties.WillDelayInterval = will.delay_s
    properties.UserProperty = SCHEMA
    return properties


def publish_properties(expiry_s: float | None) -> Properties:
    """Return the properties of a message.

    Args:
        expiry_s: Time after which the broker shall forget it; None: never.
    """
    properties = _empty(PacketTypes.PUBLISH)
    properties.UserProperty = SCHEMA
    if expiry_s is not None:
        properties.MessageExpiryInterval = min(max(1, round(expiry_s)), _LONGEST_DELAY_S)
    return properties


def limits_of(properties: Properties | None) -> BrokerLimits:
    """Read the properties of CONNACK."""
    return BrokerLimits(
        max_packet_bytes=_number(properties, "MaximumPacketSize"),
        receive_maximum=_number(properties, "ReceiveMaximum"),
        session_expiry_s=_number(properties, "SessionExpiryInterval"),
        keepalive_s=_number(properties, "ServerKeepAlive"),
        has_retain=_number(properties, "RetainAvailable") != 0,
    )


def server_reference(properties: Properties | None) -> str | None:
    """Return the other servers that a broker names: HOST:PORT, separated by spaces."""
    text = getattr(properties, "ServerReference", None)
    return text if isinstance(text, str) and text.strip() else None


def reason_of(properties: Properties | None) -> str:
    """Return what a broker says in words about a refusal; empty where it says nothing."""
    said = getattr(properties, "ReasonString", None)
    return str(said)[:_LONGEST_REASON_CHARS] if isinstance(said, str) else ""


def words_of_refusal(reason_code: ReasonCode, properties: Properties | None) -> str:
    """Return why a broker did not take a connection, as far as that can be told."""
    said = reason_of(properties)
    if not said and reason_code.value == _NOT_AUTHORIZED:
        said = _UNEXPLAINED
    return f"{reason_code}: {said}" if said else str(reason_code)


def _empty(packet_type: int) -> Properties:
    return Properties(packet_type)  # type: ignore[no-untyped-call] # paho's has no annotations


def _number(properties: Properties | None, name: str) -> int | None:
    value = getattr(properties, name, None)
    return value if isinstance(value, int) else None
