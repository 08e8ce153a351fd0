"""Judges one reading of a source: does it fit a model, and what looks wrong with it."""

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefl.data.reading import LeftOut, Reading
from edgefl.data.schema import DataSchema
from edgefl.errors import DataError
from edgefl.training.base import TrainingData

_MOST_CHANNELS = 64
_SATURATED_SHARE = 0.01
_PILED_UP = 5
_DISCRETE = 16
_DISTINCT_SAMPLE = 100_000
_LOPSIDED_SHARE = 0.9
_FAULTY_SHARE = 0.05
_FEW_EXAMPLES = 20
_NAMED_CLASSES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRange:
    """One channel of the examples that were kept, as the model sees it.

    Attributes:
        name: Of the channel.
        least: Smallest finite value.
        most: Greatest finite value.
        saturated_share: Share of values that are piled up on the smallest or greatest one, 0 to 1.
        is_discrete: Whether there are so few different values that many lie on the ends anyhow.
        faulty_share: Share of rows looked at whose value was missing or no finite number, 0 to 1.
    """

    name: str
    least: float
    most: float
    saturated_share: float
    is_discrete: bool
    faulty_share: float

    @property
    def is_constant(self) -> bool:
        """Tell whether all values are equal."""
        return self.least == self.most

    @property
    def is_saturated(self) -> bool:
        """Tell whether the sensor seems to be at the end of its range too often."""
        return self.saturated_share > _SATURATED_SHARE and not self.is_discrete


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What is to be said of a reading.

    Attributes:
        classes: Number of examples by class number, up to the highest known one; empty for values.
        channels: Ranges; a single one named `all` where channels are not known.
        memory_bytes: Size of the examples.
        problems: Why the agent could not train on it; empty if it could.
        warnings: What looks wrong.
    """

    classes: tuple[int, ...]
    channels: tuple[ChannelRange, ...]
    memory_bytes: int
    problems: tuple[DataError, ...]
    warnings: tuple[str, ...]


def judge(reading: Reading, schema: DataSchema | None, name: str) -> Findings:
    """Return what is to be said of a reading.

    Args:
        reading: What was read.
        schema: What the model takes; None where no model is given.
        name: How the source is called in messages.
    """
    classes = _class_counts(reading, schema)
    channels = _channel_ranges(reading)
    return Findings(
        classes=classes,
        channels=channels,
        memory_bytes=reading.x.nbytes + reading.y.nbytes,
        problems=tuple(_problems(reading, schema, name)),
        warnings=(
            *_class_warnings(classes, reading, schema),
            *_channel_warnings(channels),
            *_row_warnings(reading),
            *reading.notes,
        ),
    )


def _problems(reading: Reading, schema: DataSchema | None, name: str) -> list[DataError]:
    if len(reading.x) == 0:
        return _caught(lambda: reading.training_data(schema, name))
    unsound = _caught(lambda: TrainingData(x=reading.x, y=reading.y))
    misfits = [] if schema is None else schema.misfits(reading.x, reading.y, name)
    named = {error.code for error in unsound}
    return unsound + [misfit for misfit in misfits if misfit.code not in named]


def _caught(attempt: Callable[[], object]) -> list[DataError]:
    try:
        attempt()
    except DataError as error:
        return [error]
    return []


def _class_counts(reading: Reading, schema: DataSchema | None) -> tuple[int, ...]:
    if reading.y.dtype != np.int64 or len(reading.y) == 0:
        return ()
    known = max(len(reading.class_names), (schema.classes or 0) if schema is not None else 0)
    labels = reading.y[(reading.y >= 0) & (reading.y < 65_536)].astype(np.int64)
    return tuple(np.bincount(labels, minlength=known).tolist())


def _channel_ranges(reading: Reading) -> tuple[ChannelRange, ...]:
    if len(reading.x) == 0:
        return ()
    axis = reading.channel_axis
    x = reading.x
    if axis is None or x.shape[axis] > _MOST_CHANNELS:
        return (_range("all", x.reshape(-1), 0.0),)
    names = reading.channels or tuple(str(number) for number in range(x.shape[axis]))
    rows = max(1, reading.rows)
    return tuple(
        _range(name, np.take(x, number, axis=axis).reshape(-1), _faulty(reading, name) / rows)
        for number, name in enumerate(names)
    )


def _faulty(reading: Reading, name: str) -> int:
    return reading.faulty_values.get(name, 0)


def _range(
    name: str, values: NDArray[np.float32] | NDArray[np.int64], faulty_share: float
) -> ChannelRange:
    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        return ChannelRange(
            name=name,
            least=math.nan,
            most=math.nan,
            saturated_share=0.0,
            is_discrete=True,
            faulty_share=1.0,
        )
    least, most = finite.min(), finite.max()
    piled_up = _piled_up(finite, least) + _piled_up(-finite, -most)
    # A part in even steps, so that a sorted recording shows all its values too.
    sample = finite[:: max(1, len(finite) // _DISTINCT_SAMPLE)]
    return ChannelRange(
        name=name,
        least=float(least),
        most=float(most),
        saturated_share=piled_up / len(finite),
        is_discrete=len(np.unique(sample)) <= _DISCRETE,
        faulty_share=max(faulty_share, 1 - len(finite) / len(values)),
    )


def _piled_up(values: NDArray[np.float32] | NDArray[np.int64], least: np.float32 | np.int64) -> int:
    """Count the values that are the least one; 0 where the next one is almost as frequent.

    A smooth motion dwells near its ends too, but then on many values; a sensor at the end of its
    range gives one value over and over.
    """
    above = values[values > least]
    if len(above) == 0:
        return 0
    at_least = len(values) - len(above)
    at_next = int((above == above.min()).sum())
    return at_least if at_least > _PILED_UP * at_next else 0


def _class_warnings(
    classes: Sequence[int], reading: Reading, schema: DataSchema | None
) -> list[str]:
    if not classes:
        return []
    warnings = []
    total = sum(classes)
    absent = [_class_name(number, reading) for number, count in enumerate(classes) if count == 0]
    if absent and (schema is not None or reading.class_names):
        shown = ", ".join(absent[:_NAMED_CLASSES]) + (
            " ..." if len(absent) > _NAMED_CLASSES else ""
        )
        warnings.append(f"no example of class {shown}; a device need not have all classes")
    if total and max(classes) > _LOPSIDED_SHARE * total and len(classes) > 1:
        largest = _class_name(classes.index(max(classes)), reading)
        warnings.append(f"{max(classes)} of {total} examples are of class {largest}")
    names = len(reading.class_names)
    if schema is not None and schema.classes is not None and names not in {0, schema.classes}:
        warnings.append(f"{names} names of classes for a model of {schema.classes}")
    if total < _FEW_EXAMPLES:
        warnings.append(f"only {total} examples; one update from so few says little")
    return warnings


def _class_name(number: int, reading: Reading) -> str:
    known = number < len(reading.class_names)
    return f"{number} ({reading.class_names[number]})" if known else str(number)


def _channel_warnings(channels: Sequence[ChannelRange]) -> list[str]:
    warnings = []
    for channel in channels:
        if channel.is_constant:
            warnings.append(f"channel {channel.name} never changes; is the sensor connected?")
        if channel.is_saturated:
            share = f"{100 * channel.saturated_share:.0f} %"
            warnings.append(
                f"channel {channel.name} is at an end of its range in {share} of its values; "
                "a wider range of the sensor would not cut them"
            )
        if channel.faulty_share > _FAULTY_SHARE:
            share = f"{100 * channel.faulty_share:.0f} %"
            warnings.append(f"channel {channel.name} has no finite number in {share} of the rows")
    return warnings


def _row_warnings(reading: Reading) -> list[str]:
    warnings = []
    if reading.clock_steps:
        warnings.append(
            f"time went backwards {reading.clock_steps} times (a clock that was set, or unsorted "
            "rows); no window spans such a step"
        )
    if reading.skipped_bytes:
        warnings.append(
            f"{reading.skipped_bytes} bytes of older recordings were not looked at "
            "(most_read_bytes in [keep])"
        )
    unlabelled = reading.left_out.get(LeftOut.UNLABELLED, 0)
    if reading.rows and unlabelled == reading.rows:
        warnings.append("no row has a label; training needs them")
    for name, count in sorted(reading.unknown_labels.items(), key=lambda entry: -entry[1])[:5]:
        near = difflib.get_close_matches(name, reading.class_names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        warnings.append(f"label {name!r} of {count} rows is not in the list of classes{hint}")
    return warnings
