"""Writes a TFLite file from plain data."""

from collections.abc import Mapping

from edgefl.training.litert.format.decode import IDENTIFIER
from edgefl.training.litert.format.kinds import OPTION_TABLES, Builtin, FieldKind, OptionValue
from edgefl.training.litert.format.model import (
    ModelFile,
    Operator,
    Scales,
    Signature,
    Subgraph,
    Tensor,
)
from edgefl.training.litert.format.parts import (
    Content,
    Node,
    Nodes,
    Number,
    Numbers,
    Part,
    Text,
    write_file,
)

_FORMAT_VERSION = 3
# The older one-byte field of an operator's number says 127 for all that do not fit.
_LARGEST_OLD_CODE = 127


def write_model(model: ModelFile) -> bytes:
    """Return a file's bytes; equal models give equal bytes.

    Args:
        model: What to write.

    Returns:
        A file that every TFLite interpreter since 2.14 can load.
    """
    codes = _Codes()
    # By convention, buffer 0 is empty and stands for "no constant".
    constants: dict[bytes, int] = {b"": 0}
    subgraphs = [_subgraph(subgraph, codes, constants) for subgraph in model.subgraphs]
    fields: dict[int, Part] = {
        0: Number(FieldKind.UINT32, _FORMAT_VERSION),
        1: Nodes(codes.nodes()),
        2: Nodes(subgraphs),
        3: Text(model.description),
        4: Nodes([Node({0: Content(constant)} if constant else {}) for constant in constants]),
    }
    if model.signatures:
        fields[7] = Nodes([_signature(signature) for signature in model.signatures])
    return write_file(Node(fields), IDENTIFIER)


class _Codes:
    """The list of operators that a file uses."""

    def __init__(self) -> None:
        self._indices: dict[tuple[Builtin, int], int] = {}

    def index_of(self, operator: Operator) -> int:
        return self._indices.setdefault((operator.code, operator.version), len(self._indices))

    def nodes(self) -> list[Node]:
        return [
            Node(
                {
                    0: Number(FieldKind.INT8, min(code, _LARGEST_OLD_CODE)),
                    2: Number(FieldKind.INT32, version),
                    3: Number(FieldKind.INT32, code),
                }
            )
            for code, version in self._indices
        ]


def _subgraph(subgraph: Subgraph, codes: _Codes, constants: dict[bytes, int]) -> Node:
    return Node(
        {
            0: Nodes([_tensor(tensor, constants) for tensor in subgraph.tensors]),
            1: Numbers("i", subgraph.inputs),
            2: Numbers("i", subgraph.outputs),
            3: Nodes([_operator(operator, codes) for operator in subgraph.operators]),
            4: Text(subgraph.name),
        }
    )


def _tensor(tensor: Tensor, constants: dict[bytes, int]) -> Node:
    fields: dict[int, Part] = {0: Numbers("i", tensor.shape)}
    if tensor.kind:
        fields[1] = Number(FieldKind.INT8, tensor.kind)
    if tensor.content:
        fields[2] = Number(FieldKind.UINT32, constants.setdefault(tensor.content, len(constants)))
    if tensor.name:
        fields[3] = Text(tensor.name)
    if tensor.scales is not None:
        fields[4] = _scales(tensor.scales)
    if tensor.is_variable:
        fields[5] = Number(FieldKind.BOOL, tensor.is_variable)
    return Node(fields)


def _scales(scales: Scales) -> Node:
    return Node(
        {
            2: Numbers("f", scales.scales),
            3: Numbers("q", scales.zero_points),
            6: Number(FieldKind.INT32, scales.axis),
        }
    )


def _operator(operator: Operator, codes: _Codes) -> Node:
    fields: dict[int, Part] = {
        0: Number(FieldKind.UINT32, codes.index_of(operator)),
        1: Numbers("i", operator.inputs),
        2: Numbers("i", operator.outputs),
    }
    table = OPTION_TABLES.get(operator.code)
    if table is not None:
        fields[3] = Number(FieldKind.UINT8, table.number)
        fields[4] = _options(operator.code, operator.options)
    return Node(fields)


def _options(code: Builtin, values: Mapping[str, OptionValue]) -> Node:
    fields: dict[int, Part] = {}
    known = {field.name: (place, field) for place, field in enumerate(OPTION_TABLES[code].fields)}
    for name, value in values.items():
        place, field = known[name]
        if value != field.default:
            fields[place] = _option(field.kind, value)
    return Node(fields)


def _option(kind: FieldKind, value: OptionValue) -> Part:
    if isinstance(value, tuple):
        return Numbers("i", value)
    return Text(value) if isinstance(value, str) else Number(kind, value)


def _signature(signature: Signature) -> Node:
    return Node(
        {
            0: Nodes([_named(name, index) for name, index in signature.inputs.items()]),
            1: Nodes([_named(name, index) for name, index in signature.outputs.items()]),
            2: Text(signature.key),
            4: Number(FieldKind.UINT32, signature.subgraph),
        }
    )


def _named(name: str, index: int) -> Node:
    return Node({0: Text(name), 1: Number(FieldKind.UINT32, index)})
