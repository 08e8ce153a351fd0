"""Messages outside of rounds: who is there, model parts, receipts, refusals."""

from dataclasses import dataclass
from dataclasses import field as attribute
from typing import ClassVar

from edgefl.protocol.key_bundle import MAX_KEY_EPOCH
from edgefl.protocol.limits import DIGEST_BYTES, KEY_BYTES
from edgefl.protocol.presence import MOST_SLEEP_S
from edgefl.protocol.roster_epoch import MAX_ROSTER_NUMBER
from edgefl.protocol.versions import MINOR, MOST_MINOR
from edgefl.protocol.wire import Body, WireValue, as_bytes, as_int, as_list, as_text, field
from edgefl.transfer.manifest import DEFAULT_CHUNK_BYTES, MAX_CHUNK_BYTES, MIN_CHUNK_BYTES

_MOST_BACKEND_CHARS = 32
MOST_ADDRESSES = 8
MOST_URL_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A device says who it is and what it has, at each connection.

    Attributes:
        roster_number: Number of the roster header that it has pinned; 0 for none.
        key_epoch: Number of the key epoch that it can take part in; 0 for none.
        backend: Library and processor that it trained with last, as onnx/cpu; empty before that.
        protocol_minor: Minor version of the protocol that it speaks; 0 from before it was said.
        chunk_bytes: Largest chunk that it wants to be sent.
    """

    kind: ClassVar[int] = 1
    identity_key: bytes
    agent_version: str
    roster_number: int = 0
    key_epoch: int = 0
    backend: str = ""
    protocol_minor: int = MINOR
    chunk_bytes: int = DEFAULT_CHUNK_BYTES

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {
            0: self.identity_key,
            1: self.agent_version,
            2: self.roster_number,
            3: self.key_epoch,
            4: self.backend,
            5: self.protocol_minor,
            6: self.chunk_bytes,
        }

    @classmethod
    def from_body(cls, body: Body) -> "Hello":
        """Read the CBOR map."""
        return cls(
            identity_key=as_bytes(field(body, 0), KEY_BYTES),
            agent_version=as_text(field(body, 1), 64),
            roster_number=as_int(field(body, 2), 0, MAX_ROSTER_NUMBER),
            key_epoch=as_int(field(body, 3), 0, MAX_KEY_EPOCH),
            backend=as_text(field(body, 4), _MOST_BACKEND_CHARS),
            protocol_minor=as_int(body.get(5, 0), 0, MOST_MINOR),
            chunk_bytes=_chunk_bytes(body.get(6, DEFAULT_CHUNK_BYTES)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBlob:
    """A device asks for a model bundle or for parameters by their hash."""

    kind: ClassVar[int] = 7
    sha256: bytes

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.sha256}

    @classmethod
    def from_body(cls, body: Body) -> "GetBlob":
        """Read the CBOR map."""
        return cls(sha256=as_bytes(field(body, 0), DIGEST_BYTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The message with this SHA-256 was handled; it need not be sent again."""

    kind: ClassVar[int] = 21
    digest: bytes

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.digest}

    @classmethod
    def from_body(cls, body: Body) -> "Receipt":
        """Read the CBOR map."""
        return cls(digest=as_bytes(field(body, 0), DIGEST_BYTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A model bundle or parameters, whole; the receiver checks the hash that it asked for."""

    kind: ClassVar[int] = 22
    content: bytes = attribute(repr=False)

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.content}

    @classmethod
    def from_body(cls, body: Body) -> "Blob":
        """Read the CBOR map."""
        return cls(content=as_bytes(field(body, 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatorStatus:
    """Retained: the aggregator is there, who it is, and how often it has started.

    Attributes:
        most_sleep_s: For how long a device may be without a link at a time and miss no deadline; 0
            where it must keep the link.
        protocol_minor: Minor version of the protocol that it speaks; 0 from before it was said.
        gateway_version: Version of its software.
        chunk_bytes: Largest chunk that it wants to be sent.
        moved_to: URLs by which devices shall reach it from now on; empty says nothing about it.
    """

    kind: ClassVar[int] = 24
    identity_key: bytes
    epoch: int
    least_agent_version: str
    most_sleep_s: int = 0
    protocol_minor: int = MINOR
    gateway_version: str = ""
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    moved_to: tuple[str, ...] = ()

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {
            0: self.identity_key,
            1: self.epoch,
            2: self.least_agent_version,
            3: self.most_sleep_s,
            4: self.protocol_minor,
            5: self.gateway_version,
            6: self.chunk_bytes,
            7: list(self.moved_to),
        }

    @classmethod
    def from_body(cls, body: Body) -> "AggregatorStatus":
        """Read the CBOR map."""
        return cls(
            identity_key=as_bytes(field(body, 0), KEY_BYTES),
            epoch=as_int(field(body, 1), 0, 2**53),
            least_agent_version=as_text(field(body, 2), 64),
            most_sleep_s=as_int(body.get(3, 0), 0, MOST_SLEEP_S),
            protocol_minor=as_int(body.get(4, 0), 0, MOST_MINOR),
            gateway_version=as_text(body.get(5, ""), 64),
            chunk_bytes=_chunk_bytes(body.get(6, DEFAULT_CHUNK_BYTES)),
            moved_to=tuple(
                as_text(url, MOST_URL_CHARS) for url in as_list(body.get(7, []), MOST_ADDRESSES)
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """The aggregator will not work with this device, and says why and what to do.

    Attributes:
        digest: SHA-256 of the hello that is refused. Anybody can say hello in a device's name; the
            device itself must not mind the answer.
    """

    kind: ClassVar[int] = 25
    code: str
    text: str
    digest: bytes

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.code, 1: self.text, 2: self.digest}

    @classmethod
    def from_body(cls, body: Body) -> "Rejection":
        """Read the CBOR map."""
        return cls(
            code=as_text(field(body, 0), 40),
            text=as_text(field(body, 1), 400),
            digest=as_bytes(field(body, 2), DIGEST_BYTES),
        )


def _chunk_bytes(value: WireValue) -> int:
    return as_int(value, MIN_CHUNK_BYTES, MAX_CHUNK_BYTES)
