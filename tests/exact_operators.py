"""Operators that onnx's reference evaluator computes in float32, or wrongly, in float64 instead.

Erf rounds to float32; GlobalMaxPool is right for two spatial axes only; Mean fails when its first
operand is the one that is broadcast; LpNormalization forgets the absolute value for p = 1 (onnx
1.23.2).
"""

import math

import numpy as np
from onnx.reference.op_run import OpRun


class Erf(OpRun):
    op_domain = ""

    def _run(self, x):
        values = [math.erf(value) for value in x.reshape(-1).tolist()]
        return (np.array(values, x.dtype).reshape(x.shape),)


class GlobalMaxPool(OpRun):
    op_domain = ""

    def _run(self, x):
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class Mean(OpRun):
    op_domain = ""

    def _run(self, *operands):
        return (np.asarray(sum(operands[1:], operands[0]) / len(operands), operands[0].dtype),)


class LpNormalization(OpRun):
    op_domain = ""

    def _run(self, x, axis=-1, p=2):
        norm = (np.abs(x) ** p).sum(axis=axis, keepdims=True) ** (1.0 / p)
        return (np.divide(x, norm, out=np.zeros_like(x), where=norm != 0),)


EXACT_OPERATORS = [Erf, GlobalMaxPool, LpNormalization, Mean]
