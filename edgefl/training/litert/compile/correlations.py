"""Writes small weight gradients as one convolution where the ONNX graph has a product per tap.

Products per tap are what onnxruntime does fastest; TFLite's interpreters spend most of their time
on the many operators then. For small layers one convolution, of the input with the output's
gradient as kernel, takes a quarter (ai-edge-litert 2.3, 16 rows, 6 to 16 channels, 5 taps: 31 us
against 140 us); large layers (20 million products) take 2.4 times as long that way and are left
alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper

from edgefl.training.litert.compile.static_graph import Shape, StaticGraph
from edgefl.training.onnx.compile.attributes import float_attribute, int_attribute
from edgefl.training.onnx.names import PREFIX

_MOST_PRODUCTS = 4_000_000
_PREFIX = PREFIX + "litert.correlation."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taps:
    """Products per tap that together are a weight gradient.

    Attributes:
        rows: The layer's input, [N, positions, inputs].
        gradients: Gradient of its output, [N, outputs' positions, outputs].
        kernel: Sizes of the kernel.
        strides: Steps between outputs.
        dilations: Steps between taps.
    """

    rows: str
    gradients: str
    kernel: list[int]
    strides: list[int]
    dilations: list[int]


def use_correlations(graph: StaticGraph) -> StaticGraph:
    """Return the graph with small weight gradients rewritten; all values stay the same."""
    makers = {output: node for node in graph.nodes for output in node.output}
    shapes, constants, types = dict(graph.shapes), dict(graph.constants), dict(graph.types)
    nodes: list[onnx.NodeProto] = []
    for node in graph.nodes:
        taps = _match(node, makers, graph) if node.op_type == "Concat" else None
        if taps is None or _products(taps, graph.shapes) > _MOST_PRODUCTS:
            nodes.append(node)
            continue
        for written, shape in _correlation(node.output[0], taps, graph.shapes):
            nodes.append(written)
            shapes[written.output[0]] = shape
            types[written.output[0]] = int(onnx.TensorProto.FLOAT)
        constants |= _sizes(node.output[0], taps, graph.shapes)
    return replace(graph, nodes=nodes, shapes=shapes, types=types, constants=constants)


def _products(taps: _Taps, shapes: Mapping[str, Shape]) -> int:
    inputs = shapes[taps.rows][-1]
    return int(np.prod(shapes[taps.gradients])) * inputs * int(np.prod(taps.kernel))


def _match(
    node: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto], graph: StaticGraph
) -> _Taps | None:
    """Recognise Concat of Reshape(Gemm(gradients', Reshape(Slice(rows)))), a tap each."""
    products = [_behind(name, "Reshape", makers) for name in node.input]
    gemms = [None if p is None else _behind(p.input[0], "Gemm", makers) for p in products]
    rank = len(graph.shapes.get(node.output[0], ()))
    if int_attribute(node, "axis", 0) != rank - 1 or not _are_products(gemms):
        return None
    left = _behind(gemms[0].input[0], "Reshape", makers) if gemms[0] is not None else None
    flat = [_behind(g.input[1], "Reshape", makers) for g in gemms if g is not None]
    slices = [None if f is None else _behind(f.input[0], "Slice", makers) for f in flat]
    if left is None or not slices or any(one is None for one in slices):
        return None
    return _read_taps(left.input[0], [one for one in slices if one is not None], graph)


def _behind(name: str, op_type: str, makers: Mapping[str, onnx.NodeProto]) -> onnx.NodeProto | None:
    node = makers.get(name)
    return node if node is not None and node.op_type == op_type else None


def _are_products(gemms: Sequence[onnx.NodeProto | None]) -> bool:
    """Tell whether all are plain products of the same first operand, turned."""
    first = gemms[0]
    return first is not None and all(
        gemm is not None
        and len(gemm.input) == 2
        and gemm.input[0] == first.input[0]
        and int_attribute(gemm, "transA", 0) == 1
        and int_attribute(gemm, "transB", 0) == 0
        and float_attribute(gemm, "alpha", 1.0) == 1.0
        for gemm in gemms
    )


def _read_taps(
    gradients: str, slices: Sequence[onnx.NodeProto], graph: StaticGraph
) -> _Taps | None:
    rows = slices[0].input[0]
    shape, result = graph.shapes.get(rows, ()), graph.shapes.get(gradients, ())
    spatial = list(range(1, len(shape) - 1))
    if len(result) != len(shape) or not spatial:
        return None
    if any(one.input[0] != rows or len(one.input) < 5 for one in slices):
        return None
    fields = [[_integers(name, graph) for name in one.input[1:5]] for one in slices]
    starts = [field[0] for field in fields]
    strides = fields[0][3]
    if any(field[2] != spatial or field[3] != strides for field in fields):
        return None
    grid = [sorted({start[axis] for start in starts}) for axis in range(len(spatial))]
    kernel = [len(places) for places in grid]
    dilations = [places[1] - places[0] if len(places) > 1 else 1 for places in grid]
    regular = [
        [place * dilation for place, dilation in zip(index, dilations, strict=True)]
        for index in np.ndindex(*kernel)
    ]
    if starts != regular or min(strides) < 1:
        return None
    return _Taps(
        rows=rows, gradients=gradients, kernel=kernel, strides=strides, dilations=dilations
    )


def _integers(name: str, graph: StaticGraph) -> list[int]:
    constant = graph.constants.get(name)
    return [] if constant is None else [int(value) for value in constant.reshape(-1)]


def _correlation(
    result: str, taps: _Taps, shapes: Mapping[str, Shape]
) -> list[tuple[onnx.NodeProto, Shape]]:
    """Return the nodes with the shapes of their results; the last one makes `result`."""
    rows, gradients = shapes[taps.rows], shapes[taps.gradients]
    rank = len(rows)
    to_front = [rank - 1, 0, *range(1, rank - 1)]
    swapped = [1, 0, *range(2, rank)]
    # Strides and dilations change places: taps are now the outputs.
    reach = [
        (size - (outputs - 1) * stride - 1) // dilation + 1
        for size, outputs, stride, dilation in zip(
            rows[1:-1], gradients[1:-1], taps.strides, taps.dilations, strict=True
        )
    ]
    name = _PREFIX + result
    correlated: Shape = (rows[-1], gradients[-1], *reach)
    cut: Shape = (rows[-1], gradients[-1], *taps.kernel)
    turned: Shape = (gradients[-1], rows[-1], *taps.kernel)
    make = helper.make_node
    return [
        (
            make("Transpose", [taps.rows], [f"{name}.x"], perm=to_front),
            tuple(rows[axis] for axis in to_front),
        ),
        (
            make("Transpose", [taps.gradients], [f"{name}.dy"], perm=to_front),
            tuple(gradients[axis] for axis in to_front),
        ),
        (
            make(
                "Conv",
                [f"{name}.x", f"{name}.dy"],
                [f"{name}.conv"],
                name=f"{name}.conv",
                strides=taps.dilations,
                dilations=taps.strides,
            ),
            correlated,
        ),
        (
            make(
                "Slice",
                [f"{name}.conv", f"{name}.begin", f"{name}.end", f"{name}.axes"],
                [f"{name}.cut"],
            ),
            cut,
        ),
        (make("Transpose", [f"{name}.cut"], [f"{name}.turned"], perm=swapped), turned),
        (
            make("Reshape", [f"{name}.turned", f"{name}.shape"], [result], name=f"{name}.out"),
            shapes[result],
        ),
    ]


def _sizes(result: str, taps: _Taps, shapes: Mapping[str, Shape]) -> dict[str, np.ndarray]:
    """Return the constants that the nodes read."""
    name, axes = _PREFIX + result, len(taps.kernel)
    lists: dict[str, Sequence[int]] = {
        "begin": [0] * axes,
        "end": taps.kernel,
        "axes": range(2, 2 + axes),
        "shape": shapes[result],
    }
    return {f"{name}.{key}": np.array(values, np.int64) for key, values in lists.items()}
