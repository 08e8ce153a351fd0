"""The rotation of an update in numbers: block sizes, padding, and the public seed of a session.

A device multiplies each block of its update by random signs and by a Hadamard matrix, which keeps
the norm and spreads it over the block. Signs and seed are public: the rotation hides nothing, and
no privacy claim rests on its being random. It only lets a smaller ring hold the sum.
"""

import hashlib

LARGEST_ROTATION_BLOCK = 4096
"""Coordinates of the largest block: 32 KiB of float64, which stays in a core's first cache."""

ROTATION_BLOCKS = tuple(2**power for power in range(1, LARGEST_ROTATION_BLOCK.bit_length()))
"""Every block size that a plan may name; 0 stands beside them for no rotation."""

# With shorter blocks the tail of random signs is no better than the worst case.
_LEAST_USEFUL_BLOCK = 32
_SEED_LABEL = b"edgefl/1 rotation"


def rotation_seed(session_id: bytes) -> bytes:
    """Return the seed of a session's signs, 32 bytes, known to everybody.

    The session id is fixed before any device trains in the session, and it covers fresh keys of all
    its devices, so an update that does not look at the session id is independent of the seed.
    """
    return hashlib.sha256(_SEED_LABEL + session_id).digest()


def padded_dimension(dimension: int, rotation_block: int) -> int:
    """Return the coordinates after padding with zeros to whole blocks.

    Args:
        dimension: Coordinates of the update.
        rotation_block: Coordinates of a block, or 0: nothing is padded.
    """
    if rotation_block == 0:
        return dimension
    return -(-dimension // rotation_block) * rotation_block


def largest_block(dimension: int) -> int:
    """Return the block that spreads an update the most: all of it, or the largest there is."""
    return min(LARGEST_ROTATION_BLOCK, max(2, 1 << (dimension - 1).bit_length()))


def useful_blocks(dimension: int) -> tuple[int, ...]:
    """Return the blocks worth trying, largest first: each pads less than all before it."""
    found: list[int] = []
    shortest = None
    for block in reversed(ROTATION_BLOCKS):
        padded = padded_dimension(dimension, block)
        if _LEAST_USEFUL_BLOCK <= block <= largest_block(dimension) and (
            shortest is None or padded < shortest
        ):
            found.append(block)
            shortest = padded
    return tuple(found)
