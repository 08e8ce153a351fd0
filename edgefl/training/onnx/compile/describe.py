"""Writes down what a plan decided, as the manifest of its bundle."""

from collections.abc import Iterable

import onnx
from onnx import helper

from edgefl.errors import TrainingError
from edgefl.training.kinds import ElementType, Runtime
from edgefl.training.manifest import Facts, Manifest, Merge, Program, TensorSpec, slots_of
from edgefl.training.onnx.compile.normalize import (
    MINIMUM_ONNXRUNTIME,
    TARGET_IR_VERSION,
    TARGET_OPSET,
)
from edgefl.training.onnx.compile.plan import Plan
from edgefl.training.onnx.compile.template import ExportTemplate
from edgefl.training.onnx.names import PREFIX

_ELEMENT_TYPES = {kind.value: kind for kind in ElementType}
_INPUT_TYPES = (ElementType.FLOAT32, ElementType.INT64)


def make_manifest(
    plan: Plan, template: ExportTemplate, source_sha256: str, facts: Facts
) -> Manifest:
    """Return the manifest, without hashes of files.

    Args:
        plan: What was decided.
        template: Where trained tensors lie in the exported model.
        source_sha256: Hex digest of the source model.
        facts: What there is to say of the training graph.

    Raises:
        TrainingError: E-MODEL-INPUTS for an input that is neither float32 nor int64, or whose
            sizes are not fixed.
    """
    tensors = {tensor.name: tensor for tensor in plan.model.graph.initializer}
    trained = set(plan.trained)
    offsets = template.splice_offsets
    return Manifest(
        parameters=slots_of((name, tuple(tensors[name].dims)) for name in plan.averaged),
        local=slots_of((name, tuple(tensors[name].dims)) for name in plan.local),
        frozen=_frozen(tensors.values(), trained),
        input=input_spec(plan.input),
        output=TensorSpec(name=plan.output.name, shape=(plan.output.size,)),
        loss=plan.options.loss,
        optimizer=plan.options.optimizer.kind,
        optimizer_settings=plan.options.optimizer.facts,
        features=() if plan.front is None else plan.front.features,
        clips_examples=plan.options.clips_examples,
        quantization=plan.quantization,
        programs=(
            Program(
                runtime=Runtime.ONNX,
                minimum_version=MINIMUM_ONNXRUNTIME,
                facts={"opset": TARGET_OPSET, "ir_version": TARGET_IR_VERSION, **facts},
            ),
        ),
        splice_offsets=tuple(offsets[name] for name in plan.trained if name in offsets),
        merges=tuple(
            Merge(
                target=layer.weight,
                shape=layer.shape,
                offset=template.kept_offsets[layer.weight],
                left=layer.left,
                right=layer.right,
                scale=layer.scale,
            )
            for layer in plan.lora
            if layer.weight in template.kept_offsets
        ),
        source_sha256=source_sha256,
        files={},
    )


def input_spec(value: onnx.ValueInfoProto) -> TensorSpec:
    """Return name, sizes past the batch axis and type of a model's input.

    Raises:
        TrainingError: E-MODEL-INPUTS.
    """
    tensor = value.type.tensor_type
    sizes = [dim.dim_value for dim in tensor.shape.dim[1:]]
    element_type = _element_type(tensor.elem_type)
    if element_type not in _INPUT_TYPES or not tensor.shape.dim or 0 in sizes:
        raise TrainingError(
            "E-MODEL-INPUTS",
            "a float32 or int64 input whose sizes past the batch axis are fixed",
            f"'{value.name}' with sizes {['?' if size == 0 else size for size in sizes]} of "
            f"{element_type.value}",
            "export the model with fixed sizes",
        )
    return TensorSpec(name=value.name, shape=tuple(sizes), element_type=element_type)


def _frozen(tensors: Iterable[onnx.TensorProto], trained: set[str]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(
            name=tensor.name,
            shape=tuple(tensor.dims),
            element_type=_element_type(tensor.data_type),
        )
        for tensor in tensors
        if tensor.name not in trained and all(tensor.dims) and not tensor.name.startswith(PREFIX)
    )


def _element_type(data_type: int) -> ElementType:
    if data_type == onnx.TensorProto.UNDEFINED:
        return ElementType.OTHER
    name = helper.tensor_dtype_to_np_dtype(data_type).name
    return _ELEMENT_TYPES.get(str(name), ElementType.OTHER)
