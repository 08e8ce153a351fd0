"""Tells weights from other constants by how a model uses them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from edgefl.training.onnx.compile.graph_edit import is_setting

LAYER_OPERATORS = frozenset({"Conv", "ConvTranspose", "GRU", "Gemm", "LSTM", "MatMul", "RNN"})
"""Operators that count as layers when the last ones are chosen."""

_RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
_ONE_BY_ONE = frozenset({"Add", "Div", "Max", "Min", "Mul", "Pow", "Sub"})

_FIXED_INPUTS: Mapping[str, frozenset[int]] = {
    "BatchNormalization": frozenset({3, 4}),
    "Clip": frozenset({1, 2}),
    "DequantizeLinear": frozenset({1, 2}),
    "Dropout": frozenset({1, 2}),
    "Equal": frozenset({0, 1}),
    "GRU": frozenset({4, 5}),
    "Greater": frozenset({0, 1}),
    "GreaterOrEqual": frozenset({0, 1}),
    "LSTM": frozenset({4, 5, 6}),
    "Less": frozenset({0, 1}),
    "LessOrEqual": frozenset({0, 1}),
    "OneHot": frozenset({1, 2}),
    "Pad": frozenset({2}),
    "Pow": frozenset({1}),
    "QuantizeLinear": frozenset({1, 2}),
    "RNN": frozenset({4, 5}),
    "Range": frozenset({0, 1, 2}),
    "Resize": frozenset({1, 2, 3}),
    "Shape": frozenset({0}),
    "Size": frozenset({0}),
    "Where": frozenset({0}),
}
"""Inputs that are settings: statistics, scales, bounds, exponents, first states."""

_BIAS_INPUTS: Mapping[str, int] = {
    "BatchNormalization": 2,
    "Conv": 2,
    "ConvTranspose": 2,
    "GRU": 3,
    "Gemm": 2,
    "GroupNormalization": 2,
    "InstanceNormalization": 2,
    "LSTM": 3,
    "LayerNormalization": 2,
    "RNN": 3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One place where a tensor, or a constant made of it, meets the data.

    Attributes:
        node: The operator.
        index: Which of its inputs it is.
    """

    node: onnx.NodeProto
    index: int

    @property
    def is_fixed(self) -> bool:
        """Tell whether the operator reads it as a setting rather than a weight."""
        return self.index in _FIXED_INPUTS.get(self.node.op_type, frozenset())

    @property
    def is_bias(self) -> bool:
        """Tell whether it is added to a layer's result by the layer itself."""
        return _BIAS_INPUTS.get(self.node.op_type) == self.index


class Weights:
    """The float32 initializers of a graph, in its own order, with their uses.

    Args:
        graph: Prepared forward graph.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        """Follow each initializer to where it meets the data."""
        self.tensors = {
            tensor.name: tensor
            for tensor in graph.initializer
            if tensor.data_type == onnx.TensorProto.FLOAT
        }
        self._nodes = list(graph.node)
        self._uses: dict[str, list[Use]] = {}
        self._sources = _sources_of_constants(graph, self.tensors)
        for node in self._nodes:
            if _is_constant(node, self._sources):
                continue
            for index, value in enumerate(node.input):
                for name in self._sources.get(value, ()):
                    self._uses.setdefault(name, []).append(Use(node=node, index=index))

    def uses(self, name: str) -> Sequence[Use]:
        """Return where a tensor meets the data."""
        return self._uses.get(name, ())

    def read_by(self, node: onnx.NodeProto) -> list[str]:
        """Return the tensors that a node reads, itself or through constants made of them."""
        return [name for value in node.input for name in self._sources.get(value, ())]

    @property
    def candidates(self) -> list[str]:
        """Return what `all` trains: tensors that some operator uses as a weight.

        Scalars are settings (slopes, bounds, scales), and so are single values that are multiplied
        or added, and constants that the graph itself made.
        """
        return [name for name in self.tensors if self._is_candidate(name)]

    def _is_candidate(self, name: str) -> bool:
        if not self.tensors[name].dims or is_setting(self.tensors[name]):
            return False
        is_single = all(size == 1 for size in self.tensors[name].dims)
        return any(
            not use.is_fixed and not (is_single and use.node.op_type in _ONE_BY_ONE)
            for use in self.uses(name)
        )

    @property
    def biases(self) -> list[str]:
        """Return what is added to layers: their bias inputs, and added tensors of one axis."""
        return [name for name in self.candidates if any(map(self._is_bias, self._uses[name]))]

    def _is_bias(self, use: Use) -> bool:
        if use.is_bias:
            return True
        name = use.node.input[use.index] if use.node.op_type == "Add" else ""
        dims: Sequence[int] = self.tensors[name].dims if name in self.tensors else ()
        return sum(size != 1 for size in dims) == 1

    def last_layers(self, count: int) -> list[str]:
        """Return the tensors of the last layers and of whatever follows the first of them."""
        found: list[str] = []
        candidates = set(self.candidates)
        for node in reversed(self._nodes):
            here = [name for name in self.read_by(node) if name in candidates]
            found += here
            if here and node.op_type in LAYER_OPERATORS:
                count -= 1
            if count == 0:
                break
        return found


def _sources_of_constants(
    graph: onnx.GraphProto, tensors: Mapping[str, onnx.TensorProto]
) -> dict[str, frozenset[str]]:
    """Return, for each value that depends on no input, the float32 initializers behind it."""
    sources = {tensor.name: frozenset[str]() for tensor in graph.initializer}
    sources |= {name: frozenset({name}) for name in tensors}
    for node in graph.node:
        if not _is_constant(node, sources):
            continue
        behind = [
            sources[value]
            for index, value in enumerate(node.input)
            if value and not Use(node=node, index=index).is_fixed
        ]
        for output in node.output:
            sources[output] = frozenset().union(*behind)
    return sources


def _is_constant(node: onnx.NodeProto, sources: Mapping[str, frozenset[str]]) -> bool:
    has_body = any(attribute.HasField("g") for attribute in node.attribute)
    read = [value for value in node.input if value]
    return not has_body and node.op_type not in _RECURRENT and all(v in sources for v in read)
