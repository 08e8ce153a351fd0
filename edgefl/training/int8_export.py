"""Puts trained parameters into an int8 model, without the onnx package.

Weights become integers with one scale per channel, biases int32 with the scale of the products
that they are added to. Scales of activations were fixed when the bundle was prepared.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import TrainingError
from edgefl.training.bundle import INT8_SLOTS, INT8_TEMPLATE, Bundle, exported_tensors
from edgefl.training.int8_slots import Encoding, Int8Slot, parse_slots
from edgefl.training.int8_values import Floats, bias_scales, to_integers, weight_scales


def has_int8_model(bundle: Bundle) -> bool:
    """Tell whether a bundle can be exported as an int8 model."""
    return INT8_TEMPLATE in bundle.contents


def export_int8_model(
    bundle: Bundle,
    flat_params: NDArray[np.float32],
    local_params: NDArray[np.float32] | None = None,
) -> bytes:
    """Put parameters into the int8 form of the source model.

    Args:
        bundle: The bundle the parameters belong to.
        flat_params: float32 [d], finite.
        local_params: float32 [local d], finite; None takes the first ones.

    Returns:
        A QDQ model (opset 17) for any ONNX runtime.

    Raises:
        TrainingError: E-BUNDLE-PART (prepared without calibration data), E-BUNDLE-DAMAGED,
            E-PARAMS-SHAPE, E-PARAMS-DTYPE or E-PARAMS-NOT-FINITE.
    """
    template = memoryview(bundle.content(INT8_TEMPLATE))
    tensors = exported_tensors(bundle, flat_params, local_params)
    pieces: list[bytes | memoryview] = []
    position = 0
    try:
        for slot in parse_slots(bundle.content(INT8_SLOTS)):
            if slot.offset > len(template):
                message = f"position {slot.offset} of {len(template)} bytes"
                raise ValueError(message)
            pieces.append(template[position : slot.offset])
            pieces.append(_encode(slot, tensors))
            position = slot.offset
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        raise TrainingError(
            "E-BUNDLE-DAMAGED",
            f"{INT8_SLOTS} that fits the bundle's parameters",
            str(error),
            "prepare the bundle anew with 'edgefl model prepare'",
        ) from error
    pieces.append(template[position:])
    return b"".join(pieces)


@dataclass(frozen=True, slots=True)
class _Rounded:
    integers: NDArray[np.generic]
    scales: Floats


def _encode(slot: Int8Slot, tensors: Mapping[str, Floats]) -> bytes:
    if slot.encoding is Encoding.FLOAT32:
        return tensors[slot.tensor].astype("<f4", copy=False).tobytes()
    is_weight = slot.encoding in {Encoding.WEIGHT, Encoding.WEIGHT_SCALE}
    rounded = _round_weight(slot, tensors) if is_weight else _round_bias(slot, tensors)
    if slot.encoding in {Encoding.WEIGHT, Encoding.BIAS}:
        return rounded.integers.astype(rounded.integers.dtype.newbyteorder("<")).tobytes()
    return rounded.scales.astype("<f4", copy=False).tobytes()


def _round_weight(slot: Int8Slot, tensors: Mapping[str, Floats]) -> _Rounded:
    values = tensors[slot.tensor].reshape(slot.shape)
    axis = None if slot.axis < 0 else slot.axis
    scales = _fixed(slot) if slot.scale else weight_scales(values, axis)
    zero_point = np.array(slot.zero_point, np.uint8 if slot.is_unsigned else np.int8)
    return _Rounded(to_integers(values, scales, axis, zero_point=zero_point), scales)


def _round_bias(slot: Int8Slot, tensors: Mapping[str, Floats]) -> _Rounded:
    values = (
        np.array(slot.frozen_values, np.float32) if slot.frozen_values else tensors[slot.tensor]
    ).reshape(slot.shape)
    products = _fixed(slot)
    if slot.weight:
        weight = tensors[slot.weight].reshape(slot.weight_shape)
        axis = None if slot.axis < 0 else slot.axis
        products = weight_scales(weight, axis) * np.float32(slot.input_scale)
    scales = bias_scales(values, products)
    axis = 0 if scales.ndim else None
    integers = to_integers(values, scales, axis, zero_point=np.zeros((), np.int32))
    return _Rounded(integers, scales)


def _fixed(slot: Int8Slot) -> Floats:
    scales = np.array(slot.scale, np.float32)
    return scales.reshape(()) if scales.size == 1 and slot.axis < 0 else scales
