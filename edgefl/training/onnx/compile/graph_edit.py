"""Edits of a forward graph before it is differentiated: nodes, constants and shapes by name."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper, shape_inference

from edgefl.training.onnx.compile.graph import values_read_by
from edgefl.training.onnx.names import BATCH_AXIS

Sizes = tuple[int | None, ...]
"""Static sizes of a value; None stands for an axis whose size is known only at run time."""

SETTING = "setting"
"""Description of tensors that came from the graph's own constants: no weights to train."""

# Weights above this size are declared, not copied, while shapes are inferred.
_LARGEST_COPIED = 1024


class GraphEdit:
    """One graph under change.

    Attributes:
        graph: The graph; changed in place.
        opset: Its version of the standard operators.
        rewrites: Number of changes so far that more than rename or drop something.
    """

    def __init__(self, graph: onnx.GraphProto, opset: int) -> None:
        """Index a graph.

        Args:
            graph: Its initializers are not among its inputs.
            opset: Version of the standard operators in it.
        """
        self.graph = graph
        self.opset = opset
        self.rewrites = 0
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._taken = _all_names(graph)
        self._values: dict[str, onnx.ValueInfoProto] = {}
        self._told: dict[str, list[int | str]] = {}

    def tell_sizes(self, value: str, sizes: list[int | str]) -> bool:
        """Say what later inferences shall know of a node's output: sizes, or the batch axis' name.

        Returns:
            Whether that is news.
        """
        news = self._told.get(value) != sizes
        self._told[value] = sizes
        return news

    def constant(self, value: str) -> NDArray[np.generic] | None:
        """Return the values of an initializer, or None for anything computed or fed."""
        tensor = self._tensors.get(value)
        return None if tensor is None else np.asarray(numpy_helper.to_array(tensor))

    def is_setting(self, value: str) -> bool:
        """Tell whether a value is constant and nothing that training could want to change."""
        tensor = self._tensors.get(value)
        return tensor is not None and is_setting(tensor)

    def add_constant(self, name: str, values: NDArray[np.generic]) -> str:
        """Store a constant under a name that is free or belongs to a node about to go.

        Returns:
            The name.
        """
        self.add_weight(name, values)
        self._tensors[name].doc_string = SETTING
        return name

    def count_as_weight(self, value: str) -> None:
        """Take the mark of a setting from a constant, unless all its values are alike.

        Nobody learned such a one: it is the bias of zeros that an exporter gave a layer without.
        """
        values = self.constant(value)
        if values is not None and values.size and (values != values.flat[0]).any():
            self._tensors[value].ClearField("doc_string")

    def add_weight(self, name: str, values: NDArray[np.generic]) -> None:
        """Store a tensor that may be trained, under the name of a node's output about to go."""
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(values, order="C"), name))
        self._tensors[name] = self.graph.initializer[-1]
        self._taken.add(name)

    def new_constant(self, wish: str, values: NDArray[np.generic]) -> str:
        """Store a constant under a new name and return it."""
        return self.add_constant(self.new_name(wish), values)

    def new_name(self, wish: str) -> str:
        """Return a value name that nothing has yet, close to the wish."""
        name, count = wish, 1
        while name in self._taken:
            count += 1
            name = f"{wish}_{count}"
        self._taken.add(name)
        return name

    def replace_nodes(self, nodes: Iterable[onnx.NodeProto]) -> None:
        """Make these the graph's nodes."""
        kept = [_copy(node) for node in nodes]
        del self.graph.node[:]
        self.graph.node.extend(kept)

    def infer(self, *, strict: bool = False) -> None:
        """Infer types and shapes anew, from the inputs and constants alone.

        Args:
            strict: Whether a contradiction is an error.

        Raises:
            InferenceError: A contradiction was found.
        """
        light = helper.make_model(
            _without_large_tensors(self.graph),
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=8,
        )
        made = {value for node in self.graph.node for value in node.output}
        for value, sizes in self._told.items():
            if value in made:
                told = helper.make_tensor_value_info(value, self.element_type(value), sizes)
                light.graph.value_info.append(told)
        inferred = shape_inference.infer_shapes(light, strict_mode=strict, data_prop=True).graph
        known = [*inferred.input, *inferred.value_info, *inferred.output]
        self._values = {value.name: value for value in known}
        for tensor in self.graph.initializer:
            self._values[tensor.name] = helper.make_tensor_value_info(
                tensor.name, tensor.data_type, list(tensor.dims)
            )

    def sizes(self, value: str) -> Sizes | None:
        """Return the sizes of a value as last inferred, or None when its rank is not known."""
        found = self._values.get(value)
        if found is None or not found.type.tensor_type.HasField("shape"):
            return None
        dims = found.type.tensor_type.shape.dim
        return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in dims)

    def all_sizes(self) -> dict[str, Sizes]:
        """Return the sizes of all values of known rank, as last inferred."""
        found = {name: self.sizes(name) for name in self._values}
        return {name: sizes for name, sizes in found.items() if sizes is not None}

    def axis_name(self, value: str, axis: int) -> str:
        """Return the symbol of an axis as last inferred; empty for a fixed or unnamed one."""
        return str(self._values[value].type.tensor_type.shape.dim[axis].dim_param)

    def element_type(self, value: str) -> int:
        """Return a value's `TensorProto.DataType` as last inferred; UNDEFINED if not known."""
        found = self._values.get(value)
        undefined = int(onnx.TensorProto.UNDEFINED)
        return undefined if found is None else int(found.type.tensor_type.elem_type)

    def keep_inferred(self) -> None:
        """Write the inferred types and shapes into the graph."""
        outer = {value.name for value in [*self.graph.input, *self.graph.output]}
        del self.graph.value_info[:]
        for name, value in self._values.items():
            if name not in outer and name not in self._tensors:
                self.graph.value_info.append(value)
        for output in self.graph.output:
            if output.name in self._values:
                output.CopyFrom(self._values[output.name])
                _name_batch_axis(output)

    def drop_identities(self) -> None:
        """Let the readers of an Identity read its input; graphs with subgraphs stay as they are."""
        if any(a.HasField("g") for node in self.graph.node for a in node.attribute):
            return
        outputs = {value.name for value in self.graph.output}
        computed = {value for node in self.graph.node for value in node.output} - outputs
        renamed: dict[str, str] = {}
        kept: list[onnx.NodeProto] = []
        for node in self.graph.node:
            source, target = node.input[0] if node.input else "", node.output[0]
            source = renamed.get(source, source)
            if node.op_type != "Identity" or (target in outputs and source not in computed):
                kept.append(node)
            elif target in outputs:
                renamed[source] = target
                computed.discard(source)
            else:
                renamed[target] = source
        for node in kept:
            _rename(node, renamed)
        if renamed:
            self.replace_nodes(kept)

    def drop_unused(self) -> None:
        """Drop nodes and initializers that no output depends on."""
        needed = {value.name for value in self.graph.output}
        kept: list[onnx.NodeProto] = []
        for node in reversed(self.graph.node):
            if any(output in needed for output in node.output):
                kept.append(node)
                needed |= values_read_by(node)
        self.replace_nodes(kept[::-1])
        tensors = [tensor for tensor in self.graph.initializer if tensor.name in needed]
        if len(tensors) < len(self.graph.initializer):
            self._keep_tensors(tensors)

    def _keep_tensors(self, tensors: Sequence[onnx.TensorProto]) -> None:
        copies = []
        for tensor in tensors:
            copy = onnx.TensorProto()
            copy.CopyFrom(tensor)
            copies.append(copy)
        del self.graph.initializer[:]
        self.graph.initializer.extend(copies)
        self._tensors = {tensor.name: tensor for tensor in self.graph.initializer}


def is_setting(tensor: onnx.TensorProto) -> bool:
    """Tell whether an initializer of a normalized model is a constant that nobody would train."""
    return tensor.doc_string == SETTING or tensor.data_type not in _TRAINED_TYPES


def _name_batch_axis(output: onnx.ValueInfoProto) -> None:
    """Call an output's open first axis what it is; inference may have lost its name."""
    dims = output.type.tensor_type.shape.dim
    if dims and not dims[0].HasField("dim_value"):
        dims[0].dim_param = BATCH_AXIS


def mark_weights(edit: GraphEdit) -> None:
    """Count constants that stand where layers have their weights as weights.

    Some exporters write all weights as Constant nodes.
    """
    for node in edit.graph.node:
        for index in _WEIGHT_INPUTS.get(node.op_type, ()):
            if index < len(node.input):
                edit.count_as_weight(node.input[index])


_WEIGHT_INPUTS = {
    "BatchNormalization": (1, 2),
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "GRU": (1, 2, 3),
    "Gather": (0,),
    "Gemm": (0, 1, 2),
    "LSTM": (1, 2, 3),
    "LayerNormalization": (1, 2),
    "MatMul": (0, 1),
    "RNN": (1, 2, 3),
}

_TRAINED_TYPES = frozenset(
    {
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.BFLOAT16,
        onnx.TensorProto.DOUBLE,
    }
)


def _rename(node: onnx.NodeProto, renamed: Mapping[str, str]) -> None:
    """Put the last name of each chain of new names into a node."""
    for values in (node.input, node.output):
        for index, value in enumerate(values):
            while value in renamed:
                value = renamed[value]
            values[index] = value


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _all_names(graph: onnx.GraphProto) -> set[str]:
    names = {value.name for value in [*graph.input, *graph.output, *graph.initializer]}
    for node in graph.node:
        names.update([*node.input, *node.output])
        for attribute in node.attribute:
            if attribute.HasField("g"):
                names |= _all_names(attribute.g)
    return names


def _without_large_tensors(graph: onnx.GraphProto) -> onnx.GraphProto:
    light = onnx.GraphProto(name="light")
    light.node.extend(graph.node)
    light.input.extend(graph.input)
    light.output.extend(graph.output)
    for tensor in graph.initializer:
        if np.prod(tensor.dims) <= _LARGEST_COPIED:
            light.initializer.append(tensor)
        else:
            light.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
    return light
