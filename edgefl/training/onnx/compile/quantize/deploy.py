"""Makes the int8 template of a bundle: the deployed model with holes for what is trained."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import numpy_helper

from edgefl.training.bundle import INT8_SLOTS, INT8_TEMPLATE
from edgefl.training.int8_slots import Encoding, Int8Slot, write_slots
from edgefl.training.int8_values import Floats, weight_scales
from edgefl.training.onnx.compile.quantize.build import BuiltModel, HeldIntegers, build
from edgefl.training.onnx.compile.quantize.plan import BiasPlan, RoundingPlan, WeightPlan
from edgefl.training.onnx.compile.template import cut_values


def int8_files(
    model: onnx.ModelProto, plan: RoundingPlan, changed: Collection[str]
) -> dict[str, bytes]:
    """Return the template of the deployed model and the list of its holes.

    Args:
        model: Normalized float model with the first values of all tensors.
        plan: What becomes int8.
        changed: Names of the float initializers whose values training changes.

    Returns:
        Content by file name.
    """
    built = build(model, plan)
    values = {
        tensor.name: numpy_helper.to_array(tensor).astype(np.float32)
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
    }
    slots = _slots(built, values, frozenset(changed))
    for tensor in built.model.graph.initializer:
        if tensor.name in slots:
            array = numpy_helper.to_array(tensor)
            little = array.astype(array.dtype.newbyteorder("<"))
            tensor.CopyFrom(numpy_helper.from_array(little, tensor.name))
    template = cut_values(built.model.SerializeToString(deterministic=True), slots)
    placed = [
        replace(slots[name], offset=offset) for name, offset in template.splice_offsets.items()
    ]
    return {INT8_TEMPLATE: template.template, INT8_SLOTS: write_slots(placed)}


def _slots(
    built: BuiltModel, values: Mapping[str, Floats], changed: frozenset[str]
) -> dict[str, Int8Slot]:
    """Return what goes into each initializer of the deployed model that training changes."""
    slots = {
        tensor.name: Int8Slot(
            offset=0, encoding=Encoding.FLOAT32, tensor=tensor.name, shape=tuple(tensor.dims)
        )
        for tensor in built.model.graph.initializer
        if tensor.name in changed
    }
    weights = {
        held.plan.name: held.plan for held in built.held if isinstance(held.plan, WeightPlan)
    }
    for held in built.held:
        if isinstance(held.plan, WeightPlan):
            if held.plan.name in changed:
                slots |= _weight_slots(held, held.plan, values)
        else:
            weight = weights.get(held.plan.weight or "")
            follows = weight is not None and weight.name in changed and weight.scale is None
            if follows or held.plan.name in changed:
                bias = _bias_slot(held.plan, weight, values, changed, follows=follows)
                slots |= _pair(held, bias, Encoding.BIAS, Encoding.BIAS_SCALE)
    return slots


def _weight_slots(
    held: HeldIntegers, plan: WeightPlan, values: Mapping[str, Floats]
) -> dict[str, Int8Slot]:
    zero_point = np.zeros((), np.int8) if plan.zero_point is None else plan.zero_point
    slot = Int8Slot(
        offset=0,
        encoding=Encoding.WEIGHT,
        tensor=plan.name,
        shape=values[plan.name].shape,
        axis=_axis(plan, values),
        scale=() if plan.scale is None else _listed(plan.scale),
        zero_point=tuple(int(value) for value in zero_point.reshape(-1)),
        is_unsigned=zero_point.dtype == np.uint8,
    )
    if plan.scale is not None:
        return {held.integers: slot}
    return _pair(held, slot, Encoding.WEIGHT, Encoding.WEIGHT_SCALE)


def _bias_slot(
    plan: BiasPlan,
    weight: WeightPlan | None,
    values: Mapping[str, Floats],
    changed: frozenset[str],
    *,
    follows: bool,
) -> Int8Slot:
    slot = Int8Slot(
        offset=0,
        encoding=Encoding.BIAS,
        tensor=plan.name,
        shape=values[plan.name].shape,
        axis=-1 if weight is None else _axis(weight, values),
        frozen_values=() if plan.name in changed else _listed(values[plan.name]),
    )
    if follows and weight is not None:
        return replace(
            slot,
            weight=weight.name,
            weight_shape=values[weight.name].shape,
            input_scale=plan.input_scale,
        )
    if plan.scale is not None:
        axis = 0 if plan.scale.ndim else -1
        return replace(slot, axis=axis, scale=_listed(plan.scale))
    if weight is None:
        message = f"bias '{plan.name}' has no scale"
        raise ValueError(message)
    fixed = weight.scale
    if fixed is None:
        fixed = weight_scales(values[weight.name], weight.axis)
    return replace(slot, scale=_listed(fixed * np.float32(plan.input_scale)))


def _pair(
    held: HeldIntegers, slot: Int8Slot, integers: Encoding, scales: Encoding
) -> dict[str, Int8Slot]:
    return {
        held.integers: replace(slot, encoding=integers),
        held.scales: replace(slot, encoding=scales),
    }


def _axis(plan: WeightPlan, values: Mapping[str, Floats]) -> int:
    is_one_scale = plan.axis is None or (plan.scale is not None and plan.scale.ndim == 0)
    return -1 if is_one_scale else (plan.axis or 0) % values[plan.name].ndim


def _listed(values: Floats) -> tuple[float, ...]:
    return tuple(float(value) for value in values.reshape(-1))
