"""Thins out reports that others can cause without end: the first ones at once, a flood as counts.

Whoever reaches the broker can send garbage without end. Each refusal as a line of its own would
fill the gateway's disk; none at all would hide that something is wrong. In each span of time the
first refusal of every kind is reported, then a few of each source and some in total; the rest is
counted, and reported at the end of the span. While a flood lasts, or a steady trickle, the spans
get longer.
The same goes for devices that come and go, of which each kind of line has a room of its own.
Not guaranteed: the counts of a span in which the gateway ends.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from broker.events import GatewayEffect, Reported
from broker.reports import REFUSED, more_report

LINES_PER_SOURCE: Final = 5
LINES_IN_ALL: Final = 50
SHORTEST_SPAN_S: Final = 60.0
LONGEST_SPAN_S: Final = 3600.0


DEVICE_LINES: Final = frozenset({"device-new", "device-offline"})


class Refusals:
    """What was refused in the present span of time. Its memory is bounded by the lines it lets by.

    A kind of refusal is its error code, of which there are as many as the code has names for.

    Args:
        kinds: Reports that are thinned out here; those without a code and a source of their own
            have their kind for both.
        lines_per_source: Of one source in a span.
    """

    def __init__(
        self,
        kinds: frozenset[str] = frozenset({REFUSED}),
        *,
        lines_per_source: int = LINES_PER_SOURCE,
    ) -> None:
        """Start with nothing refused."""
        self._kinds_thinned = kinds
        self._lines_per_source = lines_per_source
        self._span_s = SHORTEST_SPAN_S
        self._began_s: float | None = None
        self._ended_s = 0.0
        self._shown_by_source: Counter[str] = Counter()
        self._kinds: set[str] = set()
        self._more: Counter[str] = Counter()

    @property
    def wakeup_s(self) -> float | None:
        """When counts are due."""
        if self._began_s is None or not self._more:
            return None
        return self._began_s + self._span_s

    def thin_out(self, effects: Iterable[GatewayEffect], now_s: float) -> list[GatewayEffect]:
        """Return the effects without the refusals that are only counted, after counts that are due.

        Args:
            effects: What the gateway wants done, in order.
            now_s: The time.
        """
        out: list[GatewayEffect] = [*self._take_due(now_s)]
        out += [effect for effect in effects if not self._is_only_counted(effect, now_s)]
        return out

    def _take_due(self, now_s: float) -> list[Reported]:
        if self._began_s is None or now_s < self._began_s + self._span_s:
            return []
        lasted_s = now_s - self._began_s
        reports = [more_report(code, more, lasted_s) for code, more in sorted(self._more.items())]
        is_busy = bool(self._more) or self._shown_by_source.total() > self._lines_per_source
        self._span_s = min(2 * self._span_s, LONGEST_SPAN_S) if is_busy else SHORTEST_SPAN_S
        self._began_s, self._ended_s = None, now_s
        self._shown_by_source.clear()
        self._kinds.clear()
        self._more.clear()
        return reports

    def _is_only_counted(self, effect: GatewayEffect, now_s: float) -> bool:
        if not isinstance(effect, Reported) or effect.kind not in self._kinds_thinned:
            return False
        if self._began_s is None:
            if now_s - self._ended_s > self._span_s:
                self._span_s = SHORTEST_SPAN_S
            self._began_s = now_s
        code = str(effect.fields.get("code", effect.kind))
        source = str(effect.fields.get("from", effect.kind))
        has_room = (
            self._shown_by_source.total() < LINES_IN_ALL
            and self._shown_by_source[source] < self._lines_per_source
        )
        if code in self._kinds and not has_room:
            self._more[code] += 1
            return True
        self._kinds.add(code)
        self._shown_by_source[source] += 1
        return False
