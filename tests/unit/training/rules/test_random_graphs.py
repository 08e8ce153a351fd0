"""Random graphs of value-wise operators, activations, reductions and normalisation."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.exact_operators import EXACT_OPERATORS
from tests.gradient_check import check_gradients

BATCH = 3
SMOOTH = ("Neg", "Exp", "Sigmoid", "Tanh", "Softplus", "Erf", "Elu", "Celu", "Sin", "Cos", "Atan")
KINKED = {
    # Operator and where its kinks lie.
    "Relu": (0.0,),
    "LeakyRelu": (0.0,),
    "Selu": (0.0,),
    "Abs": (0.0,),
    "Softsign": (0.0,),
    "HardSigmoid": (-2.5, 2.5),
    "HardSwish": (-3.0, 3.0),
    "ThresholdedRelu": (1.0,),
}
# Only of values far from 0, where they do not explode.
OF_POSITIVE = ("Sqrt", "Log", "Reciprocal")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean")
REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp")
MARGIN = 1e-3
LARGEST = 30.0


@dataclass
class GraphDraft:
    """A graph in the making, with the value of everything in it at one point."""

    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: list = field(default_factory=list)
    values: dict[str, np.ndarray] = field(default_factory=dict)

    def add_input(self, shape):
        name = f"p{len(self.inputs)}"
        rng = np.random.default_rng([len(self.inputs), *shape])
        self.inputs[name] = rng.normal(size=shape).astype(np.float32)
        self.values[name] = self.inputs[name].astype(np.float64)
        return name

    def add_node(self, op, names, **attributes):
        """Add a node unless its value would be huge; return whether it was added."""
        node = helper.make_node(op, names, [f"v{len(self.nodes)}"], **attributes)
        feeds = {name: self.values[name] for name in names}
        with np.errstate(all="ignore"):
            value = ReferenceEvaluator(node, new_ops=EXACT_OPERATORS).run(None, feeds)[0]
        if not np.isfinite(value).all() or np.abs(value).max() > LARGEST:
            return False
        self.nodes.append(node)
        self.values[node.output[0]] = np.asarray(value, np.float64)
        return True

    def has_no_ties(self, name, axes):
        """Say whether the extremes along the axes stand out."""
        moved = np.moveaxis(self.values[name], axes, range(-len(axes), 0))
        flat = np.sort(moved.reshape(*moved.shape[: -len(axes)], -1), axis=-1)
        return flat.shape[-1] == 1 or np.diff(flat, axis=-1).min() > MARGIN


def batch_axis_is_kept(shape):
    return len(shape) == 3 and shape[0] == BATCH


def add_unary(draft, data, name):
    value = draft.values[name]
    kinds = [*SMOOTH]
    kinds += [op for op, at in KINKED.items() if min(np.abs(value - k).min() for k in at) > MARGIN]
    kinds += OF_POSITIVE if value.min() > 0.2 else []
    draft.add_node(data.draw(st.sampled_from(kinds)), [name])


def add_binary(draft, data, name):
    value = draft.values[name]
    shape = value.shape
    other = data.draw(st.sampled_from([None, *draft.values]))
    if other is None:
        sizes = [data.draw(st.sampled_from([1, size])) for size in shape[1:]]
        other = draft.add_input(sizes[data.draw(st.integers(0, len(sizes))) :])
    op = data.draw(st.sampled_from(BINARY))
    names = data.draw(st.permutations([name, other]))
    first, second = (draft.values[item] for item in names)
    try:
        np.broadcast_shapes(first.shape, second.shape)
    except ValueError:
        return
    if op in {"Max", "Min"} and np.abs(first - second).min() < MARGIN:
        return
    if op == "Div" and np.abs(second).min() < 0.2:
        return
    draft.add_node(op, list(names))


def add_reduction(draft, data, name):
    axes = data.draw(st.sampled_from([[1], [2], [-1, 1]]))
    op = data.draw(st.sampled_from(REDUCTIONS))
    if op in {"ReduceMax", "ReduceMin"} and not draft.has_no_ties(name, axes):
        return
    if op == "ReduceL2" and np.abs(draft.values[name]).max() < MARGIN:
        return
    draft.add_node(op, [name], axes=axes, keepdims=1)


def add_softmax(draft, data, name):
    op = data.draw(st.sampled_from(["Softmax", "LogSoftmax"]))
    draft.add_node(op, [name], axis=data.draw(st.sampled_from([1, 2, -1])))


def add_normalization(draft, data, name):
    shape = draft.values[name].shape
    spreads = np.ptp(draft.values[name], axis=-1)
    if spreads.min() < 0.1:
        return
    if data.draw(st.booleans()):
        draft.add_node("LayerNormalization", [name, draft.add_input(shape[2:])], axis=2)
    else:
        draft.add_node(
            "InstanceNormalization", [name, *(draft.add_input(shape[1:2]) for _ in "sb")]
        )


@st.composite
def drafts(draw):
    data = draw(st.data())
    draft = GraphDraft()
    draft.inputs["x"] = np.random.default_rng(7).normal(size=(BATCH, 2, 4)).astype(np.float32)
    draft.values["x"] = draft.inputs["x"].astype(np.float64)
    draft.add_node("Mul", ["x", draft.add_input((2, 4))])
    wanted = draw(st.integers(5, 12))
    steps = (add_unary, add_unary, add_binary, add_binary, add_reduction, add_softmax)
    for _ in range(4 * wanted):
        if len(draft.nodes) == wanted:
            break
        names = [name for name, value in draft.values.items() if batch_axis_is_kept(value.shape)]
        # Recent values first: long chains rather than stars.
        name = draw(st.sampled_from(names[-3:]))
        step = draw(st.sampled_from([*steps, add_normalization]))
        step(draft, data, name)
    return draft


@given(draft=drafts())
def test_random_graphs_agree(draft):
    read = {name for node in draft.nodes for name in node.input}
    wanted = [name for name in draft.inputs if name in read]
    inputs = {name: draft.inputs[name] for name in wanted}
    check_gradients(
        draft.nodes,
        inputs,
        wanted,
        batch_axes={"x": 0},
        tolerance=1e-5,
        float32_floor=1e-4,
        zero_allowed=wanted,
    )
