"""What can be said against a model before it is brought into another form."""

from collections.abc import Iterator

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe
from edgefl.training.onnx.compile.rules.quant import INTEGER_ADVICE, INTEGER_OPERATORS

_STANDARD_DOMAINS = frozenset({"", "ai.onnx"})
_QUANTIZERS = frozenset({"DequantizeLinear", "QuantizeLinear"})
_CODE = "E-MODEL-UNSUPPORTED-OPS"


def source_obstacles(source: onnx.ModelProto) -> Iterator[TrainingError]:
    """Yield one error for each node or tensor that is in the way.

    Args:
        source: A model as its exporter wrote it.
    """
    for entry in source.opset_import:
        newest = onnx.defs.onnx_opset_version()
        if entry.domain in _STANDARD_DOMAINS and entry.version > newest:
            yield TrainingError(
                "E-MODEL-OPSET",
                f"an opset that this onnx package knows, up to {newest}",
                f"opset {entry.version}",
                "install a newer onnx, or export with an older opset",
            )
    own = _STANDARD_DOMAINS | {function.domain for function in source.functions}
    tensors = {tensor.name for tensor in source.graph.initializer}
    made = {value: node for node in source.graph.node for value in node.output}
    for node in source.graph.node:
        if node.domain not in own:
            yield TrainingError(
                "E-MODEL-FOREIGN-OPS",
                "standard operators, which every onnxruntime has",
                f"{describe(node)} of {node.domain}",
                "export without operators of other domains",
            )
        if node.op_type in _QUANTIZERS:
            yield from _quantizer_obstacles(node, tensors, made)


def unsupported_node(node: onnx.NodeProto) -> TrainingError:
    """Return the error for a node that gradients must pass and that has no rule."""
    if node.op_type in INTEGER_OPERATORS:
        return TrainingError(
            _CODE,
            "float layers where gradients flow",
            f"layer {describe(node)}, which is fully quantized",
            INTEGER_ADVICE,
        )
    return TrainingError(
        _CODE,
        "an operator with a gradient rule (docs/models.md lists them)",
        describe(node),
        "replace it, or train only layers after it (--trainable head or last:N)",
    )


def _quantizer_obstacles(
    node: onnx.NodeProto, tensors: set[str], made: dict[str, onnx.NodeProto]
) -> Iterator[TrainingError]:
    for index, role in ((1, "scale"), (2, "zero point")):
        name = node.input[index] if index < len(node.input) else ""
        if index == 2 and not name:
            # Without one it is zero, says the operator's definition.
            continue
        producer = made.get(name)
        if name in tensors or (producer is not None and producer.op_type == "Constant"):
            continue
        yield TrainingError(
            "E-MODEL-QUANTIZER",
            f"a {role} stored in the model",
            f"'{name}' at {describe(node)}"
            + ("" if producer is None else f", made by {describe(producer)}"),
            "quantize the model again with fixed scales and zero points",
        )
