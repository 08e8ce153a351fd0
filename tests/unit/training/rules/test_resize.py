"""Gradients of resizing in every mode."""

import numpy as np
import pytest
from onnx import helper

from edgefl.errors import TrainingError
from tests.gradient_check import check_gradients, run_gradients

RNG = np.random.default_rng(16)


def values(*shape):
    return RNG.normal(size=shape)


def check(shape, *, scales=None, sizes=None, **attributes):
    names = ["x", "", "scales" if scales else "", *(["sizes"] if sizes else [])]
    inputs = {"x": values(*shape)}
    if scales:
        inputs["scales"] = np.array(scales, np.float32)
    if sizes:
        inputs["sizes"] = np.array(sizes, np.int64)
    node = helper.make_node("Resize", names, ["y"], name="the_Resize", **attributes)
    return check_gradients(node, inputs, wanted=["x"], batch_axes=None if sizes else {"x": 0})


def test_sizes_computed_from_the_batch():
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], end=2),
        helper.make_node("Concat", ["shape", "length"], ["sizes"], axis=0),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear"),
    ]
    inputs = {"x": values(2, 3, 5), "length": np.array([8], np.int64)}
    check_gradients(nodes, inputs, wanted=["x"], batch_axes={"x": 0})


NEAREST = {"mode": "nearest"}
LINEAR = {"mode": "linear"}


@pytest.mark.parametrize(
    ("shape", "scales"),
    [((2, 2, 4), [1, 1, 2]), ((2, 2, 3, 4), [1, 1, 2, 3]), ((1, 2, 2, 3, 2), [1, 1, 2, 1, 2])],
)
@pytest.mark.parametrize("transform", ["asymmetric", "half_pixel"])
def test_whole_repetitions_are_summed_by_one_average(shape, scales, transform):
    graph = check(
        shape,
        scales=scales,
        coordinate_transformation_mode=transform,
        nearest_mode="floor" if transform == "asymmetric" else "round_prefer_floor",
        **NEAREST,
    )
    assert graph.emitted == ("AveragePool", "Mul")


@pytest.mark.parametrize("scales", [[1, 1, 1.5, 2], [1, 1, 0.5, 0.75], [1, 1, 1, 2.5]], ids=str)
@pytest.mark.parametrize("transform", ["asymmetric", "half_pixel", "align_corners"])
@pytest.mark.parametrize("mode", [NEAREST, LINEAR], ids=str)
def test_other_scales(scales, transform, mode):
    check((2, 2, 4, 4), scales=scales, coordinate_transformation_mode=transform, **mode)


@pytest.mark.parametrize("sizes", [[2, 2, 7], [2, 2, 10], [2, 2, 3]], ids=str)
def test_linear_to_given_sizes(sizes):
    check((2, 2, 5), sizes=sizes, coordinate_transformation_mode="pytorch_half_pixel", **LINEAR)


@pytest.mark.parametrize("nearest_mode", ["floor", "ceil", "round_prefer_ceil"])
def test_nearest_rounding(nearest_mode):
    check((2, 2, 5), scales=[1, 1, 1.4], nearest_mode=nearest_mode, **NEAREST)


def test_cubic():
    check((1, 1, 4, 5), scales=[1, 1, 2, 1.5], mode="cubic", cubic_coeff_a=-0.5)


def test_three_resized_axes():
    check((1, 1, 2, 3, 2), scales=[1, 1, 1.5, 2, 2], **LINEAR)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"coordinate_transformation_mode": "tf_crop_and_resize"}, "tf_crop_and_resize"),
        ({"scales": [2.0, 1.0, 1.0]}, "batch axis"),
    ],
)
def test_refusals(attributes, message):
    scales = np.array(attributes.pop("scales", [1.0, 1.0, 2.0]), np.float32)
    names = ["x", "roi", "scales"]
    node = helper.make_node("Resize", names, ["y"], name="the_Resize", **attributes)
    inputs = {"x": values(2, 2, 4), "roi": np.array([0, 0, 0, 1, 1, 1]), "scales": scales}
    with pytest.raises(TrainingError, match=message):
        run_gradients(node, inputs, wanted=["x"], batch_axes={"x": 0})


def test_computed_scales_are_refused():
    nodes = [
        helper.make_node("Add", ["one", "one"], ["scales"]),
        helper.make_node("Resize", ["x", "", "scales"], ["y"], name="the_Resize"),
    ]
    inputs = {"x": values(2, 2, 4), "one": np.array([0.5, 0.5, 1.0], np.float32)}
    with pytest.raises(TrainingError, match="the_Resize"):
        run_gradients(nodes, inputs, wanted=["x"], batch_axes={"x": 0})
