"""onnx's own node test models of convolution, pooling, shape, index and matrix operators."""

import pytest

from tests.node_models import check_node_model, node_models

# Cast and CumSum are not here: their models have no float32 input and output.
MODULES = {
    "AveragePool": "averagepool",
    "Concat": "concat",
    "Conv": "conv",
    "ConvTranspose": "convtranspose",
    "DepthToSpace": "depthtospace",
    "Dropout": "dropout",
    "Expand": "expand",
    "Flatten": "flatten",
    "Gather": "gather",
    "GatherElements": "gatherelements",
    "GatherND": "gathernd",
    "Gemm": "gemm",
    "Identity": "identity",
    "MatMul": "matmul",
    "MaxPool": "maxpool",
    "Pad": "pad",
    "Reshape": "reshape",
    "Resize": "resize",
    "Slice": "slice",
    "SpaceToDepth": "spacetodepth",
    "Split": "split",
    "Squeeze": "squeeze",
    "Tile": "tile",
    "Transpose": "transpose",
    "Unsqueeze": "unsqueeze",
    "Where": "where",
}
NEWER = "has an attribute or input newer than opset 17"
EMPTY = "has no values to differentiate"
REFUSED = "is refused, see the tests of its rule"
SLOW = "takes seconds; smaller models of the same kind are here"
LEFT_OUT = {
    **{
        f"test_averagepool_3d_dilations_large_count_include_pad_is_{pad}_ceil_mode_is_{ceil}": NEWER
        for pad in (0, 1)
        for ceil in (False, True)
    },
    "test_averagepool_2d_ceil_last_window_starts_on_pad": REFUSED,
    "test_averagepool_2d_dilations": NEWER,
    "test_averagepool_3d_default": SLOW,
    "test_averagepool_3d_dilations_small": NEWER,
    "test_constant_pad_axes": NEWER,
    "test_constant_pad_negative_axes": NEWER,
    "test_dropout_random_old": "onnx's reference evaluator fails",
    "test_maxpool_2d_ceil_output_size_reduce_by_one": REFUSED,
    "test_maxpool_3d_default": SLOW,
    "test_maxpool_3d_dilations": "has ties",
    "test_maxpool_3d_dilations_use_ref_impl": "has ties",
    "test_reshape_allowzero_reordered": EMPTY,
    **{
        f"test_resize_{name}": NEWER
        for name in (
            "downsample_scales_cubic_antialias",
            "downsample_scales_linear_antialias",
            "downsample_sizes_cubic_antialias",
            "downsample_sizes_linear_antialias",
            "downsample_sizes_nearest_not_larger",
            "downsample_sizes_nearest_not_smaller",
            "tf_crop_and_resize_axes_2_3",
            "tf_crop_and_resize_axes_3_2",
            "upsample_scales_nearest_axes_2_3",
            "upsample_scales_nearest_axes_3_2",
            "upsample_sizes_nearest_axes_2_3",
            "upsample_sizes_nearest_axes_3_2",
            "upsample_sizes_nearest_not_larger",
            "upsample_sizes_nearest_not_smaller",
        )
    },
    "test_resize_tf_crop_and_resize": REFUSED,
    "test_resize_tf_crop_and_resize_extrapolation_value": REFUSED,
    "test_slice_start_out_of_bounds": EMPTY,
    "test_spacetodepth_crd_mode_example": NEWER,
    "test_split_1d_uneven_split_opset18": NEWER,
    "test_split_2d_uneven_split_opset18": NEWER,
    "test_split_equal_parts_1d_opset18": NEWER,
    "test_split_equal_parts_2d": NEWER,
    "test_split_equal_parts_default_axis_opset18": NEWER,
    "test_split_zero_size_splits_opset13": EMPTY,
    "test_split_zero_size_splits_opset18": EMPTY,
    **{
        f"test_training_dropout{name}": REFUSED
        for name in ("", "_default", "_default_mask", "_mask", "_zero_ratio", "_zero_ratio_mask")
    },
}
NODE_MODELS = node_models(MODULES, left_out=LEFT_OUT)
# What is given as floats but sets sizes or fills.
SETTINGS = ("scales", "roi", "ratio", "r", "value")


@pytest.mark.parametrize("case", NODE_MODELS, ids=lambda case: case.name)
def test_node_model(case):
    check_node_model(case, frozen=SETTINGS)


def test_every_operator_has_models():
    assert {case.op_type for case in NODE_MODELS} == set(MODULES)
