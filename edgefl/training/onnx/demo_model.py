"""The demo's model: a small 1-D CNN over watch windows, built without a training framework."""

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edgefl.training.kinds import QuantizationMode
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.normalize import TARGET_IR_VERSION, TARGET_OPSET
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.compile.quantize.request import QuantizationRequest

SAMPLES = 64
CHANNELS = 6
CLASSES = 7
_FILTERS = 16
_TAPS = 5

# Means over time are small beside the other layers' values, so the head would learn slowest. The
# factor speeds it up; its first weights are divided by it, so that the first logits do not change.
_HEAD_GAIN = 4.0

# Rectifiers are cut here, so that the range of an activation, and with it its int8 scale, is known
# before anything was trained.
_HIGHEST = 6.0

# Four g, or twelve rad/s: the grid of the recordings ends here.
_SENSOR_RANGE = 4.0


def demo_model(seed: int) -> onnx.ModelProto:
    """Build the model: two convolutions of 16 filters, mean over time, one linear layer.

    Args:
        seed: Seed of the weights; equal seeds give equal bytes.

    Returns:
        A model from float32 [N, 64, 6] to logits [N, 7], with 1,911 parameters.

    Source: He et al., "Delving Deep into Rectifiers", arXiv:1502.01852, section 2.2 (initial
    weights); Howard et al., arXiv:1704.04861 (rectifiers cut at 6 for integer arithmetic).
    """
    rng = np.random.default_rng(seed)
    nodes = [
        helper.make_node("Transpose", ["window"], ["channels_first"], perm=[0, 2, 1]),
        helper.make_node(
            "Conv", ["channels_first", "conv1.weight", "conv1.bias"], ["conv1"], strides=[2]
        ),
        helper.make_node("Clip", ["conv1", "zero", "six"], ["relu1"]),
        helper.make_node("Conv", ["relu1", "conv2.weight", "conv2.bias"], ["conv2"], strides=[2]),
        helper.make_node("Clip", ["conv2", "zero", "six"], ["relu2"]),
        helper.make_node("ReduceMean", ["relu2"], ["features"], axes=[2], keepdims=0),
        helper.make_node(
            "Gemm",
            ["features", "head.weight", "head.bias"],
            ["logits"],
            transB=1,
            alpha=_HEAD_GAIN,
        ),
    ]
    for node in nodes:
        node.name = f"make_{node.output[0]}"
    initializers = [
        _he_normal(rng, "conv1.weight", (_FILTERS, CHANNELS, _TAPS)),
        _zeros("conv1.bias", _FILTERS),
        _he_normal(rng, "conv2.weight", (_FILTERS, _FILTERS, _TAPS)),
        _zeros("conv2.bias", _FILTERS),
        _he_normal(rng, "head.weight", (CLASSES, _FILTERS), gain=_HEAD_GAIN),
        _zeros("head.bias", CLASSES),
        _tensor("zero", np.zeros((), np.float32)),
        _tensor("six", np.full((), _HIGHEST, np.float32)),
    ]
    graph = helper.make_graph(
        nodes,
        "shoulder_exercises",
        [helper.make_tensor_value_info("window", TensorProto.FLOAT, ["N", SAMPLES, CHANNELS])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", CLASSES])],
        initializers,
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", TARGET_OPSET)],
        ir_version=TARGET_IR_VERSION,
        producer_name="edgefl",
    )


def demo_bundle(seed: int) -> bytes:
    """Prepare the model for training with int8 in mind, on calibration rows that nobody recorded.

    Args:
        seed: Seed of the weights; equal seeds give equal bytes.

    Returns:
        A bundle in the mode QAT, with an int8 template.
    """
    # Noise over the whole range of the sensor's fixed grid: no data of anyone, and stronger in
    # every layer than movement is.
    rng = np.random.default_rng(0)
    rows = rng.uniform(-_SENSOR_RANGE, _SENSOR_RANGE, (64, SAMPLES, CHANNELS)).astype(np.float32)
    rows[0, 0], rows[0, 1] = -_SENSOR_RANGE, _SENSOR_RANGE
    request = QuantizationRequest(mode=QuantizationMode.QAT, calibration=rows)
    return compile_with(demo_model(seed), CompileOptions(quantization=request)).bundle_bytes


def _he_normal(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], *, gain: float = 1.0
) -> onnx.TensorProto:
    inputs_per_output = int(np.prod(shape[1:]))
    values = rng.standard_normal(shape) * np.sqrt(2.0 / inputs_per_output) / gain
    return _tensor(name, values.astype(np.float32))


def _zeros(name: str, size: int) -> onnx.TensorProto:
    return _tensor(name, np.zeros(size, np.float32))


def _tensor(name: str, values: NDArray[np.float32]) -> onnx.TensorProto:
    return numpy_helper.from_array(values, name)
