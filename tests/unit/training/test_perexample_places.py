"""Following examples through random models: where it says they are, no other example has a say."""

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.perexample import place_rules
from edgefl.training.onnx.compile.perexample.places import MixedExamplesError, follow_examples

BATCH = 5
CHANGED = 2


@st.composite
def chains(draw):
    """Nodes from x [N, 2, 3, 4] through reshapes, moves and operators along axes, to the last."""
    shape: list[int | None] = [None, 2, 3, 4]
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}

    def add(op, inputs, **attributes):
        nodes.append(helper.make_node(op, inputs, [f"v{len(nodes)}"], **attributes))

    for _ in range(draw(st.integers(1, 6))):
        last = nodes[-1].output[0] if nodes else "x"
        kind = draw(st.sampled_from(["move", "move", "shape", "shape", "along", "product", "sum"]))
        rank = len(shape)
        if kind == "move":
            order = draw(st.permutations(range(rank)))
            add("Transpose", [last], perm=list(order))
            shape = [shape[axis] for axis in order]
        elif kind == "shape":
            sizes = draw(st.sampled_from([[24], [4, 6], [2, 12], [3, 8], [2, 3, 4], [6, 2, 2]]))
            rest = int(np.prod([size for size in shape if size is not None]))
            if rest != 24:
                continue
            at = draw(st.integers(0, len(sizes)))
            # The batch may swallow one of the sizes: it is then merged with its neighbours.
            sizes = sizes[: draw(st.integers(at, len(sizes)))] if draw(st.booleans()) else sizes
            target = [*sizes[:at], None, *sizes[at:]]
            name = f"shape{len(nodes)}"
            constants[name] = np.array([-1 if size is None else size for size in target])
            add("Reshape", [last, name])
            shape = target
        elif kind == "along":
            axis = draw(st.integers(0, rank - 1))
            add(draw(st.sampled_from(["Softmax", "LogSoftmax"])), [last], axis=axis)
        elif kind == "sum" and rank > 2:
            axis = draw(st.integers(0, rank - 1))
            keep = draw(st.booleans())
            if shape[axis] is None:
                continue
            add("ReduceMax", [last], axes=[axis], keepdims=int(keep))
            shape = [1 if a == axis else s for a, s in enumerate(shape) if keep or a != axis]
        elif kind == "product" and shape[-1] is not None:
            name = f"weight{len(nodes)}"
            constants[name] = np.random.default_rng(len(nodes)).normal(size=(shape[-1], 3))
            add("MatMul", [last, name])
            shape = [*shape[:-1], 3]
    add("Tanh", [nodes[-1].output[0] if nodes else "x"])
    return nodes, constants


def as_model(nodes, constants):
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2, 3, 4])],
        [helper.make_empty_tensor_value_info(nodes[-1].output[0])],
        [
            numpy_helper.from_array(v.astype(np.float32) if v.dtype.kind == "f" else v, n)
            for n, v in constants.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


def by_example(value, place):
    """Bring the examples to the first axis."""
    before, after = value.shape[: place.axis], value.shape[place.axis + 1 :]
    apart = value.reshape(*before, place.outer, BATCH, place.inner, *after)
    return np.moveaxis(apart, place.axis + 1, 0)


@given(chain=chains())
def test_no_example_reaches_a_place_of_another(chain):
    model = as_model(*chain)
    nodes = list(model.graph.node)
    try:
        places = follow_examples(GraphEmitter(model), nodes, ["x"], [])
    except MixedExamplesError:
        return
    last = nodes[-1].output[0]
    place = places[last]
    assert place is not None
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH, 2, 3, 4)).astype(np.float32)
    changed = x.copy()
    changed[CHANGED] = rng.normal(size=(2, 3, 4))
    evaluator = ReferenceEvaluator(model)
    one, other = (by_example(evaluator.run(None, {"x": v})[0], place) for v in (x, changed))
    differs = np.any(one != other, axis=tuple(range(1, one.ndim)))
    assert set(np.flatnonzero(differs)) <= {CHANGED}


def test_each_value_wise_operator_is_known_once():
    listed = [*place_rules._VALUE_WISE, *place_rules._FIRST_AXIS, *place_rules._REDUCTIONS]
    assert len(listed) == len(set(listed))
    assert all(onnx.defs.has(op) for op in listed)
