"""Checks that a file's entry points are what the bundle's manifest says, before anything runs."""

from collections.abc import Mapping

from edgefl.errors import TrainingError
from edgefl.training.kinds import ElementType, Optimizer, QuantizationMode
from edgefl.training.litert.format.kinds import DTYPES, TensorType
from edgefl.training.litert.format.model import Tensor
from edgefl.training.litert.format.outline import Entry, Outline
from edgefl.training.manifest import Manifest, TensorSpec
from edgefl.training.onnx import names

Expected = Mapping[str, tuple[tuple[int, ...], ElementType]]


def require_entry(
    outline: Outline, key: str, *, file_name: str, subgraph: int | None = None
) -> Entry:
    """Return an entry point.

    Args:
        outline: Of the file.
        key: Name of the entry point.
        file_name: For the message.
        subgraph: Which subgraph it must run; 0 is the one that a plain call runs.

    Raises:
        TrainingError: E-TFLITE-SIGNATURE if the file has none of that name, or elsewhere.
    """
    if key not in outline.entries:
        found = ", ".join(sorted(outline.entries)) or "none"
        raise _misfit(f"{file_name} with the signature '{key}'", found)
    entry = outline.entries[key]
    if subgraph is not None and entry.subgraph != subgraph:
        raise _misfit(f"'{key}' as subgraph {subgraph}", f"subgraph {entry.subgraph}")
    return entry


def batch_rows_of(entry: Entry, name: str) -> int:
    """Return the fixed number of rows of an entry point.

    Raises:
        TrainingError: E-TFLITE-SIGNATURE without such an input, or one of no rows.
    """
    tensor = entry.inputs.get(name)
    if tensor is None or not tensor.shape or tensor.shape[0] < 1:
        raise _misfit(f"'{entry.key}' to take rows of '{name}'", "no such input")
    return tensor.shape[0]


def train_inputs(manifest: Manifest, rows: int) -> Expected:
    """Return what a training step reads."""
    trained = (*manifest.parameters, *manifest.local)
    target = (
        ((rows,), ElementType.INT64)
        if manifest.loss.takes_labels
        else ((rows, *manifest.output.shape), ElementType.FLOAT32)
    )
    numbers = [names.LEARNING_RATE, names.PROX_MU, names.MAX_GRADIENT_NORM]
    if manifest.optimizer is Optimizer.ADAMW:
        numbers.append(names.STEP)
    if manifest.clips_examples:
        numbers.append(names.EXAMPLE_CLIP)
    return {
        **tensors(manifest.features or (manifest.input,), rows),
        **{slot.name: _floats(slot.shape) for slot in trained},
        **{names.received(slot.name): _floats(slot.shape) for slot in manifest.parameters},
        **{
            names.state(kind, slot.name): _floats(slot.shape)
            for kind in manifest.optimizer.states
            for slot in trained
        },
        names.TARGET: target,
        names.SAMPLE_WEIGHT: _floats((rows,)),
        **{name: _floats((1,)) for name in numbers},
    }


def rounding_inputs(manifest: Manifest, entry: Entry) -> Expected:
    """Return the random numbers that a step reads in order to keep weights on their int8 grid."""
    if manifest.quantization.mode is not QuantizationMode.GRID:
        return {}
    trained = (*manifest.parameters, *manifest.local)
    return {
        names.rounding(slot.name): _floats(slot.shape)
        for slot in trained
        if names.rounding(slot.name) in entry.inputs
    }


def train_outputs(manifest: Manifest, rows: int) -> Expected:
    """Return what a training step gives."""
    norms = {names.EXAMPLE_NORMS: _floats((rows,))} if manifest.clips_examples else {}
    trained = (*manifest.parameters, *manifest.local)
    return {
        **{names.updated(slot.name): _floats(slot.shape) for slot in trained},
        **{
            names.new_state(kind, slot.name): _floats(slot.shape)
            for kind in manifest.optimizer.states
            for slot in trained
        },
        names.LOSS: _floats(()),
        **norms,
    }


def infer_inputs(manifest: Manifest, entry: Entry, rows: int) -> Expected:
    """Return what inference reads: the model's input, or the features of the front part."""
    takes_input = manifest.input.name in entry.inputs
    data = (manifest.input,) if takes_input else manifest.features
    trained = (*manifest.parameters, *manifest.local)
    return {**tensors(data, rows), **{slot.name: _floats(slot.shape) for slot in trained}}


def tensors(specs: tuple[TensorSpec, ...], rows: int) -> Expected:
    """Return batches of tensors that the manifest lists."""
    return {spec.name: ((rows, *spec.shape), spec.element_type) for spec in specs}


def require_tensors(found: Mapping[str, Tensor], expected: Expected, *, what: str) -> None:
    """Refuse missing, unknown or unlike tensors.

    Args:
        found: Of the file.
        expected: Of the manifest.
        what: For the message.

    Raises:
        TrainingError: E-TFLITE-SIGNATURE, naming tensors and shapes.
    """
    odd = sorted(set(found) - set(expected))
    missing = sorted(set(expected) - set(found))
    if odd or missing:
        listed = ", ".join([f"no {name}" for name in missing] + [f"also {name}" for name in odd])
        raise _misfit(f"{what} as the manifest lists them", listed)
    for name, (shape, element_type) in expected.items():
        tensor = found[name]
        # Single numbers have one axis in TFLite files: without any, interpreters crash on ARM.
        if tensor.shape != (shape or (1,)) or not _is_of(tensor.kind, element_type):
            raise _misfit(
                f"'{name}' of {element_type.value} {list(shape or (1,))}",
                f"{tensor.kind.name.lower()} {list(tensor.shape)}",
            )


def _is_of(kind: TensorType, element_type: ElementType) -> bool:
    return kind in DTYPES and DTYPES[kind].name == element_type.value


def _floats(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ElementType]:
    return shape, ElementType.FLOAT32


def _misfit(expected: str, found: str) -> TrainingError:
    return TrainingError(
        "E-TFLITE-SIGNATURE",
        expected,
        found,
        "prepare the bundle anew with 'edgefl model prepare'",
    )
