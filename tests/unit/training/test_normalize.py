"""What normalisation makes of computed shapes, baked batches, branches and constants."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.batch_axis import unbaked_shape
from edgefl.training.onnx.compile.graph_edit import is_setting
from edgefl.training.onnx.compile.normalize import normalize

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def floats(*shape, seed=1):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(
        op, inputs.split(), outputs.split(), name=f"{op}_{outputs}", **attributes
    )


def constant(name, values):
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(values, name))


def model_of(nodes, tensors, *, x=("N", 4, 6), y=("N", None), x_type=FLOAT, opset=17):
    graph = helper.make_graph(
        nodes,
        "case",
        [helper.make_tensor_value_info("x", x_type, list(x))],
        [helper.make_tensor_value_info("y", FLOAT, list(y))],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def run(model, x):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(["y"], {"x": x})[0]


def operators(model):
    return [one.op_type for one in model.graph.node]


def constants(model):
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def reshape_target(model):
    reshape = next(one for one in model.graph.node if one.op_type == "Reshape")
    return constants(model)[reshape.input[1]].tolist()


def refusal(source):
    with pytest.raises(TrainingError) as caught:
        normalize(source)
    return str(caught.value)


# Shapes computed at run time.


def from_shape(*after):
    return [
        node("Shape", "x", "shape"),
        constant("zero", ints(0)),
        node("Gather", "shape zero", "batch"),
        *after,
    ]


def test_a_flattening_shape_becomes_a_constant():
    nodes = from_shape(
        constant("rest", ints(-1)),
        node("Concat", "batch rest", "target", axis=0),
        node("Reshape", "x target", "y"),
    )
    model = normalize(model_of(nodes, {}))
    assert operators(model) == ["Reshape"]
    assert reshape_target(model) == [0, 24]


def test_a_batch_merged_with_another_axis_is_the_axis_that_varies():
    nodes = from_shape(
        constant("steps", ints(4)),
        node("Mul", "batch steps", "rows"),
        constant("width", ints(6)),
        node("Concat", "rows width", "merged", axis=0),
        node("Reshape", "x merged", "m"),
        node("MatMul", "m w", "p"),
        node("Concat", "batch steps width", "apart", axis=0),
        node("Reshape", "p apart", "y"),
    )
    source = model_of(nodes, {"w": floats(6, 6)}, y=("N", 4, 6))
    model = normalize(source)
    assert operators(model) == ["Reshape", "MatMul", "Reshape"]
    targets = [constants(model)[one.input[1]].tolist() for one in model.graph.node[::2]]
    assert targets == [[-1, 6], [-1, 4, 6]]
    x = floats(5, 4, 6)
    np.testing.assert_array_equal(run(model, x), run(source, x))


def test_sizes_that_do_not_depend_on_the_batch_are_computed():
    nodes = [
        node("Shape", "x", "shape"),
        constant("two", ints(2)),
        node("Gather", "shape two", "width"),
        constant("half", ints(2)),
        node("Div", "width half", "middle"),
        constant("start", ints(0)),
        constant("last", ints(2)),
        node("Slice", "x start middle last", "s"),
        node("Flatten", "s", "y"),
    ]
    model = normalize(model_of(nodes, {}))
    assert operators(model) == ["Slice", "Flatten"]
    assert model.graph.output[0].type.tensor_type.shape.dim[1].dim_value == 12


def test_a_square_of_the_batch_size_is_left_alone():
    nodes = from_shape(
        node("Mul", "batch batch", "square"),
        node("Cast", "square", "as_float", to=FLOAT),
        node("Flatten", "x", "f"),
        node("Mul", "f as_float", "y"),
    )
    model = normalize(model_of(nodes, {}))
    assert "Shape" in operators(model)
    x = floats(3, 4, 6)
    np.testing.assert_allclose(run(model, x), 9 * x.reshape(3, -1), rtol=1e-6)


def test_a_resize_to_computed_sizes_is_said_by_scales():
    nodes = from_shape(
        constant("rest", ints(4, 13)),
        node("Concat", "batch rest", "sizes", axis=0),
        helper.make_node(
            "Resize",
            ["x", "", "", "sizes"],
            ["y"],
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
    )
    source = model_of(nodes, {}, y=("N", 4, 13))
    model = normalize(source)
    assert operators(model) == ["Resize"]
    x = floats(2, 4, 6)
    np.testing.assert_array_equal(run(model, x), run(source, x))


def sizes_of(model, name):
    values = {one.name: one for one in [*model.graph.value_info, *model.graph.output]}
    dims = values[name].type.tensor_type.shape.dim
    return [dim.dim_param or dim.dim_value for dim in dims]


def batch_vector(name, *rest):
    """The batch size, then fixed numbers."""
    return [constant("rest", ints(*rest)), node("Concat", "batch rest", name, axis=0)]


def in_place_of_minus_one():
    """What PyTorch's older exporter makes of `expand(n, -1, -1)`."""
    return [
        *batch_vector("wanted", -1, -1),
        constant("minus_ones", ints(-1, -1, -1)),
        constant("ones", ints(1, 1, 1)),
        node("Equal", "wanted minus_ones", "kept"),
        node("Where", "kept ones wanted", "target"),
        node("Expand", "token target", "tokens"),
    ]


@pytest.mark.parametrize(
    ("nodes", "sizes"),
    [
        (in_place_of_minus_one(), ["N", 1, 6]),
        ([*batch_vector("repeats", 2, 1), node("Tile", "token repeats", "tokens")], ["N", 2, 6]),
        (
            [
                constant("scales", np.array([1, 2, 1], np.float32)),
                helper.make_node("Resize", ["x", "", "scales"], ["tokens"]),
            ],
            ["N", 8, 6],
        ),
    ],
    ids=["Expand", "Tile", "Resize"],
)
def test_sizes_that_shape_inference_does_not_follow_are_told(nodes, sizes):
    both = [*from_shape(*nodes), node("Concat", "tokens x", "y", axis=1)]
    source = model_of(both, {"token": floats(1, 1, 6)}, y=("N", None, 6))
    model = normalize(source)
    assert sizes_of(model, "tokens") == sizes
    assert sizes_of(model, "y") == ["N", 4 + sizes[1], 6]
    for batch in (1, 3):
        x = floats(batch, 4, 6)
        np.testing.assert_array_equal(run(model, x), run(source, x))


def test_a_comparison_with_the_batch_size_stays_in_the_model():
    nodes = from_shape(
        constant("three", ints(3)),
        node("Equal", "batch three", "is_three"),
        node("Cast", "is_three", "factor", to=FLOAT),
        node("Mul", "x factor", "y"),
    )
    model = normalize(model_of(nodes, {}, y=("N", 4, 6)))
    assert "Equal" in operators(model)
    for batch in (2, 3):
        x = floats(batch, 4, 6)
        np.testing.assert_array_equal(run(model, x), x * (batch == 3))


# A batch size that the exporter wrote down.


@pytest.mark.parametrize(
    ("target", "before", "then", "batch", "freed"),
    [
        ([1, 24], (None, 4, 6), (1, 4, 6), 1, [0, 24]),
        ([1, -1], (None, 4, 6), (1, 4, 6), 1, [0, 24]),
        ([2, -1, 3], (None, 4, 6), (2, 4, 6), 2, [0, 8, 3]),
        ([8, 6], (None, 4, 6), (2, 4, 6), 2, [-1, 6]),
        ([4, 6], (None, 4, 6), (1, 4, 6), 1, [-1, 6]),
        ([-1, 6], (None, 4, 6), (2, 4, 6), 2, [-1, 6]),
        ([0, 24], (None, 4, 6), (2, 4, 6), 2, [0, 24]),
        ([6, 8], (None, 4, 6), (2, 4, 6), 2, [-1, 8]),
        ([1, 2, 24], (None, 4, 6), (2, 4, 6), 2, [1, -1, 24]),
        ([4, 2, 2, 3], (4, None, 6), (4, 2, 6), 2, [4, 0, 2, 3]),
        ([2, 4, 6], (None, 6), (8, 6), 2, [-1, 4, 6]),
        ([3, 16], (None, 4, 6), (2, 4, 6), 2, None),
    ],
)
def test_baked_batches_are_told_from_other_axes(target, before, then, batch, freed):
    assert unbaked_shape(target, before, then, batch) == freed


@pytest.mark.parametrize("baked", [1, 2])
def test_a_baked_batch_is_opened(baked):
    nodes = [
        constant("merged", ints(4 * baked, 6)),
        node("Reshape", "x merged", "m"),
        node("MatMul", "m w", "p"),
        constant("apart", ints(baked, 4, 3)),
        node("Reshape", "p apart", "q"),
        constant("flat", ints(baked, -1)),
        node("Reshape", "q flat", "y"),
    ]
    source = model_of(nodes, {"w": floats(6, 3)}, x=(baked, 4, 6), y=(baked, 12))
    model = normalize(source)
    x = floats(3 * baked, 4, 6)
    expected = np.concatenate([run(source, part) for part in np.split(x, 3)])
    np.testing.assert_allclose(run(model, x), expected, rtol=1e-6)


def test_a_token_expanded_to_a_baked_batch_follows_the_batch():
    nodes = [
        constant("one", floats(1, 1, 6)),
        constant("to", ints(2, 1, 6)),
        node("Expand", "one to", "token"),
        node("Concat", "token x", "joined", axis=1),
        node("ReduceMean", "joined", "m", axes=[1], keepdims=0),
        node("MatMul", "m w", "y"),
    ]
    tensors = {"w": floats(6, 3), "one": floats(1, 1, 6)}
    source = model_of(nodes[1:], tensors, x=(2, 4, 6), y=(2, 3))
    model = normalize(source)
    x = floats(6, 4, 6)
    expected = np.concatenate([run(source, part) for part in np.split(x, 3)])
    np.testing.assert_allclose(run(model, x), expected, rtol=1e-5, atol=1e-6)


def test_rows_that_are_mixed_are_refused():
    nodes = [
        constant("to", ints(2, 48)),
        node("Reshape", "x to", "y"),
    ]
    message = refusal(model_of(nodes, {}, x=(4, 4, 6), y=(2, 48)))
    assert "E-MODEL-BATCH" in message
    assert "exported 4" in message


def test_first_states_of_zeros_are_left_out():
    tensors = {"w": floats(1, 9, 6), "r": floats(1, 9, 3), "b": floats(1, 18)}
    nodes = [
        node("Transpose", "x", "t", perm=[1, 0, 2]),
        constant("h", np.zeros((1, 2, 3), np.float32)),
        helper.make_node("GRU", ["t", "w", "r", "b", "", "h"], ["", "last"], hidden_size=3),
        constant("axis", ints(0)),
        node("Squeeze", "last axis", "y"),
    ]
    source = model_of(nodes, tensors, x=(2, 4, 6), y=(2, 3))
    model = normalize(source)
    gru = next(one for one in model.graph.node if one.op_type == "GRU")
    assert len(gru.input) <= 5 or not gru.input[5]
    x = floats(4, 4, 6)
    expected = np.concatenate([run(source, part) for part in np.split(x, 2)])
    np.testing.assert_allclose(run(model, x), expected, rtol=1e-5, atol=1e-6)


# Constants, branches, names.


def branch(name, op):
    inner = helper.make_node(op, ["f"], [f"{name}_out"])
    output = helper.make_tensor_value_info(f"{name}_out", FLOAT, None)
    return helper.make_graph([inner], name, [], [output])


@pytest.mark.parametrize(("rank", "taken"), [(3, "Relu"), (2, "Neg")])
def test_the_branch_that_a_constant_chooses_is_taken(rank, taken):
    nodes = [
        node("Flatten", "x", "f"),
        node("Shape", "x", "shape"),
        node("Size", "shape", "rank"),
        constant("wanted", np.array(rank, np.int64)),
        node("Equal", "rank wanted", "is_so"),
        helper.make_node(
            "If",
            ["is_so"],
            ["y"],
            then_branch=branch("then", "Relu"),
            else_branch=branch("else", "Neg"),
        ),
    ]
    source = model_of(nodes, {}, y=("N", 24))
    model = normalize(source)
    assert sorted(operators(model)) == sorted(["Flatten", taken])
    x = floats(3, 4, 6)
    np.testing.assert_array_equal(run(model, x), run(source, x))


def test_constants_of_the_graph_are_settings_and_weights_are_not():
    nodes = [
        constant("offset", floats(6)),
        node("Add", "x offset", "a"),
        node("Transpose", "w", "t", perm=[1, 0]),
        node("MatMul", "a t", "m"),
        constant("kernel", floats(3, 5)),
        node("MatMul", "m kernel", "y"),
    ]
    model = normalize(model_of(nodes, {"w": floats(3, 6)}, y=("N", 4, 5)))
    assert "Transpose" in operators(model), "the gradient must reach the weight itself"
    settings = {tensor.name: is_setting(tensor) for tensor in model.graph.initializer}
    # A constant in the place of a layer's matrix is a weight that the exporter wrote as a constant.
    assert settings == {"w": False, "offset": True, "kernel": False}


def test_the_zero_bias_of_a_layer_without_one_is_a_setting():
    nodes = [
        constant("zero", np.zeros(1, np.float32)),
        constant("three", ints(3)),
        node("Expand", "zero three", "bias"),
        node("Conv", "x k bias", "y"),
    ]
    model = normalize(model_of(nodes, {"k": floats(3, 4, 3)}, y=("N", 3, 4)))
    settings = {tensor.name: is_setting(tensor) for tensor in model.graph.initializer}
    assert settings == {"k": False, "bias": True}


def test_local_functions_are_inlined():
    function = helper.make_function(
        "made.here",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )
    call = helper.make_node("Twice", ["x"], ["d"], domain="made.here")
    source = model_of([call, node("Flatten", "d", "y")], {}, y=("N", 24))
    source.functions.append(function)
    source.opset_import.append(helper.make_opsetid("made.here", 1))
    assert operators(normalize(source)) == ["Add", "Flatten"]


def test_nodes_of_one_name_get_their_own():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="same"),
        helper.make_node("Flatten", ["a"], ["y"], name="same"),
    ]
    model = normalize(model_of(nodes, {}, y=("N", 24)))
    assert len({one.name for one in model.graph.node}) == 2
    run(model, floats(2, 4, 6))


def test_what_no_output_needs_is_dropped():
    nodes = [node("Flatten", "x", "y"), node("Add", "x unused", "nowhere")]
    model = normalize(model_of(nodes, {"unused": floats(6)}, y=("N", 24)))
    assert operators(model) == ["Flatten"]
    assert not model.graph.initializer


@pytest.mark.parametrize(("numpy_type", "name"), [(np.float16, "float16"), (np.float64, "float64")])
def test_other_precisions_are_refused_with_advice(numpy_type, name):
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(numpy_type))
    nodes = [node("MatMul", "x w", "m"), node("Cast", "m", "y", to=FLOAT)]
    source = model_of(nodes, {"w": floats(6, 3).astype(numpy_type)}, x_type=element_type)
    source.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, ["N", 4, 3]))
    message = refusal(source)
    assert "E-MODEL-PRECISION" in message
    assert name in message
    assert "'w'" in message
    assert "float32" in message


def test_a_conversion_that_changes_results_is_refused(monkeypatch):
    """The check is what makes the generous conversion safe: let a converted model be wrong."""
    from edgefl.training.onnx.compile import normalize as module

    def wrong(edit):
        for one in edit.graph.node:
            if one.op_type == "Relu":
                one.op_type = "Abs"

    monkeypatch.setattr(module, "decompose", wrong)
    nodes = [node("Relu", "x", "a"), node("Identity", "a", "b"), node("Flatten", "b", "y")]
    message = refusal(model_of(nodes, {}, y=("N", 24), opset=13))
    assert "E-MODEL-CONVERSION" in message
    assert "differ" in message


def test_normalising_twice_changes_nothing():
    nodes = from_shape(
        constant("rest", ints(-1)),
        node("Concat", "batch rest", "target", axis=0),
        node("Reshape", "x target", "r"),
        node("Gemm", "r w", "y"),
    )
    once = normalize(model_of(nodes, {"w": floats(24, 3)}, y=("N", 3)))
    twice = normalize(once)
    assert once.graph.node == twice.graph.node
    onnx.checker.check_model(once, full_check=True)


def test_axes_that_a_slice_takes_whole_are_left_out():
    """Shape inference loses the batch in a Slice over all rows, as `x[:, 1:3]` is written."""
    nodes = [
        constant("starts", ints(0, 1)),
        constant("ends", ints(2**31 - 1, 3)),
        constant("axes", ints(0, 1)),
        node("Slice", "x starts ends axes", "s"),
        *from_shape(
            constant("rest", ints(12)),
            node("Concat", "batch rest", "target", axis=0),
            node("Reshape", "s target", "y"),
        ),
    ]
    source = model_of(nodes, {}, y=("N", 12))
    model = normalize(source)
    cut = next(one for one in model.graph.node if one.op_type == "Slice")
    assert constants(model)[cut.input[3]].tolist() == [1]
    assert reshape_target(model) == [0, 12]
    x = floats(3, 4, 6)
    np.testing.assert_array_equal(run(model, x), run(source, x))


def test_a_cast_to_the_same_type_is_left_out():
    nodes = [node("Cast", "x", "c", to=FLOAT), node("Flatten", "c", "y")]
    assert operators(normalize(model_of(nodes, {}, y=("N", 24)))) == ["Flatten"]
