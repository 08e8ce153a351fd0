"""A masked vector is kept beside the snapshot of its round, which names it by its hash.

It is written once, however often the snapshot is; and a vector that is not the very one that the
snapshot names never takes its place: then the device is a dropout.
"""

import hashlib

from edgefl.errors import WireError
from edgefl.protocol.limits import DIGEST_BYTES
from edgefl.protocol.one_upload_messages import OneUpload
from edgefl.protocol.round_messages import MaskedInput
from edgefl.protocol.wire import Body, WireValue, as_body, as_bytes, field

VECTOR_KEY = 0
"""Key of the packed vector in the bodies of both messages."""


def named_body(message: MaskedInput | OneUpload) -> Body:
    """Return a message's body with the hash of its vector in the vector's place."""
    return {**message.to_body(), VECTOR_KEY: hashlib.sha256(message.packed).digest()}


def whole_body(value: WireValue, spooled: bytes | None) -> Body:
    """Return the body of `named_body` with the vector in its place again.

    Args:
        value: What the snapshot holds.
        spooled: What is kept beside it.

    Raises:
        WireError: E-SPOOL, the vector is gone or is not the one that was made.
    """
    body = as_body(value)
    named = as_bytes(field(body, VECTOR_KEY), DIGEST_BYTES)
    if spooled is None or hashlib.sha256(spooled).digest() != named:
        found = "none" if spooled is None else "another one"
        raise WireError("E-SPOOL", "the masked vector that this device has made", found)
    return {**body, VECTOR_KEY: spooled}
