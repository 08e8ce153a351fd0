"""Appends nodes and constants to a forward graph and knows the shape of its values."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe
from edgefl.training.onnx.names import PREFIX

Shape = tuple[int | None, ...]
"""Static sizes; None stands for the batch axis, whose size is known only at run time."""

AttributeValue = int | float | str | Sequence[int] | onnx.GraphProto


class GraphEmitter:
    """Collects the nodes of the backward pass.

    Attributes:
        nodes: Emitted nodes in execution order.
        constants: Emitted constants; equal ones are shared.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        """Learn the shapes of a model's values.

        Args:
            model: Forward model after shape inference.
        """
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._count = 0
        self._constant_names: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._shapes = known_shapes(model)
        self._types = known_types(model)
        self._initializers = {tensor.name: tensor for tensor in model.graph.initializer}

    def known_shape(self, value: str) -> Shape | None:
        """Return what is known of a forward value's shape; None when not even its rank is."""
        return self._shapes.get(value)

    def element_type_of(self, value: str) -> int:
        """Return a forward value's `TensorProto.DataType`; UNDEFINED when it is not known."""
        return self._types.get(value, int(onnx.TensorProto.UNDEFINED))

    def constant_value(self, value: str) -> NDArray[np.generic] | None:
        """Return the values of a forward initializer, or None for anything computed or fed."""
        tensor = self._initializers.get(value)
        return None if tensor is None else np.asarray(numpy_helper.to_array(tensor))

    def shape_of(self, value: str, node: onnx.NodeProto) -> Shape:
        """Return a value's shape.

        Args:
            value: Name of a value of the forward model.
            node: The node whose gradient needs it; named in the error.

        Returns:
            Sizes; at most one is None, wherever the batch axis has been moved to.

        Raises:
            TrainingError: E-MODEL-SHAPE when more than the batch axis is unknown.
        """
        shape = self._shapes.get(value)
        if shape is None or shape.count(None) > 1:
            found = "an unknown rank" if shape is None else str(_readable(shape))
            raise TrainingError(
                "E-MODEL-SHAPE",
                f"a static shape past the batch axis for '{value}'",
                f"{found}, needed by {describe(node)}",
                "export the model with fixed sizes; only the batch axis may vary",
            )
        return shape

    @contextmanager
    def assumed_shape(self, value: str, shape: Shape) -> Iterator[None]:
        """Let rules take a value for one of another shape that it broadcasts to.

        A rule then sums the gradient over fewer axes: over all but the batch axis for a parameter
        that is taken for one copy per example.
        """
        known = self._shapes[value]
        self._shapes[value] = shape
        try:
            yield
        finally:
            self._shapes[value] = known

    def emit(self, op_type: str, *inputs: str, **attributes: AttributeValue) -> str:
        """Append a node of the standard domain.

        Args:
            op_type: Operator.
            *inputs: Names of its inputs.
            **attributes: Its attributes.

        Returns:
            The name of its single output.
        """
        return self.emit_outputs(op_type, inputs, 1, **attributes)[0]

    def emit_outputs(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: int,
        **attributes: AttributeValue,
    ) -> list[str]:
        """Append a node with any number of outputs and return their names; see `emit`."""
        self._count += 1
        name = f"{PREFIX}{self._count}.{op_type}"
        results = [name, *(f"{name}.{index}" for index in range(1, outputs))]
        node = helper.make_node(op_type, list(inputs), results, name=name)
        for key, value in attributes.items():
            node.attribute.append(helper.make_attribute(key, value))
        self.nodes.append(node)
        return results

    def new_name(self, what: str) -> str:
        """Return a value name that nothing else has, for the inputs of a subgraph."""
        self._count += 1
        return f"{PREFIX}{self._count}.{what}"

    @contextmanager
    def subgraph(self) -> Iterator[list[onnx.NodeProto]]:
        """Collect the nodes emitted inside the block apart, as the body of a Scan.

        Constants still go to the outer graph: a body may read every outer value.

        Yields:
            The list that receives the nodes.
        """
        outer, self.nodes = self.nodes, []
        try:
            yield self.nodes
        finally:
            self.nodes = outer

    def constant(self, value: NDArray[np.generic]) -> str:
        """Return the name of a constant tensor, made once for equal values."""
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._constant_names:
            name = f"{PREFIX}constant.{len(self._constant_names)}"
            self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
            self._constant_names[key] = name
        return self._constant_names[key]

    def int64s(self, values: Sequence[int]) -> str:
        """Return the name of an int64 [n] constant, as axes and shapes are given."""
        return self.constant(np.array(values, np.int64))

    def float32(self, value: float) -> str:
        """Return the name of a float32 scalar constant."""
        return self.constant(np.array(value, np.float32))

    def reduce_sum(self, value: str, axes: Sequence[int]) -> str:
        """Sum over the axes and drop them."""
        return self.emit("ReduceSum", value, self.int64s(axes), keepdims=0)

    def reshape(self, value: str, shape: Shape) -> str:
        """Give a value another shape; None becomes whatever is left."""
        return self.emit("Reshape", value, self.int64s([-1 if s is None else s for s in shape]))

    def sum_to_shape(self, gradient: str, broadcast: Shape, original: Shape) -> str:
        """Undo broadcasting: sum a gradient over the axes along which its operand was repeated.

        Args:
            gradient: Gradient of the broadcast result.
            broadcast: Its shape.
            original: Shape of the operand.

        Returns:
            A gradient of shape `original`.
        """
        leading = len(broadcast) - len(original)
        repeated = [
            leading + axis
            for axis, size in enumerate(original)
            if size == 1 and broadcast[leading + axis] != 1
        ]
        axes = [*range(leading), *repeated]
        if not axes:
            return gradient
        if not leading:
            return self.emit("ReduceSum", gradient, self.int64s(repeated), keepdims=1)
        summed = self.reduce_sum(gradient, axes)
        return self.reshape(summed, original) if repeated else summed


def values_read_by(node: onnx.NodeProto) -> set[str]:
    """Return the inputs of a node, with the outer values that its subgraphs read."""
    read = set(node.input)
    for body in (attribute.g for attribute in node.attribute if attribute.HasField("g")):
        inside = {value for inner in body.node for value in values_read_by(inner)}
        inside.update(value.name for value in body.output)
        made = {value for inner in body.node for value in inner.output}
        made.update(value.name for value in [*body.input, *body.initializer])
        read |= inside - made
    return read


def known_shapes(model: onnx.ModelProto) -> dict[str, Shape]:
    """Return the shape of each value after shape inference; None stands for the batch axis."""
    graph = model.graph
    shapes: dict[str, Shape] = {}
    for value in [*graph.input, *graph.value_info, *graph.output]:
        tensor = value.type.tensor_type
        if tensor.HasField("shape"):
            shapes[value.name] = tuple(
                dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim
            )
    for initializer in graph.initializer:
        shapes[initializer.name] = tuple(initializer.dims)
    return shapes


def known_types(model: onnx.ModelProto) -> dict[str, int]:
    """Return the `TensorProto.DataType` of each value after shape inference."""
    graph = model.graph
    types = {
        value.name: int(value.type.tensor_type.elem_type)
        for value in [*graph.input, *graph.value_info, *graph.output]
    }
    return types | {tensor.name: int(tensor.data_type) for tensor in graph.initializer}


def _readable(shape: Shape) -> list[int | str]:
    return ["?" if size is None else size for size in shape]
