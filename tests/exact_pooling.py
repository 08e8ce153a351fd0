"""Pooling by its definition, for onnx's reference evaluator.

The evaluator's own MaxPool and MaxUnpool mistake places and sizes in many geometries (gaps between
windows, strides of 1, padding chosen by auto_pad).
"""

import itertools

import numpy as np
from onnx.reference.op_run import OpRun

from tests.exact_convolutions import pads_of_same


def windows(sizes, attributes):
    """Yield, for each output position, the input positions of its window, outside ones included."""
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
    per_axis = [
        [[o * s + t * d - b for t in range(k)] for o in range(c)]
        for c, s, d, b, k in zip(counts, strides, dilations, begins, kernel, strict=True)
    ]
    return counts, begins, ends, itertools.product(*per_axis)


class MaxPool(OpRun):
    def _run(self, x, **attributes):
        sizes = x.shape[2:]
        counts, _, _, places = windows(sizes, attributes)
        flat = x.reshape(*x.shape[:2], -1)
        maxima, indices = [], []
        for window in places:
            inside = [
                np.ravel_multi_index(place, sizes)
                for place in itertools.product(*window)
                if all(0 <= at < n for at, n in zip(place, sizes, strict=True))
            ]
            read = flat[:, :, inside]
            maxima.append(read.max(axis=2))
            indices.append(np.array(inside)[read.argmax(axis=2)])
        shape = (*x.shape[:2], *counts)
        channels = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], 1)
        places = np.stack(indices, axis=2) + channels * flat.shape[2]
        maxima = np.stack(maxima, axis=2).reshape(shape)
        both = (maxima, places.reshape(shape).astype(np.int64))
        return both[: len(self.onnx_node.output)]


class AveragePool(OpRun):
    def _run(self, x, **attributes):
        sizes = x.shape[2:]
        counts, begins, ends, places = windows(sizes, attributes)
        if not attributes["count_include_pad"]:
            begins, ends = [0] * len(sizes), [0] * len(sizes)
        flat = x.reshape(*x.shape[:2], -1)
        means = []
        for window in places:
            every = list(itertools.product(*window))
            inside = [
                np.ravel_multi_index(place, sizes)
                for place in every
                if all(0 <= at < n for at, n in zip(place, sizes, strict=True))
            ]
            counted = sum(
                all(
                    -b <= at < n + e for at, n, b, e in zip(place, sizes, begins, ends, strict=True)
                )
                for place in every
            )
            means.append(flat[:, :, inside].sum(axis=2) / counted)
        return (np.stack(means, axis=2).reshape(*x.shape[:2], *counts),)


class MaxUnpool(OpRun):
    def _run(self, x, places, output_shape=None, **_):
        result = np.zeros(int(np.prod(output_shape)), x.dtype)
        result[places.reshape(-1)] = x.reshape(-1)
        return (result.reshape(output_shape),)


EXACT_POOLING = [MaxPool, AveragePool, MaxUnpool]
