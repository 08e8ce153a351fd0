"""Matrix products."""

from collections.abc import Sequence

import numpy as np
import onnx

from edgefl.training.litert.compile.lowering import Lowering
from edgefl.training.litert.compile.rules.registry import lowers
from edgefl.training.litert.format.kinds import Builtin
from edgefl.training.onnx.compile.attributes import float_attribute, int_attribute


@lowers("Gemm")
def gemm(low: Lowering, node: onnx.NodeProto) -> None:
    """Write Y = alpha A' B' + beta C."""
    low.require_float32(*node.input)
    result = node.output[0]
    shape = low.shape(result)
    a_is_turned = bool(int_attribute(node, "transA", 0))
    b_is_turned = bool(int_attribute(node, "transB", 0))
    alpha, beta = float_attribute(node, "alpha", 1.0), float_attribute(node, "beta", 1.0)
    tensor = multiply(low, node.input[:2], [a_is_turned, b_is_turned], shape)
    if alpha != 1.0:
        tensor = low.emit(Builtin.MUL, [tensor, low.float32(alpha)], shape)
    if len(node.input) > 2 and node.input[2] and beta != 0.0:
        addend = low.broadcast(node.input[2], range(len(shape)))
        if beta != 1.0:
            sizes = low.tensor_shape(addend)
            addend = low.emit(Builtin.MUL, [addend, low.float32(beta)], sizes)
        tensor = low.emit(Builtin.ADD, [tensor, addend], shape)
    low.set(result, tensor)


@lowers("MatMul")
def matmul(low: Lowering, node: onnx.NodeProto) -> None:
    """Write a product with numpy's meaning of leading axes and of operands of one axis."""
    low.require_float32(*node.input)
    a_shape, b_shape = (low.shape(value) for value in node.input)
    shape = list(low.shape(node.output[0]))
    matrix_shape = list(shape)
    if len(b_shape) == 1:
        matrix_shape.append(1)
    if len(a_shape) == 1:
        matrix_shape.insert(len(matrix_shape) - 1, 1)
    if len(a_shape) > 2 and len(b_shape) == 2:
        # One product of all rows: fewer and larger than one for each leading index.
        rows = int(np.prod(a_shape[:-1]))
        left = low.reshape(low.plain(node.input[0]), [rows, a_shape[-1]])
        right, is_turned = _operand(low, node.input[1], turned=False)
        tensor = low.emit(
            Builtin.BATCH_MATMUL,
            [left, right],
            [rows, b_shape[-1]],
            transpose_y=is_turned,
        )
    else:
        tensor = multiply(low, node.input, [False, False], matrix_shape)
    low.set(node.output[0], low.reshape(tensor, shape or [1]))


def multiply(
    low: Lowering, operands: Sequence[str], turned: Sequence[bool], shape: Sequence[int]
) -> int:
    """Return the product of two values, each turned (its last two axes swapped) if so said."""
    (left, left_turned), (right, right_turned) = (
        _operand(low, value, turned=flag, is_second=index == 1)
        for index, (value, flag) in enumerate(zip(operands, turned, strict=True))
    )
    return low.emit(
        Builtin.BATCH_MATMUL,
        [left, right],
        shape,
        transpose_x=left_turned,
        transpose_y=right_turned,
    )


def _operand(
    low: Lowering, value: str, *, turned: bool, is_second: bool = False
) -> tuple[int, bool]:
    """Return a matrix as it lies, and whether the product must turn it."""
    rank = len(low.shape(value))
    if rank == 1:
        tensor = low.plain(value)
        size = low.shape(value)[0]
        return low.reshape(tensor, [size, 1] if is_second else [1, size]), turned
    straight = tuple(range(rank))
    swapped = (*straight[:-2], rank - 1, rank - 2)
    if not low.is_constant(value) and low.view(value).axes == swapped:
        return low.view(value).tensor, not turned
    return low.plain(value), turned
