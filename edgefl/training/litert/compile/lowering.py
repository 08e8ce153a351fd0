"""Collects the tensors and operators of one TFLite subgraph, with axes in whatever order is cheap.

ONNX keeps channels before positions and TFLite behind them. A value is therefore held as a tensor
whose axes may be in another order than the value's; a transposition only changes that order, and
tensors are transposed only where an operator insists.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from edgefl.training.litert.compile.static_graph import Shape, StaticGraph
from edgefl.training.litert.format.kinds import TENSOR_TYPES, Builtin, OptionValue, TensorType
from edgefl.training.litert.format.model import Operator, Subgraph, Tensor


class Unsupported(Exception):
    """A node cannot be written with builtin operators; the text says why."""


@dataclass(frozen=True, slots=True)
class View:
    """Where a value lies.

    Attributes:
        tensor: Index of the tensor.
        axes: The value's axis that each axis of the tensor holds; a value without axes lies in a
            tensor of shape [1].
    """

    tensor: int
    axes: tuple[int, ...]


class Lowering:
    """One subgraph under construction.

    Attributes:
        graph: What is being lowered.
        subgraph: What has been made so far.
    """

    def __init__(self, graph: StaticGraph, name: str) -> None:
        """Start with the inputs alone."""
        self.graph = graph
        self.subgraph = Subgraph(name=name)
        self._views: dict[str, View] = {}
        self._arranged: dict[tuple[View, tuple[int, ...], Shape], int] = {}
        self._constants: dict[tuple[TensorType, Shape, bytes], int] = {}
        for value in graph.inputs:
            tensor = self.new_tensor(graph.shapes[value] or (1,), self.kind(value))
            self.subgraph.inputs.append(tensor)
            self.set(value, tensor)

    # ------------------------------------------------------------ what is known of a value

    def shape(self, value: str) -> Shape:
        """Return a value's shape, in ONNX's order of axes."""
        constant = self.graph.constants.get(value)
        return self.graph.shapes[value] if constant is None else constant.shape

    def kind(self, value: str) -> TensorType:
        """Return the type of a value.

        Raises:
            Unsupported: TFLite has no such type.
        """
        constant = self.graph.constants.get(value)
        dtype = (
            helper.tensor_dtype_to_np_dtype(self.graph.types[value])
            if constant is None
            else constant.dtype
        )
        if dtype not in TENSOR_TYPES:
            message = f"type {dtype} of '{value}'"
            raise Unsupported(message)
        return TENSOR_TYPES[dtype]

    def constant(self, value: str) -> NDArray[np.generic]:
        """Return the values of a constant.

        Raises:
            Unsupported: It is computed.
        """
        found = self.graph.constants.get(value)
        if found is None:
            message = f"'{value}' is computed from inputs, not a constant"
            raise Unsupported(message)
        return found

    def is_constant(self, value: str) -> bool:
        """Tell whether a value never changes."""
        return value in self.graph.constants

    def integers(self, value: str) -> list[int]:
        """Return a constant list of whole numbers."""
        return [int(number) for number in self.constant(value).reshape(-1)]

    # ------------------------------------------------------------ tensors and operators

    def new_tensor(self, shape: Sequence[int], kind: TensorType) -> int:
        """Return the index of a new tensor that an operator will fill."""
        self.subgraph.tensors.append(Tensor(shape=tuple(shape), kind=kind))
        return len(self.subgraph.tensors) - 1

    def constant_tensor(self, values: NDArray[np.generic]) -> int:
        """Return the index of a constant tensor, made once for equal values."""
        kind = TENSOR_TYPES[values.dtype]
        key = (kind, values.shape, values.tobytes())
        if key not in self._constants:
            self.subgraph.tensors.append(Tensor(shape=values.shape, kind=kind, content=key[2]))
            self._constants[key] = len(self.subgraph.tensors) - 1
        return self._constants[key]

    def int32s(self, values: Sequence[int]) -> int:
        """Return a constant list of whole numbers, as axes and shapes are given."""
        return self.constant_tensor(np.array(values, np.int32))

    def float32(self, value: float) -> int:
        """Return a constant number of shape [1]."""
        return self.constant_tensor(np.array([value], np.float32))

    def zeros(self, size: int) -> int:
        """Return a constant of zeros of shape [size]."""
        return self.constant_tensor(np.zeros(size, np.float32))

    def emit(
        self,
        code: Builtin,
        inputs: Sequence[int],
        shape: Sequence[int],
        kind: TensorType = TensorType.FLOAT32,
        *,
        version: int = 1,
        **options: OptionValue,
    ) -> int:
        """Append an operator and return the index of its single output."""
        output = self.new_tensor(shape, kind)
        self.append(code, inputs, [output], version=version, **options)
        return output

    def append(
        self,
        code: Builtin,
        inputs: Sequence[int],
        outputs: Sequence[int],
        *,
        version: int = 1,
        **options: OptionValue,
    ) -> None:
        """Append an operator that fills tensors made before."""
        self.subgraph.operators.append(
            Operator(
                code=code,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                options=options,
                version=version,
            )
        )

    def tensor_shape(self, tensor: int) -> Shape:
        """Return a tensor's shape, in its own order of axes."""
        return self.subgraph.tensors[tensor].shape

    # ------------------------------------------------------------ where values lie

    def set(self, value: str, tensor: int, axes: Sequence[int] | None = None) -> None:
        """Say where a value lies; by default with its axes in order."""
        order = range(len(self.shape(value))) if axes is None else axes
        self._views[value] = View(tensor, tuple(order))

    def view(self, value: str) -> View:
        """Return where a value lies."""
        if value not in self._views:
            constant = self.constant(value)
            tensor = self.constant_tensor(constant.reshape(constant.shape or (1,)))
            self.set(value, tensor)
        return self._views[value]

    def plain(self, value: str) -> int:
        """Return a tensor that holds a value with its axes in order."""
        return self.arranged(value, range(len(self.shape(value))))

    def arranged(self, value: str, axes: Sequence[int]) -> int:
        """Return a tensor that holds a value with its axes in the given order.

        Args:
            value: Name of the value.
            axes: The value's axis for each axis of the tensor; -1 for an axis of size 1 that the
                value does not have. Axes of size 1 may be left out.

        Returns:
            Index of the tensor.
        """
        shape = self.shape(value)
        wanted = tuple(1 if axis < 0 else shape[axis] for axis in axes) or (1,)
        if self.is_constant(value):
            left_out = [axis for axis in range(len(shape)) if axis not in axes]
            order = [*left_out, *(axis for axis in axes if axis >= 0)]
            return self.constant_tensor(
                np.ascontiguousarray(self.constant(value).transpose(order)).reshape(wanted)
            )
        view = self.view(value)
        key = (view, tuple(axes), wanted)
        if key not in self._arranged:
            self._arranged[key] = self._arrange(view, shape, axes, wanted)
        return self._arranged[key]

    def _arrange(self, view: View, shape: Shape, axes: Sequence[int], wanted: Shape) -> int:
        """Move axes of more than one index by a transposition, all others by a reshape."""
        present = [axis for axis in view.axes if shape[axis] != 1]
        target = [axis for axis in axes if axis >= 0 and shape[axis] != 1]
        tensor = view.tensor
        if present != target:
            order = [axis for axis in axes if axis >= 0]
            tensor = self.transpose(tensor, [view.axes.index(axis) for axis in order])
        return self.reshape(tensor, wanted)

    def transpose(self, tensor: int, order: Sequence[int]) -> int:
        """Return a tensor with the axes of another in a new order."""
        shape = self.tensor_shape(tensor)
        if list(order) == list(range(len(shape))):
            return tensor
        sizes = [shape[axis] for axis in order]
        return self.rearrange(Builtin.TRANSPOSE, [tensor, self.int32s(order)], sizes)

    def reshape(self, tensor: int, shape: Sequence[int]) -> int:
        """Return a tensor with the values of another in a new shape."""
        if self.tensor_shape(tensor) == tuple(shape):
            return tensor
        return self.rearrange(Builtin.RESHAPE, [tensor, self.int32s(shape)], shape)

    def rearrange(self, code: Builtin, inputs: Sequence[int], shape: Sequence[int]) -> int:
        """Append an operator that keeps values, with their type and the meaning of integers."""
        source = self.subgraph.tensors[inputs[0]]
        output = self.emit(code, inputs, shape, source.kind)
        self.subgraph.tensors[output].scales = source.scales
        return output

    # ------------------------------------------------------------ helpers of many rules

    def common_axes(self, values: Sequence[str], rank: int) -> tuple[int, ...]:
        """Return the order of axes in which most of the data of some values already lies."""
        computed = [
            value
            for value in values
            if not self.is_constant(value) and len(self.shape(value)) == rank
        ]
        if not computed:
            return tuple(range(rank))
        # Of equally large ones the first: it is most often the value, the others its gradients.
        largest = max(computed, key=lambda value: int(np.prod(self.shape(value))))
        return self.view(largest).axes

    def broadcast(self, value: str, axes: Sequence[int]) -> int:
        """Return a tensor that broadcasts, as numpy's rules say, against others in that order."""
        missing = len(axes) - len(self.shape(value))
        if int(np.prod(self.shape(value))) == 1:
            return self.arranged(value, [-1])
        return self.arranged(value, [max(axis - missing, -1) for axis in axes])

    def require_float32(self, *values: str) -> None:
        """Refuse other types.

        Raises:
            Unsupported: Naming the first.
        """
        for value in values:
            if value and self.kind(value) is not TensorType.FLOAT32:
                message = f"type {self.kind(value).name.lower()} of '{value}'"
                raise Unsupported(message)


def onnx_kind(number: int) -> TensorType:
    """Return the TFLite type of an ONNX type number."""
    dtype = helper.tensor_dtype_to_np_dtype(number)
    if dtype not in TENSOR_TYPES:
        message = f"type {dtype}"
        raise Unsupported(message)
    return TENSOR_TYPES[dtype]
