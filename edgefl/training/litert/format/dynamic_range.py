"""Stores the weights of an inference subgraph as int8; what flows between layers stays float32.

Interpreters round the rows that reach a layer to int8 on their own, with the range that they have
at that moment, so nothing needs to be calibrated.

Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", arXiv:1712.05877, section 2.1 (scales).
"""

import numpy as np

from edgefl.training.litert.format.kinds import Builtin, TensorType
from edgefl.training.litert.format.model import Operator, Scales, Subgraph, Tensor

# The axis that scales change along; None has one scale for the whole tensor, which is all that
# releases of 2023 can use in that operator.
_LAYERS: dict[Builtin, int | None] = {
    Builtin.CONV_2D: 0,
    Builtin.DEPTHWISE_CONV_2D: 3,
    Builtin.FULLY_CONNECTED: None,
}
_LARGEST = 127.0
_SMALLEST_SCALE = 1e-12


def store_weights_as_int8(subgraph: Subgraph) -> int:
    """Replace the constant float32 weights of layers.

    Args:
        subgraph: Changed in place; constants that several operators read are replaced once.

    Returns:
        How many tensors were replaced.
    """
    replaced: set[int] = set()
    for operator in subgraph.operators:
        index = operator.inputs[1] if operator.code in _LAYERS else -1
        if index < 0 or index in replaced:
            continue
        tensor = subgraph.tensors[index]
        if tensor.content is not None and tensor.kind is TensorType.FLOAT32:
            subgraph.tensors[index] = _as_int8(tensor, _LAYERS[operator.code])
            _ask_for_hybrid(operator)
            replaced.add(index)
    return len(replaced)


def _as_int8(tensor: Tensor, axis: int | None) -> Tensor:
    values = tensor.values.astype(np.float64)
    others = tuple(place for place in range(values.ndim) if place != axis)
    largest = np.abs(values).max(axis=None if axis is None else others, keepdims=True)
    scales = np.maximum(largest / _LARGEST, _SMALLEST_SCALE).astype(np.float32)
    integers = np.clip(np.rint(values / scales), -_LARGEST, _LARGEST).astype(np.int8)
    flat = scales.reshape(-1)
    return Tensor(
        shape=tensor.shape,
        kind=TensorType.INT8,
        content=integers.tobytes(),
        name=tensor.name,
        scales=Scales(
            scales=tuple(float(scale) for scale in flat),
            zero_points=(0,) * len(flat),
            axis=axis or 0,
        ),
    )


def _ask_for_hybrid(operator: Operator) -> None:
    """Raise the version to the first that takes int8 weights with float32 rows."""
    operator.version = {
        Builtin.CONV_2D: 5,
        Builtin.DEPTHWISE_CONV_2D: 6,
        Builtin.FULLY_CONNECTED: 3,
    }[operator.code]
