"""Reads a TFLite file into plain data; refuses what edgefl could not write again."""

from collections.abc import Mapping, Sequence

from edgefl.training.litert.format.kinds import (
    OPTION_TABLES,
    Builtin,
    FieldKind,
    OptionField,
    OptionValue,
    TensorType,
)
from edgefl.training.litert.format.model import (
    ModelFile,
    Operator,
    Scales,
    Signature,
    Subgraph,
    Tensor,
)
from edgefl.training.litert.format.tables import FileBytes, Table

IDENTIFIER = b"TFL3"
# Codes up to 126 are also kept in an older field of one byte; files of older writers have only it.
_LARGEST_OLD_CODE = 127


def read_model(content: bytes) -> ModelFile:
    """Read a whole file.

    Args:
        content: The file's bytes; nothing about them is trusted.

    Returns:
        Its parts. Metadata is left out.

    Raises:
        ValueError: Damaged bytes, or an operator, type or option that edgefl does not know.
    """
    model = FileBytes(content).root(IDENTIFIER)
    codes = [_known_builtin(code, model_code) for code, model_code in operator_codes(model)]
    versions = [code.integer(2, FieldKind.INT32, 1) for code in model.tables(1)]
    buffers = [_constant(buffer) for buffer in model.tables(4)]
    subgraphs = [_read_subgraph(table, codes, versions, buffers) for table in model.tables(2)]
    signatures = [read_signature(table) for table in model.tables(7)]
    _require_indices(subgraphs, signatures)
    return ModelFile(subgraphs=subgraphs, signatures=signatures, description=model.text(3))


def operator_codes(model: Table) -> list[tuple[int, str]]:
    """Return number and custom name of each operator that a file uses."""
    found: list[tuple[int, str]] = []
    for code in model.tables(1):
        old, new = code.integer(0, FieldKind.INT8), code.integer(3, FieldKind.INT32)
        found.append((max(old, new) if old < _LARGEST_OLD_CODE else new, code.text(1)))
    return found


def read_signature(table: Table) -> Signature:
    """Return one entry point; its indices are not checked yet."""
    return Signature(
        key=table.text(2),
        subgraph=table.integer(4, FieldKind.UINT32),
        inputs=_names(table.tables(0)),
        outputs=_names(table.tables(1)),
    )


def read_tensor(table: Table, buffers: Sequence[bytes] | None) -> Tensor:
    """Return one tensor; its constant content is left out where no buffers are given.

    Raises:
        ValueError: An unknown type, or a buffer that is not there.
    """
    number = table.integer(1, FieldKind.INT8)
    if number not in set(TensorType):
        message = f"element type {number}"
        raise ValueError(message)
    content = b"" if buffers is None else _buffer(table.integer(2, FieldKind.UINT32), buffers)
    return Tensor(
        shape=table.int32s(0),
        kind=TensorType(number),
        content=content or None,
        name=table.text(3),
        scales=_read_scales(table.table(4)),
        is_variable=bool(table.number(5, FieldKind.BOOL)),
    )


def require_within(indices: Sequence[int], tensors: int, *, least: int = 0) -> None:
    """Check that all indices name a tensor.

    Raises:
        ValueError: One does not.
    """
    if indices and not least <= min(indices) <= max(indices) < tensors:
        message = f"a tensor index outside {least} to {tensors - 1}"
        raise ValueError(message)


def _known_builtin(number: int, custom_name: str) -> Builtin:
    if custom_name or number not in set(Builtin) or number == Builtin.CUSTOM:
        message = f"operator {custom_name or number}"
        raise ValueError(message)
    return Builtin(number)


def _constant(buffer: Table) -> bytes:
    if buffer.number(1, FieldKind.UINT64):
        message = "constants outside the tables"
        raise ValueError(message)
    return bytes(buffer.raw(0))


def _buffer(index: int, buffers: Sequence[bytes]) -> bytes:
    if index >= len(buffers):
        message = f"buffer {index} of {len(buffers)}"
        raise ValueError(message)
    return buffers[index]


def _read_subgraph(
    table: Table, codes: list[Builtin], versions: list[int], buffers: list[bytes]
) -> Subgraph:
    return Subgraph(
        name=table.text(4),
        tensors=[read_tensor(tensor, buffers) for tensor in table.tables(0)],
        inputs=list(table.int32s(1)),
        outputs=list(table.int32s(2)),
        operators=[_read_operator(operator, codes, versions) for operator in table.tables(3)],
    )


def _read_operator(table: Table, codes: list[Builtin], versions: list[int]) -> Operator:
    index = table.integer(0, FieldKind.UINT32)
    if index >= len(codes):
        message = f"operator code {index} of {len(codes)}"
        raise ValueError(message)
    code = codes[index]
    return Operator(
        code=code,
        inputs=table.int32s(1),
        outputs=table.int32s(2),
        options=_read_options(table, code),
        version=versions[index],
    )


def _read_options(table: Table, code: Builtin) -> Mapping[str, OptionValue]:
    options = table.table(4)
    known = OPTION_TABLES.get(code)
    if options is None:
        return {}
    if known is None or table.integer(3, FieldKind.UINT8) != known.number:
        message = f"options of {code.name}"
        raise ValueError(message)
    values = {
        field.name: _option(options, place, field) for place, field in enumerate(known.fields)
    }
    return {
        field.name: values[field.name]
        for field in known.fields
        if values[field.name] != field.default
    }


def _option(options: Table, place: int, field: OptionField) -> OptionValue:
    if field.kind is FieldKind.INT32S:
        return options.int32s(place)
    if field.kind is FieldKind.TEXT:
        return options.text(place)
    default = field.default
    return options.number(place, field.kind, default if isinstance(default, int | float) else 0)


def _read_scales(table: Table | None) -> Scales | None:
    if table is None or not (scales := table.float32s(2)):
        return None
    if table.integer(4, FieldKind.UINT8):
        message = "quantization by custom rules"
        raise ValueError(message)
    zero_points = table.int64s(3) or (0,) * len(scales)
    return Scales(scales=scales, zero_points=zero_points, axis=table.integer(6, FieldKind.INT32))


def _names(tables: Sequence[Table]) -> dict[str, int]:
    return {table.text(0): table.integer(1, FieldKind.UINT32) for table in tables}


def _require_indices(subgraphs: list[Subgraph], signatures: list[Signature]) -> None:
    for subgraph in subgraphs:
        tensors = len(subgraph.tensors)
        require_within([*subgraph.inputs, *subgraph.outputs], tensors)
        for operator in subgraph.operators:
            require_within(operator.inputs, tensors, least=-1)
            require_within(operator.outputs, tensors)
    for signature in signatures:
        if signature.subgraph >= len(subgraphs):
            message = f"signature '{signature.key}' of subgraph {signature.subgraph}"
            raise ValueError(message)
        named = [*signature.inputs.values(), *signature.outputs.values()]
        require_within(named, len(subgraphs[signature.subgraph].tensors))
