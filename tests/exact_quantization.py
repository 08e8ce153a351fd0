"""Rounding to integers and back for onnx's reference evaluator, which knows it from opset 19 on."""

import numpy as np
from onnx.reference.op_run import OpRun


class QuantizeLinear(OpRun):
    op_domain = ""

    def _run(self, x, scale, zero_point=None, axis=1, **_of_later_opsets):
        zero_point = np.uint8(0) if zero_point is None else zero_point
        kind = np.iinfo(zero_point.dtype)
        moved = np.rint(x / _along(scale, axis, x.ndim)) + _along(zero_point, axis, x.ndim)
        return (np.clip(moved, kind.min, kind.max).astype(zero_point.dtype),)


class DequantizeLinear(OpRun):
    op_domain = ""

    def _run(self, x, scale, zero_point=None, axis=1, **_of_later_opsets):
        shift = 0 if zero_point is None else _along(zero_point, axis, x.ndim).astype(np.int64)
        values = (x.astype(np.int64) - shift) * _along(scale, axis, x.ndim)
        return (values.astype(np.asarray(scale).dtype),)


def _along(values, axis, rank):
    values = np.asarray(values)
    if values.size == 1:
        return values.reshape(())
    return values.reshape([-1 if index == axis % rank else 1 for index in range(rank)])


EXACT_QUANTIZATION = [QuantizeLinear, DequantizeLinear]
