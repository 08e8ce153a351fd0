"""What reading a source once gave: examples, and what was left out and why."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgefl.data.schema import DataSchema
from edgefl.errors import DataError
from edgefl.training.base import Inputs, Targets, TrainingData


class LeftOut(enum.Enum):
    """Why something was not made into an example; the value is how it is called to a person."""

    GARBLED = "rows that are not text"
    WIDTH = "rows with another number of fields"
    NOT_A_NUMBER = "rows with a field that is not a number"
    MISSING_VALUE = "rows with a missing value, NaN or infinity"
    BAD_TIME = "rows whose time is not readable"
    UNLABELLED = "rows without a label"
    UNKNOWN_LABEL = "rows with a label outside the list of classes"
    UNFINISHED = "last lines or files that are still being written"
    SHORT_RUN = "rows in runs too short for a window"
    MIXED_LABELS = "windows with more than one label"
    BAD_EXAMPLE = "examples with NaN or infinity"
    BAD_FILE = "files that cannot be used"
    TOO_OLD = "windows older than the retention limit"
    TOO_MANY = "windows beyond the retention limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Examples of one pass over a source; there may be none.

    Attributes:
        x: float32 or int64 [n, ...], oldest first.
        y: int64 [n] or float32 [n, k]; if they were not needed, -1 or NaN where unknown.
        rows: Rows looked at; 0 for sources of ready examples.
        files: Files looked at.
        left_out: How much was left out, by reason.
        first_places: Where that was first seen, by reason: file and line.
        clock_steps: How often time went backwards.
        skipped_bytes: Older bytes that were not looked at, because of the limit on reading; of a
            table an estimate.
        first_time_s: Seconds since 1970 of the oldest example's start; None without times.
        last_time_s: Seconds since 1970 of the newest example's end; None without times.
        spans_s: float64 [n, 2]: start and end of each example, in seconds; None without times.
        channels: Names of the channels, or empty where the source has none.
        class_names: Names of the classes in their order, or empty where labels are numbers.
        channel_axis: Axis of x that counts the channels; None if it is not known.
        faulty_values: By channel, values that were no finite numbers.
        unknown_labels: By name, rows that carry a label outside the list of classes.
        notes: Further remarks for a person.
    """

    x: Inputs
    y: Targets
    rows: int = 0
    files: int = 0
    left_out: Mapping[LeftOut, int] = field(default_factory=dict)
    first_places: Mapping[LeftOut, str] = field(default_factory=dict)
    clock_steps: int = 0
    skipped_bytes: int = 0
    first_time_s: float | None = None
    last_time_s: float | None = None
    spans_s: NDArray[np.float64] | None = None
    channels: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    channel_axis: int | None = None
    faulty_values: Mapping[str, int] = field(default_factory=dict)
    unknown_labels: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def left_out_text(self) -> str:
        """Return what was left out as a phrase; empty if nothing was."""
        counted = [(reason, count) for reason, count in self.left_out.items() if count]
        return ", ".join(f"{reason.value}: {count}" for reason, count in counted)

    def training_data(self, schema: DataSchema | None, name: str) -> TrainingData:
        """Return the examples for training.

        Args:
            schema: What the model takes; None checks only that the data are sound.
            name: How the source is called in messages.

        Raises:
            DataError: E-DATA-EMPTY, or the data are not sound or do not fit.
        """
        self.require_any(name)
        data = TrainingData(x=self.x, y=self.y)
        return data if schema is None else schema.require(data, name)

    def require_any(self, name: str) -> None:
        """Refuse a reading without an example.

        Args:
            name: How the source is called in messages.

        Raises:
            DataError: E-DATA-EMPTY, with what was left out.
        """
        if len(self.x) == 0:
            found = f"none in {name}"
            reasons = self.left_out_text()
            raise DataError(
                "E-DATA-EMPTY",
                "at least one example",
                f"{found} ({self.rows} rows; {reasons})" if reasons else found,
                "'edgefl data check' shows what is found; collect data before joining a round",
            )
