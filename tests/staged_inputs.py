"""Masked inputs that came in chunks, as they were before they were sent."""

from dataclasses import replace

from edgefl.protocol.round_messages import MaskedInput


def in_one_piece(message: object) -> MaskedInput:
    """Return the message with its vector in it."""
    assert isinstance(message, MaskedInput)
    assert message.staged is not None
    assert message.packed == b""
    return replace(message, packed=message.staged.to_bytes(), staged=None)
