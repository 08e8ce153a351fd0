"""Who is whose neighbour, and who signs certificates, both drawn from a public seed.

The same seed gives the same graph and committee on every device. Byte by byte:

1. Stream: block i (i = 0, 1, 2...) is SHA-256(label || 0x00 || seed || size || i), with the label
   in ASCII, the seed of 32 bytes, size as 4 bytes and i as 8 bytes, both big-endian. A block is
   read as 16 words of 2 bytes, big-endian; the blocks follow each other.
2. Draw below b (1 <= b <= 65,535): take the next word v of the stream; if v is 65,536 - 65,536 mod
   b or above, drop it and take the next one; the draw is v mod b.
3. Shuffle: order = 0, 1... size - 1. For i = 0, 1...: j = i + draw below (size - i); exchange
   order[i] and order[j].
4. Graph: label `edgefl/1 graph`, i up to size - 2. order[r] is the position in the cohort that
   stands at place r of the ring. Neighbours are all that stand at most degree / 2 places away,
   around the ring; in a complete graph, all others.
5. Committee of m: label `edgefl/1 committee`, i up to m - 1. The members are order[0]...
   order[m - 1], listed by position.

Source: Bell et al. 2020 (a randomly labelled Harary graph); Durstenfeld 1964, algorithm
235, for the shuffle.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from edgefl.errors import ConfigError
from edgefl.protocol.size_limits import MAX_COHORT

SEED_SIZE_BYTES = 32

_GRAPH_LABEL = b"edgefl/1 graph"
_COMMITTEE_LABEL = b"edgefl/1 committee"
_WORDS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RingGraph:
    """A cohort on a shuffled ring, each device a neighbour of the nearest on both sides.

    Attributes:
        size: Devices, 2 to 65,535.
        degree: Neighbours of each, itself excluded: even, or size - 1 for the complete graph.
        seed: 32 bytes, public; nobody may be able to choose it (the beacon's business).
    """

    size: int
    degree: int
    seed: bytes

    def __post_init__(self) -> None:
        """Check the arguments.

        Raises:
            ConfigError: E-GRAPH-SIZE, E-GRAPH-SEED, E-GRAPH-DEGREE.
        """
        _check_draw(self.size, self.seed)
        if not 1 <= self.degree < self.size:
            raise ConfigError(
                "E-GRAPH-DEGREE", f"a degree of 1 to {self.size - 1}", f"{self.degree}"
            )
        if self.degree % 2 and not self.is_complete:
            raise ConfigError(
                "E-GRAPH-DEGREE", "an even degree or a complete graph", f"{self.degree}"
            )

    @property
    def is_complete(self) -> bool:
        """Tell whether every device is a neighbour of every other."""
        return self.degree == self.size - 1

    def neighbours(self, position: int) -> tuple[int, ...]:
        """Return the positions of a device's neighbours, ascending.

        Raises:
            ConfigError: E-GRAPH-POSITION, there is no such position.
        """
        self._check_position(position)
        if self.is_complete:
            return (*range(position), *range(position + 1, self.size))
        order, places = _ring(self.size, self.seed)
        place = places[position]
        reach = self.degree // 2
        steps = (*range(-reach, 0), *range(1, reach + 1))
        return tuple(sorted(order[(place + step) % self.size] for step in steps))

    def are_neighbours(self, first: int, second: int) -> bool:
        """Tell whether two devices are neighbours. Nobody is its own.

        Raises:
            ConfigError: E-GRAPH-POSITION, there is no such position.
        """
        self._check_position(first)
        self._check_position(second)
        if first == second or self.is_complete:
            return first != second
        _, places = _ring(self.size, self.seed)
        apart = abs(places[first] - places[second])
        return min(apart, self.size - apart) <= self.degree // 2

    def ring_order(self) -> tuple[int, ...]:
        """Return the positions in the order in which they stand on the ring."""
        return tuple(_ring(self.size, self.seed)[0])

    def windows_hold(self, alive: Sequence[bool], least_alive: int) -> bool:
        """Tell whether every run of degree / 2 places of the ring has enough survivors.

        Args:
            alive: Whether each position of the cohort survives, [size].
            least_alive: From 0 to degree / 2.

        Raises:
            ConfigError: E-GRAPH-ALIVE, E-GRAPH-WINDOW: an argument does not fit.
        """
        self._check_alive(alive)
        length = self.degree // 2
        if not 0 <= least_alive <= length:
            raise ConfigError("E-GRAPH-WINDOW", f"0 to {length} alive of as many", f"{least_alive}")
        order, _ = _ring(self.size, self.seed)
        on_ring = [bool(alive[position]) for position in order]
        inside = sum(on_ring[:length])
        for place in range(self.size):
            if inside < least_alive:
                return False
            inside += on_ring[(place + length) % self.size] - on_ring[place]
        return True

    def is_connected(self, alive: Sequence[bool]) -> bool:
        """Tell whether the survivors hang together by edges between survivors alone.

        Where two survivors that follow each other on the ring are further apart than degree / 2
        places, no edge passes between them; one such gap leaves a chain, two cut it.

        Args:
            alive: Whether each position of the cohort survives, [size].

        Raises:
            ConfigError: E-GRAPH-ALIVE, there are not `size` entries.
        """
        self._check_alive(alive)
        if self.is_complete:
            return True
        order, _ = _ring(self.size, self.seed)
        places = [place for place, position in enumerate(order) if alive[position]]
        if len(places) < 2:
            return True
        reach = self.degree // 2
        gaps = sum(after - before > reach for before, after in pairwise(places))
        gaps += places[0] + self.size - places[-1] > reach
        return gaps < 2

    def _check_position(self, position: int) -> None:
        if not 0 <= position < self.size:
            raise ConfigError(
                "E-GRAPH-POSITION", f"a position from 0 to {self.size - 1}", str(position)
            )

    def _check_alive(self, alive: Sequence[bool]) -> None:
        if len(alive) != self.size:
            raise ConfigError("E-GRAPH-ALIVE", f"{self.size} entries", str(len(alive)))


def committee(size: int, seed: bytes, members: int) -> tuple[int, ...]:
    """Return the positions of the certificate's signers, ascending.

    Args:
        size: Devices in the cohort, 2 to 65,535.
        seed: 32 bytes, public; may be the graph's: the two draws are independent.
        members: 1 to `size`.

    Raises:
        ConfigError: E-GRAPH-SIZE, E-GRAPH-SEED, E-GRAPH-MEMBERS.
    """
    _check_draw(size, seed)
    if not 1 <= members <= size:
        raise ConfigError("E-GRAPH-MEMBERS", f"1 to {size} members", str(members))
    return tuple(sorted(_shuffled(_COMMITTEE_LABEL, size, seed, members)[:members]))


def _check_draw(size: int, seed: bytes) -> None:
    if not 2 <= size <= MAX_COHORT:
        raise ConfigError("E-GRAPH-SIZE", f"2 to {MAX_COHORT} devices", str(size))
    if len(seed) != SEED_SIZE_BYTES:
        raise ConfigError("E-GRAPH-SEED", f"{SEED_SIZE_BYTES} bytes", f"{len(seed)} bytes")


@lru_cache(maxsize=8)
def _ring(size: int, seed: bytes) -> "tuple[array[int], array[int]]":
    """Return the position at each place of the ring, and the place of each position."""
    order = _shuffled(_GRAPH_LABEL, size, seed, size - 1)
    places = array("H", bytes(2 * size))
    for place, position in enumerate(order):
        places[position] = place
    return order, places


def _shuffled(label: bytes, size: int, seed: bytes, exchanges: int) -> "array[int]":
    """Return 0 to size - 1 of which the first `exchanges` are a random choice in random order."""
    order = array("H", range(size))
    words = _words(label, size, seed)
    for target in range(min(exchanges, size - 1)):
        below = size - target
        limit = _WORDS - _WORDS % below
        source = target + next(word for word in words if word < limit) % below
        order[target], order[source] = order[source], order[target]
    return order


def _words(label: bytes, size: int, seed: bytes) -> Iterator[int]:
    """Yield the stream of 16-bit words."""
    start = hashlib.sha256(label + b"\x00" + seed + size.to_bytes(4, "big"))
    block = 0
    while True:
        state = start.copy()
        state.update(block.to_bytes(8, "big"))
        digest = state.digest()
        for offset in range(0, len(digest), 2):
            yield (digest[offset] << 8) | digest[offset + 1]
        block += 1
