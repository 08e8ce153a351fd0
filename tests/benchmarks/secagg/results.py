"""What one measurement gave, and what it was held against."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum


class Kind(Enum):
    """What a goal is a bound of."""

    RATIO_AT_LEAST = "ratio >= {:g}"
    AT_MOST = "<= {:g}"
    AT_LEAST = ">= {:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound that the measurement is to keep."""

    kind: Kind
    bound: float

    def __str__(self) -> str:
        return self.kind.value.format(self.bound)

    def is_met(self, own: float, ratio: float | None) -> bool | None:
        """Tell whether it is kept; None where the peer was not measured."""
        if self.kind is Kind.AT_MOST:
            return own <= self.bound
        if self.kind is Kind.AT_LEAST:
            return own >= self.bound
        return None if ratio is None else ratio >= self.bound


def at_least(ratio: float) -> Goal:
    """Return the goal of being that many times as good as the peer."""
    return Goal(kind=Kind.RATIO_AT_LEAST, bound=ratio)


def at_most(bound: float) -> Goal:
    """Return the goal of staying below a figure of our own."""
    return Goal(kind=Kind.AT_MOST, bound=bound)


def reaches(bound: float) -> Goal:
    """Return the goal of reaching a figure of our own."""
    return Goal(kind=Kind.AT_LEAST, bound=bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line of the table.

    Attributes:
        row: Name of the goal.
        case: Which of its cases.
        unit: Of both figures.
        own: Median of ours.
        peer: Median of the peer's, where it was measured.
        ratio: Median over the repeats of how many times better ours is.
        lowest_ratio: The least of them.
        repeats: How often both took their turn.
        note: What the figures hold.
    """

    row: str
    case: str
    unit: str
    own: float
    peer: float | None = None
    peer_name: str = ""
    ratio: float | None = None
    lowest_ratio: float | None = None
    repeats: int = 1
    bar: Goal | None = None
    stretch: Goal | None = None
    note: str = ""

    @property
    def bar_is_met(self) -> bool | None:
        """Whether the required bound is kept; None where there is none or it was not measured."""
        return None if self.bar is None else self.bar.is_met(self.own, self.ratio)

    @property
    def stretch_is_met(self) -> bool | None:
        """Whether the aim is reached."""
        return None if self.stretch is None else self.stretch.is_met(self.own, self.ratio)


def compare(
    row: str,
    case: str,
    unit: str,
    *,
    own: Sequence[float],
    peer: Sequence[float] = (),
    peer_name: str = "",
    more_is_better: bool = False,
    bar: Goal | None = None,
    stretch: Goal | None = None,
    note: str = "",
) -> Result:
    """Take the medians of two series that were measured by turns, and of their ratios.

    Args:
        row: Name of the goal.
        case: Which of its cases.
        unit: Of all figures.
        own: One figure per repeat.
        peer: As many, or none.
        peer_name: Who it is.
        more_is_better: Whether the larger figure wins.
        bar: The required bound.
        stretch: The aim.
        note: What the figures hold.
    """
    ratios = []
    if peer:
        pairs = zip(own, peer, strict=True)
        ratios = [ours / theirs if more_is_better else theirs / ours for ours, theirs in pairs]
    return Result(
        row=row,
        case=case,
        unit=unit,
        own=statistics.median(own),
        peer=statistics.median(peer) if peer else None,
        peer_name=peer_name,
        ratio=statistics.median(ratios) if ratios else None,
        lowest_ratio=min(ratios) if ratios else None,
        repeats=len(own),
        bar=bar,
        stretch=stretch,
        note=note,
    )


def table(results: Iterable[Result]) -> str:
    """Return a Markdown table."""
    lines = [
        "| goal | case | unit | peer | ours | ratio (lowest) | bar | stretch |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        "| "
        + " | ".join(
            (
                result.row,
                result.case,
                result.unit,
                "" if result.peer is None else f"{_short(result.peer)} {result.peer_name}",
                _short(result.own),
                _ratios(result),
                _judged(result.bar, result.bar_is_met),
                _judged(result.stretch, result.stretch_is_met),
            )
        )
        + " |"
        for result in results
    ]
    return "\n".join(lines)


def to_json(results: Iterable[Result], versions: Mapping[str, str]) -> str:
    """Return all figures with what they were measured on."""
    rows = []
    for result in results:
        row = asdict(result)
        for name, goal, met in (
            ("bar", result.bar, result.bar_is_met),
            ("stretch", result.stretch, result.stretch_is_met),
        ):
            row[name] = None if goal is None else str(goal)
            row[f"{name}_is_met"] = met
        rows.append(row)
    return json.dumps({"versions": dict(versions), "results": rows}, indent=1)


def _ratios(result: Result) -> str:
    if result.ratio is None:
        return ""
    lowest = "" if result.lowest_ratio is None else f" ({_short(result.lowest_ratio)})"
    return f"{_short(result.ratio)}{lowest}"


def _judged(goal: Goal | None, is_met: bool | None) -> str:
    if goal is None:
        return ""
    return str(goal) + {True: ", met", False: ", missed", None: ""}[is_met]


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"
