"""Simplifies a subgraph whose parameters have become constants, for inference."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edgefl.training.litert.format.kinds import TENSOR_TYPES, Builtin
from edgefl.training.litert.format.model import Operator, Subgraph, Tensor

Values = NDArray[np.generic]
# What has this option can bound its result itself.
_WITH_ACTIVATION = frozenset(
    {
        Builtin.ADD,
        Builtin.CONV_2D,
        Builtin.DEPTHWISE_CONV_2D,
        Builtin.FULLY_CONNECTED,
        Builtin.MUL,
        Builtin.SUB,
    }
)
_ACTIVATIONS = {Builtin.RELU: 1, Builtin.RELU6: 3}


def drop_unread(subgraph: Subgraph) -> None:
    """Take out operators whose results nobody reads, then tensors that nobody names."""
    read = set(subgraph.outputs)
    kept: list[Operator] = []
    for operator in reversed(subgraph.operators):
        has_effect = operator.code in _EFFECTS
        if has_effect or read.intersection(operator.outputs):
            kept.append(operator)
            read.update(operator.inputs)
    subgraph.operators = kept[::-1]
    named = {*subgraph.inputs, *subgraph.outputs, *read}
    named.update(output for operator in kept for output in operator.outputs)
    left = [index for index in range(len(subgraph.tensors)) if index in named]
    places = {old: new for new, old in enumerate(left)} | {-1: -1}
    subgraph.tensors = [subgraph.tensors[index] for index in left]
    subgraph.inputs = [places[index] for index in subgraph.inputs]
    subgraph.outputs = [places[index] for index in subgraph.outputs]
    for operator in subgraph.operators:
        operator.inputs = tuple(places[index] for index in operator.inputs)
        operator.outputs = tuple(places[index] for index in operator.outputs)


_EFFECTS = frozenset({Builtin.CALL_ONCE, Builtin.ASSIGN_VARIABLE})


def simplify(subgraph: Subgraph) -> None:
    """Compute what is constant, then join products, biases and activations.

    Args:
        subgraph: Float32 operators; changed in place. Its results stay the same up to rounding.
    """
    _fold_constants(subgraph)
    drop_unread(subgraph)
    for rewrite in (_product_to_layer, _join_factor, _join_bias, _join_activation):
        for operator in list(subgraph.operators):
            rewrite(_Neighbours(subgraph), operator)
    drop_unread(subgraph)


# ------------------------------------------------------------ constants


def _fold_constants(subgraph: Subgraph) -> None:
    left: list[Operator] = []
    for operator in subgraph.operators:
        compute = _FOLDS.get(operator.code)
        operands = [subgraph.tensors[index] for index in operator.inputs if index >= 0]
        if compute is None or any(tensor.content is None for tensor in operands):
            left.append(operator)
            continue
        (output,) = operator.outputs
        shape = subgraph.tensors[output].shape
        values = compute(operator, [tensor.values for tensor in operands]).reshape(shape)
        _set_constant(subgraph, output, values)
    subgraph.operators = left


def _set_constant(subgraph: Subgraph, index: int, values: Values) -> None:
    old = subgraph.tensors[index]
    kind = TENSOR_TYPES[values.dtype]
    subgraph.tensors[index] = Tensor(
        shape=values.shape, kind=kind, content=values.tobytes(), name=old.name
    )


def _add_constant(subgraph: Subgraph, values: Values) -> int:
    subgraph.tensors.append(
        Tensor(shape=values.shape, kind=TENSOR_TYPES[values.dtype], content=values.tobytes())
    )
    return len(subgraph.tensors) - 1


def _product(operator: Operator, operands: Sequence[Values]) -> Values:
    left, right = operands
    if operator.options.get("transpose_x"):
        left = np.swapaxes(left, -1, -2)
    if operator.options.get("transpose_y"):
        right = np.swapaxes(right, -1, -2)
    return np.asarray(np.matmul(left, right))


_Fold = Callable[[Operator, Sequence[Values]], Values]
_FOLDS: dict[Builtin, _Fold] = {
    Builtin.TRANSPOSE: lambda _, v: np.ascontiguousarray(v[0].transpose([int(a) for a in v[1]])),
    Builtin.RESHAPE: lambda _, v: v[0],
    Builtin.ADD: lambda _, v: np.add(v[0], v[1]),
    Builtin.SUB: lambda _, v: np.subtract(v[0], v[1]),
    Builtin.MUL: lambda _, v: np.multiply(v[0], v[1]),
    Builtin.DIV: lambda _, v: np.divide(v[0], v[1]),
    Builtin.SQRT: lambda _, v: np.sqrt(v[0]),
    Builtin.BATCH_MATMUL: _product,
}

# ------------------------------------------------------------ joining


class _Neighbours:
    """Who makes and who reads each tensor."""

    def __init__(self, subgraph: Subgraph) -> None:
        self.subgraph = subgraph
        self._readers: dict[int, list[Operator]] = {}
        for operator in subgraph.operators:
            for index in operator.inputs:
                self._readers.setdefault(index, []).append(operator)

    def only_reader(self, operator: Operator) -> Operator | None:
        """Return who alone reads an operator's result; None where it is read elsewhere too."""
        (output,) = operator.outputs[:1]
        readers = self._readers.get(output, [])
        is_result = output in self.subgraph.outputs
        return readers[0] if len(readers) == 1 and not is_result else None

    def constant(self, index: int) -> Values | None:
        """Return the values of a constant, or None."""
        tensor = self.subgraph.tensors[index]
        return None if tensor.content is None else tensor.values


def _product_to_layer(near: _Neighbours, operator: Operator) -> None:
    """Write x W, W constant, as the operator that interpreters know best."""
    if operator.code is not Builtin.BATCH_MATMUL or operator.options.get("transpose_x"):
        return
    weight = near.constant(operator.inputs[1])
    if weight is None or weight.ndim != 2 or near.constant(operator.inputs[0]) is not None:
        return
    if len(near.subgraph.tensors[operator.inputs[0]].shape) != 2:
        return
    rows = weight if operator.options.get("transpose_y") else weight.T
    weights = _add_constant(near.subgraph, np.ascontiguousarray(rows))
    operator.code = Builtin.FULLY_CONNECTED
    operator.inputs = (operator.inputs[0], weights, -1)
    operator.options = {}


_LAYERS = {
    # The axis of the weights that outputs lie along.
    Builtin.FULLY_CONNECTED: 0,
    Builtin.CONV_2D: 0,
    Builtin.DEPTHWISE_CONV_2D: 3,
}


def _join_factor(near: _Neighbours, layer: Operator) -> None:
    """Multiply a layer's weights and bias by what its result is multiplied by."""
    factor_reader = _next_with_constant(near, layer, Builtin.MUL)
    if factor_reader is None:
        return
    reader, factor = factor_reader
    weight = near.constant(layer.inputs[1])
    bias = None if layer.inputs[2] < 0 else near.constant(layer.inputs[2])
    if weight is None or (bias is None and layer.inputs[2] >= 0):
        return
    axis = _LAYERS[layer.code]
    per_output = np.broadcast_to(factor.reshape(-1), (weight.shape[axis],)).astype(np.float32)
    sizes = [-1 if place == axis else 1 for place in range(weight.ndim)]
    scaled = np.multiply(weight, per_output.reshape(sizes)).astype(np.float32)
    inputs = [layer.inputs[0], _add_constant(near.subgraph, scaled), -1]
    if bias is not None:
        inputs[2] = _add_constant(near.subgraph, np.multiply(bias, per_output))
    layer.inputs = tuple(inputs)
    _skip(near.subgraph, layer, reader)


def _join_bias(near: _Neighbours, layer: Operator) -> None:
    """Add to a layer's bias what is added to its result."""
    addend_reader = _next_with_constant(near, layer, Builtin.ADD)
    if addend_reader is None:
        return
    reader, addend = addend_reader
    weight = near.constant(layer.inputs[1])
    bias = None if layer.inputs[2] < 0 else near.constant(layer.inputs[2])
    if weight is None or (bias is None and layer.inputs[2] >= 0):
        return
    outputs = weight.shape[_LAYERS[layer.code]]
    total = np.broadcast_to(addend.reshape(-1), (outputs,)).astype(np.float32)
    total = total if bias is None else np.add(total, bias)
    index = _add_constant(near.subgraph, np.ascontiguousarray(total))
    layer.inputs = (*layer.inputs[:2], index)
    _skip(near.subgraph, layer, reader)


def _next_with_constant(
    near: _Neighbours, layer: Operator, code: Builtin
) -> tuple[Operator, Values] | None:
    """Return the operator behind a layer and its constant, if both are of the wanted kind."""
    if layer.code not in _LAYERS or layer.options.get("activation"):
        return None
    reader = near.only_reader(layer)
    if reader is None or reader.code is not code or reader.options.get("activation"):
        return None
    other = next(index for index in reader.inputs if index != layer.outputs[0])
    values = near.constant(other)
    outputs = near.subgraph.tensors[layer.outputs[0]].shape[-1]
    # One number, or one for each output: all other axes must have size 1.
    if values is None or values.size not in {1, outputs} or values.shape[-1] != values.size:
        return None
    return reader, values


def _skip(subgraph: Subgraph, layer: Operator, reader: Operator) -> None:
    layer.outputs = reader.outputs
    subgraph.operators = [operator for operator in subgraph.operators if operator is not reader]


def _join_activation(near: _Neighbours, operator: Operator) -> None:
    """Let an operator bound its own result; a reshape between the two changes nothing of it."""
    if operator.code not in _WITH_ACTIVATION or operator.options.get("activation"):
        return
    before, reader = operator, near.only_reader(operator)
    if reader is not None and reader.code is Builtin.RESHAPE:
        before, reader = reader, near.only_reader(reader)
    if reader is None or reader.code not in _ACTIVATIONS:
        return
    operator.options = {**operator.options, "activation": _ACTIVATIONS[reader.code]}
    _skip(near.subgraph, before, reader)
