"""The exact form for any model: one example after another, each with its own reverse pass."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from edgefl.training.onnx import names
from edgefl.training.onnx.compile.differentiate import differentiate
from edgefl.training.onnx.compile.graph import GraphEmitter, values_read_by
from edgefl.training.onnx.compile.perexample.registry import total


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedGradients:
    """What the loop gives.

    Attributes:
        gradients: Sum over the examples of weight times clipped gradient, by parameter name.
        norms: float32 [N], before clipping.
    """

    gradients: dict[str, str]
    norms: str


def scan_examples(
    graph: GraphEmitter,
    nodes: Sequence[onnx.NodeProto],
    trainable: Sequence[str],
    *,
    batch_inputs: Sequence[str],
    output: str,
    emit_example_gradients: Callable[[GraphEmitter], str],
    weights: str,
    clip: Callable[[GraphEmitter, str, str], tuple[str, str]],
) -> ScannedGradients:
    """Emit a Scan whose body runs the model forwards and backwards on one example.

    No example can reach another one's gradient here, whatever the model does with its batch axis.

    Args:
        graph: Where to emit.
        nodes: Forward nodes in execution order.
        trainable: Names of the trainable tensors.
        batch_inputs: The inputs whose first axis is the batch.
        output: The value that the loss reads.
        emit_example_gradients: Emits the gradient of each example's loss with respect to `output`.
        weights: float32 [N].
        clip: Takes squared norms and weights; emits norms and factors.

    Returns:
        Gradients and norms.
    """
    shapes = [[size or 0 for size in graph.shape_of(name, nodes[-1])] for name in trainable]
    dependent = _depending_on(nodes, batch_inputs)
    totals = [graph.new_name("total") for _ in trainable]
    examples = [graph.new_name("example") for _ in batch_inputs]
    target, weight = graph.new_name("target"), graph.new_name("weight")
    first = graph.int64s([0])
    with graph.subgraph() as body_nodes:
        renamed = {
            whole: graph.emit("Unsqueeze", one, first)
            for whole, one in zip([*batch_inputs, names.TARGET], [*examples, target], strict=True)
        }
        forward_at = len(body_nodes)
        output_gradient = emit_example_gradients(graph)
        gradients = differentiate(graph, nodes, trainable, output, output_gradient)
        norm, factor = clip(graph, _squared_norm(graph, list(gradients.values())), weight)
        results = _added(graph, totals, [gradients[name] for name in trainable], factor)
        results.append(graph.emit("Identity", norm))
    # After differentiation, which may ask a forward node for one more output.
    body_nodes[forward_at:forward_at] = dependent
    renamed |= {value: graph.new_name("of_one") for node in dependent for value in node.output}
    body = helper.make_graph(
        _needed([_renamed(node, renamed) for node in body_nodes], results),
        graph.new_name("one_example"),
        [_value(name, shape) for name, shape in zip(totals, shapes, strict=True)]
        + [helper.make_empty_tensor_value_info(name) for name in (*examples, target)]
        + [_value(weight, [])],
        [_value(name, shape) for name, shape in zip(results, [*shapes, []], strict=True)],
    )
    zeros = [graph.emit("ConstantOfShape", graph.int64s(shape)) for shape in shapes]
    emitted = graph.emit_outputs(
        "Scan",
        [*zeros, *batch_inputs, names.TARGET, weights],
        len(results),
        body=body,
        num_scan_inputs=len(batch_inputs) + 2,
    )
    return ScannedGradients(
        gradients=dict(zip(trainable, emitted[:-1], strict=True)), norms=emitted[-1]
    )


def _squared_norm(graph: GraphEmitter, gradients: Sequence[str]) -> str:
    return total(graph, [graph.emit("ReduceSumSquare", v, keepdims=0) for v in gradients])


def _added(
    graph: GraphEmitter, totals: Sequence[str], gradients: Sequence[str], factor: str
) -> list[str]:
    scalar = graph.emit("Squeeze", factor)
    return [
        graph.emit("Add", so_far, graph.emit("Mul", gradient, scalar))
        for so_far, gradient in zip(totals, gradients, strict=True)
    ]


def _depending_on(
    nodes: Sequence[onnx.NodeProto], batch_inputs: Sequence[str]
) -> list[onnx.NodeProto]:
    """Return the nodes that read the examples; the others are run once, outside the loop."""
    reached = set(batch_inputs)
    found = []
    for node in nodes:
        if reached & values_read_by(node):
            found.append(node)
            reached.update(node.output)
    return found


def _needed(nodes: Sequence[onnx.NodeProto], results: Sequence[str]) -> list[onnx.NodeProto]:
    needed, kept = set(results), []
    for node in reversed(nodes):
        if needed & set(node.output):
            kept.append(node)
            needed |= values_read_by(node)
    return kept[::-1]


def _renamed(node: onnx.NodeProto, names_by_old: Mapping[str, str]) -> onnx.NodeProto:
    """Return a copy that reads and makes values under other names, in its subgraphs too.

    A body may not make a value under a name that the outer graph has.
    """
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.ClearField("name")
    copy.input[:] = [names_by_old.get(value, value) if value else "" for value in node.input]
    copy.output[:] = [names_by_old.get(value, value) if value else "" for value in node.output]
    for attribute in copy.attribute:
        if attribute.HasField("g"):
            inner = [_renamed(child, names_by_old) for child in attribute.g.node]
            del attribute.g.node[:]
            attribute.g.node.extend(inner)
    return copy


def _value(name: str, shape: Sequence[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
