"""Seeded secrets for repeatable simulations. Never for a device."""

import hashlib

from edgefl._native import Seed


class InsecureSeededEntropy:
    """Secrets that anyone who knows the seed can compute.

    Args:
        seed: The scenario's seed.
        name: Who draws; each name has a stream of its own.
    """

    def __init__(self, seed: int, name: str) -> None:
        """Start the stream."""
        self._prefix = f"edgefl simulation {seed} {name} ".encode()
        self._drawn = 0

    def fresh_seed(self) -> Seed:
        """Return the next 32 bytes of the stream."""
        self._drawn += 1
        return Seed.from_bytes(hashlib.sha256(self._prefix + str(self._drawn).encode()).digest())
