"""Turns a bundle and parameters into an ordinary .tflite for inference; needs numpy alone."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import TrainingError
from edgefl.training.bundle import FEATURES_TFLITE, MODEL_TFLITE, Bundle, check_flat_params
from edgefl.training.kinds import Runtime
from edgefl.training.litert.format.decode import read_model
from edgefl.training.litert.format.dynamic_range import store_weights_as_int8
from edgefl.training.litert.format.encode import write_model
from edgefl.training.litert.format.join import append_subgraph
from edgefl.training.litert.format.model import ModelFile, Signature, Subgraph
from edgefl.training.litert.format.tidy import simplify
from edgefl.training.litert.names import DEPLOY, FEATURES
from edgefl.training.manifest import ParameterSlot

_SIGNATURE = "serving_default"


def has_int8_tflite(bundle: Bundle) -> bool:
    """Tell whether a bundle can be exported as a .tflite with int8 weights."""
    return bundle.manifest.program(Runtime.LITERT) is not None


def export_tflite(
    bundle: Bundle,
    flat_params: NDArray[np.float32],
    local_params: NDArray[np.float32] | None = None,
) -> bytes:
    """Put parameters into the model's TFLite form.

    Args:
        bundle: A bundle with a TFLite program.
        flat_params: float32 [d], finite.
        local_params: float32 [local d], finite; None takes the first ones.

    Returns:
        A file of one example per call: the model's input in, its output out.

    Raises:
        TrainingError: E-BUNDLE-PART, E-BUNDLE-DAMAGED, E-PARAMS-SHAPE, E-PARAMS-DTYPE or
            E-PARAMS-NOT-FINITE.
    """
    return write_model(_inference(bundle, flat_params, local_params))


def export_int8_tflite(
    bundle: Bundle,
    flat_params: NDArray[np.float32],
    local_params: NDArray[np.float32] | None = None,
) -> bytes:
    """Do the same with the layers' weights as int8; see `export_tflite`."""
    model = _inference(bundle, flat_params, local_params)
    for subgraph in model.subgraphs:
        store_weights_as_int8(subgraph)
    return write_model(model)


def _inference(
    bundle: Bundle,
    flat_params: NDArray[np.float32],
    local_params: NDArray[np.float32] | None,
) -> ModelFile:
    manifest = bundle.manifest
    local = bundle.initial_local if local_params is None else local_params
    trained = {
        **_cut(check_flat_params(flat_params, manifest.dimension), manifest.parameters),
        **_cut(check_flat_params(local, manifest.local_dimension), manifest.local),
    }
    try:
        model = read_model(bundle.content(MODEL_TFLITE))
        entry = model.signature(DEPLOY)
        if entry is None:
            message = f"no signature '{DEPLOY}'"
            raise ValueError(message)
        subgraph = model.subgraphs[entry.subgraph]
        _fill(subgraph, entry, trained)
        simplify(subgraph)
        left = [name for name in entry.inputs if name not in trained]
        entry = _renumbered(entry, subgraph, left)
        if manifest.input.name not in entry.inputs:
            front = read_model(bundle.content(FEATURES_TFLITE))
            return _behind_front(front, subgraph, entry)
        return ModelFile(
            subgraphs=[subgraph], signatures=[replace(entry, key=_SIGNATURE, subgraph=0)]
        )
    except (ValueError, KeyError, IndexError) as error:
        raise TrainingError(
            "E-BUNDLE-DAMAGED",
            f"a {MODEL_TFLITE} that takes the bundle's parameters",
            str(error),
            "prepare the bundle anew with 'edgefl model prepare'",
        ) from error


def _cut(
    flat: NDArray[np.float32], slots: tuple[ParameterSlot, ...]
) -> dict[str, NDArray[np.float32]]:
    return {slot.name: flat[slot.offset : slot.offset + slot.size] for slot in slots}


def _fill(subgraph: Subgraph, entry: Signature, trained: dict[str, NDArray[np.float32]]) -> None:
    """Turn the parameters from inputs into constants."""
    for name, values in trained.items():
        index = entry.inputs[name]
        tensor = subgraph.tensors[index]
        if int(np.prod(tensor.shape)) != values.size:
            message = f"'{name}' of shape {list(tensor.shape)} for {values.size} values"
            raise ValueError(message)
        tensor.content = values.astype("<f4", copy=False).tobytes()
        subgraph.inputs.remove(index)


def _renumbered(entry: Signature, subgraph: Subgraph, inputs: list[str]) -> Signature:
    """Return the entry point after tensors have moved; inputs and outputs keep their order."""
    return replace(
        entry,
        inputs=dict(zip(inputs, subgraph.inputs, strict=True)),
        outputs=dict(zip(entry.outputs, subgraph.outputs, strict=True)),
    )


def _behind_front(front: ModelFile, head: Subgraph, entry: Signature) -> ModelFile:
    """Append the head to the frozen front part, as one subgraph."""
    first = front.signature(FEATURES)
    if first is None or first.subgraph != 0:
        message = f"no signature '{FEATURES}' of the front part"
        raise ValueError(message)
    whole = front.subgraphs[0]
    joined = {entry.inputs[name]: first.outputs[name] for name in entry.inputs}
    places = append_subgraph(whole, head, joined)
    outputs = {name: places[index] for name, index in entry.outputs.items()}
    whole.outputs = list(outputs.values())
    signature = Signature(key=_SIGNATURE, subgraph=0, inputs=first.inputs, outputs=outputs)
    return ModelFile(
        subgraphs=front.subgraphs, signatures=[signature], description=front.description
    )
