"""Reads what a device must know of a TFLite file before an interpreter sees it."""

from collections.abc import Mapping
from dataclasses import dataclass

from edgefl.errors import TrainingError
from edgefl.training.litert.format.decode import (
    IDENTIFIER,
    operator_codes,
    read_signature,
    read_tensor,
    require_within,
)
from edgefl.training.litert.format.kinds import Builtin
from edgefl.training.litert.format.model import Tensor
from edgefl.training.litert.format.tables import FileBytes, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One way to call a file.

    Attributes:
        key: Its name.
        subgraph: Index of the subgraph that it runs.
        inputs: Tensors to fill, by name.
        outputs: Tensors to read, by name.
        indices: Index of each of these tensors in the subgraph, by name.
    """

    key: str
    subgraph: int
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    indices: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What a file offers and what it needs.

    Attributes:
        operators: Number of each operator that it uses.
        custom: Names of operators that no plain interpreter has.
        entries: Its signatures by name.
    """

    operators: tuple[int, ...]
    custom: tuple[str, ...]
    entries: Mapping[str, Entry]


def read_outline(content: bytes, *, name: str) -> Outline:
    """Read a file's outline.

    Args:
        content: The file's bytes; nothing about them is trusted.
        name: For the message.

    Returns:
        The outline.

    Raises:
        TrainingError: E-TFLITE-DAMAGED.
    """
    try:
        model = FileBytes(content).root(IDENTIFIER)
        codes = operator_codes(model)
        subgraphs = model.tables(2)
        entries = [_read_entry(signature, subgraphs) for signature in model.tables(7)]
    except ValueError as error:
        raise TrainingError(
            "E-TFLITE-DAMAGED",
            f"{name} to be a whole TFLite file",
            str(error),
            "fetch the bundle again or prepare it anew with 'edgefl model prepare'",
        ) from error
    return Outline(
        operators=tuple(number for number, _ in codes),
        custom=tuple(
            custom or f"operator {number}"
            for number, custom in codes
            if custom or number == Builtin.CUSTOM
        ),
        entries={entry.key: entry for entry in entries},
    )


def require_builtins(outline: Outline, *, name: str) -> None:
    """Refuse files with custom or Flex operators.

    A slim interpreter loads such a file, and fails only when it first runs the operator.

    Raises:
        TrainingError: E-TFLITE-OPERATORS with all of them.
    """
    if outline.custom:
        raise TrainingError(
            "E-TFLITE-OPERATORS",
            f"{name} of builtin operators alone",
            ", ".join(sorted(set(outline.custom))),
            "prepare the bundle with 'edgefl model prepare'; TensorFlow's own conversion of a "
            "training function needs operators that boards do not have",
        )


def require_inputs_of_rank(outline: Outline, *, name: str) -> None:
    """Refuse entry points with an input without axes.

    Resizing such an input crashes the interpreter's aarch64 wheels (ai-edge-litert 1.4 to 2.3).

    Raises:
        TrainingError: E-TFLITE-RANK with all of them.
    """
    bare = [
        f"{entry.key}({input_name})"
        for entry in outline.entries.values()
        for input_name, tensor in entry.inputs.items()
        if not tensor.shape
    ]
    if bare:
        raise TrainingError(
            "E-TFLITE-RANK",
            f"signature inputs of {name} with at least one axis",
            f"none for {', '.join(bare)}",
            "give single numbers the shape [1]",
        )


def _read_entry(table: Table, subgraphs: list[Table]) -> Entry:
    signature = read_signature(table)
    if signature.subgraph >= len(subgraphs):
        message = f"signature '{signature.key}' of subgraph {signature.subgraph}"
        raise ValueError(message)
    tensors = subgraphs[signature.subgraph].tables(0)
    indices = {**signature.inputs, **signature.outputs}
    require_within(list(indices.values()), len(tensors))
    found = {index: read_tensor(tensors[index], None) for index in indices.values()}
    return Entry(
        key=signature.key,
        subgraph=signature.subgraph,
        inputs={name: found[index] for name, index in signature.inputs.items()},
        outputs={name: found[index] for name, index in signature.outputs.items()},
        indices=indices,
    )
