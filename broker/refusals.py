"""Thins out the reports of refused messages: the first ones at once, a flood as counts.

Whoever reaches the broker can send garbage without end. Each refusal as a line of its own would
fill the gateway's disk; none at all would hide that something is wrong. In each span of time the
first refusal of every kind is reported, then a few of each source and some in total; the rest is
counted, and reported at the end of the span. While a flood lasts, or a steady trickle, the spans
get longer.
Not guaranteed: the counts of a span in which the gateway ends.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from broker.events import GatewayEffect, Reported
from broker.reports import REFUSED, more_refused_report

LINES_PER_SOURCE: Final = 5
LINES_IN_ALL: Final = 50
SHORTEST_SPAN_S: Final = 60.0
LONGEST_SPAN_S: Final = 3600.0


class Refusals:
    """What was refused in the present span of time. Its memory is bounded by the lines it lets by.

    A kind of refusal is its error code, of which there are as many as the code has names for.
    """

    def __init__(self) -> None:
        """Start with nothing refused."""
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
        reports = [
            more_refused_report(code, more, lasted_s) for code, more in sorted(self._more.items())
        ]
        is_busy = bool(self._more) or self._shown_by_source.total() > LINES_PER_SOURCE
        self._span_s = min(2 * self._span_s, LONGEST_SPAN_S) if is_busy else SHORTEST_SPAN_S
        self._began_s, self._ended_s = None, now_s
        self._shown_by_source.clear()
        self._kinds.clear()
        self._more.clear()
        return reports

    def _is_only_counted(self, effect: GatewayEffect, now_s: float) -> bool:
        if not isinstance(effect, Reported) or effect.kind != REFUSED:
            return False
        if self._began_s is None:
            if now_s - self._ended_s > self._span_s:
                self._span_s = SHORTEST_SPAN_S
            self._began_s = now_s
        code, source = str(effect.fields["code"]), str(effect.fields["from"])
        has_room = (
            self._shown_by_source.total() < LINES_IN_ALL
            and self._shown_by_source[source] < LINES_PER_SOURCE
        )
        if code in self._kinds and not has_room:
            self._more[code] += 1
            return True
        self._kinds.add(code)
        self._shown_by_source[source] += 1
        return False
