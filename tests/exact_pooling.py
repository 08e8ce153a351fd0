"""Pooling by its definition, for onnx's reference evaluator.

The evaluator's own MaxPool and MaxUnpool mistake places and sizes in many geometries (gaps between
windows, strides of 1, padding chosen by auto_pad).
"""

import numpy as np
from onnx.reference.op_run import OpRun

from tests.exact_convolutions import pads_of_same


def windows(sizes, attributes):
    """Return output sizes and, for each output, what its window reads.

    Returns:
        Output sizes; flat places [outputs, taps], outside ones moved to the edge; whether they lie
        inside, of the same shape; and by how many an average divides, [outputs].
    """
    kernel = attributes["kernel_shape"]
    axes = len(kernel)
    strides = attributes["strides"] or [1] * axes
    dilations = attributes.get("dilations") or [1] * axes
    pads, mode = attributes["pads"] or [0] * (2 * axes), attributes["auto_pad"] or "NOTSET"
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    begins, ends = list(pads[:axes]), list(pads[axes:])
    counts = []
    if mode.startswith("SAME"):
        counts = [-(-n // s) for n, s in zip(sizes, strides, strict=True)]
        lacks = [
            (c - 1) * s + r - n for c, s, r, n in zip(counts, strides, reach, sizes, strict=True)
        ]
        begins, ends = pads_of_same(mode, lacks)
    elif mode == "VALID":
        begins, ends = [0] * axes, [0] * axes
    if not counts:
        for n, b, e, r, s in zip(sizes, begins, ends, reach, strides, strict=True):
            room = n + b + e - r
            count = (-(-room // s) if attributes.get("ceil_mode") else room // s) + 1
            # A window that would start in the padding behind the input is left out.
            counts.append(count - 1 if (count - 1) * s >= n + b and count > 1 else count)
    places = np.zeros((1, 1), np.int64)
    inside = np.ones((1, 1), bool)
    counted = np.ones((1, 1), bool)
    include = attributes.get("count_include_pad")
    for c, s, d, b, e, k, n in zip(
        counts, strides, dilations, begins, ends, kernel, sizes, strict=True
    ):
        along = np.arange(c)[:, np.newaxis] * s + np.arange(k) * d - b
        places = combined(places * n, np.clip(along, 0, n - 1), np.add)
        inside = combined(inside, (along >= 0) & (along < n), np.logical_and)
        low, high = (-b, n + e) if include else (0, n)
        counted = combined(counted, (along >= low) & (along < high), np.logical_and)
    return counts, places, inside, counted.sum(axis=1)


def combined(outer, inner, function):
    """Return [outer rows x inner rows, outer columns x inner columns]."""
    both = function(outer[:, np.newaxis, :, np.newaxis], inner[np.newaxis, :, np.newaxis, :])
    return both.reshape(len(outer) * len(inner), -1)


class MaxPool(OpRun):
    def _run(self, x, **attributes):
        counts, places, inside, _ = windows(x.shape[2:], attributes)
        flat = x.reshape(*x.shape[:2], -1)
        read = np.where(inside, flat[:, :, places], -np.inf)
        first = read.argmax(axis=3)[..., np.newaxis]
        channels = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], 1, 1)
        tapped = np.take_along_axis(np.broadcast_to(places, read.shape), first, axis=3)
        shape = (*x.shape[:2], *counts)
        maxima = read.max(axis=3).reshape(shape).astype(x.dtype)
        both = (maxima, (tapped + channels * flat.shape[2]).reshape(shape))
        return both[: len(self.onnx_node.output)]


class AveragePool(OpRun):
    def _run(self, x, **attributes):
        counts, places, inside, counted = windows(x.shape[2:], attributes)
        read = np.where(inside, x.reshape(*x.shape[:2], -1)[:, :, places], 0)
        means = (read.sum(axis=3) / counted).astype(x.dtype)
        return (means.reshape(*x.shape[:2], *counts),)


class MaxUnpool(OpRun):
    def _run(self, x, places, output_shape=None, **_):
        result = np.zeros(int(np.prod(output_shape)), x.dtype)
        result[places.reshape(-1)] = x.reshape(-1)
        return (result.reshape(output_shape),)


EXACT_POOLING = [MaxPool, AveragePool, MaxUnpool]
