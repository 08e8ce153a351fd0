"""Gradients of convolution and transposed convolution, and that all their forms agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.conv_geometry import ConvGeometry
from edgefl.training.onnx.compile.rules.conv_input import (
    InputForm,
    can_flip,
    choose_input_form,
    input_gradient,
)
from edgefl.training.onnx.compile.rules.conv_weight import (
    WeightForm,
    choose_weight_form,
    weight_gradient,
)
from tests.gradient_check import check_gradients, evaluator, run_gradients

RNG = np.random.default_rng(14)
BATCH = 2


def values(*shape):
    return RNG.normal(size=shape)


def node(op, inputs, **attributes):
    return helper.make_node(op, list(inputs), ["y"], name=f"the_{op}", **attributes)


def check(op, inputs, *, zero_allowed=(), **attributes):
    source = node(op, inputs, **attributes)
    return check_gradients(source, inputs, batch_axes={"x": 0}, zero_allowed=zero_allowed)


CONVOLUTIONS = {
    "1-D": ((3, 8), (4, 3, 3), {}),
    "kernel of one tap": ((3, 8), (4, 3, 1), {}),
    "one tap, stride 2": ((3, 8), (4, 3, 1), {"strides": [2]}),
    "stride 2 with an unread tail": ((3, 8), (4, 3, 3), {"strides": [2]}),
    "dilation": ((3, 9), (4, 3, 3), {"dilations": [2], "pads": [2, 1]}),
    "groups": ((4, 8), (6, 2, 3), {"group": 2, "pads": [1, 1]}),
    "depthwise": ((4, 8), (4, 1, 3), {"group": 4, "pads": [1, 1]}),
    "depthwise, two outputs each": ((3, 8), (6, 1, 3), {"group": 3}),
    "few positions": ((3, 4), (4, 3, 2), {}),
    "many channels": ((32, 40), (3, 32, 2), {}),
    "many channels in groups": ((64, 40), (4, 32, 2), {"group": 2}),
    "very many taps": ((1, 70), (2, 1, 65), {}),
    "2-D": ((3, 6, 5), (4, 3, 3, 2), {"pads": [1, 0, 1, 1], "strides": [2, 1]}),
    "2-D depthwise": ((3, 5, 6), (3, 1, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    "2-D 1x1": ((3, 6, 6), (4, 3, 1, 1), {}),
    "3-D": ((2, 3, 4, 4), (2, 2, 2, 3, 2), {"strides": [1, 1, 2], "pads": [0, 1, 0, 1, 1, 0]}),
    "SAME_UPPER": ((3, 8), (4, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2]}),
    "SAME_LOWER": ((3, 8), (4, 3, 4), {"auto_pad": "SAME_LOWER"}),
    "VALID": ((3, 8), (4, 3, 3), {"auto_pad": "VALID"}),
    "pads longer than the kernel": ((2, 4), (2, 2, 2), {"pads": [3, 2]}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_conv(case):
    shape, weight, attributes = CONVOLUTIONS[case]
    inputs = {"x": values(BATCH, *shape), "w": values(*weight), "b": values(weight[0])}
    check("Conv", inputs, **attributes)


def test_conv_without_bias():
    check("Conv", {"x": values(BATCH, 2, 5), "w": values(3, 2, 2)})


def test_only_what_is_wanted_is_emitted():
    inputs = {"x": values(BATCH, 2, 40), "w": values(3, 2, 2), "b": values(3)}
    source = node("Conv", inputs)
    graph = check_gradients(source, inputs, wanted=["b"], batch_axes={"x": 0})
    assert graph.emitted == ("ReduceSum",)


def test_unknown_spatial_sizes_are_refused_by_name():
    inputs = {"x": values(BATCH, 2, 5), "w": values(3, 2, 2)}
    with pytest.raises(TrainingError, match="Conv 'the_Conv'"):
        run_gradients(node("Conv", inputs), inputs, batch_axes={"x": 2})


TRANSPOSED = {
    "1-D": ((3, 5), (3, 4, 3), {}),
    "stride": ((3, 5), (3, 4, 3), {"strides": [2]}),
    "output padding": ((3, 5), (3, 4, 3), {"strides": [2], "output_padding": [1]}),
    "pads": ((3, 6), (3, 4, 3), {"pads": [2, 1]}),
    "dilation": ((3, 5), (3, 4, 2), {"dilations": [3], "strides": [2]}),
    "groups": ((4, 5), (4, 3, 3), {"group": 2}),
    "depthwise": ((4, 5), (4, 1, 3), {"group": 4, "strides": [2]}),
    "2-D": ((3, 4, 3), (3, 2, 3, 2), {"strides": [2, 1], "pads": [1, 0, 0, 1]}),
    "output_shape": ((3, 5), (3, 4, 3), {"strides": [2], "output_shape": [10]}),
    "output_shape, SAME_UPPER": (
        (3, 5),
        (3, 4, 4),
        {"strides": [2], "output_shape": [9], "auto_pad": "SAME_UPPER"},
    ),
    "SAME_UPPER": ((3, 5), (3, 4, 4), {"strides": [2], "auto_pad": "SAME_UPPER"}),
    "SAME_LOWER": ((3, 5), (3, 4, 3), {"strides": [2], "auto_pad": "SAME_LOWER"}),
    "VALID": ((3, 5), (3, 4, 3), {"auto_pad": "VALID"}),
}


@pytest.mark.parametrize("case", TRANSPOSED)
def test_conv_transpose(case):
    shape, weight, attributes = TRANSPOSED[case]
    outputs = weight[1] * attributes.get("group", 1)
    inputs = {"x": values(BATCH, *shape), "w": values(*weight), "b": values(outputs)}
    check("ConvTranspose", inputs, **attributes)


GEOMETRIES = {
    "plain": {"size": [6]},
    "two axes": {"size": [5, 4], "kernel": [2, 3]},
    "strided": {"size": [8], "strides": [2]},
    "strided and dilated": {"size": [11], "strides": [2], "dilations": [2], "pads": [2, 1]},
    "padded": {"size": [6], "pads": [2, 1]},
    "groups": {"size": [6], "group": 2},
    "depthwise": {"size": [6], "group": 4, "outputs": 4},
    "one tap": {"size": [5], "kernel": [1]},
    "one tap, strided": {"size": [5], "kernel": [1], "strides": [3]},
}


def geometry_of(*, size, kernel=None, strides=None, dilations=None, pads=None, group=1, outputs=6):
    axes = len(size)
    kernel = kernel or [3] * axes
    strides, dilations = strides or [1] * axes, dilations or [1] * axes
    pads = pads or [0] * (2 * axes)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    return ConvGeometry(
        input_sizes=size,
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        pads_begin=pads[:axes],
        pads_end=pads[axes:],
        output_sizes=[
            (n + b + e - r) // s + 1
            for n, b, e, r, s in zip(size, pads[:axes], pads[axes:], reach, strides, strict=True)
        ],
        group=group,
        input_channels=4,
        output_channels=outputs,
    )


def evaluate(emit, feeds):
    """Run what `emit` emits, in float64."""
    graph = GraphEmitter(helper.make_model(helper.make_graph([], "none", [], [])))
    result = emit(graph)
    declared = [
        helper.make_tensor_value_info(name, TensorProto.DOUBLE, list(value.shape))
        for name, value in feeds.items()
    ]
    model = helper.make_graph(
        graph.nodes,
        "form",
        declared,
        [helper.make_tensor_value_info(result, TensorProto.DOUBLE, None)],
        graph.constants,
    )
    opset = [helper.make_opsetid("", 17)]
    return evaluator(helper.make_model(model, opset_imports=opset)).run(None, feeds)[0]


def applies(form, geometry):
    if form is WeightForm.ROWS:
        return geometry.group == 1
    if form is WeightForm.PRODUCTS:
        return geometry.group_inputs == geometry.group_outputs == 1
    return True


@pytest.mark.parametrize("case", GEOMETRIES)
def test_forms_of_the_weight_gradient_agree(case):
    geometry = geometry_of(**GEOMETRIES[case])
    feeds = {
        "x": values(BATCH, geometry.input_channels, *geometry.input_sizes),
        "dy": values(BATCH, geometry.output_channels, *geometry.output_sizes),
    }
    found = {
        form: evaluate(lambda g, f=form: weight_gradient(g, "x", "dy", geometry, f), feeds)
        for form in WeightForm
        if applies(form, geometry)
    }
    assert len(found) >= 3
    for form, gradient in found.items():
        assert gradient.shape == geometry.weight_shape
        np.testing.assert_allclose(gradient, found[WeightForm.COLUMNS], rtol=1e-9, err_msg=form)


@pytest.mark.parametrize("case", GEOMETRIES)
def test_forms_of_the_input_gradient_agree(case):
    geometry = geometry_of(**GEOMETRIES[case])
    weight = values(*geometry.weight_shape)
    dy = values(BATCH, geometry.output_channels, *geometry.output_sizes)
    found = [
        evaluate(
            lambda g, f=form: input_gradient(g, "dy", "w", geometry, f), {"dy": dy, "w": weight}
        )
        for form in InputForm
        if form is InputForm.TRANSPOSED or can_flip(geometry)
    ]
    assert len(found) == (1 if case.startswith(("strided", "one tap, strided")) else 2)
    for gradient in found:
        np.testing.assert_allclose(gradient, found[0], rtol=1e-9)


def test_each_form_is_chosen_somewhere():
    chosen = {choose_weight_form(geometry_of(**case)) for case in GEOMETRIES.values()}
    chosen.add(choose_weight_form(geometry_of(size=[9, 9], kernel=[9, 9], pads=[4] * 4)))
    chosen.add(choose_weight_form(geometry_of(size=[90])))
    many = geometry_of(size=[90], group=1)
    object.__setattr__(many, "input_channels", 64)
    chosen.add(choose_weight_form(many))
    assert chosen == set(WeightForm)
    turned = {choose_input_form(geometry_of(**case)) for case in GEOMETRIES.values()}
    assert turned == set(InputForm)


@st.composite
def convolutions(draw, op):
    axes = draw(st.sampled_from([1, 1, 2]))
    per_axis = st.lists(st.integers(1, 3), min_size=axes, max_size=axes)
    kernel, strides, dilations = draw(per_axis), draw(per_axis), draw(per_axis)
    group = draw(st.sampled_from([1, 1, 2, 3]))
    first, second = group * draw(st.integers(1, 2)), draw(st.integers(1, 2))
    attributes = {"strides": strides, "group": group}
    mode = draw(st.sampled_from(["pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if mode == "pads":
        most = st.integers(0, 2) if op == "Conv" else st.just(0)
        attributes["pads"] = [draw(most) for _ in range(2 * axes)]
    else:
        attributes["auto_pad"] = mode
    if mode.startswith("SAME"):
        # onnxruntime refuses dilations above 1 together with SAME_*.
        reach = kernel
    else:
        attributes["dilations"] = dilations
    sizes = [low + draw(st.integers(0, 4)) for low in reach]
    if op == "Conv":
        weight, channels, outputs = (group * second, first // group, *kernel), first, group * second
    else:
        weight, channels, outputs = (first, second, *kernel), first, group * second
    inputs = {
        "x": values(BATCH, channels, *sizes),
        "w": values(*weight),
        "b": values(outputs),
    }
    return inputs, attributes


@settings(max_examples=40)
@given(convolutions("Conv"))
def test_conv_over_any_geometry(case):
    inputs, attributes = case
    # A stride may step over the only sample between the pads.
    check("Conv", inputs, zero_allowed=("x", "w"), **attributes)


@settings(max_examples=40)
@given(convolutions("ConvTranspose"))
def test_conv_transpose_over_any_geometry(case):
    inputs, attributes = case
    check("ConvTranspose", inputs, zero_allowed=("x", "w"), **attributes)
