"""How recordings are turned into examples: columns, windows, labels and what is kept."""

import enum
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from edgefl.errors import ConfigError

MEBIBYTE: Final = 1024 * 1024
LONGEST_WINDOW: Final = 65_536
LARGEST_LABEL: Final = 65_535
MOST_CHANNELS: Final = 4096


class Kind(enum.Enum):
    """What holds the recordings."""

    CSV = "csv"
    SQLITE = "sqlite"
    NPZ = "npz"
    PYTHON = "python"

    @property
    def has_rows(self) -> bool:
        """Tell whether it holds rows that must be cut into windows, rather than examples."""
        return self in {Kind.CSV, Kind.SQLITE}


class TimeUnit(enum.Enum):
    """How the time column is written."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"
    ISO8601 = "iso8601"

    @property
    def seconds(self) -> float:
        """Return the length of one unit in seconds; 1 for written dates."""
        return _SECONDS.get(self, 1.0)


_SECONDS = {TimeUnit.MS: 1e-3, TimeUnit.US: 1e-6, TimeUnit.NS: 1e-9}


class Layout(enum.Enum):
    """Order of the axes of one example."""

    TIME_FIRST = "time-first"
    CHANNEL_FIRST = "channel-first"
    FLAT = "flat"


class TargetRule(enum.Enum):
    """How the rows of a window give it one label, or one set of target values.

    Attributes:
        MAJORITY: The most frequent label; the later one of two equally frequent ones.
        LAST: Label or values of the last row.
        WHOLE: Only windows whose rows all carry one label.
        MEAN: Mean of the values.
    """

    MAJORITY = "majority"
    LAST = "last"
    WHOLE = "whole"
    MEAN = "mean"

    @property
    def is_for_labels(self) -> bool:
        """Tell whether it makes a label."""
        return self is not TargetRule.MEAN

    @property
    def is_for_values(self) -> bool:
        """Tell whether it makes target values."""
        return self in {TargetRule.LAST, TargetRule.MEAN}


class BadRows(enum.Enum):
    """What to do with rows or examples that cannot be used."""

    DROP = "drop"
    REFUSE = "refuse"


def invalid(expected: str, found: str, advice: str = "") -> ConfigError:
    """Return the error for a setting that is not usable."""
    return ConfigError("E-DATA-CONFIG", expected, found, advice or "see docs/data.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which columns mean what.

    Attributes:
        time: Column of the time, or None where rows are evenly spaced and carry none.
        time_unit: How it is written.
        channels: Columns of the model's input, in the model's order.
        label: Column of the label, or None where targets are values.
        targets: Columns of the target values, in the model's order.
        scale: Factor of each channel: a constant of the sensor, never a statistic of the data.
        offset: Added to each channel after scaling.
    """

    time: str | None = None
    time_unit: TimeUnit = TimeUnit.S
    channels: tuple[str, ...]
    label: str | None = None
    targets: tuple[str, ...] = ()
    scale: tuple[float, ...] = ()
    offset: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Check that each column has one meaning.

        Raises:
            ConfigError: E-DATA-CONFIG.
        """
        if not 1 <= len(self.channels) <= MOST_CHANNELS:
            raise invalid(f"1 to {MOST_CHANNELS} channels", str(len(self.channels)))
        if (self.label is None) == (not self.targets):
            found = "neither" if self.label is None else "both"
            raise invalid("either a label column or target columns", found)
        named = self.names
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            raise invalid("each column in one place", f"{', '.join(twice)} in two")
        for what, constants in (("scale", self.scale), ("offset", self.offset)):
            if constants and len(constants) != len(self.channels):
                raise invalid(
                    f"one {what} for each of {len(self.channels)} channels", str(len(constants))
                )
            if not all(math.isfinite(constant) for constant in constants):
                raise invalid(f"finite numbers in {what}", str(list(constants)))

    @property
    def names(self) -> tuple[str, ...]:
        """Return all columns: time, channels, then label or targets."""
        time = () if self.time is None else (self.time,)
        return (*time, *self.channels, *self.target_names)

    @property
    def target_names(self) -> tuple[str, ...]:
        """Return the columns that training needs beside the input."""
        return self.targets if self.label is None else (self.label,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowing:
    """How rows are cut into examples.

    Attributes:
        length: Rows in a window.
        stride: Rows from one window's start to the next one's.
        layout: Order of the axes.
        shape: Shape that an example is given in the end; empty leaves it as the layout says.
        max_gap_s: A longer step in time starts a new window; None takes any step forwards.
        target_rule: How a window gets its label or values.
        is_tokens: Whether examples are int64 rather than float32.
    """

    length: int
    stride: int
    layout: Layout = Layout.TIME_FIRST
    shape: tuple[int, ...] = ()
    max_gap_s: float | None = None
    target_rule: TargetRule = TargetRule.MAJORITY
    is_tokens: bool = False

    def __post_init__(self) -> None:
        """Check ranges.

        Raises:
            ConfigError: E-DATA-CONFIG.
        """
        for what, rows in (("length", self.length), ("stride", self.stride)):
            if not 1 <= rows <= LONGEST_WINDOW:
                raise invalid(f"a window {what} of 1 to {LONGEST_WINDOW} rows", str(rows))
        if self.max_gap_s is not None and not 0 < self.max_gap_s < math.inf:
            raise invalid("a max_gap_s above 0", str(self.max_gap_s))

    def example_shape(self, channels: int) -> tuple[int, ...]:
        """Return the shape of one example.

        Args:
            channels: Number of channels.

        Raises:
            ConfigError: E-DATA-CONFIG: the wanted shape holds another number of values.
        """
        shapes = {
            Layout.TIME_FIRST: (self.length, channels),
            Layout.CHANNEL_FIRST: (channels, self.length),
            Layout.FLAT: (self.length * channels,),
        }
        shape = shapes[self.layout]
        if not self.shape:
            return shape
        if math.prod(self.shape) != math.prod(shape):
            raise invalid(
                f"a window shape of {math.prod(shape)} values ({self.length} rows of "
                f"{channels} channels)",
                str(list(self.shape)),
            )
        return self.shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What the label column may say.

    Attributes:
        classes: Names in the order of the model's classes; empty takes whole numbers from 0.
        unlabelled: Names that mean that a row has no label.
    """

    classes: tuple[str, ...] = ()
    unlabelled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that each name has one meaning.

        Raises:
            ConfigError: E-DATA-CONFIG.
        """
        named = (*self.classes, *self.unlabelled)
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            raise invalid("each label once", f"{', '.join(twice)} twice")
        if len(self.classes) > LARGEST_LABEL + 1:
            raise invalid(f"at most {LARGEST_LABEL + 1} classes", str(len(self.classes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much is read and kept in memory; nothing is ever deleted.

    Attributes:
        most_windows: Only the newest windows are kept.
        most_bytes: Memory for windows; the oldest ones make room.
        most_age_days: Only windows of the last days are kept; None keeps any age.
        most_read_bytes: Only the newest recordings are looked at; bounds the time to read.
    """

    most_windows: int = 10_000
    most_bytes: int = 64 * MEBIBYTE
    most_age_days: float | None = None
    most_read_bytes: int = 128 * MEBIBYTE

    def __post_init__(self) -> None:
        """Check ranges.

        Raises:
            ConfigError: E-DATA-CONFIG.
        """
        for what, most in (
            ("most_windows", self.most_windows),
            ("most_bytes", self.most_bytes),
            ("most_read_bytes", self.most_read_bytes),
        ):
            if not 1 <= most < 2**40:
                raise invalid(f"a {what} of 1 or more", str(most))
        if self.most_age_days is not None and not 0 < self.most_age_days <= 36_500:
            raise invalid("a most_age_days above 0", str(self.most_age_days))

    def capacity(self, example_bytes: int) -> int:
        """Return how many examples are kept at most; at least 1.

        Args:
            example_bytes: Size of one example.

        Raises:
            ConfigError: E-DATA-CONFIG: there is no room for one.
        """
        if example_bytes > self.most_bytes:
            raise invalid(
                f"examples of at most {self.most_bytes} bytes",
                f"{example_bytes} bytes each",
                "take shorter windows, or raise most_bytes in [keep]",
            )
        return min(self.most_windows, self.most_bytes // max(1, example_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat:
    """How text files are written.

    Attributes:
        delimiter: Between fields; None finds it in the header.
        decimal: Between the whole part and the rest of a number.
        encoding: Of the text; in each of those taken, a line ends with the byte 10.
        names: Names of the columns of files that have no header; empty reads the header.
    """

    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that numbers can be told from delimiters.

        Raises:
            ConfigError: E-DATA-CONFIG.
        """
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise invalid("a delimiter of one character", repr(self.delimiter))
        if self.decimal not in {".", ","} or self.decimal == self.delimiter:
            raise invalid("decimal = '.' or ',', and another delimiter", repr(self.decimal))
        if self.encoding not in ENCODINGS:
            raise invalid(f"encoding = {', '.join(ENCODINGS)}", repr(self.encoding))


ENCODINGS: Final = ("utf-8", "ascii", "latin-1", "cp1252")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """One source.

    Attributes:
        kind: What holds the recordings.
        path: File or folder; for Python the folder that file entries are relative to.
        table: Table of a database.
        entry: `file.py:function` or `package.module:function`.
        columns: What the columns mean; None goes by their names.
        windowing: How rows become examples; None goes by the model's input.
        labels: What the label column may say.
        retention: How much is read and kept.
        csv: How text files are written.
        bad_rows: What to do with rows or examples that cannot be used.
        is_described: Whether a settings file says all this, rather than a command line.
    """

    kind: Kind
    path: Path
    table: str = ""
    entry: str = ""
    columns: Columns | None = None
    windowing: Windowing | None = None
    labels: Labels = field(default_factory=Labels)
    retention: Retention = field(default_factory=Retention)
    csv: CsvFormat = field(default_factory=CsvFormat)
    bad_rows: BadRows = BadRows.DROP
    is_described: bool = False

    def __post_init__(self) -> None:
        """Check that the parts fit each other.

        Raises:
            ConfigError: E-DATA-CONFIG.
        """
        needs_time = self.retention.most_age_days is not None or (
            self.windowing is not None and self.windowing.max_gap_s is not None
        )
        if self.columns is not None and self.columns.time is None and needs_time:
            raise invalid("a time column for max_gap_s and most_age_days", "none")
        if self.kind is Kind.PYTHON and self.retention.most_age_days is not None:
            raise invalid(
                "no most_age_days for Python", "one", "let your function leave old rows out"
            )
        if self.columns is not None and self.windowing is not None:
            self.windowing.example_shape(len(self.columns.channels))
            require_rule(self.columns, self.windowing)


def require_rule(columns: Columns, windowing: Windowing) -> None:
    """Refuse a rule that cannot make what the columns hold.

    Raises:
        ConfigError: E-DATA-CONFIG.
    """
    rule = windowing.target_rule
    if columns.label is not None and not rule.is_for_labels:
        raise invalid("label_rule = majority, last or whole for a label", rule.value)
    if columns.targets and not rule.is_for_values:
        raise invalid("label_rule = last or mean for target values", rule.value)
    if windowing.is_tokens and (columns.scale or columns.offset):
        raise invalid("no scale and no offset for int64 values", "one")
