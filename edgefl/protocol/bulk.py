"""Split a large message into a small offer and a blob, and put the two together again.

Where a message has one long byte string, that is the blob, as it is: nothing is encoded again. Of
any other message the blob is the whole encoded body.
"""

from dataclasses import dataclass, field, replace

from edgefl._native import StagedBlob
from edgefl.errors import ConfigError, WireError
from edgefl.protocol.envelope import Header
from edgefl.protocol.messages import Message, type_of
from edgefl.protocol.one_upload_messages import OneUpload
from edgefl.protocol.round_messages import MaskedInput
from edgefl.protocol.service_messages import Blob, GetBlob, Hello
from edgefl.protocol.wire import Body, as_body, decode, encode
from edgefl.transfer.manifest import HASH_BYTES, Manifest, describe
from edgefl.transfer.messages import TRANSFER_ANSWERS, TransferOffer

ENVELOPE_BYTES = 512
"""More than an envelope adds to a body: version, kind, session, numbers, sender, signature."""
_HEAD_PART = 4
"""A head may take a quarter of the offer; hashes take the rest."""
_BULK_KEYS = {MaskedInput.kind: 0, OneUpload.kind: 0, Blob.kind: 0}
_INPUT_KINDS = frozenset({MaskedInput.kind, OneUpload.kind})
_NEVER_OFFERED = frozenset(
    message.kind for message in (Hello, GetBlob, TransferOffer, *TRANSFER_ANSWERS)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkyMessage:
    """A message on its way in two parts.

    Attributes:
        offer: The small part.
        blob: The rest; the offer's manifest describes it.
    """

    offer: TransferOffer
    blob: bytes = field(repr=False)


def may_be_whole(message: Message, chunk_bytes: int) -> bool:
    """Tell whether it is worth while to seal a message first and look at its size then.

    False where its one long byte string alone is too long: that is never encoded and signed.
    """
    return len(_bulk_of(message)) <= chunk_bytes - ENVELOPE_BYTES


def split_bulky(
    message: Message, chunk_bytes: int, manifest: Manifest | None = None
) -> BulkyMessage:
    """Return the two parts of a message that does not fit into one packet.

    Args:
        message: What is to be sent.
        chunk_bytes: Largest packet's content.
        manifest: Of the message's long byte string, if it was made before for this chunk size.

    Raises:
        ConfigError: E-TRANSFER-LIST, the blob has more chunks than one packet holds hashes.
    """
    body, bulk = message.to_body(), _bulk_of(message)
    if bulk:
        bulk_key = _BULK_KEYS[message.kind]
        head = encode({key: value for key, value in body.items() if key != bulk_key})
        if len(head) <= _most_head_bytes(chunk_bytes):
            known = describe(bulk, chunk_bytes) if manifest is None else manifest
            return _parts(message.kind, head, bulk_key, bulk, known)
    whole = encode(body)
    return _parts(message.kind, encode({}), None, whole, describe(whole, chunk_bytes))


def join_bulky(offer: TransferOffer, blob: bytes) -> Message:
    """Return the message of an offer whose blob has arrived.

    Raises:
        WireError: The two are no message.
    """
    if offer.message_kind in _NEVER_OFFERED:
        raise WireError("E-WIRE-KIND", "a message with bulk", f"kind {offer.message_kind}")
    head = as_body(decode(offer.head))
    if offer.bulk_key is None:
        body: Body = as_body(decode(blob))
        is_sound = not head
    else:
        body = {**head, offer.bulk_key: blob}
        is_known = _BULK_KEYS.get(offer.message_kind) == offer.bulk_key
        is_sound = is_known and offer.bulk_key not in head
    if not is_sound:
        raise WireError("E-TRANSFER-HEAD", "a head that leaves the bulk out", "another one")
    return type_of(offer.message_kind).from_body(body)


def is_input_offer(offer: TransferOffer) -> bool:
    """Tell whether the bulk of an offer is the vector of a masked input."""
    return offer.message_kind in _INPUT_KINDS and offer.bulk_key == _BULK_KEYS[offer.message_kind]


def join_staged(offer: TransferOffer, vector: StagedBlob) -> Message:
    """Return the masked input of an offer whose vector has arrived, and stays where it is.

    Raises:
        WireError: The two are no message.
    """
    message = join_bulky(offer, b"")
    if not isinstance(message, MaskedInput | OneUpload):
        raise WireError("E-WIRE-KIND", "a masked input", f"kind {offer.message_kind}")
    return replace(message, staged=vector)


def transfer_id_of(offer: TransferOffer, header: Header) -> bytes:
    """Return the id (8 bytes) of the transfer that an offer under a header stands for."""
    context = encode(
        [
            offer.message_kind,
            header.session_id,
            header.round_number,
            header.attempt,
            header.sender,
            offer.head,
            offer.bulk_key,
        ]
    )
    return offer.manifest.transfer_id(context)


def most_blob_bytes(chunk_bytes: int) -> int:
    """Return the size of the largest blob whose hashes fit into one packet beside a full head."""
    left_bytes = chunk_bytes - ENVELOPE_BYTES - _most_head_bytes(chunk_bytes)
    return left_bytes // HASH_BYTES * chunk_bytes


def _most_head_bytes(chunk_bytes: int) -> int:
    return (chunk_bytes - ENVELOPE_BYTES) // _HEAD_PART


def _bulk_of(message: Message) -> bytes:
    """Return the one long byte string of a message; empty where it has none."""
    if isinstance(message, Blob):
        return message.content
    return message.packed if isinstance(message, MaskedInput | OneUpload) else b""


def _parts(
    kind: int, head: bytes, bulk_key: int | None, blob: bytes, manifest: Manifest
) -> BulkyMessage:
    limit_bytes = most_blob_bytes(manifest.chunk_bytes)
    if len(blob) > limit_bytes:
        raise ConfigError(
            "E-TRANSFER-LIST",
            f"at most {limit_bytes} bytes in chunks of {manifest.chunk_bytes}",
            f"{len(blob)} bytes",
            "use a broker that takes larger packets, or a smaller model",
        )
    offer = TransferOffer(message_kind=kind, head=head, bulk_key=bulk_key, manifest=manifest)
    return BulkyMessage(offer=offer, blob=blob)
