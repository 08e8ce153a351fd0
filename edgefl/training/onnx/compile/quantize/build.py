"""Writes a plan into a graph: rounding between layers, and weights as integers or as if rounded."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper, shape_inference

from edgefl.training.int8_values import (
    LARGEST_INT8,
    SMALLEST_SCALE,
    ActivationScale,
    Floats,
    bias_scales,
    to_integers,
    weight_scales,
)
from edgefl.training.onnx.compile.quantize.plan import BiasPlan, RoundingPlan, WeightPlan


class Hold(enum.Enum):
    """How a graph holds a planned weight or bias.

    Attributes:
        INTEGERS: As an integer initializer: frozen, or to be deployed.
        ROUNDED: As float32 that the graph rounds before each use: trained.
        FLOAT: As float32, used as it is: trained biases.
    """

    INTEGERS = "integers"
    ROUNDED = "rounded"
    FLOAT = "float"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldIntegers:
    """Names of the initializers that replaced a float one.

    Attributes:
        plan: What was planned for it.
        integers: Its integers.
        scales: Their scales.
    """

    plan: WeightPlan | BiasPlan
    integers: str
    scales: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModel:
    """A model in which a plan was carried out.

    Attributes:
        model: The model, with inferred shapes.
        held: What became integer initializers.
    """

    model: onnx.ModelProto
    held: tuple[HeldIntegers, ...]


def build(
    model: onnx.ModelProto, plan: RoundingPlan, holds: Mapping[str, Hold] | None = None
) -> BuiltModel:
    """Carry out a plan.

    Args:
        model: The normalized float model that the plan was made for; it is not changed.
        plan: What becomes int8.
        holds: By name of a weight or bias; INTEGERS where none is given.

    Returns:
        A model with the same input and outputs. Values keep their names before rounding.
    """
    builder = _Builder(model)
    builder.round_activations(plan.activations)
    chosen = holds or {}
    for weight in plan.weights:
        builder.hold_weight(weight, chosen.get(weight.name, Hold.INTEGERS))
    for bias in plan.biases:
        if chosen.get(bias.name, Hold.INTEGERS) is Hold.INTEGERS:
            builder.hold_bias(bias)
    return BuiltModel(model=builder.finish(), held=tuple(builder.held))


@dataclass(slots=True)
class _Edits:
    """Nodes to put before all others, and after the node that makes a value."""

    first: list[onnx.NodeProto] = field(default_factory=list)
    after: dict[str, list[onnx.NodeProto]] = field(default_factory=dict)


class _Builder:
    def __init__(self, source: onnx.ModelProto) -> None:
        self._model = onnx.ModelProto()
        self._model.CopyFrom(source)
        self._graph = self._model.graph
        self._values = {t.name: numpy_helper.to_array(t) for t in self._graph.initializer}
        self._weight_scales: dict[str, Floats] = {}
        self._taken = set(self._values) | {value.name for value in self._graph.input}
        self._taken.update(output for node in self._graph.node for output in node.output)
        self._edits = _Edits()
        self._original_readers = [list(node.input) for node in self._graph.node]
        self.held: list[HeldIntegers] = []

    def _new_name(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name

    def _constant(self, name: str, value: NDArray[np.generic] | np.generic) -> str:
        unique = self._new_name(name)
        array = np.asarray(value, order="C")
        self._graph.initializer.append(numpy_helper.from_array(array, unique))
        return unique

    def _node(
        self, op_type: str, inputs: Iterable[str], output: str, axis: int | None = None
    ) -> onnx.NodeProto:
        name = self._new_name(output)
        node = helper.make_node(op_type, list(inputs), [name], name=f"{name}_node")
        if axis is not None:
            node.attribute.append(helper.make_attribute("axis", axis))
        return node

    # ------------------------------------------------------------ activations

    def round_activations(self, scales: Mapping[str, ActivationScale]) -> None:
        """Put QuantizeLinear and DequantizeLinear between each value and its readers."""
        for name, chosen in scales.items():
            scale = self._constant(f"{name}_scale", np.float32(chosen.scale))
            zero_point = self._constant(f"{name}_zero_point", np.int8(chosen.zero_point))
            down = self._node("QuantizeLinear", [name, scale, zero_point], f"{name}_quantized")
            up = self._node(
                "DequantizeLinear", [down.output[0], scale, zero_point], f"{name}_dequantized"
            )
            self._redirect(name, up.output[0])
            self._edits.after.setdefault(name, []).extend([down, up])

    def _redirect(self, name: str, to: str, reader: str | None = None) -> None:
        for node, inputs in zip(self._graph.node, self._original_readers, strict=True):
            if reader is None or node.output[0] == reader:
                for index, value in enumerate(inputs):
                    if value == name:
                        node.input[index] = to

    # ------------------------------------------------------------ weights

    def hold_weight(self, plan: WeightPlan, hold: Hold) -> None:
        """Let the reader of a weight read it through integers."""
        values = self._values[plan.name].astype(np.float32)
        fixed = weight_scales(values, plan.axis) if plan.scale is None else plan.scale
        self._weight_scales[plan.name] = fixed
        kind = np.zeros((), np.int8) if plan.zero_point is None else plan.zero_point
        zero = np.broadcast_to(kind, fixed.shape).copy()
        axis = None if fixed.ndim == 0 else plan.axis
        zero_point = self._constant(f"{plan.name}_zero_point", zero)
        if hold is Hold.INTEGERS:
            scale = self._constant(f"{plan.name}_scale", fixed)
            integers = to_integers(values, fixed, axis, zero_point=zero)
            name = self._constant(f"{plan.name}_quantized", integers)
            self.held.append(HeldIntegers(plan=plan, integers=name, scales=scale))
        else:
            scale = (
                self._following_scale(plan)
                if plan.scale is None
                else self._constant(f"{plan.name}_scale", fixed)
            )
            down = self._node(
                "QuantizeLinear", [plan.name, scale, zero_point], f"{plan.name}_quantized", axis
            )
            self._edits.first.append(down)
            name = down.output[0]
        up = self._node(
            "DequantizeLinear", [name, scale, zero_point], f"{plan.name}_dequantized", axis
        )
        self._edits.first.append(up)
        self._redirect(plan.name, up.output[0], plan.reader)

    def _following_scale(self, plan: WeightPlan) -> str:
        """Emit the scale at which the present largest value of each channel just fits."""
        sizes = self._node("Abs", [plan.name], f"{plan.name}_size")
        largest = self._node("ReduceMax", [sizes.output[0]], f"{plan.name}_largest")
        if plan.axis is not None:
            rank = self._values[plan.name].ndim
            axes = [index for index in range(rank) if index != plan.axis % rank]
            largest.attribute.append(helper.make_attribute("axes", axes))
        largest.attribute.append(helper.make_attribute("keepdims", 0))
        inverse = self._constant("inverse_of_largest_int8", np.float32(1 / LARGEST_INT8))
        steps = self._node("Mul", [largest.output[0], inverse], f"{plan.name}_step")
        smallest = self._constant("smallest_scale", SMALLEST_SCALE)
        scale = self._node("Max", [steps.output[0], smallest], f"{plan.name}_scale")
        self._edits.first += [sizes, largest, steps, scale]
        return str(scale.output[0])

    def hold_bias(self, plan: BiasPlan) -> None:
        """Let the reader of a bias read it through int32."""
        values = self._values[plan.name].astype(np.float32)
        products = plan.scale
        if products is None:
            products = self._weight_scales[plan.weight or ""] * np.float32(plan.input_scale)
        fixed = bias_scales(values, products)
        axis = None if fixed.ndim == 0 else 0
        zero = np.zeros(fixed.shape, np.int32)
        integers = to_integers(values, fixed, axis, zero_point=zero)
        name = self._constant(f"{plan.name}_quantized", integers)
        scale = self._constant(f"{plan.name}_scale", fixed)
        zero_point = self._constant(f"{plan.name}_zero_point", zero)
        up = self._node(
            "DequantizeLinear", [name, scale, zero_point], f"{plan.name}_dequantized", axis
        )
        self._edits.first.append(up)
        self._redirect(plan.name, up.output[0], plan.reader)
        self.held.append(HeldIntegers(plan=plan, integers=name, scales=scale))

    # ------------------------------------------------------------ the end

    def finish(self) -> onnx.ModelProto:
        """Put the nodes in order, drop what nothing reads, and infer shapes anew."""
        after = self._edits.after
        nodes = list(self._edits.first)
        for value in self._graph.input:
            nodes += after.get(value.name, [])
        for node in self._graph.node:
            nodes.append(node)
            for output in node.output:
                nodes += after.get(output, [])
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del self._graph.node[:]
        self._graph.node.extend(copies)
        read = {value for node in copies for value in node.input}
        kept = [t for t in self._graph.initializer if t.name in read]
        tensors = [onnx.TensorProto.FromString(t.SerializeToString()) for t in kept]
        del self._graph.initializer[:]
        self._graph.initializer.extend(tensors)
        del self._graph.value_info[:]
        return shape_inference.infer_shapes(self._model, strict_mode=True, data_prop=True)
