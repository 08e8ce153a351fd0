"""Adds low-rank changes beside the layers of a model, whose own weights then stay as they are.

Beside y = f(x, W) stands y + alpha / r * f(f(x, A), B), with A of few outputs and B zero at first,
so that the changed model begins as the model itself. For export the product joins W.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", arXiv:2106.09685,
section 4.1.
"""

import fnmatch
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import float_attribute, int_attribute
from edgefl.training.onnx.compile.graph import values_read_by
from edgefl.training.onnx.compile.select import LORA_DOWN, LORA_UP, LoraTerm
from edgefl.training.onnx.names import PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraLayer:
    """One layer with a low-rank change.

    Attributes:
        weight: Name of the frozen tensor behind the layer's weight.
        shape: Its shape.
        left: Trained tensor whose product with `right`, times `scale`, is added to the weight
            as a matrix of `shape[0]` rows.
        right: The other factor.
        scale: alpha / r.
    """

    weight: str
    shape: tuple[int, ...]
    left: str
    right: str
    scale: float

    @property
    def trained(self) -> tuple[str, str]:
        """Return the names of what is trained, A before B."""
        return self.weight + LORA_DOWN, self.weight + LORA_UP


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraModel:
    """A model with low-rank changes.

    Attributes:
        model: The changed model, with shapes.
        layers: What was added.
        skipped: Matching weights that two layers share or that work in groups, left as they are.
    """

    model: onnx.ModelProto
    layers: tuple[LoraLayer, ...]
    skipped: tuple[str, ...]


def add_lora(
    model: onnx.ModelProto,
    terms: Sequence[LoraTerm],
    *,
    untouched: Collection[str] = (),
    alpha: float | None = None,
    seed: int = 0,
) -> LoraModel:
    """Add low-rank changes to a copy of a model.

    Args:
        model: Normalized model; a quantized one was opened, so that its weights are float32.
        terms: Which layers and ranks; the first that matches a weight counts.
        untouched: Weights that are trained themselves.
        alpha: Strength of the changes; None takes each rank itself, so that alpha / r is 1.
        seed: Seed of A's first values.

    Returns:
        The changed model.

    Raises:
        TrainingError: E-MODEL-LORA when no layer matches.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    finder = _LayerFinder(changed.graph, terms, untouched)
    rng = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    layers: list[LoraLayer] = []
    for original in changed.graph.node:
        node = onnx.NodeProto()
        node.CopyFrom(original)
        found = finder.find(node)
        if found is None:
            nodes.append(node)
            continue
        weight, rank = found
        inputs_first = finder.keeps_inputs_first(node)
        layer = LoraLayer(
            weight=weight,
            shape=finder.shape_of(weight),
            left=weight + (LORA_DOWN if inputs_first else LORA_UP),
            right=weight + (LORA_UP if inputs_first else LORA_DOWN),
            scale=1.0 if alpha is None else alpha / rank,
        )
        layers.append(layer)
        down, up = _factors(layer, rank, rng, inputs_first=inputs_first)
        changed.graph.initializer.extend([down, up])
        nodes += _with_branch(node, layer, is_transposed=finder.is_transposed(node))
    if not layers:
        raise _no_layer(terms, finder.skipped)
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    inferred = shape_inference.infer_shapes(changed, strict_mode=True, data_prop=True)
    return LoraModel(model=inferred, layers=tuple(layers), skipped=tuple(finder.skipped))


class _LayerFinder:
    """Finds the layers that terms ask for, and remembers those that cannot be changed."""

    def __init__(
        self, graph: onnx.GraphProto, terms: Sequence[LoraTerm], untouched: Collection[str]
    ) -> None:
        self._terms = terms
        self._untouched = untouched
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._transposed = {
            node.output[0]: node.input[0]
            for node in graph.node
            if node.op_type == "Transpose" and node.input[0] in self._initializers
        }
        self._readers = Counter(value for node in graph.node for value in node.input)
        for node in graph.node:
            # Branches and loops read outer values too.
            self._readers.update(values_read_by(node) - set(node.input))
        self.skipped: list[str] = []

    def shape_of(self, weight: str) -> tuple[int, ...]:
        return tuple(self._initializers[weight].dims)

    def is_transposed(self, node: onnx.NodeProto) -> bool:
        """Tell whether a MatMul reads its weight through a Transpose."""
        return node.op_type == "MatMul" and node.input[1] in self._transposed

    def keeps_inputs_first(self, node: onnx.NodeProto) -> bool:
        """Tell whether a weight's first axis is the layer's inputs, rather than its outputs."""
        if node.op_type == "MatMul":
            return not self.is_transposed(node)
        return node.op_type == "Gemm" and not int_attribute(node, "transB", 0)

    def find(self, node: onnx.NodeProto) -> tuple[str, int] | None:
        """Return the weight and the rank of its change, or None for all other nodes."""
        if node.op_type not in {"Conv", "Gemm", "MatMul"}:
            return None
        value = node.input[1]
        weight = self._transposed[value] if self.is_transposed(node) else value
        if weight not in self._initializers or weight in self._untouched:
            return None
        rank = next((t.rank for t in self._terms if fnmatch.fnmatchcase(weight, t.pattern)), None)
        if rank is None:
            return None
        # A weight with two readers would carry the change of one layer into the other.
        is_shared = self._readers[value] > 1 or self._readers[weight] > 1
        if is_shared or not _can_be_changed(node, self.shape_of(weight)):
            self.skipped.append(weight)
            return None
        return weight, rank


def _can_be_changed(node: onnx.NodeProto, shape: tuple[int, ...]) -> bool:
    if node.op_type == "Conv":
        return int_attribute(node, "group", 1) == 1
    return len(shape) == 2 and not int_attribute(node, "transA", 0)


def _factors(
    layer: LoraLayer, rank: int, rng: np.random.Generator, *, inputs_first: bool
) -> tuple[onnx.TensorProto, onnx.TensorProto]:
    shape = layer.shape
    down_shape: tuple[int, ...]
    up_shape: tuple[int, ...]
    if inputs_first:
        down_shape, up_shape, inputs = (shape[0], rank), (rank, shape[1]), shape[0]
    else:
        ones = (1,) * (len(shape) - 2)
        down_shape, up_shape = (rank, *shape[1:]), (shape[0], rank, *ones)
        inputs = math.prod(shape[1:])
    down = (rng.standard_normal(down_shape) / math.sqrt(inputs)).astype(np.float32)
    names = layer.trained
    return (
        numpy_helper.from_array(down, names[0]),
        numpy_helper.from_array(np.zeros(up_shape, np.float32), names[1]),
    )


def _with_branch(
    node: onnx.NodeProto, layer: LoraLayer, *, is_transposed: bool
) -> list[onnx.NodeProto]:
    """Return the layer's nodes: itself under another name, the branch, and their sum."""
    output = node.output[0]
    plain, inner, outer = (f"{PREFIX}lora.{output}.{part}" for part in ("base", "a", "b"))
    down, up = layer.trained
    nodes = [node]
    if is_transposed:
        turned = [f"{PREFIX}lora.{output}.{part}.turned" for part in ("a", "b")]
        nodes += [
            helper.make_node("Transpose", [factor], [result], name=result)
            for factor, result in zip((down, up), turned, strict=True)
        ]
        down, up = turned
    nodes += _branch_nodes(node, (down, up), (inner, outer))
    node.output[0] = plain
    scale = layer.scale * (float_attribute(node, "alpha", 1.0) if node.op_type == "Gemm" else 1.0)
    if scale != 1.0:
        scaled = f"{PREFIX}lora.{output}.scaled"
        constant = f"{PREFIX}lora.{output}.scale"
        nodes.append(helper.make_node("Constant", [], [constant], name=constant, value_float=scale))
        nodes.append(helper.make_node("Mul", [outer, constant], [scaled], name=scaled))
        outer = scaled
    nodes.append(helper.make_node("Add", [plain, outer], [output], name=f"{PREFIX}lora.{output}"))
    return nodes


def _branch_nodes(
    node: onnx.NodeProto, factors: tuple[str, str], outputs: tuple[str, str]
) -> tuple[onnx.NodeProto, onnx.NodeProto]:
    inner, outer = outputs
    first_inputs, second_inputs = [node.input[0], factors[0]], [inner, factors[1]]
    if node.op_type == "Conv":
        first = helper.make_node("Conv", first_inputs, [inner], name=inner)
        first.attribute.extend(node.attribute)
        return first, helper.make_node("Conv", second_inputs, [outer], name=outer)
    if node.op_type == "Gemm":
        transposed = int_attribute(node, "transB", 0)
        return (
            helper.make_node("Gemm", first_inputs, [inner], name=inner, transB=transposed),
            helper.make_node("Gemm", second_inputs, [outer], name=outer, transB=transposed),
        )
    return (
        helper.make_node("MatMul", first_inputs, [inner], name=inner),
        helper.make_node("MatMul", second_inputs, [outer], name=outer),
    )


def _no_layer(terms: Sequence[LoraTerm], skipped: Sequence[str]) -> TrainingError:
    patterns = ", ".join(f"lora:{term.rank}:{term.pattern}" for term in terms)
    because = f"; unfit: {', '.join(skipped[:5])}" if skipped else ""
    return TrainingError(
        "E-MODEL-LORA",
        "a Conv without groups, a Gemm or a MatMul whose weight matches",
        f"none for {patterns}{because}",
        "choose other weights by lora:R:PATTERN",
    )
