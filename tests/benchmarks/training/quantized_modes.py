"""What each quantized mode learns on a device, what is left of it in int8, and what a step costs.

    python -m tests.benchmarks.training.quantized_modes [--seeds 3] [--repeats 9]

A 1-D CNN is trained at its source on synthetic sensor windows of six classes. A device then wears
the sensor another way round (channels in another order, other gains, an offset), has 240 windows
of its own, and takes 64 AdamW steps of batch 32. Accuracies are on 1,500 other windows of the
device, means over the seeds. Times are CPU time per step, median over repeats whose order goes
round, relative to a float32 step of all layers.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edgefl.training.base import Inputs, TrainingData
from edgefl.training.bundle import Bundle, export_model, read_bundle
from edgefl.training.int8_evaluate import evaluate_int8
from edgefl.training.int8_export import export_int8_model
from edgefl.training.kinds import Optimizer, QuantizationMode
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.optim import OptimizerSettings
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.compile.quantize.request import QuantizationRequest
from edgefl.training.onnx.runtime.trainer import OnnxTrainer

CHANNELS, SAMPLES, CLASSES = 9, 128, 6
BATCH = 32
SOURCE_EPOCHS, SOURCE_LR = 6, 2e-3
DEVICE_EPOCHS, DEVICE_LR = 8, 3e-3
GRID_LR = 1e-2
TIMED_EPOCHS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way to train.

    Attributes:
        name: For the table.
        mode: Where integers are used.
        trainable: What is trained.
        optimizer: How; weights on a grid take plain SGD, as their steps are rounded anyway.
        lr: Learning rate.
        splits_front: False trains with the frozen front part in the same graph.
        caches: False computes the frozen front part anew for each batch.
    """

    name: str
    mode: QuantizationMode = QuantizationMode.NONE
    trainable: str = "all"
    optimizer: Optimizer = Optimizer.ADAMW
    lr: float = DEVICE_LR
    splits_front: bool = True
    caches: bool = True


STATIC, QAT, GRID = QuantizationMode.STATIC, QuantizationMode.QAT, QuantizationMode.GRID
ROWS = (
    Row(name="float, all"),
    Row(name="float, head only, one graph", trainable="head", splits_front=False),
    Row(name="float front part, float head", trainable="head", caches=False),
    Row(name="int8 front part, float head", mode=STATIC, trainable="head", caches=False),
    Row(name="float front part kept, float head", trainable="head"),
    Row(name="int8 front part kept, float head", mode=STATIC, trainable="head"),
    Row(name="int8, biases and head", mode=STATIC, trainable="biases,head"),
    Row(name="int8, low-rank r = 4 and head", mode=STATIC, trainable="lora:4,head"),
    Row(name="QAT, all", mode=QAT),
    Row(name="float, all, SGD", optimizer=Optimizer.SGD, lr=GRID_LR),
    Row(name="int8 grid, all, SGD", mode=GRID, optimizer=Optimizer.SGD, lr=GRID_LR),
)


def sensor_cnn(seed: int) -> onnx.ModelProto:
    """Three convolutions with pooling, a mean over time and a linear head: 24,518 parameters."""
    rng = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, NDArray[np.float64]] = {}
    value = "x"
    for index, (inputs, outputs, taps) in enumerate([(9, 32, 5), (32, 64, 5), (64, 64, 3)], 1):
        name = f"conv{index}"
        weights[f"{name}.weight"] = _he_normal(rng, (outputs, inputs, taps))
        weights[f"{name}.bias"] = np.zeros(outputs)
        read = [value, f"{name}.weight", f"{name}.bias"]
        nodes.append(helper.make_node("Conv", read, [name], pads=[taps // 2] * 2))
        value = f"relu{index}"
        nodes.append(helper.make_node("Relu", [name], [value]))
        if index < 3:
            nodes.append(
                helper.make_node(
                    "MaxPool", [value], [f"pool{index}"], kernel_shape=[2], strides=[2]
                )
            )
            value = f"pool{index}"
    weights["head.weight"], weights["head.bias"] = _he_normal(rng, (CLASSES, 64)), np.zeros(CLASSES)
    nodes += [
        helper.make_node("GlobalAveragePool", [value], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["features"]),
        helper.make_node("Gemm", ["features", "head.weight", "head.bias"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "sensor_cnn",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", CHANNELS, SAMPLES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _he_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    return rng.normal(0.0, np.sqrt(2.0 / np.prod(shape[1:])), shape)


def sensor_windows(rows: int, seed: int, *, moved: bool) -> TrainingData:
    """Waves whose frequencies and strengths tell the class, in noise.

    Args:
        rows: Number of windows.
        seed: Of everything but the classes themselves.
        moved: As the device sees them.
    """
    classes = np.random.default_rng(0)
    frequency = classes.uniform(2, 14, (CLASSES, CHANNELS))
    strength = classes.uniform(0.3, 1.2, (CLASSES, CHANNELS))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, rows)
    moments = np.arange(SAMPLES) / SAMPLES * 2 * np.pi
    phase = rng.uniform(0, 2 * np.pi, (rows, CHANNELS, 1))
    x = strength[y][:, :, None] * np.sin(frequency[y][:, :, None] * moments + phase)
    x += rng.normal(0, 1.2, x.shape)
    if moved:
        gains = np.linspace(0.5, 1.6, CHANNELS)[None, :, None]
        x = x[:, [1, 0, 2, 4, 3, 5, 7, 6, 8]] * gains + 0.3
    return TrainingData(x=x.astype(np.float32), y=y.astype(np.int64))


def trained_at_source(seed: int) -> onnx.ModelProto:
    """Train the float model where it is made."""
    options = CompileOptions(optimizer=OptimizerSettings(kind=Optimizer.ADAMW))
    bundle = read_bundle(compile_with(sensor_cnn(seed), options).bundle_bytes)
    trainer = OnnxTrainer(bundle)
    data = sensor_windows(1500, 100 + seed, moved=False)
    rng = np.random.default_rng(seed)
    trainer.fit(data.x, data.y, epochs=SOURCE_EPOCHS, batch_size=BATCH, lr=SOURCE_LR, rng=rng)
    return onnx.load_from_string(export_model(bundle, trainer.params()))


def prepare(model: onnx.ModelProto, row: Row, rows: Inputs) -> Bundle:
    """Prepare the source's model for a device, calibrated at the source."""
    options = CompileOptions(
        trainable=row.trainable,
        optimizer=OptimizerSettings(kind=row.optimizer),
        quantization=QuantizationRequest(mode=row.mode, calibration=rows),
        splits_front=row.splits_front,
    )
    return read_bundle(compile_with(model, options).bundle_bytes)


def open_trainer(bundle: Bundle, row: Row) -> OnnxTrainer:
    """Open a trainer that keeps features or does not."""
    return OnnxTrainer(bundle) if row.caches else OnnxTrainer(bundle, feature_cache_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracies:
    """Of one row and seed; `source` in float32 and `int8` ones after training on the device."""

    device: float
    int8: float
    source: float


def train_on_device(bundle: Bundle, row: Row, seed: int) -> Accuracies:
    """Fine-tune and measure."""
    trainer = open_trainer(bundle, row)
    own = sensor_windows(240, 300 + seed, moved=True)
    rng = np.random.default_rng(seed)
    trainer.fit(own.x, own.y, epochs=DEVICE_EPOCHS, batch_size=BATCH, lr=row.lr, rng=rng)
    held = sensor_windows(1500, 400 + seed, moved=True)
    source = sensor_windows(1500, 200 + seed, moved=False)
    return Accuracies(
        device=trainer.evaluate(held.x, held.y).accuracy or 0.0,
        int8=evaluate_int8(bundle, trainer.params(), held).accuracy or 0.0,
        source=trainer.evaluate(source.x, source.y).accuracy or 0.0,
    )


def time_steps(trainers: list[OnnxTrainer], repeats: int) -> list[float]:
    """Return the CPU time of a step of each trainer, s: medians of interleaved repeats."""
    own = sensor_windows(256, 7, moved=True)
    steps = TIMED_EPOCHS * -(-own.examples // BATCH)
    times: list[list[float]] = [[] for _ in trainers]
    for repeat in range(repeats + 1):
        for offset in range(len(trainers)):
            index = (offset + repeat) % len(trainers)
            trainer = trainers[index]
            trainer.set_params(trainer.params())
            before = time.process_time()
            trainer.fit(
                own.x,
                own.y,
                epochs=TIMED_EPOCHS,
                batch_size=BATCH,
                lr=1e-5,
                rng=np.random.default_rng(0),
            )
            if repeat > 0:
                times[index].append((time.process_time() - before) / steps)
    return [float(np.median(found)) for found in times]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    found: dict[str, list[Accuracies]] = {row.name: [] for row in ROWS}
    trainers: list[OnnxTrainer] = []
    bundles: dict[str, Bundle] = {}
    at_source = []
    for seed in range(options.seeds):
        model = trained_at_source(seed)
        rows = sensor_windows(200, 100 + seed, moved=False).x
        bundles = {row.name: prepare(model, row, rows) for row in ROWS}
        at_source.append(_at_source(bundles["float, all"], seed))
        for row in ROWS:
            found[row.name].append(train_on_device(bundles[row.name], row, seed))
        if seed == 0:
            trainers = [open_trainer(bundles[row.name], row) for row in ROWS]
    means = np.mean(at_source, axis=0)
    plain = bundles["float, all"]
    print(
        f"source: float {means[0]:.3f}, int8 {means[1]:.3f}; on the device untrained: float "
        f"{means[2]:.3f}, int8 {means[3]:.3f}; file "
        f"{len(export_model(plain, plain.initial_params)):,} -> "
        f"{len(export_int8_model(plain, plain.initial_params)):,} bytes; {options.seeds} seeds\n"
    )
    seconds = time_steps(trainers, options.repeats)
    print("| what trains | parameters | device | device, int8 | source | step | step, ms |")
    print("|---|---|---|---|---|---|---|")
    for row, step_s in zip(ROWS, seconds, strict=True):
        runs = found[row.name]
        device, int8, source = (
            float(np.mean([getattr(run, name) for run in runs]))
            for name in ("device", "int8", "source")
        )
        print(
            f"| {row.name} | {bundles[row.name].manifest.dimension:,} | {device:.3f} | {int8:.3f} "
            f"| {source:.3f} | {step_s / seconds[0]:.2f} | {1e3 * step_s:.2f} |"
        )
    by_name = {row.name: step_s for row, step_s in zip(ROWS, seconds, strict=True)}
    plain_s = by_name["float, head only, one graph"]
    each = by_name["int8 front part, float head"] / by_name["float front part, float head"]
    kept = by_name["int8 front part kept, float head"] / plain_s
    print(f"\nint8 / float head step, front part computed for each batch: {each:.2f} (goal 0.50)")
    print(f"int8 head step with kept features / float head step in one graph: {kept:.2f}")


def _at_source(bundle: Bundle, seed: int) -> tuple[float, float, float, float]:
    results = []
    for moved, first in ((False, 200), (True, 400)):
        data = sensor_windows(1500, first + seed, moved=moved)
        plain = OnnxTrainer(bundle).evaluate(data.x, data.y).accuracy
        int8 = evaluate_int8(bundle, bundle.initial_params, data).accuracy
        results += [plain or 0.0, int8 or 0.0]
    return results[0], results[1], results[2], results[3]


if __name__ == "__main__":
    main()
