"""Who shares with whom in a session, and who signs its certificate, by position in the plan."""

from collections.abc import Collection
from functools import lru_cache

from edgefl.protocol.graph import RingGraph, committee
from edgefl.protocol.key_epoch import OpenEpoch
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import AdversaryClass
from edgefl.protocol.thresholds import base_size_of


class SessionGraph:
    """The graph and the committee of one session, drawn from the key epoch's beacon.

    In MALICIOUS the ring holds every member of the key epoch, and who did not check in counts as
    dropped: otherwise the gateway could choose, after it has seen the graph, a cohort in which all
    neighbours of one device are its own.

    Args:
        plan: Its thresholds must have passed `check_thresholds`.
        epoch: The plan's key epoch.

    Raises:
        ConfigError: The degree or the committee do not fit the devices on the ring.
    """

    def __init__(self, plan: SessionPlan, epoch: OpenEpoch) -> None:
        """Draw nothing yet but the committee."""
        self._plan = plan
        self._is_over_epoch = plan.adversary is AdversaryClass.MALICIOUS
        self._graph = RingGraph(
            size=base_size_of(plan),
            degree=plan.thresholds.degree,
            seed=epoch.graph_seed(plan.key_index),
        )
        self._neighbours: dict[int, tuple[int, ...]] = {}
        self.committee: tuple[int, ...] = ()
        if plan.thresholds.committee:
            self.committee = committee(
                epoch.size, epoch.committee_seed(plan.key_index), plan.thresholds.committee
            )

    @classmethod
    def of(cls, plan: SessionPlan, epoch: OpenEpoch) -> "SessionGraph":
        """Return the graph of a plan; the newest few are remembered."""
        return _graph_of(plan, epoch)

    def neighbours(self, position: int) -> tuple[int, ...]:
        """Return the members of the cohort that a member shares with, ascending."""
        known = self._neighbours.get(position)
        if known is None:
            known = self._neighbours[position] = self._find_neighbours(position)
        return known

    def windows_hold(self, survivors: Collection[int]) -> bool:
        """Tell whether survivors stand close enough everywhere on the ring, if there is a rule.

        Args:
            survivors: Positions in the plan.
        """
        least = self._plan.thresholds.window
        if not least:
            return True
        alive = [False] * self._graph.size
        for position in survivors:
            alive[self._on_ring(position)] = True
        return self._graph.windows_hold(alive, least)

    def _find_neighbours(self, position: int) -> tuple[int, ...]:
        found = self._graph.neighbours(self._on_ring(position))
        if not self._is_over_epoch:
            return found
        members = (self._plan.position_of(epoch_position) for epoch_position in found)
        return tuple(member for member in members if member is not None)

    def _on_ring(self, position: int) -> int:
        return self._plan.epoch_positions[position] if self._is_over_epoch else position


@lru_cache(maxsize=4)
def _graph_of(plan: SessionPlan, epoch: OpenEpoch) -> SessionGraph:
    return SessionGraph(plan, epoch)
