"""Models of newer and older operator sets are written in opset 17's words, or refused by name."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.normalize import normalize
from tests import torch_vectors

ROWS = 3
SHAPE = (4, 6)


def weights(*shape, seed=1):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def model_of(nodes, tensors, *, opset, shape=SHAPE, ir_version=10):
    """A model from `x` [N, 4, 6] to `y`."""
    graph = helper.make_graph(
        nodes,
        "case",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()],
    )
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version
    )
    inferred = onnx.shape_inference.infer_shapes(made, data_prop=True)
    if not inferred.graph.output[0].type.tensor_type.HasField("shape"):
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", *shape])
        inferred.graph.output[0].CopyFrom(output)
    return inferred


def run(model, x):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(["y"], {"x": x})[0]


def require_same(source, *, shape=SHAPE):
    """Normalize; the result must be of opset 17 and agree with onnx's own evaluator."""
    model = normalize(source)
    onnx.checker.check_model(model, full_check=True)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17)]
    assert model.ir_version == 8
    for node in model.graph.node:
        assert defs.get_schema(node.op_type, 17).since_version <= 17
    x = np.random.default_rng(0).normal(size=(ROWS, *shape)).astype(np.float32)
    expected = ReferenceEvaluator(source).run(["y"], {"x": x})[0]
    np.testing.assert_allclose(run(model, x), expected, rtol=1e-4, atol=1e-5)
    return model


def node(op, *inputs, outputs=("y",), **attributes):
    name = f"the_{op}" if outputs in (("y",), ("a",)) else f"the_{op}_of_{outputs[0]}"
    return helper.make_node(op, list(inputs), list(outputs), name=name, **attributes)


REDUCTIONS = ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
NEWER = {
    **{
        f"Reduce{kind}, axes as input": (
            18,
            [node(f"Reduce{kind}", "x", "axes", keepdims=0)],
            {"axes": ints(-1)},
        )
        for kind in REDUCTIONS
    },
    "ReduceMean without axes and work": (18, [node("ReduceMean", "x", noop_with_empty_axes=1)], {}),
    "Split, equal parts": (
        18,
        [
            node("Split", "x", outputs=("a", "b"), axis=2, num_outputs=2),
            node("Sub", "a", "b"),
        ],
        {},
    ),
    "Split, a smaller last part": (
        18,
        [
            node("Split", "x", outputs=("a", "b", "c"), axis=2, num_outputs=3),
            node("Pad", "a", "pads", outputs=("p",)),
            node("Split", "p", outputs=("e", "f"), axis=2, num_outputs=2),
            node("Concat", "f", "c", "e", axis=2),
        ],
        {"pads": ints(0, 0, 0, 0, 0, 1)},
    ),
    "Pad, axes": (
        18,
        [node("Pad", "x", "pads", "", "axes", mode="reflect")],
        {"pads": ints(2, 1), "axes": ints(-1)},
    ),
    "Pad, axes and a value": (
        18,
        [node("Pad", "x", "pads", "value", "axes")],
        {
            "pads": ints(1, 0, 0, 2),
            "axes": ints(1, 2),
            "value": np.array(0.5, np.float32),
        },
    ),
    "Resize, axes and scales": (
        18,
        [
            node(
                "Resize",
                "x",
                "",
                "scales",
                mode="nearest",
                axes=[2],
                nearest_mode="floor",
                coordinate_transformation_mode="asymmetric",
            )
        ],
        {"scales": np.array([2.0], np.float32)},
    ),
    "Resize, axes and sizes": (
        19,
        [node("Resize", "x", "", "", "sizes", mode="linear", axes=[1, 2])],
        {"sizes": ints(8, 3)},
    ),
    "Gelu": (20, [node("Gelu", "x")], {}),
    "Gelu, tanh": (20, [node("Gelu", "x", approximate="tanh")], {}),
    "Mish": (18, [node("Mish", "x")], {}),
    "Mish of 22": (22, [node("Mish", "x")], {}),
    "HardSwish of 22": (22, [node("HardSwish", "x")], {}),
    "GroupNormalization of 21": (
        21,
        [node("GroupNormalization", "x", "s", "b", num_groups=2)],
        {"s": weights(4), "b": weights(4, seed=2)},
    ),
    "Cast, saturate": (19, [node("Cast", "x", to=TensorProto.FLOAT, saturate=0)], {}),
    "CastLike": (
        19,
        [node("CastLike", "two", "x", outputs=("t",)), node("Mul", "x", "t")],
        {"two": ints(2)},
    ),
    "Reshape, allowzero": (
        19,
        [node("Reshape", "x", "to", allowzero=1)],
        {"to": ints(-1, 24)},
    ),
    "QuantizeLinear, output type": (
        21,
        [
            node("QuantizeLinear", "x", "scale", outputs=("q",), output_dtype=TensorProto.INT8),
            node("DequantizeLinear", "q", "scale"),
        ],
        {"scale": np.array(0.1, np.float32)},
    ),
    "RMSNormalization": (
        23,
        [node("RMSNormalization", "x", "s", axis=-1)],
        {"s": weights(6)},
    ),
    "Swish": (24, [node("Swish", "x", alpha=1.5)], {}),
    "many of 22": (
        22,
        [
            node("Elu", "x", outputs=("a",)),
            node("Softplus", "a", outputs=("b",)),
            node("GlobalAveragePool", "b", outputs=("c",)),
            node("InstanceNormalization", "x", "s", "s", outputs=("d",)),
            node("Add", "c", "d"),
        ],
        {"s": weights(4)},
    ),
    "ReduceSum of nothing": (
        17,
        [
            node("ReduceSum", "x", noop_with_empty_axes=1, outputs=("a",)),
            node("ReduceSum", "a", "none", noop_with_empty_axes=1, outputs=("b",)),
            node("Neg", "b"),
        ],
        {"none": ints()},
    ),
    "ReduceSum, flagged, of an axis": (
        17,
        [node("ReduceSum", "x", "one", noop_with_empty_axes=1, keepdims=0)],
        {"one": ints(1)},
    ),
    "MeanVarianceNormalization": (
        17,
        [node("MeanVarianceNormalization", "x", axes=[1, 2])],
        {},
    ),
}


@pytest.mark.parametrize("name", NEWER)
def test_newer_operators_are_written_in_older_words(name):
    opset, nodes, tensors = NEWER[name]
    require_same(model_of(nodes, tensors, opset=opset))


def test_the_withdrawn_group_normalization_of_18_is_refused():
    nodes = [node("GroupNormalization", "x", "s", "s", num_groups=2)]
    with pytest.raises(TrainingError, match=r"E-MODEL-INVALID.*GroupNormalization"):
        normalize(model_of(nodes, {"s": weights(2)}, opset=18))


REFUSED = {
    "AveragePool, dilations": (
        19,
        [node("AveragePool", "x", kernel_shape=[2], dilations=[2])],
        {},
        "'dilations'",
    ),
    "Pad, wrap": (19, [node("Pad", "x", "pads", mode="wrap")], {"pads": ints(*[0] * 6)}, "'wrap'"),
    "Resize, antialias": (
        18,
        [node("Resize", "x", "", "scales", mode="linear", antialias=1)],
        {"scales": np.array([1, 1, 0.5], np.float32)},
        "'antialias'",
    ),
    "CenterCropPad": (
        18,
        [node("CenterCropPad", "x", "to", axes=[2])],
        {"to": ints(4)},
        "CenterCropPad",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_opset_17_cannot_say_is_refused_by_name(name):
    opset, nodes, tensors, said = REFUSED[name]
    with pytest.raises(TrainingError) as caught:
        normalize(model_of(nodes, tensors, opset=opset))
    assert "E-MODEL-OPSET" in str(caught.value)
    assert said in str(caught.value)
    assert f"the_{name.split(',')[0]}" in str(caught.value)


def test_all_obstacles_are_named_at_once():
    nodes = [
        node("CenterCropPad", "x", "to", outputs=("a",), axes=[2]),
        node("AveragePool", "a", kernel_shape=[2], dilations=[2]),
    ]
    with pytest.raises(TrainingError) as caught:
        normalize(model_of(nodes, {"to": ints(4)}, opset=19))
    assert "the_CenterCropPad" in str(caught.value)
    assert "the_AveragePool" in str(caught.value)


@pytest.mark.parametrize("opset", range(9, 17))
def test_older_operator_sets_are_raised(opset):
    nodes = [
        node("Relu", "x", outputs=("a",)),
        node("Flatten", "a", outputs=("b",)),
        node("Gemm", "b", "w", "c", outputs=("d",)),
        node("Softmax", "d", axis=1),
    ]
    tensors = {"w": weights(24, 3), "c": weights(3)}
    require_same(model_of(nodes, tensors, opset=opset, ir_version=4))


FILES = [file for net in torch_vectors.NETS.values() for file in net["files"]]


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("mlp")])
def test_each_opset_of_an_exporter_gives_the_same_function(file):
    stored = torch_vectors.load("mlp")
    found = run(normalize(torch_vectors.model(file)), stored.x[: torch_vectors.BATCH])
    assert np.abs(found - stored.arrays["output"]).max() < 1e-5


def test_a_sum_over_no_axes_is_left_out():
    nodes = [node("ReduceSum", "x", noop_with_empty_axes=1, outputs=("a",)), node("Neg", "a")]
    model = normalize(model_of(nodes, {}, opset=17))
    assert [one.op_type for one in model.graph.node] == ["Neg"]
