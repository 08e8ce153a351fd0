"""Short spellings: what columns and windows mean where no settings file says it.

Columns go by their names: `time_s`, `time_ms`, `time_us`, `time_ns` or `time` (ISO 8601) is the
time, `label` the label, names that begin with `target` are target values, and all others are
channels in their order. Windows do not overlap and are as long as the model's input; as long as
no model is known, each row is looked at by itself.
"""

from collections.abc import Sequence
from typing import Final

from edgefl.data.schema import DataSchema
from edgefl.data.settings import Columns, Layout, TargetRule, TimeUnit, Windowing
from edgefl.errors import DataError

LABEL: Final = "label"
_TARGET: Final = "target"
_TIMES: Final = {
    "time_s": TimeUnit.S,
    "time_ms": TimeUnit.MS,
    "time_us": TimeUnit.US,
    "time_ns": TimeUnit.NS,
    "time": TimeUnit.ISO8601,
}
_ADVICE = "name columns and windows in a settings file (docs/data.md)"


def implied_columns(names: Sequence[str], where: str, *, needs_targets: bool = True) -> Columns:
    """Return what columns mean by their names.

    Args:
        names: Of the columns.
        where: File or table, for messages.
        needs_targets: Whether there must be a label or values.

    Raises:
        DataError: E-DATA-COLUMN: there is no label, or no channel.
    """
    times = [name for name in names if name in _TIMES]
    targets = tuple(name for name in names if name.startswith(_TARGET))
    has_label = LABEL in names or not (targets or needs_targets)
    taken = {*times, *targets, LABEL}
    channels = tuple(name for name in names if name not in taken)
    if not channels or has_label == bool(targets):
        raise DataError(
            "E-DATA-COLUMN",
            f"channels and either a column 'label' or columns 'target...' in {where}",
            ", ".join(repr(name) for name in names[:20])[:300],
            _ADVICE,
        )
    return Columns(
        time=times[0] if times else None,
        time_unit=_TIMES[times[0]] if times else TimeUnit.S,
        channels=channels,
        label=LABEL if has_label else None,
        targets=targets,
    )


def implied_windowing(columns: Columns, schema: DataSchema | None, where: str) -> Windowing:
    """Return windows that give examples of the model's shape; single rows where none is known.

    Args:
        columns: What the columns mean.
        schema: What the model takes.
        where: File or table, for messages.

    Raises:
        DataError: E-DATA-WINDOW: the model's input has another number of channels.
    """
    length, layout = 1, Layout.TIME_FIRST
    if schema is not None:
        length, layout = _cut(schema, len(columns.channels), where)
    return Windowing(
        length=length,
        stride=length,
        layout=layout,
        target_rule=TargetRule.LAST if columns.targets else TargetRule.MAJORITY,
        is_tokens=schema is not None and schema.takes_tokens,
    )


def _cut(schema: DataSchema, channels: int, where: str) -> tuple[int, Layout]:
    shape = schema.input_shape
    if len(shape) == 2 and shape[1] == channels:
        return shape[0], Layout.TIME_FIRST
    if len(shape) == 2 and shape[0] == channels:
        return shape[1], Layout.CHANNEL_FIRST
    if len(shape) == 1 and shape[0] % channels == 0:
        return shape[0] // channels, Layout.FLAT
    raise DataError(
        "E-DATA-WINDOW",
        f"as many channels as the model's input {list(shape)} has",
        f"{channels} in {where}",
        _ADVICE,
    )
