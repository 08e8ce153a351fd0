"""Gradient of maxima over windows by value-wise operators alone, one axis after the other.

A maximum over windows is the maximum along the first axis of the maxima along the second, and so
on. Along one axis, positions are sorted by their remainder when divided by the stride ("phases"),
so that every tap of a window is a phase moved by whole steps. The gradient goes back the same way:
at each axis to the first tap whose value is the maximum, so in the end to the first such sample of
the window in row-major order.
"""

from dataclasses import dataclass

import numpy as np
import onnx

from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.conv_geometry import ConvGeometry

_LOWEST = float(np.finfo(np.float32).min)
# Cost grows with the sum of the kernel's sizes, that of asking for places with their product.
_MOST_TAPS = 8


def phases_pay(windows: ConvGeometry) -> bool:
    """Tell whether this form is faster than asking a second MaxPool where the maxima lie.

    Measured with onnxruntime 1.32 on x86-64, one thread, batch 32, after a Relu, forward node
    included, as a share of the other form's time (taps along each axis / stride): 1-D 2/2 0.63,
    3/2 0.44, 5/1 0.58, 8/8 0.90; 2-D 3/2 0.68, 2/2 0.64, 3/1 0.58, 4/4 1.07; 3-D 2/2 0.78. The
    fast kernel for maxima does not give places; the one that does takes up to 20 times as long.
    """
    return sum(windows.kernel) <= _MOST_TAPS


def max_pool_by_phases(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, windows: ConvGeometry
) -> str:
    """Emit the gradient of the input of a MaxPool node.

    Args:
        graph: Where to emit.
        node: The forward node.
        dy: Gradient of its first output.
        windows: Its sizes.

    Returns:
        The gradient, of the shape of the input.
    """
    axes = [_Axis(graph, windows, axis) for axis in range(windows.spatial_axes)]
    # From the last axis to the first; the maxima along all axes are the node's own output.
    phases: list[list[str]] = []
    maxima = [node.output[0]]
    value = node.input[0]
    for axis in reversed(axes):
        phases.insert(0, axis.split(value))
        if axis is not axes[0]:
            value = axis.maximum(phases[0])
            maxima.insert(1, value)
    for axis, read, maximum in zip(axes, phases, maxima, strict=True):
        dy = axis.join(axis.shares(read, maximum, dy))
    return dy


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tap:
    """What one tap of an axis reads for output o: step o + `moved` of phase `phase`."""

    phase: int
    moved: int


class _Axis:
    """One spatial axis; the axes before it have their input's size, those behind their output's."""

    def __init__(self, graph: GraphEmitter, windows: ConvGeometry, axis: int) -> None:
        self._graph = graph
        self._stride = windows.strides[axis]
        self._size = windows.input_sizes[axis]
        self._outputs = windows.output_sizes[axis]
        self._steps = -(-self._size // self._stride)
        self._place = 2 + axis
        self._rank = 2 + windows.spatial_axes
        self._before = [windows.input_channels, *windows.input_sizes[:axis]]
        self._behind = windows.output_sizes[axis + 1 :]
        self._taps: list[_Tap] = []
        for index in range(windows.kernel[axis]):
            moved, phase = divmod(
                index * windows.dilations[axis] - windows.pads_begin[axis], self._stride
            )
            # A tap that reads padding alone is never the maximum; and onnxruntime 1.16 pads wrongly
            # where nothing of the input would be left.
            if -self._outputs < moved < self._steps:
                self._taps.append(_Tap(phase=phase, moved=moved))

    def split(self, value: str) -> list[str]:
        """Return the phases of a value."""
        if self._stride == 1:
            return [value]
        graph, count = self._graph, self._stride
        whole = self._padded(value, 0, self._steps * count - self._size, _LOWEST)
        apart = (None, *self._before, self._steps, count, *self._behind)
        sizes = graph.int64s([1] * count)
        parts = graph.emit_outputs(
            "Split", [graph.reshape(whole, apart), sizes], count, axis=self._place + 1
        )
        return [graph.reshape(p, (None, *self._before, self._steps, *self._behind)) for p in parts]

    def maximum(self, phases: list[str]) -> str:
        """Return the maxima over the windows of this axis."""
        read = [self._read(phases, tap) for tap in self._taps]
        return read[0] if len(read) == 1 else self._graph.emit("Max", *read)

    def shares(self, phases: list[str], maximum: str, gradient: str) -> list[str]:
        """Hand the gradient of the maxima on: return what each phase gets."""
        graph, left = self._graph, gradient
        by_phase: dict[int, list[str]] = {}
        for tap in self._taps[:-1]:
            equal = graph.emit("Equal", self._read(phases, tap), maximum)
            is_maximum = graph.emit("Cast", equal, to=onnx.TensorProto.FLOAT)
            share = graph.emit("Mul", left, is_maximum)
            left = graph.emit("Sub", left, share)
            by_phase.setdefault(tap.phase, []).append(self._back(share, tap))
        # What no earlier tap took belongs to the last.
        last = self._taps[-1]
        by_phase.setdefault(last.phase, []).append(self._back(left, last))
        totals = {
            phase: parts[0] if len(parts) == 1 else graph.emit("Sum", *parts)
            for phase, parts in by_phase.items()
        }
        if len(totals) < self._stride:
            shape = graph.emit("Shape", next(iter(totals.values())))
            unread = graph.emit("Expand", graph.float32(0.0), shape)
            return [totals.get(phase, unread) for phase in range(self._stride)]
        return [totals[phase] for phase in range(self._stride)]

    def join(self, parts: list[str]) -> str:
        """Undo `split`."""
        if self._stride == 1:
            return parts[0]
        graph, count = self._graph, self._stride
        apart = (None, *self._before, self._steps, 1, *self._behind)
        joined = graph.emit(
            "Concat", *[graph.reshape(part, apart) for part in parts], axis=self._place + 1
        )
        whole = graph.reshape(joined, (None, *self._before, self._steps * count, *self._behind))
        if self._steps * count == self._size:
            return whole
        bounds = [graph.int64s([value]) for value in (0, self._size, self._place)]
        return graph.emit("Slice", whole, *bounds)

    def _read(self, phases: list[str], tap: _Tap) -> str:
        """Return, for every output, what the tap reads; outside the input the lowest number."""
        end = self._outputs + tap.moved - self._steps
        return self._padded(phases[tap.phase], -tap.moved, end, _LOWEST)

    def _back(self, gradient: str, tap: _Tap) -> str:
        """Put a gradient by output back to the steps that the tap read."""
        return self._padded(gradient, tap.moved, self._steps - self._outputs - tap.moved, 0.0)

    def _padded(self, value: str, begin: int, end: int, fill: float) -> str:
        """Add to both ends of the axis, or cut off where the counts are negative."""
        if begin == end == 0:
            return value
        pads = [0] * (2 * self._rank)
        pads[self._place], pads[self._rank + self._place] = begin, end
        return self._graph.emit("Pad", value, self._graph.int64s(pads), self._graph.float32(fill))
