"""Gradients of operators that reshape, reorder, repeat, join, split, cut and pad."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.differentiate import differentiate
from edgefl.training.onnx.compile.graph import GraphEmitter
from tests.gradient_check import check_gradients, run_gradients

RNG = np.random.default_rng(11)


def values(*shape):
    return RNG.normal(size=shape)


def node(op, inputs, outputs=("y",), **attributes):
    name = f"the_{op}_{outputs[0]}"
    return helper.make_node(op, list(inputs), list(outputs), name=name, **attributes)


def ints(*items):
    return np.array(items, np.int64)


def check(source, inputs, **options):
    """Check with all axes fixed, then with the first axis of `x` open."""
    check_gradients(source, inputs, **options)
    return check_gradients(source, inputs, batch_axes={"x": 0}, **options)


@pytest.mark.parametrize(
    ("op", "shape", "extra", "attributes"),
    [
        ("Identity", (3, 4), {}, {}),
        ("Dropout", (3, 4), {}, {}),
        ("Flatten", (3, 4, 2), {}, {"axis": 1}),
        ("Flatten", (3, 4, 2), {}, {"axis": -1}),
        ("Flatten", (3, 4, 2), {}, {"axis": 0}),
        ("Reshape", (3, 4), {"to": ints(-1, 2, 2)}, {}),
        ("Reshape", (3, 4), {"to": ints(0, 2, -1)}, {}),
        ("Reshape", (3, 4), {"to": ints(12)}, {}),
        ("Squeeze", (3, 1, 4, 1), {"axes": ints(1, -1)}, {}),
        ("Squeeze", (3, 1, 4), {"axes": ints(-2)}, {}),
        ("Unsqueeze", (3, 4), {"axes": ints(-1, 0, 2)}, {}),
        ("Transpose", (2, 3, 4), {}, {"perm": [2, 0, 1]}),
        ("Transpose", (2, 3, 4), {}, {}),
        ("Expand", (3, 1, 4), {"to": ints(1, 5, 1)}, {}),
        ("Expand", (3, 1), {"to": ints(2, 1, 4)}, {}),
        ("Tile", (3, 4), {"repeats": ints(1, 3)}, {}),
        ("Tile", (3, 4), {"repeats": ints(2, 3)}, {}),
        ("Tile", (3, 4), {"repeats": ints(1, 1)}, {}),
        ("SpaceToDepth", (2, 3, 4, 6), {}, {"blocksize": 2}),
        ("DepthToSpace", (2, 8, 2, 3), {}, {"blocksize": 2}),
        ("DepthToSpace", (2, 8, 2, 3), {}, {"blocksize": 2, "mode": "DCR"}),
        ("DepthToSpace", (2, 9, 2, 3), {}, {"blocksize": 3, "mode": "CRD"}),
        ("Cast", (3, 4), {}, {"to": TensorProto.FLOAT}),
    ],
)
def test_moved_values_take_their_gradient_along(op, shape, extra, attributes):
    check(node(op, ["x", *extra], **attributes), {"x": values(*shape), **extra})


def test_dropout_in_training_mode_is_refused():
    inputs = {"x": values(3, 4), "ratio": np.array(0.5), "training": np.array(True)}
    source = node("Dropout", ["x", "ratio", "training"])
    with pytest.raises(TrainingError, match="the_Dropout_y"):
        run_gradients(source, inputs, wanted=["x"])
    inputs["training"] = np.array(False)
    check_gradients(source, inputs, wanted=["x"])


def test_expand_of_a_parameter_to_the_batch_sums_over_it():
    nodes = [
        node("Shape", ["x"], ["sizes"]),
        node("Gather", ["sizes", "first"], ["rows"]),
        node("Concat", ["rows", "rest"], ["to"], axis=0),
        node("Expand", ["token", "to"], ["tokens"]),
        node("Concat", ["tokens", "x"], ["y"], axis=1),
    ]
    inputs = {"x": values(5, 3, 4), "token": values(1, 1, 4), "first": ints(0), "rest": ints(1, 4)}
    check_gradients(nodes, inputs, batch_axes={"x": 0})


def test_tile_of_a_parameter_to_the_batch_sums_over_it():
    # Repeats are computed, so only the output's shape, known otherwise, tells what was repeated.
    graph = helper.make_graph(
        [node("Tile", ["token", "repeats"])],
        "tile",
        [helper.make_tensor_value_info("repeats", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 6])],
        [numpy_helper.from_array(np.zeros((1, 3), np.float32), "token")],
    )
    emitter = GraphEmitter(helper.make_model(graph))
    gradients = differentiate(emitter, list(graph.node), ["token"], "y", "seed")
    backward = helper.make_graph(
        emitter.nodes,
        "backward",
        [helper.make_tensor_value_info("seed", TensorProto.FLOAT, ["N", 6])],
        [helper.make_tensor_value_info(gradients["token"], TensorProto.FLOAT, None)],
        emitter.constants,
    )
    seed = values(5, 6).astype(np.float32)
    evaluator = ReferenceEvaluator(helper.make_model(backward))
    found = evaluator.run(None, {"seed": seed})[0]
    np.testing.assert_allclose(found, seed.reshape(5, 2, 3).sum(axis=(0, 1))[None], rtol=1e-5)


def test_tile_with_unknown_repeats_is_refused():
    nodes = [
        node("Shape", ["x"], ["repeats"]),
        node("Tile", ["x", "repeats"]),
    ]
    with pytest.raises(TrainingError, match="the_Tile_y"):
        run_gradients(nodes, {"x": values(2, 3)}, batch_axes={"x": 0})


def test_a_shape_computed_from_the_batch_goes_through():
    nodes = [
        node("Mul", ["x", "p"], ["scaled"]),
        node("Shape", ["scaled"], ["sizes"]),
        node("Gather", ["sizes", "first"], ["rows"]),
        node("Unsqueeze", ["rows", "zero_axis"], ["row"]),
        node("Concat", ["row", "minus_one"], ["to"], axis=0),
        node("Reshape", ["scaled", "to"], ["y"]),
    ]
    inputs = {
        "x": values(5, 3, 4),
        "p": values(4),
        "first": np.array(0, np.int64),
        "zero_axis": ints(0),
        "minus_one": ints(-1),
    }
    check_gradients(nodes, inputs, batch_axes={"x": 0})


def test_two_unknown_sizes_are_read_at_run_time():
    # The transposition makes inference lose the size of the middle axis.
    nodes = [
        node("Mul", ["x", "p"], ["scaled"]),
        node("Reshape", ["scaled", "to"], ["flat"]),
        node("Tanh", ["flat"], ["y"]),
    ]
    inputs = {"x": values(5, 3, 4), "p": values(3, 4), "to": ints(-1)}
    graph = check_gradients(nodes, inputs, batch_axes={"x": 0})
    assert "Shape" not in graph.emitted


@pytest.mark.parametrize("source", [TensorProto.INT64, TensorProto.BOOL, TensorProto.INT32])
def test_no_gradient_flows_through_whole_numbers(source):
    nodes = [
        node("Cast", ["x"], ["whole"], to=source),
        node("Cast", ["whole"], ["again"], to=TensorProto.FLOAT),
        node("Mul", ["x", "again"], ["y"]),
    ]
    x = np.array([[1.25, 2.5], [0.75, 3.5]])
    found = run_gradients(nodes, {"x": x})
    # The derivative of x * whole(x) is whole(x) alone.
    expected = x.astype(helper.tensor_dtype_to_np_dtype(source)).astype(np.float32)
    np.testing.assert_array_equal(found["x"], expected)


def test_a_detour_through_half_precision_keeps_its_gradient():
    nodes = [
        node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        node("Cast", ["half"], ["single"], to=TensorProto.FLOAT),
        node("Mul", ["single", "single"], ["y"]),
    ]
    x = np.array([[1.5, 2.0], [-0.25, 3.0]])
    np.testing.assert_allclose(run_gradients(nodes, {"x": x})["x"], 2 * x, rtol=1e-3)


@pytest.mark.parametrize("axis", [1, -1, 2])
def test_concat(axis):
    sizes = {1: ((2, 3, 4), (2, 1, 4), (2, 5, 4)), 2: ((2, 3, 4), (2, 3, 1), (2, 3, 5))}
    shapes = sizes[axis % 3]
    inputs = {name: values(*shape) for name, shape in zip("xab", shapes, strict=True)}
    check_gradients(node("Concat", "xab", axis=axis), inputs)
    check_gradients(node("Concat", "xab", axis=axis), inputs, batch_axes=dict.fromkeys("xab", 0))


def test_concat_emits_one_slice_when_one_input_is_trained():
    inputs = {name: values(2, size) for name, size in (("x", 2), ("a", 3), ("b", 4))}
    graph = check_gradients(node("Concat", "xab", axis=1), inputs, wanted=["a"])
    assert graph.emitted == ("Slice",)


def test_concat_of_one_value_with_itself():
    check(node("Concat", ["x", "x"], axis=1), {"x": values(2, 3)})


@pytest.mark.parametrize("axis", [1, -2])
@pytest.mark.parametrize("read", [["a", "b", "c"], ["a"], ["b"], ["c"], ["a", "c"], ["b", "c"]])
@pytest.mark.parametrize("split", [None, ints(1, 3, 2)])
def test_split_with_parts_that_nothing_reads(axis, read, split):
    extra = {} if split is None else {"split": split}
    nodes = [node("Split", ["x", *extra], "abc", axis=axis)]
    nodes += [node("Tanh", [name], [f"end_{name}"]) for name in read]
    outputs = [f"end_{name}" for name in read]
    check(nodes, {"x": values(2, 6, 2), **extra}, outputs=outputs)


@pytest.mark.parametrize(
    ("op", "message"), [("Concat", "batch axis"), ("Split", "batch axis"), ("Slice", "batch axis")]
)
def test_mixing_examples_is_refused(op, message):
    nodes = {
        "Concat": [node("Concat", ["x", "x"], axis=0)],
        "Split": [node("Split", ["x"], "ab", axis=0), node("Mul", "ab")],
        "Slice": [node("Slice", ["x", "one", "two", "zero"])],
    }[op]
    inputs = {"x": values(4, 3), "zero": ints(0), "one": ints(1), "two": ints(2)}
    with pytest.raises(TrainingError, match=message) as caught:
        check_gradients(nodes, inputs, wanted=["x"], batch_axes={"x": 0})
    assert caught.value.code in {"E-MODEL-OP-FORM", "E-MODEL-SHAPE"}
    assert f"the_{op}_" in str(caught.value)


SLICES = [
    ((4, 7), [1], [5], [1], [1]),
    ((4, 7), [1], [5], [1], [2]),
    ((4, 7), [0], [7], [1], [3]),
    ((4, 7), [-6], [-1], [-1], [2]),
    ((4, 7), [-1], [-8], [1], [-1]),
    ((4, 7), [-1], [np.iinfo(np.int64).min], [1], [-2]),
    ((4, 7), [5], [0], [1], [-3]),
    ((4, 7), [2], [3], [1], [4]),
    ((4, 7), [0], [np.iinfo(np.int64).max], [1], [1]),
    ((4, 7, 5), [1, 4], [6, 0], [1, 2], [2, -2]),
    ((4, 7, 5), [0, 1], [100, 100], [0, 2], [1, 1]),
]


@pytest.mark.parametrize("case", SLICES, ids=str)
def test_slice(case):
    shape, *lists = case
    names = ["starts", "ends", "axes", "steps"]
    extra = {name: ints(*items) for name, items in zip(names, lists, strict=True)}
    source = node("Slice", ["x", *names])
    batch = [i for i in range(len(shape)) if i not in [axis % len(shape) for axis in lists[2]]]
    check_gradients(source, {"x": values(*shape), **extra})
    if lists[2][0] == 0:
        batch = [0]
        extra["ends"][0] = np.iinfo(np.int64).max
    check_gradients(source, {"x": values(*shape), **extra}, batch_axes={"x": batch[0]})


def test_slice_without_axes_and_steps():
    check_gradients(
        node("Slice", ["x", "starts", "ends"]),
        {"x": values(4, 7), "starts": ints(1, 2), "ends": ints(3, 6)},
    )


def test_computed_slices_are_refused():
    nodes = [
        node("Shape", ["x"], ["sizes"]),
        node("Slice", ["x", "one", "sizes"]),
    ]
    with pytest.raises(TrainingError, match="computed ones at Slice 'the_Slice_y'"):
        check_gradients(nodes, {"x": values(4), "one": ints(1)})


PADS = [
    ("constant", (2, 5), [0, 1, 0, 2]),
    ("constant", (2, 5), [0, -1, 0, 2]),
    ("constant", (2, 5), [0, 2, 0, -2]),
    ("constant", (2, 5), [0, -1, 0, -2]),
    ("constant", (2, 3, 4), [0, 1, 0, 0, 2, 3]),
    ("constant", (2, 5), [0, 0, 0, 0]),
    ("edge", (2, 5), [0, 1, 0, 2]),
    ("edge", (2, 5), [0, 3, 0, 0]),
    ("edge", (2, 3, 4), [0, 1, 2, 0, 0, 7]),
    ("reflect", (2, 5), [0, 1, 0, 2]),
    ("reflect", (2, 5), [0, 4, 0, 4]),
    ("reflect", (2, 5), [0, 0, 0, 3]),
    ("reflect", (2, 4, 4), [0, 1, 2, 0, 3, 1]),
]


@pytest.mark.parametrize("case", PADS, ids=str)
def test_pad(case):
    mode, shape, pads = case
    source = node("Pad", ["x", "pads"], mode=mode)
    inputs = {"x": values(*shape), "pads": ints(*pads)}
    check(source, inputs)


@pytest.mark.parametrize(
    ("mode", "pads", "message"),
    [
        ("constant", [1, 0, 0, 0], "batch axis is padded"),
        ("edge", [0, -1, 0, 2], "negative pads"),
        ("reflect", [0, 9, 0, 0], "longer ones"),
    ],
)
def test_pads_that_are_refused(mode, pads, message):
    source = node("Pad", ["x", "pads"], mode=mode)
    inputs = {"x": values(2, 5), "pads": ints(*pads)}
    with pytest.raises(TrainingError, match=message):
        run_gradients(source, inputs, wanted=["x"], batch_axes={"x": 0})
