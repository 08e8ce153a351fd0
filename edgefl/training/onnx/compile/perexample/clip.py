"""Emits the gradient in which each example's part is clipped to a norm before they are added."""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx

from edgefl.training.onnx import names
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.perexample import (  # noqa: F401 - they fill the tables
    affine,
    conv,
    dense,
    embedding,
    place_rules,
    recurrent,
)
from edgefl.training.onnx.compile.perexample.places import MixedExamplesError, follow_examples
from edgefl.training.onnx.compile.perexample.registry import NotVectorisedError
from edgefl.training.onnx.compile.perexample.scan import scan_examples
from edgefl.training.onnx.compile.perexample.vectorised import vectorised_norms


class ExampleForm(enum.Enum):
    """How the norms of single examples are found.

    Attributes:
        VECTORISED: For the whole batch at once.
        SCAN: One example after another, each with its own reverse pass; slower.
    """

    VECTORISED = "vectorised"
    SCAN = "scan"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedGradients:
    """Values of the emitted pass.

    Attributes:
        gradients: By parameter name: sum_i w_i min(1, C / norm_i) g_i, with the weights divided by
            their sum.
        norms: float32 [N]: norm of each example's own gradient, neither weighted nor clipped.
        form: How norms are found.
        reason: Why examples are taken one after another; empty where they are not.
    """

    gradients: dict[str, str]
    norms: str
    form: ExampleForm
    reason: str


def emit_clipped_gradients(
    graph: GraphEmitter,
    nodes: Sequence[onnx.NodeProto],
    trainable: Sequence[str],
    *,
    batch_inputs: Sequence[str],
    output: str,
    example_gradients: str,
    emit_example_gradients: Callable[[GraphEmitter], str],
    weights: str,
    form: ExampleForm | None = None,
) -> ClippedGradients:
    """Emit gradients of which no example contributes more than the clip norm.

    Reads the graph input `names.EXAMPLE_CLIP`, float32 [1], positive: the clip norm C. The norm of
    an example is taken over all trainable tensors together.

    Privacy: Adding or removing one example with weight w changes the sum over examples, that is
    gradient times the sum of the weights, by at most w C, up to rounding in float32 (relative 1e-6,
    and see `dense.py` on Gram forms). That bound is all this pass gives. No noise is added here:
    edgefl adds it outside the graph, from its own random number generator. The loss and the norms
    of the same step are not clipped and not private.

    Args:
        graph: Where to emit.
        nodes: Forward nodes in execution order.
        trainable: Names of the trainable tensors.
        batch_inputs: The inputs whose first axis is the batch.
        output: The value that the loss reads.
        example_gradients: Row i is the gradient of example i's own loss with respect to `output`,
            not weighted.
        emit_example_gradients: Emits the same once more, for the body of a loop over examples; may
            read `output` and `names.TARGET`.
        weights: float32 [N]: the weight of each example divided by the sum of all.
        form: None takes the vectorised form where there is one.

    Returns:
        Gradients and norms.

    Raises:
        TrainingError: As `differentiate` raises.

    Source: Abadi et al. 2016, arXiv:1607.00133, algorithm 1, without its noise; two passes as in
    Lee and Kifer 2021, arXiv:2009.03106, but the second makes the parameters' gradients only.
    """
    reason = ""
    if form is not ExampleForm.SCAN:
        before = len(graph.nodes)
        try:
            places = follow_examples(graph, nodes, batch_inputs, [output])
            found = vectorised_norms(graph, nodes, trainable, places, output, example_gradients)
        except (MixedExamplesError, NotVectorisedError) as error:
            del graph.nodes[before:]
            reason = str(error)
        else:
            norms, factors = _clip(graph, found.squared_norms, weights)
            return ClippedGradients(
                gradients=found.weighted(factors),
                norms=norms,
                form=ExampleForm.VECTORISED,
                reason="",
            )
    scanned = scan_examples(
        graph,
        nodes,
        trainable,
        batch_inputs=batch_inputs,
        output=output,
        emit_example_gradients=emit_example_gradients,
        weights=weights,
        clip=_clip,
    )
    return ClippedGradients(
        gradients=scanned.gradients, norms=scanned.norms, form=ExampleForm.SCAN, reason=reason
    )


def why_examples_are_mixed(
    graph: GraphEmitter,
    nodes: Sequence[onnx.NodeProto],
    batch_inputs: Sequence[str],
    outputs: Sequence[str],
) -> str:
    """Return why values of one example may depend on another; empty where they do not.

    A frozen front part that runs on whole batches must keep examples apart too, or clipping after
    it protects none of them.
    """
    try:
        follow_examples(graph, nodes, batch_inputs, outputs)
    except MixedExamplesError as error:
        return str(error)
    return ""


def node_mixing_examples(
    graph: GraphEmitter, nodes: Sequence[onnx.NodeProto], batch_input: str
) -> str:
    """Return the first node seen to mix examples of a batch; empty where none was seen.

    Behind an operator that no place rule knows nothing is seen.
    """
    try:
        follow_examples(graph, nodes, [batch_input], [])
    except MixedExamplesError as error:
        return str(error) if error.is_certain else ""
    return ""


def _clip(graph: GraphEmitter, squared_norms: str, weights: str) -> tuple[str, str]:
    """Return norms, and weights times min(1, C / norm): exactly the weight for a norm of 0."""
    # A Gram form may leave a sum a little below zero.
    norms = graph.emit("Sqrt", graph.emit("Max", squared_norms, graph.float32(0.0)))
    # C / 0 is infinite, and so is C where nothing is to be clipped: both give 1.
    kept = graph.emit("Min", graph.emit("Div", names.EXAMPLE_CLIP, norms), graph.float32(1.0))
    return norms, graph.emit("Mul", weights, kept)
