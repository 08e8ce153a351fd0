"""Merkle trees over lists of byte strings: root, audit path, and checking a path.

Source: RFC 6962, section 2.1; the check follows RFC 9162, section 2.1.3.2.
"""

import hashlib
from collections.abc import Sequence

from edgefl.errors import LocalProtocolError, WireError
from edgefl.protocol.wire import WireValue, as_bytes, as_list

DIGEST_BYTES = 32
MAX_LEAVES = 65_536
MAX_PATH = 16
"""Levels above the leaves of the largest tree."""

# Without them a node could pass for a leaf.
_LEAF, _NODE = b"\x00", b"\x01"


class MerkleTree:
    """All levels of one tree.

    Args:
        leaves: 1 to 65,536 byte strings; their order counts.

    Raises:
        LocalProtocolError: There are no leaves, or too many.
    """

    def __init__(self, leaves: Sequence[bytes]) -> None:
        """Hash bottom-up; a node without a partner moves up unchanged."""
        if not 1 <= len(leaves) <= MAX_LEAVES:
            raise LocalProtocolError("E-MERKLE-SIZE", f"1 to {MAX_LEAVES} leaves", f"{len(leaves)}")
        self._levels = [[_hash(_LEAF + leaf) for leaf in leaves]]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            paired = len(below) - len(below) % 2
            above = [
                _hash(_NODE + below[index] + below[index + 1]) for index in range(0, paired, 2)
            ]
            self._levels.append([*above, *below[paired:]])

    @property
    def root(self) -> bytes:
        """32 bytes."""
        return self._levels[-1][0]

    @property
    def size(self) -> int:
        """Number of leaves."""
        return len(self._levels[0])

    def path(self, position: int) -> tuple[bytes, ...]:
        """Return the sibling hashes of the leaf at `position`, from the bottom up.

        Raises:
            LocalProtocolError: There is no such leaf.
        """
        if not 0 <= position < self.size:
            raise LocalProtocolError(
                "E-MERKLE-POSITION", f"a position below {self.size}", str(position)
            )
        siblings = []
        for level in self._levels[:-1]:
            sibling = position ^ 1
            if sibling < len(level):
                siblings.append(level[sibling])
            position //= 2
        return tuple(siblings)


def is_leaf(leaf: bytes, position: int, path: Sequence[bytes], *, size: int, root: bytes) -> bool:
    """Tell whether `leaf` stands at `position` in the tree of `size` leaves under `root`.

    Args:
        leaf: The content, not its hash.
        position: Claimed place, from 0.
        path: Claimed sibling hashes, from the bottom up.
        size: Number of leaves, known from a trusted source: a root alone does not tell it.
        root: 32 bytes, trusted.
    """
    if not 0 <= position < size:
        return False
    node, last, found = position, size - 1, _hash(_LEAF + leaf)
    for sibling in path:
        if last == 0:
            return False
        if node % 2 or node == last:
            found = _hash(_NODE + sibling + found)
            while node % 2 == 0 and node:
                node, last = node // 2, last // 2
        else:
            found = _hash(_NODE + found + sibling)
        node, last = node // 2, last // 2
    return last == 0 and found == root


def read_path(value: WireValue) -> tuple[bytes, ...]:
    """Read a path from a peer.

    Raises:
        WireError: It is no list of at most 16 hashes.
    """
    return tuple(as_bytes(item, DIGEST_BYTES) for item in as_list(value, MAX_PATH))


def read_concatenated(value: WireValue, most: int) -> tuple[bytes, ...]:
    """Read up to `most` values of 32 bytes that travel as one byte string.

    Raises:
        WireError: It is no such string.
    """
    joined = as_bytes(value, max_bytes=most * DIGEST_BYTES)
    if not joined or len(joined) % DIGEST_BYTES:
        raise WireError("E-WIRE-BYTES", "one or more times 32 bytes", f"{len(joined)} bytes")
    return tuple(
        joined[start : start + DIGEST_BYTES] for start in range(0, len(joined), DIGEST_BYTES)
    )


def _hash(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
