"""Trains a new head on a shipped int8 wake-word model, which keeps state from call to call.

    pip install pymicro-wakeword        # brings the models and the sound front end
    python -m tests.benchmarks.training.wakeword_head [--model alexa] [--seed 0]

The models were made to know one word; here they are a frozen front part of 52 to 81 kB, and a
linear layer on what their last layer reads learns four kinds of made-up sounds: a tone that rises,
one that falls, one that pulses, and a click train. No speech is at hand offline, so the figures
show that features of a real int8 file carry what a head needs, not how well words are told apart.
"""

import argparse
import importlib.resources
import time

import numpy as np
from numpy.typing import NDArray

from edgefl.training.bundle import read_bundle
from edgefl.training.litert.compile.graft import HeadOptions, prepare_head
from edgefl.training.litert.runtime.trainer import LitertTrainer

RATE_HZ = 16_000
SECONDS = 1.0
FRAMES_PER_CALL = 3
CALLS = 30
CLASSES = ("rising", "falling", "pulsing", "clicks")
TRAIN_ROWS, TEST_ROWS = 160, 120


def sound(kind: int, rng: np.random.Generator) -> NDArray[np.int16]:
    """Return one second of a kind of sound in noise, 16 bits at 16 kHz."""
    t = np.arange(int(RATE_HZ * SECONDS)) / RATE_HZ
    low, high = rng.uniform(300, 700), rng.uniform(1500, 3000)
    start, end = {0: (low, high), 1: (high, low)}.get(kind, (low, low))
    tone = np.sin(2 * np.pi * (start * t + (end - start) * t**2 / 2))
    if kind == 2:
        tone *= np.sin(2 * np.pi * rng.uniform(3, 6) * t) > 0
    if kind == 3:
        tone = (np.arange(len(t)) % int(RATE_HZ / rng.uniform(8, 15)) < 8).astype(np.float64)
    loudness = rng.uniform(0.05, 0.4)
    noise = rng.normal(size=len(t)) * rng.uniform(0.005, 0.05)
    return np.clip((loudness * tone + noise) * 32767, -32768, 32767).astype(np.int16)


def features_of(samples: NDArray[np.int16]) -> NDArray[np.float32]:
    """Return what a microphone's front end gives the model: float32 [frames, 40]."""
    from pymicro_features import MicroFrontend

    frontend = MicroFrontend()
    content, frames = samples.tobytes(), []
    while content:
        result = frontend.process_samples(content)
        if result.samples_read == 0:
            break
        content = content[2 * result.samples_read :]
        if result.features:
            frames.append(result.features)
    return np.array(frames, np.float32)


def rows(n: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return examples [n, frames, 40] and their classes."""
    y = rng.integers(0, len(CLASSES), n)
    needed = CALLS * FRAMES_PER_CALL
    x = np.stack([features_of(sound(int(kind), rng))[:needed] for kind in y])
    return x, y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="alexa")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    models = importlib.resources.files("pymicro_wakeword") / "models"
    backbone = (models / f"{options.model}.tflite").read_bytes()
    head = HeadOptions(outputs=len(CLASSES), calls=CALLS, seed=options.seed)
    bundle = read_bundle(prepare_head(backbone, head).bundle_bytes)
    rng = np.random.default_rng(options.seed)
    x, y = rows(TRAIN_ROWS, rng)
    test_x, test_y = rows(TEST_ROWS, rng)
    trainer = LitertTrainer(bundle)
    before = trainer.evaluate(test_x, test_y)
    started_s = time.monotonic()
    trainer.fit(x, y, epochs=40, batch_size=16, lr=0.05, rng=rng)
    took_s = time.monotonic() - started_s
    after = trainer.evaluate(test_x, test_y)
    sizes = {name: len(content) for name, content in bundle.contents.items()}
    print(f"{options.model}: {len(backbone)} bytes -> {sizes}, {trainer.dimension} trained values")
    print(f"before: loss {before.loss:.3f}, accuracy {before.accuracy:.3f} of {TEST_ROWS}")
    print(f"after:  loss {after.loss:.3f}, accuracy {after.accuracy:.3f}; {took_s:.1f} s")


if __name__ == "__main__":
    main()
