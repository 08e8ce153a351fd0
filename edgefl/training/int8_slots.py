"""Where an int8 model's template has holes, and what training fills into each."""

import enum
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from edgefl.training.json_fields import Fields

_FORMAT = 1
_LARGEST = 3.4e38


class Encoding(enum.Enum):
    """What a hole takes.

    Attributes:
        FLOAT32: The tensor as it is.
        WEIGHT: The tensor in integers.
        WEIGHT_SCALE: The scales of those integers, which follow the tensor.
        BIAS: The tensor in int32.
        BIAS_SCALE: The scales of those integers.
    """

    FLOAT32 = "float32"
    WEIGHT = "weight"
    WEIGHT_SCALE = "weight_scale"
    BIAS = "bias"
    BIAS_SCALE = "bias_scale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Slot:
    """One hole of the template.

    Attributes:
        offset: Its byte position in the template, which lacks the hole's bytes.
        encoding: What it takes.
        tensor: Name of the trained tensor; of a bias that is frozen while its weight is trained,
            the name of that bias.
        shape: Shape of the tensor.
        axis: Axis of the tensor (for a bias: of its weight) with one scale per index; -1 for one
            scale.
        scale: Of a weight: its fixed scales. Of a bias: the fixed scales of the products that it
            is added to. Empty if they follow a trained weight.
        zero_point: Integers of a weight that stand for 0.0: one, or one per channel.
        is_unsigned: Whether a weight's integers are uint8 instead of int8.
        weight: Name of the trained weight that a bias's scales follow; empty without one.
        weight_shape: Its shape.
        input_scale: Factor from that weight's scales to the bias's.
        frozen_values: Values of a frozen bias; empty if it is trained.
    """

    offset: int
    encoding: Encoding
    tensor: str
    shape: tuple[int, ...]
    axis: int = -1
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = (0,)
    is_unsigned: bool = False
    weight: str = ""
    weight_shape: tuple[int, ...] = ()
    input_scale: float = 1.0
    frozen_values: tuple[float, ...] = ()


def write_slots(slots: Sequence[Int8Slot]) -> bytes:
    """Return canonical JSON that `parse_slots` reads."""
    listed = [{**asdict(slot), "encoding": slot.encoding.value} for slot in slots]
    document = {"format": _FORMAT, "slots": listed}
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def parse_slots(slots_json: bytes) -> tuple[Int8Slot, ...]:
    """Read the list of holes, trusting nothing.

    Raises:
        ValueError: Not JSON, a field is missing or of the wrong type, holes out of order, or scales
            that do not fit the tensor's shape.
    """
    try:
        document = json.loads(slots_json)
    except (UnicodeDecodeError, RecursionError) as error:
        message = "the list of int8 slots is not JSON text"
        raise ValueError(message) from error
    fields = Fields(document, "int8 slots")
    if fields.integer("format") != _FORMAT:
        message = f"int8 slots of format {_FORMAT} are known, not {fields.integer('format')}"
        raise ValueError(message)
    slots = tuple(_parse_slot(entry) for entry in fields.sequence("slots"))
    offsets = [slot.offset for slot in slots]
    if offsets != sorted(offsets):
        message = "int8 slots out of order"
        raise ValueError(message)
    return slots


def _parse_slot(entry: object) -> Int8Slot:
    fields = Fields(entry, "int8 slot")
    shape = fields.shape("shape")
    axis = _whole_numbers([fields.member("axis")], "axis")[0]
    if not -1 <= axis < 32:
        message = f"int8 slot with axis {axis}"
        raise ValueError(message)
    scale = _numbers(fields.sequence("scale"), "scale")
    zero_point = _whole_numbers(fields.sequence("zero_point"), "zero_point")
    if any(step <= 0.0 for step in scale) or not all(-128 <= zero <= 255 for zero in zero_point):
        message = "int8 slot with a scale or zero point out of range"
        raise ValueError(message)
    slot = Int8Slot(
        offset=fields.integer("offset"),
        encoding=fields.choice("encoding", Encoding),
        tensor=fields.text("tensor"),
        shape=shape,
        axis=axis,
        scale=scale,
        zero_point=zero_point,
        is_unsigned=fields.flag("is_unsigned"),
        weight=fields.text("weight"),
        weight_shape=fields.shape("weight_shape"),
        input_scale=fields.number("input_scale"),
        frozen_values=_numbers(fields.sequence("frozen_values"), "frozen_values"),
    )
    _require_channels(slot)
    return slot


def _require_channels(slot: Int8Slot) -> None:
    """Refuse lists that would broadcast a small tensor to a huge one."""
    is_weight = slot.encoding in {Encoding.WEIGHT, Encoding.WEIGHT_SCALE}
    scaled = slot.shape if is_weight else slot.weight_shape
    if (is_weight or slot.weight) and slot.axis >= len(scaled):
        message = f"int8 slot for '{slot.tensor}' with axis {slot.axis} of shape {slot.shape}"
        raise ValueError(message)
    # The axis of a bias is its weight's; its own values lie along the first one.
    own_axis = slot.axis if is_weight else 0
    channels = slot.shape[own_axis] if slot.axis >= 0 and slot.shape else 1
    if {len(slot.scale), len(slot.zero_point)} - {0, 1, channels} or not slot.zero_point:
        message = f"int8 slot for '{slot.tensor}' with scales for other than {channels} channels"
        raise ValueError(message)


def _numbers(values: Sequence[object], name: str) -> tuple[float, ...]:
    numbers: list[float] = []
    for value in values:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        number = value if isinstance(value, int | float) else 0
        if not is_number or not -_LARGEST <= number <= _LARGEST:
            message = f"int8 slot field '{name}' is not a list of float32 numbers"
            raise ValueError(message)
        numbers.append(float(number))
    return tuple(numbers)


def _whole_numbers(values: Sequence[object], name: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int):
            message = f"int8 slot field '{name}' holds something else than whole numbers"
            raise ValueError(message)
        numbers.append(value)
    return tuple(numbers)
