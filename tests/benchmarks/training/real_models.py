"""Prepare and fine-tune real models as a device would, and say what that is worth.

    python -m tests.benchmarks.training.real_models [--silero FILE]

Four models were trained elsewhere and exported by PyTorch (tests/vectors/training/make_real.py).
The fifth is silero-vad, which its package ships (`pip install silero-vad`; FILE is one of its .onnx
files). Each goes through `edgefl model prepare`, is trained on the examples of one new device and
measured on others of it. Prints a Markdown table.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from edgefl.data import Arm, device_shard
from edgefl.training.base import TrainingData
from edgefl.training.bundle import read_bundle
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.benchmarks.training import silero
from tests.stripes import Camera, stripes

FOLDER = Path(__file__).resolve().parents[2] / "vectors" / "training" / "real"
TRAINED_SHARE = 0.6
NEW_CAMERA = Camera(turn=0.35, tint=(0.5, 1.0, 1.6), noise=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model with one way to train it.

    Attributes:
        name: Of the model.
        path: Its file.
        device: Whose examples they are.
        training: What the device trains on.
        held_out: What it is measured on.
        options: More arguments of `edgefl model prepare`.
        lr: Learning rate.
        epochs: Passes over the device's examples.
    """

    name: str
    path: Path
    device: str
    training: TrainingData
    held_out: TrainingData
    options: tuple[str, ...] = ()
    lr: float = 0.05
    epochs: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What training was worth on examples that were not trained on."""

    trained_parameters: int
    loss_before: float
    loss_after: float
    accuracy_before: float
    accuracy_after: float


def split(x: NDArray[np.float32], y: NDArray[np.generic]) -> tuple[TrainingData, TrainingData]:
    """Return the first part of each class's examples, and the rest."""
    labels = y.reshape(-1)
    first = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        first[rows[: round(TRAINED_SHARE * len(rows))]] = True
    return TrainingData(x=x[first], y=y[first]), TrainingData(x=x[~first], y=y[~first])


def har_cases() -> Iterator[Case]:
    """Yield the three recognisers of exercises on a person whom they have not seen."""
    shard = device_shard(9, Arm.LEFT)
    training, held_out = split(shard.x, shard.y)
    ways = {
        "har-cnn": [("--trainable", "all"), ("--trainable", "head")],
        "har-gru": [("--trainable", "all")],
        "har-attention": [("--trainable", "all"), ("--trainable", "lora:4,head")],
    }
    for name, all_options in ways.items():
        for options in all_options:
            yield Case(
                name=name,
                path=FOLDER / f"{name}.onnx",
                device="person 9",
                training=training,
                held_out=held_out,
                options=options,
            )


def mobilenet_cases() -> Iterator[Case]:
    """Yield the reader of stripes behind a camera that is tilted, tinted and noisy."""
    training = _pictures(200, seed=2)
    for trainable in ("all", "biases", "head"):
        yield Case(
            name="mobilenet",
            path=FOLDER / "mobilenet.onnx",
            device="another camera",
            training=training,
            held_out=_pictures(400, seed=3),
            options=("--trainable", trainable),
            lr=0.02,
        )


def _pictures(count: int, *, seed: int) -> TrainingData:
    x, y = stripes(count, NEW_CAMERA, seed=seed)
    return TrainingData(x=x, y=y)


def silero_cases(file: Path, folder: Path) -> Iterator[Case]:
    """Yield silero-vad as a classifier of single frames in a noise that it was not made for."""
    path = folder / "silero-frame.onnx"
    onnx.save(silero.frame_classifier(onnx.load(file)), path)
    training, held_out = silero.frames(300, seed=1), silero.frames(300, seed=2)
    for trainable in ("*decoder*", "head"):
        yield Case(
            name="silero-vad",
            path=path,
            device="made-up vowels in hum and noise",
            training=training,
            held_out=held_out,
            options=("--trainable", trainable, "--loss", "binary_cross_entropy"),
            lr=0.01,
            epochs=5,
        )


def fine_tune(case: Case, bundle_path: Path) -> Outcome:
    """Prepare, train and measure."""
    command = [sys.executable, "-m", "edgefl.cli", "model", "prepare", str(case.path)]
    subprocess.run(
        [*command, *case.options, "-o", str(bundle_path)], check=True, capture_output=True
    )
    trainer = OnnxTrainer(read_bundle(bundle_path))
    before = trainer.evaluate(case.held_out.x, case.held_out.y)
    trainer.fit(
        case.training.x,
        case.training.y,
        epochs=case.epochs,
        batch_size=16,
        lr=case.lr,
        rng=np.random.default_rng(0),
    )
    after = trainer.evaluate(case.held_out.x, case.held_out.y)
    assert before.accuracy is not None
    assert after.accuracy is not None
    return Outcome(
        trained_parameters=trainer.dimension,
        loss_before=before.loss,
        loss_after=after.loss,
        accuracy_before=before.accuracy,
        accuracy_after=after.accuracy,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--silero", type=Path, metavar="FILE", help="a .onnx file of silero-vad")
    options = parser.parse_args(arguments)
    print("| model | trained | parameters | new device | loss | accuracy |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = [*har_cases(), *mobilenet_cases()]
        if options.silero is not None:
            cases += silero_cases(options.silero, folder)
        for case in cases:
            found = fine_tune(case, folder / "case.efl")
            print(
                f"| {case.name} | `{case.options[1]}` | {found.trained_parameters:,} "
                f"| {case.device} | {found.loss_before:.3f} -> {found.loss_after:.3f} "
                f"| {found.accuracy_before:.3f} -> {found.accuracy_after:.3f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
