"""Conv and ConvTranspose by their definition, for onnx's reference evaluator.

The evaluator's own ConvTranspose fails with groups, output_shape and long output padding, and its
Conv with some empty or grouped geometries; both round to the type of their first operand.
"""

import numpy as np
from onnx.reference.op_run import OpRun


def pads_of_same(mode, totals):
    """Return begins and ends for totals of padding; SAME_UPPER puts the odd one at the end."""
    small = [max(total, 0) // 2 for total in totals]
    large = [max(total, 0) - part for total, part in zip(totals, small, strict=True)]
    return (small, large) if mode == "SAME_UPPER" else (large, small)


class Conv(OpRun):
    def _run(self, x, w, b=None, **attributes):
        axes = w.ndim - 2
        dilations = attributes["dilations"] or [1] * axes
        group = attributes["group"] or 1
        pads = attributes["pads"] or [0] * (2 * axes)
        strides = attributes["strides"] or [1] * axes
        kernel, sizes, mode = w.shape[2:], x.shape[2:], attributes["auto_pad"] or "NOTSET"
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        begins, ends = list(pads[:axes]), list(pads[axes:])
        if mode == "VALID":
            begins, ends = [0] * axes, [0] * axes
        elif mode != "NOTSET":
            counts = [-(-n // s) for n, s in zip(sizes, strides, strict=True)]
            totals = [
                (c - 1) * s + r - n
                for c, s, r, n in zip(counts, strides, reach, sizes, strict=True)
            ]
            begins, ends = pads_of_same(mode, totals)
        around = [(0, 0), (0, 0), *zip(begins, ends, strict=True)]
        x = np.pad(x, around)
        outputs = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
        y = np.zeros((len(x), len(w), *outputs), np.result_type(x, w))
        grouped = x.reshape(len(x), group, -1, *x.shape[2:])
        weights = w.reshape(group, -1, *w.shape[1:])
        for tap in np.ndindex(*kernel):
            window = tuple(
                slice(t * d, t * d + (o - 1) * s + 1, s)
                for t, d, o, s in zip(tap, dilations, outputs, strides, strict=True)
            )
            read = grouped[(slice(None), slice(None), slice(None), *window)]
            weight = weights[(slice(None), slice(None), slice(None), *tap)]
            y += np.einsum("ngc...,gmc->ngm...", read, weight).reshape(y.shape)
        if b is not None:
            y += b.reshape(-1, *[1] * axes)
        return (y,)


class ConvTranspose(OpRun):
    def _run(self, x, w, b=None, **attributes):
        axes = w.ndim - 2
        dilations = attributes["dilations"] or [1] * axes
        group = attributes["group"] or 1
        extra = attributes["output_padding"] or [0] * axes
        strides = attributes["strides"] or [1] * axes
        kernel, mode = w.shape[2:], attributes["auto_pad"] or "NOTSET"
        full = [
            (n - 1) * s + (k - 1) * d + 1 + e
            for n, s, k, d, e in zip(x.shape[2:], strides, kernel, dilations, extra, strict=True)
        ]
        pads = attributes["pads"] or [0] * (2 * axes)
        begins, wanted = pads[:axes], attributes["output_shape"]
        if not wanted and mode.startswith("SAME"):
            wanted = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
        if wanted:
            totals = [size - want for size, want in zip(full, wanted, strict=True)]
            begins = pads_of_same(mode, totals)[0]
        else:
            cut = [b + e for b, e in zip(pads[:axes], pads[axes:], strict=True)]
            wanted = [size - c for size, c in zip(full, cut, strict=True)]
        outputs = w.shape[1]
        grown = [max(size, b + want) for size, b, want in zip(full, begins, wanted, strict=True)]
        y = np.zeros((len(x), group, outputs, *grown), np.result_type(x, w))
        grouped = x.reshape(len(x), group, -1, *x.shape[2:])
        weights = w.reshape(group, -1, *w.shape[1:])
        for tap in np.ndindex(*kernel):
            window = tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(tap, dilations, x.shape[2:], strides, strict=True)
            )
            weight = weights[(slice(None), slice(None), slice(None), *tap)]
            y[(slice(None), slice(None), slice(None), *window)] += np.einsum(
                "ngc...,gcm->ngm...", grouped, weight
            )
        kept = tuple(slice(b, b + want) for b, want in zip(begins, wanted, strict=True))
        y = y.reshape(len(x), -1, *grown)[(slice(None), slice(None), *kept)]
        if b is not None:
            y = y + b.reshape(-1, *[1] * axes)
        return (y,)


EXACT_CONVOLUTIONS = [Conv, ConvTranspose]
