"""The masked vector of an input at the gateway, whether it came in one packet or in chunks.

One that came in chunks stays where they arrived, and is added from there: their hashes stand in the
signed offer and were checked, so it is neither copied nor hashed once more.
"""

from edgefl._native import RingSum
from edgefl.protocol import wire
from edgefl.protocol.one_upload_messages import OneUpload
from edgefl.protocol.round_messages import MaskedInput
from edgefl.protocol.spooled import VECTOR_KEY, named_body

Input = MaskedInput | OneUpload


def add_vector(total: RingSum, message: Input) -> None:
    """Add an input's vector to the sum.

    Raises:
        WireError: It has another size or padding than the plan's.
    """
    if message.staged is None:
        total.add_packed(message.packed)
    else:
        total.add_staged(message.staged)


def digest_of(message: Input) -> bytes:
    """Return 32 bytes that name an input, its vector included.

    A vector that fits into one packet is named by its hash, whichever way it came. A larger one can
    come in chunks only, and is named by its manifest.
    """
    if message.staged is None:
        return wire.digest(dict(named_body(message)))
    return wire.digest({**message.to_body(), VECTOR_KEY: message.staged.name})
