"""Turns rows of fields, as text or numbers, into blocks of numbers; counts those it cannot use."""

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefl.data.account import Account
from edgefl.data.reading import LeftOut
from edgefl.data.schema import UNKNOWN_LABEL
from edgefl.data.settings import LARGEST_LABEL, Columns, Labels, TimeUnit
from edgefl.data.windows import RowBlock

Field = str | float | int | bytes | None

_MOST_ROWS_AT_ONCE = 2048
_MOST_FIELDS_AT_ONCE = 65_536
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "-"})
_MOST_REMEMBERED = 4096
_LONGEST_REMEMBERED = 64
_COMMA = "some numbers have a comma; if it is the decimal one, set decimal = ',' in [csv]"
_NO_LABEL = UNKNOWN_LABEL
_UNLISTED = -2
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def rows_at_once(fields: int) -> int:
    """Return how many rows are in memory as single fields, each a Python object, at a time.

    Args:
        fields: In a row.
    """
    return max(1, min(_MOST_ROWS_AT_ONCE, _MOST_FIELDS_AT_ONCE // fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRows:
    """Rows as read, each with the fields that `Columns.names` asks for, in that order.

    Attributes:
        rows: The fields of each row.
        where: File, and what `numbers` count, to show to a person; or empty.
        numbers: Of lines or rows; empty if they are not known.
        is_after_gap: For each row, whether something was left out just before it.
    """

    rows: Sequence[Sequence[Field]]
    where: str
    numbers: Sequence[int]
    is_after_gap: Sequence[bool]

    def place(self, position: int) -> str:
        """Return where a row stands."""
        return f"{self.where} {self.numbers[position]}" if self.numbers else self.where


class RowParser:
    """Parses rows of one source."""

    def __init__(
        self,
        columns: Columns,
        labels: Labels,
        account: Account,
        *,
        is_tokens: bool,
        decimal: str = ".",
        needs_targets: bool = True,
    ) -> None:
        """Prepare.

        Args:
            columns: What the fields mean.
            labels: What the label may say.
            account: Counts rows that cannot be used.
            is_tokens: Whether channels must be whole numbers.
            decimal: Between the whole part and the rest of a number.
            needs_targets: Whether rows without a label, or values, are left out.
        """
        self._columns = columns
        self._needs_targets = needs_targets
        self._labels = _LabelNames(labels, account)
        self._account = account
        self._is_tokens = is_tokens
        self._decimal = decimal
        self._scale = np.array(columns.scale or (1.0,), np.float64)
        self._offset = np.array(columns.offset or (0.0,), np.float64)
        self._gap_before_next = False
        has_time = columns.time is not None
        channels = len(columns.channels)
        self._first_channel = int(has_time)
        self._label_at = self._first_channel + channels
        self._number_names = (*columns.channels, *columns.targets)

    def parse(self, raw: RawRows) -> RowBlock:
        """Return the usable rows of a batch."""
        self._account.rows += len(raw.rows)
        faults: list[LeftOut | None] = [None] * len(raw.rows)
        times_s = self._times(raw.rows, faults)
        numbers = self._numbers(raw.rows, faults)
        channels = len(self._columns.channels)
        values = self._scaled(numbers[:, :channels])
        self._mark_missing(values, numbers[:, channels:], faults)
        labels = self._label_numbers(raw.rows, faults)
        for position, fault in enumerate(faults):
            if fault is not None:
                self._account.leave_out(fault, raw.place(position))
        is_used = np.array([fault is None for fault in faults], np.bool_)
        return RowBlock(
            times_s=None if times_s is None else times_s[is_used],
            values=values[is_used],
            targets=numbers[is_used, channels:] if labels is None else labels[is_used],
            is_after_gap=self._gaps(is_used, raw.is_after_gap),
        )

    def _gaps(self, is_used: NDArray[np.bool_], given: Sequence[bool]) -> NDArray[np.bool_]:
        """Return for each used row whether anything was left out since the used row before it."""
        events = np.array(given, np.int64)
        if len(events) == 0:
            return np.zeros(0, np.bool_)
        events[0] += self._gap_before_next
        # A row that is left out counts as an event before whatever follows it.
        total = np.cumsum(events + ~is_used)
        used_total = total[is_used]
        last_used = used_total[-1] if len(used_total) else 0
        self._gap_before_next = bool(total[-1] > last_used)
        return np.asarray(np.diff(used_total, prepend=0) > 0)

    def _times(
        self, rows: Sequence[Sequence[Field]], faults: list[LeftOut | None]
    ) -> NDArray[np.float64] | None:
        if self._columns.time is None:
            return None
        unit = self._columns.time_unit
        if unit is not TimeUnit.ISO8601 and self._decimal == ".":
            try:
                times_s = np.array([row[0] for row in rows], np.float64) * unit.seconds
            except (ValueError, TypeError, OverflowError):
                pass  # Some field is no number: the slow way finds out which.
            else:
                for position in np.flatnonzero(~np.isfinite(times_s)).tolist():
                    faults[position] = LeftOut.BAD_TIME
                return times_s
        times_s = np.full(len(rows), np.nan)
        for position, row in enumerate(rows):
            parsed = _iso8601(row[0]) if unit is TimeUnit.ISO8601 else self._number(row[0])
            if parsed is None or not math.isfinite(parsed):
                faults[position] = LeftOut.BAD_TIME
            else:
                times_s[position] = parsed * unit.seconds
        return times_s

    def _numbers(
        self, rows: Sequence[Sequence[Field]], faults: list[LeftOut | None]
    ) -> NDArray[np.float64]:
        """Return float64 [m, channels + targets]; NaN where a field is missing or no number."""
        first = self._first_channel
        picked = [row[first : first + len(self._number_names)] for row in rows]
        if self._decimal == ".":
            try:
                return np.array(picked, np.float64).reshape(len(rows), len(self._number_names))
            except (ValueError, TypeError, OverflowError):
                pass  # Some field is no number: the slow way finds out which.
        numbers = np.full((len(rows), len(self._number_names)), np.nan)
        for position, fields in enumerate(picked):
            for column, field in enumerate(fields):
                number = self._number(field)
                is_needed = self._needs_targets or column < len(self._columns.channels)
                if number is not None:
                    numbers[position, column] = number
                elif is_needed and faults[position] is None:
                    faults[position] = LeftOut.NOT_A_NUMBER
        return numbers

    def _number(self, field: Field) -> float | None:
        """Return a field as a number, NaN for one that is missing, None for something else."""
        if field is None:
            return math.nan
        if isinstance(field, str):
            field = field.strip()
            if field.lower() in _MISSING:
                return math.nan
            if self._decimal == ",":
                field = field.replace(",", ".")
            elif "," in field:
                self._account.note(_COMMA)
        try:
            return float(field)
        except (ValueError, TypeError, OverflowError):
            return None

    def _scaled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore", invalid="ignore"):
            return values * self._scale + self._offset

    def _mark_missing(
        self,
        values: NDArray[np.float64],
        targets: NDArray[np.float64],
        faults: list[LeftOut | None],
    ) -> None:
        """Mark rows with a value that the model's input type cannot hold."""
        if not self._needs_targets:
            targets[~(np.abs(targets) <= _LARGEST_FLOAT32)] = np.nan
            targets = targets[:, :0]
        checked = np.concatenate([values, targets], axis=1)
        is_bad = ~(np.abs(checked) <= _LARGEST_FLOAT32)
        if self._is_tokens:
            channels = values.shape[1]
            with np.errstate(invalid="ignore"):
                is_bad[:, :channels] |= values != np.rint(values)
        if not is_bad.any():
            return
        names = self._number_names[: is_bad.shape[1]]
        for name, count in zip(names, is_bad.sum(axis=0).tolist(), strict=True):
            if count:
                self._account.faulty_values[name] += count
        for position in np.flatnonzero(is_bad.any(axis=1)).tolist():
            if faults[position] is None:
                faults[position] = LeftOut.MISSING_VALUE

    def _label_numbers(
        self, rows: Sequence[Sequence[Field]], faults: list[LeftOut | None]
    ) -> NDArray[np.int64] | None:
        if self._columns.label is None:
            return None
        found = [self._labels.number(row[self._label_at]) for row in rows]
        if not self._needs_targets:
            return np.maximum(np.array(found, np.int64), UNKNOWN_LABEL)
        for position, number in enumerate(found):
            if number < 0 and faults[position] is None:
                faults[position] = LeftOut.UNLABELLED
                if number == _UNLISTED:
                    faults[position] = LeftOut.UNKNOWN_LABEL
                    self._account.meet_unknown_label(str(rows[position][self._label_at]))
        return np.array(found, np.int64)


class _LabelNames:
    """Class numbers of label fields, remembered from row to row."""

    def __init__(self, labels: Labels, account: Account) -> None:
        self._account = account
        self._by_name = {name: number for number, name in enumerate(labels.classes)}
        self._unlabelled = frozenset(labels.unlabelled)
        self._known: dict[Field, int] = {}

    def number(self, field: Field) -> int:
        """Return the class of a label field, `_NO_LABEL` or `_UNLISTED`."""
        number = self._known.get(field)
        if number is None:
            number = self._find(field)
            is_long = isinstance(field, str | bytes) and len(field) > _LONGEST_REMEMBERED
            if len(self._known) < _MOST_REMEMBERED and not is_long:
                self._known[field] = number
        return number

    def _find(self, field: Field) -> int:
        name = "" if field is None else str(field).strip()
        if not name or name in self._unlabelled:
            return _NO_LABEL
        if self._by_name:
            return self._by_name.get(name, _UNLISTED)
        try:
            number = float(name)
        except ValueError:
            return _NO_LABEL if name.lower() in _MISSING else _UNLISTED
        if math.isnan(number):
            return _NO_LABEL
        is_class = number.is_integer() and 0 <= number <= LARGEST_LABEL
        return int(number) if is_class else _UNLISTED


def _iso8601(field: Field) -> float | None:
    """Return seconds since 1970 of a written date; without a zone it is taken as UTC."""
    if not isinstance(field, str):
        return None
    try:
        moment = datetime.datetime.fromisoformat(field.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return moment.timestamp()
    except (ValueError, OverflowError):
        return None
