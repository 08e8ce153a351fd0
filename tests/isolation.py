"""A gateway that owns random devices, sees the graph, and names who is dropped so as to cut it.

It knows what devices check on a survivor list, and looks for lists that pass: it drops the honest
neighbours of a victim, or the honest devices of two runs of the ring, where most are its own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefl.protocol.graph import RingGraph, committee


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What honest members of the committee ask of a survivor list.

    Attributes:
        survivor_floor: Least survivors.
        window_alive: Least survivors in a window; 0 switches the window rule off.
        signatures: Least signatures on a certificate.
    """

    survivor_floor: int
    window_alive: int
    signatures: int


class Attack:
    """One attempt: a graph, a committee and a set of corrupt devices.

    Args:
        graph: Drawn by the beacon.
        corrupt: Positions that the gateway owns, chosen before the beacon was drawn.
        guards: What is checked.
        members: Size of the committee.
    """

    def __init__(
        self, graph: RingGraph, corrupt: Iterable[int], guards: Guards, members: int
    ) -> None:
        self.graph = graph
        self.guards = guards
        self.corrupt = frozenset(corrupt)
        self.members = committee(graph.size, graph.seed, members)
        self.length = graph.degree // 2
        self._order = graph.ring_order()
        self._is_corrupt = np.array([p in self.corrupt for p in self._order], dtype=np.int64)

    def cuts(self) -> Iterator[frozenset[int]]:
        """Yield certified lists of drops that cut the honest survivors apart."""
        for places in (*self._both_sides_of_victims(), *self._pairs_of_runs()):
            dropped = self._honest(places)
            if self.is_certified(dropped) and self.is_cut(dropped):
                yield dropped

    def is_certified(self, dropped: frozenset[int]) -> bool:
        """Tell whether enough members sign: the honest survivors a good list, the corrupt any."""
        alive = [position not in dropped for position in range(self.graph.size)]
        willing = sum(alive) >= self.guards.survivor_floor and self.graph.windows_hold(
            alive, self.guards.window_alive
        )
        signers = sum(
            member in self.corrupt or (willing and alive[member]) for member in self.members
        )
        return signers >= self.guards.signatures

    def is_cut(self, dropped: frozenset[int]) -> bool:
        """Tell whether honest survivors fall into groups between which no mask is left."""
        return not self.graph.is_connected(
            [p not in dropped and p not in self.corrupt for p in range(self.graph.size)]
        )

    def can_certify_two_lists(self) -> bool:
        """Tell whether two good lists get certificates from honest members that sign one each.

        The gateway shows either list to half of the honest members, and signs both.
        """
        honest = sum(member not in self.corrupt for member in self.members)
        return honest // 2 + len(self.members) - honest >= self.guards.signatures

    def opens_both_secrets_of_any(self, threshold: int) -> bool:
        """Tell whether two certified lists would open both secrets of some honest device.

        Half of its honest neighbours are shown either list; the corrupt answer for both.
        """
        sums = self._window_sums(self._is_corrupt)
        corrupt = (np.roll(sums, self.length) + np.roll(sums, -1))[self._is_corrupt == 0]
        return bool(((self.graph.degree - corrupt) // 2 + corrupt >= threshold).any())

    def most_corrupt_in_a_window(self) -> int:
        """Return the most corrupt devices in any window."""
        return int(self._window_sums(self._is_corrupt).max())

    def best_cut_leaves(self) -> int:
        """Return the largest w at which a list passes and cuts, -1 where none cuts: exact, slow.

        A cut takes two disjoint windows without an honest survivor, and an honest survivor on
        either side. Whoever drops more than the honest devices there only makes windows poorer.
        """
        size, run = self.graph.size, np.arange(self.length)
        best = -1
        for first in range(size):
            for second in range(first + self.length, size):
                dead = np.zeros(size, dtype=np.int64)
                dead[(np.concatenate((first + run, second + run))) % size] = 1
                alive = 1 - dead * (1 - self._is_corrupt)
                if self.is_cut(self._honest(np.flatnonzero(dead))):
                    best = max(best, int(self._window_sums(alive).min()))
        return best

    def _both_sides_of_victims(self) -> Iterator[NDArray[np.int64]]:
        """Yield the places of all neighbours of the victims with most corrupt neighbours."""
        sums = self._window_sums(self._is_corrupt)
        around = np.roll(sums, self.length) + np.roll(sums, -1)
        honest = np.flatnonzero(self._is_corrupt == 0)
        ranked = honest[np.argsort(around[honest], kind="stable")]
        steps = np.arange(-self.length, self.length + 1)
        for victim in ranked[-3:]:
            yield (victim + steps[steps != 0]) % self.graph.size

    def _pairs_of_runs(self) -> Iterator[NDArray[np.int64]]:
        """Yield the runs with most corrupt devices, each with the best that does not touch it."""
        sums = self._window_sums(self._is_corrupt)
        size = self.graph.size
        for first in np.argsort(sums, kind="stable")[-3:]:
            apart = (np.arange(size) - first) % size
            free = np.flatnonzero((apart > self.length) & (apart < size - self.length))
            second = free[np.argmax(sums[free])]
            run = np.arange(self.length)
            yield np.concatenate(((first + run) % size, (second + run) % size))

    def _honest(self, places: NDArray[np.int64]) -> frozenset[int]:
        return frozenset(self._order[place] for place in places if not self._is_corrupt[place])

    def _window_sums(self, on_ring: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return, for each place, the sum over the window that begins there."""
        around = np.concatenate((on_ring, on_ring[: self.length]))
        running = np.concatenate(([0], np.cumsum(around)))
        return running[self.length : self.length + on_ring.size] - running[: on_ring.size]
