"""Cuts a stream of rows into windows and keeps the newest ones in bounded memory.

The store grows up to its limit and then overwrites its oldest window, so memory depends on the
limit and not on the length of the recordings: at most twice the limit, for a moment, while a
full store grows or is put in order.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from edgefl.data.account import Account
from edgefl.data.reading import LeftOut
from edgefl.data.schema import UNKNOWN_LABEL
from edgefl.data.settings import Columns, Layout, Retention, TargetRule, Windowing
from edgefl.training.base import Inputs, Targets

_SECONDS_PER_DAY = 86_400.0
_MOST_COPY_BYTES = 4 * 1024 * 1024
_FIRST_ROOM = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """Consecutive usable rows.

    Attributes:
        times_s: float64 [m], seconds; None where rows carry no time.
        values: float64 [m, channels], scaled, within the range of the model's input type.
        targets: int64 [m] labels, -1 where unknown, or float64 [m, k] values, NaN where unknown.
        is_after_gap: bool [m]: something was left out just before this row.
    """

    times_s: NDArray[np.float64] | None
    values: NDArray[np.float64]
    targets: NDArray[np.int64] | NDArray[np.float64]
    is_after_gap: NDArray[np.bool_]

    def part(self, start: int, end: int) -> "RowBlock":
        """Return rows start to end - 1, as views."""
        return RowBlock(
            times_s=None if self.times_s is None else self.times_s[start:end],
            values=self.values[start:end],
            targets=self.targets[start:end],
            is_after_gap=self.is_after_gap[start:end],
        )

    def followed_by(self, later: "RowBlock") -> "RowBlock":
        """Return both blocks as one."""
        both_times = None
        if self.times_s is not None and later.times_s is not None:
            both_times = np.concatenate([self.times_s, later.times_s])
        return RowBlock(
            times_s=both_times,
            values=np.concatenate([self.values, later.values]),
            targets=np.concatenate([self.targets, later.targets]),
            is_after_gap=np.concatenate([self.is_after_gap, later.is_after_gap]),
        )


class Windower:
    """Takes rows in order and fills a store with windows."""

    def __init__(
        self,
        columns: Columns,
        windowing: Windowing,
        retention: Retention,
        account: Account,
        now_s: float,
        *,
        needs_targets: bool = True,
    ) -> None:
        """Start with no rows.

        Args:
            columns: What the columns mean.
            windowing: How rows are cut.
            retention: How much is kept.
            account: Counts what is left out.
            now_s: Seconds since 1970, for the greatest age.
            needs_targets: Whether windows without one label, or values, are left out.
        """
        self._windowing = windowing
        self._account = account
        self.store = _Store(
            columns, windowing, retention, account, now_s, needs_targets=needs_targets
        )
        self._run: RowBlock | None = None
        self._run_has_window = False
        self._rows_to_skip = 0

    def add(self, block: RowBlock) -> None:
        """Take the next rows."""
        if len(block.values) == 0:
            return
        starts = np.flatnonzero(self._starts_run(block)).tolist()
        edges = [0, *(start for start in starts if start > 0), len(block.values)]
        for position, (start, end) in enumerate(itertools.pairwise(edges)):
            if position > 0 or (starts and starts[0] == 0):
                self.end_run()
            self._extend(block.part(start, end))

    def end_run(self) -> None:
        """Let the next row start a new window."""
        if self._run is not None and not self._run_has_window:
            self._account.leave_out(LeftOut.SHORT_RUN, count=len(self._run.values))
        self._run = None
        self._run_has_window = False
        self._rows_to_skip = 0

    def _starts_run(self, block: RowBlock) -> NDArray[np.bool_]:
        max_gap_s = self._windowing.max_gap_s
        if block.times_s is None:
            return block.is_after_gap
        # Without a row before it, the first one has no step; a run is begun in any case.
        before = block.times_s[0] if self._last_time_s is None else self._last_time_s
        steps_s = np.diff(block.times_s, prepend=before)
        backwards = steps_s < 0
        self._account.clock_steps += int(backwards.sum())
        if max_gap_s is None:
            return backwards | block.is_after_gap
        return backwards | (steps_s > max_gap_s)

    @property
    def _last_time_s(self) -> float | None:
        if self._run is None or self._run.times_s is None:
            return None
        return float(self._run.times_s[-1])

    def _extend(self, rows: RowBlock) -> None:
        run = rows if self._run is None else self._run.followed_by(rows)
        length, stride = self._windowing.length, self._windowing.stride
        first = self._rows_to_skip
        windows = max(0, (len(run.values) - first - length) // stride + 1)
        if windows:
            self._run_has_window = True
            self.store.add(run.part(first, len(run.values)), windows)
        used = first + windows * stride
        # The last row stays, however far the stride goes, since the next row's step counts from it.
        kept_from = min(used, len(run.values) - 1)
        self._rows_to_skip = used - kept_from
        self._run = run.part(kept_from, len(run.values))


class _Store:
    """The newest windows, in a ring that grows up to its limit."""

    def __init__(
        self,
        columns: Columns,
        windowing: Windowing,
        retention: Retention,
        account: Account,
        now_s: float,
        *,
        needs_targets: bool,
    ) -> None:
        self._needs_targets = needs_targets
        self._windowing = windowing
        self._account = account
        self._has_labels = columns.label is not None
        self._shape = windowing.example_shape(len(columns.channels))
        self._x_type = np.dtype(np.int64 if windowing.is_tokens else np.float32)
        self._values = len(columns.targets)
        example_bytes = int(np.prod(self._shape)) * self._x_type.itemsize
        self.capacity = retention.capacity(example_bytes)
        age_days = retention.most_age_days
        self._oldest_s = None if age_days is None else now_s - age_days * _SECONDS_PER_DAY
        self._taken = 0
        self._x, self._y, self._spans_s = self._empty(min(_FIRST_ROOM, self.capacity))

    def _empty(self, room: int) -> tuple[Inputs, Targets, NDArray[np.float64]]:
        x: Inputs = np.empty((room, *self._shape), self._x_type)
        spans_s = np.empty((room, 2), np.float64)
        if self._has_labels:
            return x, np.empty(room, np.int64), spans_s
        return x, np.empty((room, self._values), np.float32), spans_s

    def _grow(self, room: int) -> None:
        """Make room; only while the ring has not yet wrapped, or when all of it is overwritten."""
        kept = min(self._taken, len(self._x))
        x, targets, spans_s = self._empty(room)
        x[:kept], targets[:kept] = self._x[:kept], self._y[:kept]
        spans_s[:kept] = self._spans_s[:kept]
        self._x, self._y, self._spans_s = x, targets, spans_s

    def add(self, rows: RowBlock, windows: int) -> None:
        """Take the first windows of a run.

        Args:
            rows: The rows, the first of which starts the first window.
            windows: How many there are.
        """
        length, stride = self._windowing.length, self._windowing.stride
        step = max(1, _MOST_COPY_BYTES // (length * rows.values.shape[1] * 8))
        for first in range(0, windows, step):
            count = min(step, windows - first)
            start = first * stride
            part = rows.part(start, start + (count - 1) * stride + length)
            self._add_few(part)

    def _add_few(self, rows: RowBlock) -> None:
        length, stride = self._windowing.length, self._windowing.stride
        cut = sliding_window_view(rows.values, length, axis=0)[::stride]
        targets, is_kept = self._targets(rows.targets)
        spans_s = np.full((len(cut), 2), np.nan)
        if rows.times_s is not None:
            times_s = sliding_window_view(rows.times_s, length)[::stride]
            spans_s = np.stack([times_s[:, 0], times_s[:, -1]], axis=1)
            is_kept &= self._is_young(times_s[:, -1])
        chosen = np.flatnonzero(is_kept)
        # Windows that the same call would overwrite at once need not be copied.
        overwritten = max(0, len(chosen) - self.capacity)
        self._taken += overwritten
        for_copy = chosen[overwritten:]
        self._put(self._arranged(cut[for_copy]), targets[for_copy], spans_s[for_copy])

    def _is_young(self, ends_s: NDArray[np.float64]) -> NDArray[np.bool_]:
        if self._oldest_s is None:
            return np.ones(len(ends_s), np.bool_)
        is_young = ends_s >= self._oldest_s
        too_old = int(len(is_young) - is_young.sum())
        if too_old:
            self._account.leave_out(LeftOut.TOO_OLD, count=too_old)
        return np.asarray(is_young)

    def _targets(
        self, targets: NDArray[np.int64] | NDArray[np.float64]
    ) -> tuple[Targets, NDArray[np.bool_]]:
        """Return one label or row of values for each window, and which windows are kept.

        Rows without a label get here only if none is needed; a window with such a row has none.
        """
        length, stride = self._windowing.length, self._windowing.stride
        rule = self._windowing.target_rule
        cut = sliding_window_view(targets, length, axis=0)[::stride]
        everyone = np.ones(len(cut), np.bool_)
        if not self._has_labels:
            mean = cut.mean(axis=-1) if rule is TargetRule.MEAN else cut[..., -1]
            return np.where(np.isnan(cut).any(axis=-1), np.nan, mean).astype(np.float32), everyone
        labels = cut.astype(np.int64, copy=False)
        chosen = _majority(labels) if rule is TargetRule.MAJORITY else labels[:, -1]
        has_label = (labels >= 0).all(axis=1)
        if rule is TargetRule.WHOLE:
            has_label &= (labels == labels[:, :1]).all(axis=1)
        if not self._needs_targets:
            return np.where(has_label, chosen, UNKNOWN_LABEL), everyone
        mixed = int(len(labels) - has_label.sum())
        if mixed:
            self._account.leave_out(LeftOut.MIXED_LABELS, count=mixed)
        return chosen, np.asarray(has_label)

    def _arranged(self, cut: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return windows [k, channels, length] in the wanted layout."""
        is_channel_first = self._windowing.layout is Layout.CHANNEL_FIRST
        arranged = cut if is_channel_first else cut.transpose(0, 2, 1)
        return arranged.reshape(len(cut), *self._shape)

    def _put(self, x: NDArray[np.float64], targets: Targets, spans_s: NDArray[np.float64]) -> None:
        while self._taken + len(x) > len(self._x) and len(self._x) < self.capacity:
            self._grow(min(2 * len(self._x), self.capacity))
        places = (self._taken + np.arange(len(x))) % len(self._x)
        self._x[places], self._y[places], self._spans_s[places] = x, targets, spans_s
        self._taken += len(x)

    def finish(self) -> tuple[Inputs, Targets, NDArray[np.float64]]:
        """Return the windows, oldest first; the store is spent.

        Returns:
            x [n, ...], y [n] or [n, k], and float64 [n, 2]: start and end of each window in
            seconds, NaN where rows carry no time.
        """
        kept = min(self._taken, len(self._x))
        if self._taken > kept:
            self._account.leave_out(LeftOut.TOO_MANY, count=self._taken - kept)
        if self._taken <= len(self._x):
            return self._x[:kept], self._y[:kept], self._spans_s[:kept]
        oldest = self._taken % len(self._x)
        return (
            np.roll(self._x, -oldest, axis=0),
            np.roll(self._y, -oldest, axis=0),
            np.roll(self._spans_s, -oldest, axis=0),
        )


def _majority(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the most frequent label of each row; of equals, the one seen last.

    Args:
        labels: int64 [k, length].
    """
    length = labels.shape[1]
    names = np.unique(labels)
    best_score = np.full(len(labels), -1, np.int64)
    best = np.zeros(len(labels), np.int64)
    for name in names:
        is_name = labels == name
        last_place = length - np.argmax(is_name[:, ::-1], axis=1)
        score = np.where(is_name.any(axis=1), is_name.sum(axis=1) * (length + 1) + last_place, -1)
        best = np.where(score > best_score, name, best)
        best_score = np.maximum(score, best_score)
    return best
