"""Each lowered operator gives what onnxruntime gives, over its forms."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from edgefl.errors import TrainingError
from edgefl.training.litert.compile.lower import lower_entries
from edgefl.training.litert.compile.rules.registry import lowered_operators
from edgefl.training.litert.format.encode import write_model
from edgefl.training.litert.runtime.interpreter import load_interpreter
from edgefl.training.onnx.compile.attributes import int_attribute
from edgefl.training.onnx.runtime.quiet import onnxruntime

RNG = np.random.default_rng(0)


def floats(*shape, low=-2.0, high=2.0):
    return RNG.uniform(low, high, shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


X = floats(2, 3, 4)
IMAGE = floats(2, 4, 7, 6)
SIGNAL = floats(2, 4, 11)
BOOLS = X > 0

ONE_OPERAND = [
    *("Abs", "Ceil", "Cos", "Elu", "Exp", "Floor", "HardSigmoid", "HardSwish", "Identity"),
    *("LeakyRelu", "Neg", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign"),
    *("Tanh", "Transpose", "Flatten", "Softmax", "LogSoftmax", "IsNaN", "Dropout"),
]
CASES = {
    **{name: (name, [X], {}) for name in ONE_OPERAND},
    **{name: (name, [np.abs(X) + 0.3], {}) for name in ("Log", "Sqrt", "Reciprocal")},
    "Not": ("Not", [BOOLS], {}),
    **{
        f"{name} of {len(other.shape)} axes": (name, [X, other], {})
        for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu")
        for other in (
            floats(2, 3, 4, low=0.5),
            floats(3, 1, low=0.5),
            floats(4, low=0.5),
            floats(1),
        )
    },
    "Add of a scalar": ("Add", [X, np.float32(0.7)], {}),
    "Add scalar first": ("Sub", [np.float32(0.7), X], {}),
    "Pow": ("Pow", [np.abs(X) + 0.1, floats(4)], {}),
    "Sum of three": ("Sum", [X, floats(4), floats(3, 1)], {}),
    "Mean of three": ("Mean", [X, floats(4), X * 2], {}),
    "Max of one": ("Max", [X], {}),
    **{
        name: (name, [X, floats(3, 4)], {})
        for name in ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    },
    "Equal": ("Equal", [np.round(X), np.round(floats(3, 4))], {}),
    "And": ("And", [BOOLS, ~BOOLS], {}),
    "Or": ("Or", [BOOLS, ~BOOLS], {}),
    "Mod": ("Mod", [np.array([[7, -7, 5]], np.int32), np.array([3, 3, -3], np.int32)], {}),
    "Where": ("Where", [BOOLS, X, floats(4)], {}),
    "Where of rows": ("Where", [BOOLS[:1], X, -X], {}),
    "Cast to int": ("Cast", [X], {"to": TensorProto.INT32}),
    "Cast of bool": ("Cast", [BOOLS], {"to": TensorProto.FLOAT}),
    "Clip": ("Clip", [X, np.float32(-0.5), np.float32(0.5)], {}),
    "Clip to 6": ("Clip", [X * 6, np.float32(0), np.float32(6)], {}),
    "Clip from 0": ("Clip", [X, np.float32(0)], {}),
    "Softmax of the middle": ("Softmax", [X], {"axis": 1}),
    "LogSoftmax of the first": ("LogSoftmax", [X], {"axis": 0}),
    **{
        f"{name} {label}": (name, [X if name != "ReduceProd" else X / 2], attributes)
        for name in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2")
        for label, attributes in {
            "kept": {"axes": [1]},
            "dropped": {"axes": [0, 2], "keepdims": 0},
            "last": {"axes": [-1], "keepdims": 0},
            "all": {"keepdims": 0},
            "all kept": {},
        }.items()
    },
    "ReduceSumSquare": ("ReduceSumSquare", [X], {"axes": [1], "keepdims": 0}),
    "ReduceSum": ("ReduceSum", [X, ints(0, -1)], {"keepdims": 0}),
    "ReduceSum of nothing": ("ReduceSum", [X], {"noop_with_empty_axes": 1}),
    "Reshape": ("Reshape", [X, ints(4, -1)], {}),
    "Reshape with 1": ("Reshape", [X, ints(2, 1, 3, 1, 4)], {}),
    "Unsqueeze": ("Unsqueeze", [X, ints(0, 2)], {}),
    "Squeeze": ("Squeeze", [X[:1, :, :1], ints(0, 2)], {}),
    "Transpose ordered": ("Transpose", [IMAGE], {"perm": [2, 0, 3, 1]}),
    "Concat": ("Concat", [X, X * 2, floats(2, 1, 4)], {"axis": 1}),
    "Slice": ("Slice", [X, ints(1, 0), ints(3, -1), ints(1, 2)], {}),
    "Slice by steps": ("Slice", [IMAGE, ints(0, 5), ints(4, 0), ints(1, 3), ints(2, -2)], {}),
    "Slice backwards": ("Slice", [X, ints(-1), ints(-9), ints(2), ints(-1)], {}),
    "Pad": ("Pad", [X, ints(0, 1, 2, 0, 0, 1), np.float32(0.5)], {}),
    "Pad that cuts": ("Pad", [X, ints(0, -1, 2, 0, 0, -1)], {}),
    "Expand": ("Expand", [floats(3, 1), ints(2, 3, 4)], {}),
    "Tile": ("Tile", [X, ints(1, 2, 3)], {}),
    "CumSum": ("CumSum", [X, np.array(1)], {"exclusive": 1, "reverse": 1}),
    "Gather": ("Gather", [X, ints(2, -1, 0)], {"axis": 1}),
    "Gather of one": ("Gather", [X, np.array(1)], {"axis": 1}),
    "ArgMax": ("ArgMax", [X], {"axis": 1, "keepdims": 0}),
    "OneHot": ("OneHot", [ints(2, 0, 1), np.array(3), floats(2)], {}),
    "OneHot of the first": ("OneHot", [ints(2, 0, 1), np.array(3), floats(2)], {"axis": 0}),
    "MatMul": ("MatMul", [X, floats(4, 5)], {}),
    "MatMul of batches": ("MatMul", [X, floats(2, 4, 5)], {}),
    "MatMul of a vector": ("MatMul", [X, floats(4)], {}),
    "MatMul with a vector": ("MatMul", [floats(3), X], {}),
    **{
        f"Gemm {a}{b}": (
            "Gemm",
            [floats(*(3, 4)[:: -1 if a else 1]), floats(*(4, 5)[:: -1 if b else 1]), floats(5)],
            {"transA": a, "transB": b, "alpha": 0.5, "beta": 2.0},
        )
        for a in (0, 1)
        for b in (0, 1)
    },
    "LayerNormalization": ("LayerNormalization", [X, floats(4), floats(4)], {}),
    "LayerNormalization of two": ("LayerNormalization", [X, floats(3, 4)], {"axis": 1}),
    "BatchNormalization": (
        "BatchNormalization",
        [IMAGE, floats(4), floats(4), floats(4), floats(4, low=0.5)],
        {},
    ),
    "BatchNormalization of rows": (
        "BatchNormalization",
        [floats(5, 3), floats(3), floats(3), floats(3), floats(3, low=0.5)],
        {},
    ),
    **{
        f"Conv 1 {label}": ("Conv", [SIGNAL, floats(6, 4, 3), floats(6)], attributes)
        for label, attributes in {
            "plain": {},
            "stride": {"strides": [2], "pads": [1, 2]},
            "dilated": {"dilations": [3], "pads": [3, 2]},
            "upper": {"strides": [3], "auto_pad": "SAME_UPPER"},
            "lower": {"strides": [2], "auto_pad": "SAME_LOWER"},
        }.items()
    },
    "Conv 2": ("Conv", [IMAGE, floats(5, 4, 3, 2)], {"strides": [2, 1], "pads": [1, 0, 2, 1]}),
    "Conv 2 dilated": ("Conv", [IMAGE, floats(5, 4, 2, 2), floats(5)], {"dilations": [2, 3]}),
    "Conv 2 groups": ("Conv", [IMAGE, floats(6, 2, 3, 3), floats(6)], {"group": 2}),
    "Conv 2 depthwise": ("Conv", [IMAGE, floats(8, 1, 3, 3), floats(8)], {"group": 4}),
    **{
        f"ConvTranspose {label}": ("ConvTranspose", [value, weight], attributes)
        for label, value, weight, attributes in [
            ("1", SIGNAL, floats(4, 3, 3), {"strides": [2], "output_padding": [1]}),
            ("1 cut", SIGNAL, floats(4, 3, 5), {"strides": [2], "pads": [2, 1]}),
            ("1 dilated", SIGNAL, floats(4, 3, 3), {"strides": [2], "dilations": [2]}),
            ("2", IMAGE, floats(4, 3, 3, 2), {"strides": [2, 3], "pads": [1, 0, 0, 1]}),
            ("2 groups", IMAGE, floats(4, 3, 3, 3), {"strides": [2, 2], "group": 2}),
            ("2 depthwise", IMAGE, floats(4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
        ]
    },
    **{
        f"{name} {label}": (name, [value], attributes)
        for name in ("MaxPool", "AveragePool")
        for label, value, attributes in [
            ("1", SIGNAL, {"kernel_shape": [3], "strides": [2]}),
            ("1 padded", SIGNAL, {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
            ("2", IMAGE, {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
            ("up", IMAGE, {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
        ]
    },
    "AveragePool counts": (
        "AveragePool",
        [IMAGE],
        {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1},
    ),
    "MaxPool dilated": ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "dilations": [2, 3]}),
    "GlobalAveragePool": ("GlobalAveragePool", [IMAGE], {}),
    "GlobalMaxPool": ("GlobalMaxPool", [SIGNAL], {}),
    "ScatterND": (
        "ScatterND",
        [X, np.array([[1], [0], [1]]), floats(3, 3, 4)],
        {"reduction": "add"},
    ),
    "ScatterElements": (
        "ScatterElements",
        [floats(9), ints(1, 8, 1), floats(3)],
        {"axis": 0, "reduction": "add"},
    ),
}
OUTPUTS = {"Dropout": 1}
# What has tests of its own: pairs of nodes, or nodes with several outputs.
ELSEWHERE = {"Split", "QuantizeLinear", "DequantizeLinear"}


def model_of(nodes, feeds, outputs, constants=()):
    """Every float operand is an input; the rest, and what is named, are constants."""
    fixed = {name for name, value in feeds.items() if value.dtype == np.int64 or name in constants}
    graph = helper.make_graph(
        nodes,
        "case",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in feeds.items()
            if name not in fixed
        ],
        [helper.make_value_info(name, onnx.TypeProto()) for name in outputs],
        [numpy_helper.from_array(feeds[name], name) for name in fixed],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def compare(model, feeds, tolerance=2e-5):
    given = {value.name for value in model.graph.input}
    fed = {name: value for name, value in feeds.items() if name in given}
    if any(int_attribute(node, "noop_with_empty_axes", 0) for node in model.graph.node):
        expected = ReferenceEvaluator(model).run(None, fed)  # onnxruntime 1.16.3 cannot run it.
    else:
        expected = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        ).run(None, fed)
    content = write_model(lower_entries({"case": model}, batch_rows=1))
    run = load_interpreter().create(model_content=content).get_signature_runner("case")
    found = run(**{name: value.reshape(value.shape or (1,)) for name, value in fed.items()})
    for value, wanted in zip(model.graph.output, expected, strict=True):
        got = found[value.name]
        assert got.shape == (wanted.shape or (1,))
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(
            got.astype(np.float64).reshape(wanted.shape), wanted, rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("name", CASES)
def test_operator(name):
    op_type, operands, attributes = CASES[name]
    # The labels of a loss are the one input of whole numbers.
    first = "target" if op_type == "OneHot" else "in0"
    named = [first, *(f"in{index}" for index in range(1, len(operands)))]
    feeds = {name: np.asarray(value) for name, value in zip(named, operands, strict=True)}
    node = helper.make_node(op_type, list(feeds), ["out"], name="node", **attributes)
    constants = {"in1", "in2"} if op_type in {"Clip", "OneHot", "Pad"} else set()
    compare(model_of([node], feeds, ["out"], constants), feeds)


def test_error_function_is_right_to_the_last_digits_of_float32():
    x = np.linspace(-5, 5, 2001, dtype=np.float32).reshape(1, -1)
    model = model_of([helper.make_node("Erf", ["x"], ["out"], name="e")], {"x": x}, ["out"])
    compare(model, {"x": x}, tolerance=5e-7)


def test_every_rule_has_a_case():
    tried = {op_type for op_type, _, _ in CASES.values()} | ELSEWHERE
    assert set(lowered_operators()) - tried == set()


@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        ([3], {"strides": [2], "pads": [1, 1]}),
        ([2, 2], {"strides": [2, 2]}),
        ([3, 2], {"strides": [1, 2], "pads": [1, 0, 1, 1]}),
        ([2, 2], {"dilations": [2, 2]}),
    ],
)
def test_places_of_maxima(kernel, attributes):
    x = SIGNAL if len(kernel) == 1 else IMAGE
    nodes = [
        helper.make_node("MaxPool", ["x"], ["y", "i"], name="p", kernel_shape=kernel, **attributes),
        helper.make_node("Reshape", ["i", "flat"], ["places"], name="r"),
        helper.make_node("Reshape", ["y", "flat"], ["values"], name="v"),
        helper.make_node(
            "ScatterElements", ["zeros", "places", "values"], ["out"], name="s", reduction="add"
        ),
    ]
    feeds = {"x": x, "flat": ints(-1), "zeros": np.zeros(x.size, np.float32)}
    compare(model_of(nodes, feeds, ["y", "out"], {"zeros"}), feeds)


def test_maxima_are_put_back():
    nodes = [
        helper.make_node(
            "MaxPool", ["x"], ["y", "i"], name="p", kernel_shape=[2, 2], strides=[2, 2]
        ),
        helper.make_node(
            "MaxUnpool", ["y", "i", "size"], ["out"], name="u", kernel_shape=[2, 2], strides=[2, 2]
        ),
    ]
    feeds = {"x": IMAGE, "size": ints(*IMAGE.shape)}
    compare(model_of(nodes, feeds, ["out"]), feeds)


def test_pieces_of_a_split():
    node = helper.make_node("Split", ["x", "sizes"], ["a", "b"], name="s", axis=2)
    feeds = {"x": X, "sizes": ints(1, 3)}
    compare(model_of([node], feeds, ["a", "b"]), feeds)


def test_orders_of_axes_are_kept_through_chains():
    """Values of different orders meet: each convolution's result lies channels last."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="c", pads=[1, 1]),
        helper.make_node("Transpose", ["c"], ["t"], name="t", perm=[2, 0, 1]),
        helper.make_node("Add", ["t", "b"], ["a"], name="a"),
        helper.make_node("ReduceSum", ["a", "axis"], ["r"], name="r", keepdims=0),
        helper.make_node("Concat", ["c", "x"], ["j"], name="j", axis=1),
        helper.make_node("Slice", ["j", "one", "five", "one"], ["s"], name="s"),
        helper.make_node("Softmax", ["s"], ["m"], name="m", axis=1),
        helper.make_node("Reshape", ["m", "flat"], ["f"], name="f"),
        helper.make_node("MatMul", ["r", "r2"], ["p"], name="p"),
    ]
    feeds = {
        "x": SIGNAL,
        "w": floats(3, 4, 3),
        "b": floats(2, 3),
        "axis": ints(0),
        "one": ints(1),
        "five": ints(5),
        "flat": ints(2, -1),
        "r2": floats(3, 2),
    }
    compare(model_of(nodes, feeds, ["f", "p", "t"]), feeds, tolerance=1e-4)


def test_either_branch_of_a_choice():
    def branch(name, op_type):
        node = helper.make_node(op_type, ["x"], [f"{name}.y"], name=name)
        output = helper.make_tensor_value_info(f"{name}.y", TensorProto.FLOAT, X.shape)
        return helper.make_graph([node], name, [], [output])

    node = helper.make_node(
        "If",
        ["cond"],
        ["out"],
        name="if",
        then_branch=branch("yes", "Neg"),
        else_branch=branch("no", "Exp"),
    )
    for chosen in (True, False):
        feeds = {"x": X, "cond": np.array([chosen])}
        compare(model_of([node], feeds, ["out"]), feeds)


@pytest.mark.parametrize("step", [1, 2, 10, 1000, 100_000])
@pytest.mark.parametrize("beta", [0.0, 0.9, 0.999])
def test_corrections_of_adamw_keep_their_digits_in_float32(step, beta):
    nodes = [
        helper.make_node("Cast", ["step"], ["wide"], name="w", to=TensorProto.DOUBLE),
        helper.make_node("Pow", ["beta", "wide"], ["power"], name="p"),
        helper.make_node("Sub", ["one", "power"], ["left"], name="s"),
        helper.make_node("Cast", ["left"], ["out"], name="c", to=TensorProto.FLOAT),
    ]
    feeds = {"step": np.array([step], np.float32), "beta": np.array(beta), "one": np.array(1.0)}
    compare(model_of(nodes, feeds, ["out"], {"beta", "one"}), feeds, tolerance=2e-6)


def test_all_obstacles_are_named_at_once():
    nodes = [
        helper.make_node("Acos", ["x"], ["e"], name="bend"),
        helper.make_node("Det", ["e"], ["d"], name="det"),
    ]
    feeds = {"x": floats(2, 3, 3)}
    with pytest.raises(TrainingError, match=r"E-LITERT-OPERATORS.*bend.*det"):
        lower_entries({"case": model_of(nodes, feeds, ["d"])}, batch_rows=1)


def test_forms_without_a_builtin_are_named_at_once():
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["p"], name="mirror", mode="reflect"),
        helper.make_node("Conv", ["p", "w"], ["c"], name="deep"),
    ]
    feeds = {
        "x": floats(1, 2, 4, 4, 4),
        "pads": ints(*[0, 0, 1, 0, 0] * 2),
        "w": floats(3, 2, 2, 2, 2),
    }
    with pytest.raises(TrainingError, match=r"mirror.*constant.*deep.*3 axes"):
        lower_entries({"case": model_of(nodes, feeds, ["c"])}, batch_rows=1)


def test_sizes_that_stay_unknown_are_named():
    node = helper.make_node("Reshape", ["x", "size"], ["out"], name="free")
    model = helper.make_model(
        helper.make_graph(
            [node],
            "case",
            [
                helper.make_tensor_value_info("x", TensorProto.FLOAT, [6]),
                helper.make_tensor_value_info("size", TensorProto.INT64, [2]),
            ],
            [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    with pytest.raises(TrainingError, match=r"E-LITERT-SHAPE.*'out' of Reshape 'free'"):
        lower_entries({"case": model}, batch_rows=1)
