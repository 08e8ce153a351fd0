"""Finds the value that the loss reads: the model's output, or what it is before a softmax."""

from dataclasses import dataclass

import onnx

from edgefl.errors import TrainingError
from edgefl.training.kinds import Loss
from edgefl.training.onnx.compile.attributes import describe

_TAKEN_OFF = {
    Loss.CROSS_ENTROPY: frozenset({"Softmax", "LogSoftmax"}),
    Loss.BINARY_CROSS_ENTROPY: frozenset({"Sigmoid"}),
}
"""Final operators that are part of the loss, since computing both at once is exact."""

_SHAPE_KEEPING = frozenset({"Identity"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOutput:
    """The value that the loss reads.

    Attributes:
        name: Its name.
        size: Its second size: classes, or values per row.
        warnings: What the user should know about the choice.
    """

    name: str
    size: int
    warnings: tuple[str, ...]


def find_output(model: onnx.ModelProto, loss: Loss) -> ModelOutput:
    """Return the value before a final softmax or sigmoid, or the output itself.

    Args:
        model: Normalized model.
        loss: Decides what is taken off.

    Raises:
        TrainingError: E-MODEL-OUTPUT when the value is no float32 [N, k].
    """
    name = model.graph.output[0].name
    producers = {output: node for node in model.graph.node for output in node.output}
    producer = producers.get(name)
    while producer is not None and producer.op_type in _SHAPE_KEEPING:
        producer = producers.get(producer.input[0])
    warnings: list[str] = []
    if producer is not None and producer.op_type in _TAKEN_OFF.get(loss, frozenset()):
        name = producer.input[0]
        warnings.append(
            f"{describe(producer)} is applied already; {loss.value} reads '{name}' before it"
        )
    elif producer is not None and producer.op_type in {"Softmax", "LogSoftmax", "Sigmoid"}:
        warnings.append(f"{loss.value} reads the result of {describe(producer)} as it is")
    if len(model.graph.output) > 1:
        others = ", ".join(f"'{value.name}'" for value in model.graph.output[1:])
        warnings.append(f"the loss reads the first output; {others} are left out of training")
    return ModelOutput(name=name, size=_size(model.graph, name, loss), warnings=tuple(warnings))


def _size(graph: onnx.GraphProto, name: str, loss: Loss) -> int:
    values = {value.name: value for value in [*graph.value_info, *graph.output]}
    tensor = values[name].type.tensor_type if name in values else onnx.TypeProto.Tensor()
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    size: int | None = sizes[1] if len(sizes) == 2 else None
    is_float = tensor.elem_type in {onnx.TensorProto.FLOAT, onnx.TensorProto.UNDEFINED}
    if sizes[:1] != [None] or not size or not is_float or (size == 1 and loss.takes_labels):
        shown = ["?" if size is None else size for size in sizes]
        raise TrainingError(
            "E-MODEL-OUTPUT",
            "float32 logits of shape [any batch, classes], at least 2"
            if loss.takes_labels
            else "float32 values of shape [any batch, values]",
            f"'{name}' of shape {shown}",
            "end the model with one linear layer, with a dynamic batch axis; one logit or value "
            "per row goes with binary_cross_entropy, mse or huber",
        )
    return size
