"""Makes a trainable classifier of single frames of silero-vad, and made-up sounds to train it on.

The published file takes three inputs (sound, state, sampling rate) and carries a state from frame
to frame. A training step wants one input and rows that do not depend on each other: so the rate
becomes a constant, the state starts from zeros, and the answer is taken before its sigmoid.
"""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgefl.training.base import TrainingData
from edgefl.training.onnx.compile.normalize import normalize

RATE_HZ = 16_000
FRAME = 576
"""Samples that the model reads at once: 512 new ones and 64 before them."""
STATE_WIDTH = 128


def frame_classifier(source: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model from `input` [N, 576] to one logit [N, 1]."""
    graph = source.graph
    sound = next(value.name for value in graph.input if value.name not in {"state", "sr"})
    if any(value.name == "sr" for value in graph.input):
        graph.initializer.append(numpy_helper.from_array(np.array(RATE_HZ, np.int64), "sr"))
    zero_state = [
        helper.make_node("Shape", [sound], ["frames"], start=0, end=1),
        _constant("two", [2]),
        _constant("width", [STATE_WIDTH]),
        helper.make_node("Concat", ["two", "frames", "width"], ["state_shape"], axis=0),
        helper.make_node("ConstantOfShape", ["state_shape"], ["state"]),
    ]
    nodes = [*zero_state, *(_copy(node) for node in graph.node)]
    del graph.node[:], graph.input[:], graph.output[1:]
    graph.node.extend(nodes)
    floats = onnx.TensorProto.FLOAT
    graph.input.append(helper.make_tensor_value_info(sound, floats, ["N", FRAME]))
    return _answer_before_sigmoid(normalize(source))


def _constant(name: str, values: list[int]) -> onnx.NodeProto:
    tensor = numpy_helper.from_array(np.array(values, np.int64), name)
    return helper.make_node("Constant", [], [name], value=tensor)


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _answer_before_sigmoid(model: onnx.ModelProto) -> onnx.ModelProto:
    """Cut what follows the last Sigmoid: it only takes away axes of one value."""
    sigmoid = [node for node in model.graph.node if node.op_type == "Sigmoid"][-1]
    model.graph.node.append(helper.make_node("Flatten", [sigmoid.input[0]], ["logit"]))
    del model.graph.output[:]
    logit = helper.make_tensor_value_info("logit", onnx.TensorProto.FLOAT, ["N", 1])
    model.graph.output.append(logit)
    return normalize(model)


def frames(count: int, *, seed: int) -> TrainingData:
    """Return frames of which half hold a vowel: harmonics of a pitch under two formants.

    All have a mains hum, another machine's tone and noise.

    Returns:
        x float32 [count, 576], y float32 [count, 1].
    """
    rng = np.random.default_rng(seed)
    y = (np.arange(count) % 2).astype(np.int64)
    seconds = np.arange(FRAME) / RATE_HZ
    x = rng.normal(0, 0.05, (count, FRAME))
    for row, label in enumerate(y):
        tones = 50 * np.arange(1, 6), rng.uniform(300, 3000, 2)
        for frequency_hz in np.concatenate(tones):
            x[row] += rng.uniform(0, 0.06) * _tone(frequency_hz, seconds, rng)
        if label:
            x[row] += rng.uniform(0.5, 1.5) * _vowel(seconds, rng)
    return TrainingData(x=x.astype(np.float32), y=y.astype(np.float32)[:, None])


def _tone(frequency_hz: float, seconds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.sin(2 * np.pi * frequency_hz * seconds + rng.uniform(0, 2 * np.pi))


def _vowel(seconds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    pitch_hz = rng.uniform(90, 260)
    formants_hz = rng.uniform(300, 900), rng.uniform(900, 2400)
    sound = np.zeros_like(seconds)
    for harmonic in range(1, int(3500 / pitch_hz)):
        nearness = [np.exp(-(((harmonic * pitch_hz - f) / 150) ** 2)) for f in formants_hz]
        sound += 0.1 * (0.05 + sum(nearness)) * _tone(harmonic * pitch_hz, seconds, rng)
    return sound
