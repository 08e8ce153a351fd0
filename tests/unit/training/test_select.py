"""Which tensors a choice trains, and which of them stay on the device."""

import numpy as np
import pytest
from onnx import numpy_helper

from edgefl.errors import TrainingError
from edgefl.training.kinds import ElementType
from edgefl.training.onnx.compile.bundle import compile_bundle, compile_with
from edgefl.training.onnx.compile.options import CompileOptions
from tests.small_models import conv_net, initializer, small_model

CONV_NET = [
    "conv1.weight",
    "conv1.bias",
    "bn.weight",
    "bn.bias",
    "conv2.weight",
    "conv2.bias",
    "head.weight",
    "head.bias",
]


def trained(model, trainable, **options):
    manifest = compile_with(model, CompileOptions(trainable=trainable, **options)).manifest
    return [slot.name for slot in manifest.parameters], [slot.name for slot in manifest.local]


def refusal(model, **options):
    with pytest.raises(TrainingError) as caught:
        compile_with(model, CompileOptions(**options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("trainable", "expected"),
    [
        ("all", CONV_NET),
        ("head", ["head.weight", "head.bias"]),
        ("last:1", ["head.weight", "head.bias"]),
        ("last:2", ["conv2.weight", "conv2.bias", "head.weight", "head.bias"]),
        ("last:3", CONV_NET),
        ("last:30", CONV_NET),
        ("biases", ["conv1.bias", "bn.bias", "conv2.bias", "head.bias"]),
        ("bn.*", ["bn.weight", "bn.bias"]),
        ("conv?.weight", ["conv1.weight", "conv2.weight"]),
        ("head, bn.bias", ["bn.bias", "head.weight", "head.bias"]),
        ("biases,head.weight", ["conv1.bias", "bn.bias", "conv2.bias", "head.weight", "head.bias"]),
        (["head.bias", "conv1.*"], ["conv1.weight", "conv1.bias", "head.bias"]),
    ],
)
def test_terms_choose_in_model_order(trainable, expected):
    assert trained(conv_net(), trainable) == (expected, [])


def test_running_statistics_are_frozen_and_listed():
    manifest = compile_bundle(conv_net()).manifest
    assert {tensor.name for tensor in manifest.frozen} >= {"bn.mean", "bn.var"}
    for name in ("bn.mean", "bn.var"):
        message = refusal(conv_net(), trainable=name)
        assert "E-MODEL-TRAINABLE" in message
        assert "running statistic" in message


def test_integer_buffers_are_frozen_and_listed():
    nodes = [
        ("Gather", ["x", "order"], "g", {"axis": 1}),
        ("Gemm", ["g", "w", "b"], "y", {}),
    ]
    order = numpy_helper.from_array(np.array([3, 1, 0, 2]), "order")
    model = small_model(nodes, [initializer("w", 4, 3), initializer("b", 3), order])
    manifest = compile_bundle(model).manifest
    assert [slot.name for slot in manifest.parameters] == ["w", "b"]
    (buffer,) = manifest.frozen
    assert (buffer.name, buffer.element_type) == ("order", ElementType.INT64)


def test_single_values_and_settings_are_no_weights():
    nodes = [
        ("Gemm", ["x", "w", "b"], "h", {}),
        ("Clip", ["h", "low", "high"], "c", {}),
        ("Mul", ["c", "gain"], "m", {}),
        ("Pow", ["m", "exponents"], "y", {}),
    ]
    model = small_model(
        nodes,
        [
            initializer("w", 4, 3),
            initializer("b", 3),
            initializer("low", value=-1.0),
            initializer("high", value=1.0),
            initializer("gain", 1, value=3.0),
            initializer("exponents", 3, value=1.0),
        ],
    )
    assert trained(model, "all") == (["w", "b"], [])
    assert trained(model, ["w", "gain"]) == (["w", "gain"], [])
    assert "E-MODEL-TRAINABLE" in refusal(model, trainable="low")


def test_weights_are_found_behind_a_transpose():
    nodes = [
        ("Transpose", ["w1"], "t1", {"perm": [1, 0]}),
        ("MatMul", ["x", "t1"], "m1", {}),
        ("Add", ["b1", "m1"], "h", {}),
        ("Relu", ["h"], "a", {}),
        ("Transpose", ["w2"], "t2", {"perm": [1, 0]}),
        ("MatMul", ["a", "t2"], "m2", {}),
        ("Add", ["m2", "b2"], "y", {}),
    ]
    model = small_model(
        nodes,
        [
            initializer("w1", 5, 4),
            initializer("b1", 5),
            initializer("w2", 3, 5),
            initializer("b2", 3),
        ],
    )
    assert trained(model, "head") == (["w2", "b2"], [])
    assert trained(model, "biases") == (["b1", "b2"], [])
    assert trained(model, "all") == (["w1", "b1", "w2", "b2"], [])


def test_a_product_of_activations_is_no_layer():
    nodes = [
        ("MatMul", ["x", "w1"], "h", {}),
        ("Transpose", ["h"], "t", {"perm": [0, 2, 1]}),
        ("MatMul", ["t", "h"], "gram", {}),
        ("ReduceMean", ["gram"], "m", {"axes": [1], "keepdims": 0}),
        ("Mul", ["m", "scale"], "y", {}),
    ]
    model = small_model(
        nodes,
        [initializer("w1", 4, 3), initializer("scale", 3)],
        inputs=(("x", ["N", 6, 4]),),
    )
    assert trained(model, "head") == (["w1", "scale"], [])


def test_local_tensors_form_a_vector_of_their_own():
    averaged, local = trained(conv_net(), "all", local="head")
    assert local == ["head.weight", "head.bias"]
    assert averaged == [name for name in CONV_NET if name not in local]
    manifest = compile_with(conv_net(), CompileOptions(local="bn.*")).manifest
    assert manifest.local_dimension == 12
    assert [slot.offset for slot in manifest.local] == [0, 6]
    assert manifest.dimension + 12 == compile_bundle(conv_net()).manifest.dimension


@pytest.mark.parametrize(
    ("trainable", "local", "found"),
    [
        ("head", "conv1.bias", "none of them"),
        ("head", "nothing*", "none of them"),
        ("all", "all", "kept on the device"),
        ("head", "head.*", "kept on the device"),
    ],
)
def test_what_cannot_stay_local_is_refused(trainable, local, found):
    message = refusal(conv_net(), trainable=trainable, local=local)
    assert "E-MODEL-LOCAL" in message
    assert found in message


@pytest.mark.parametrize(
    ("term", "hint"),
    [
        ("conv1.wieght", "did you mean conv1.weight"),
        ("layer*", "there are conv1.weight"),
        ("last:0", "whole number"),
        ("last:many", "whole number"),
        ("lora:", "whole number"),
        ("lora:0", "whole number"),
        ("lora:x:conv*", "whole number"),
        (",", "initializers"),
        ([], "initializers"),
    ],
)
def test_terms_without_meaning_are_refused(term, hint):
    message = refusal(conv_net(), trainable=term)
    assert "E-MODEL-TRAINABLE" in message
    assert hint in message


def test_a_weight_that_two_layers_read_is_told():
    nodes = [
        ("MatMul", ["x", "w"], "h", {}),
        ("Relu", ["h"], "a", {}),
        ("MatMul", ["a", "w"], "y", {}),
    ]
    model = small_model(nodes, [initializer("w", 4, 4)], output=("y", ["N", 4]))
    assert compile_bundle(model).warnings == ("'w' is read by 2 layers and trained as one",)
    assert compile_bundle(conv_net()).warnings == ()
