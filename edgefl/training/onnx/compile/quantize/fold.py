"""Folds batch normalization into the convolution before it, as int8 kernels want it."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from edgefl.training.int8_values import Floats
from edgefl.training.onnx.compile.attributes import float_attribute, int_attribute

_DEFAULT_EPSILON = 1e-5


def fold_batch_normalization(model: onnx.ModelProto, keep: Collection[str] = ()) -> onnx.ModelProto:
    """Return a model without the batch normalizations that follow a convolution directly.

    With inference statistics a BatchNormalization is a factor and a shift per channel, which the
    convolution's weight and bias can take over.

    Args:
        model: Normalized float model; it is not changed.
        keep: Tensors that are trained on their own; where one takes part, nothing is folded.

    Returns:
        The model; a folded convolution's weight and bias keep their names.

    Source: Jacob et al., arXiv:1712.05877, section 3.2.
    """
    folded = onnx.ModelProto()
    folded.CopyFrom(model)
    graph = folded.graph
    while (pair := _find_pair(graph, frozenset(keep))) is not None:
        _fold(graph, pair)
    return folded


@dataclass(frozen=True, slots=True)
class _Pair:
    convolution: onnx.NodeProto
    normalization: onnx.NodeProto


def _find_pair(graph: onnx.GraphProto, keep: frozenset[str]) -> _Pair | None:
    makers = {node.output[0]: node for node in graph.node if node.op_type == "Conv"}
    constants = {t.name for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    read = [value for node in graph.node for value in node.input]
    read += [value.name for value in graph.output]
    for node in graph.node:
        convolution = makers.get(node.input[0]) if node.op_type == "BatchNormalization" else None
        if convolution is None or read.count(node.input[0]) > 1:
            continue
        if int_attribute(node, "training_mode", 0):
            continue
        tensors = [*convolution.input[1:], *node.input[1:]]
        is_own = all(name in constants and name not in keep for name in tensors if name)
        if is_own and read.count(convolution.input[1]) == 1:
            return _Pair(convolution, node)
    return None


def _fold(graph: onnx.GraphProto, pair: _Pair) -> None:
    tensors = {tensor.name: tensor for tensor in graph.initializer}

    def values(name: str) -> Floats:
        return numpy_helper.to_array(tensors[name]).astype(np.float64)

    convolution, normalization = pair.convolution, pair.normalization
    gain, shift, mean, variance = (values(name) for name in normalization.input[1:5])
    epsilon = float_attribute(normalization, "epsilon", _DEFAULT_EPSILON)
    factor = gain / np.sqrt(variance + epsilon)
    weight = values(convolution.input[1])
    has_bias = len(convolution.input) > 2 and convolution.input[2] != ""
    bias = values(convolution.input[2]) if has_bias else np.zeros_like(shift)
    per_channel = [-1, *[1] * (weight.ndim - 1)]
    _set(tensors[convolution.input[1]], weight * factor.reshape(per_channel))
    new_bias = (bias - mean) * factor + shift
    # A bias that others read as well, or none: the shift's tensor holds the sum from now on.
    del convolution.input[2:]
    convolution.input.append(normalization.input[2])
    _set(tensors[normalization.input[2]], new_bias)
    convolution.output[0] = normalization.output[0]
    graph.node.remove(normalization)


def _set(tensor: onnx.TensorProto, values: Floats) -> None:
    tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))
