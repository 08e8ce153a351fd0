"""Compare mask expansion of Flower's SecAgg+ with `edgefl._native.apply_masks`, in one run.

Run it where both are importable:

    pip install flwr
    python tests/benchmarks/peers/flower_masks.py

What is timed, for one device with k masks over d coordinates: Flower expands each 32-byte seed with
`pseudo_rand_gen` and adds it with `parameters_addition`; edgefl does the same in one call. The two
take turns, so that a busy machine slows both. CPU time of one thread, median of the repeats.

The work is not equal: Flower's masks come from a generator seeded with 32 bits, ours from ChaCha20
with 256. The ratio is what a device gains by the change, not a comparison of one algorithm.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

from edgefl import _native

RING_BITS = 32
CHACHA20 = 1
GOAL_RATIO = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Medians over the repeats, in nanoseconds of CPU time per coordinate and mask."""

    coordinates: int
    masks: int
    repeats: int
    flower_ns: float
    edgefl_ns: float
    ratio: float
    lowest_ratio: float
    flwr: str
    numpy: str
    chacha20: str
    python: str


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time that one call of `work` takes in this process."""
    started = time.process_time()
    work()
    return time.process_time() - started


def expand_with_flower(seeds: list[bytes], vector: np.ndarray) -> None:
    """Add one mask per seed to `vector`, int64 [d], with Flower's functions."""
    total = [vector]
    for seed in seeds:
        mask = pseudo_rand_gen(seed, 1 << RING_BITS, [vector.shape])
        total = parameters_addition(total, mask)


def expand_with_edgefl(masks: list[_native.Mask], accumulator: np.ndarray) -> None:
    """Add one mask per seed to `accumulator`, uint32 [d], in place."""
    _native.apply_masks(accumulator, RING_BITS, masks, threads=1)


def compare(*, coordinates: int, masks: int, repeats: int) -> Comparison:
    """Time both sides by turns and return the medians."""
    raw_seeds = [os.urandom(32) for _ in range(masks)]
    added = [
        _native.Mask(_native.Seed.from_bytes(raw), CHACHA20, subtract=False) for raw in raw_seeds
    ]
    vector = np.zeros(coordinates, dtype=np.int64)
    accumulator = np.zeros(coordinates, dtype=np.uint32)
    expand_with_flower(raw_seeds[:1], vector)
    expand_with_edgefl(added[:1], accumulator)
    flower_s, edgefl_s = [], []
    for _ in range(repeats):
        flower_s.append(cpu_seconds(lambda: expand_with_flower(raw_seeds, vector)))
        edgefl_s.append(cpu_seconds(lambda: expand_with_edgefl(added, accumulator)))
    per_unit_ns = 1e9 / (coordinates * masks)
    ratios = [theirs / ours for theirs, ours in zip(flower_s, edgefl_s, strict=True)]
    return Comparison(
        coordinates=coordinates,
        masks=masks,
        repeats=repeats,
        flower_ns=statistics.median(flower_s) * per_unit_ns,
        edgefl_ns=statistics.median(edgefl_s) * per_unit_ns,
        ratio=statistics.median(ratios),
        lowest_ratio=min(ratios),
        flwr=importlib.metadata.version("flwr"),
        numpy=np.__version__,
        chacha20=_native.backends()["chacha20"][0],
        python=platform.python_version(),
    )


def main(arguments: list[str] | None = None) -> int:
    """Print a table, then one line of JSON; return 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coordinates", type=int, default=1_000_000)
    parser.add_argument("--masks", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=9, help="9 or more for a stable median")
    options = parser.parse_args(arguments)
    result = compare(coordinates=options.coordinates, masks=options.masks, repeats=options.repeats)
    rows = [
        ("", "ns per coordinate and mask"),
        (f"Flower {result.flwr}", f"{result.flower_ns:.2f}"),
        (f"edgefl ({result.chacha20})", f"{result.edgefl_ns:.2f}"),
        ("ratio, median", f"{result.ratio:.2f}  (goal {GOAL_RATIO:.0f})"),
        ("ratio, lowest", f"{result.lowest_ratio:.2f}"),
    ]
    for label, value in rows:
        sys.stdout.write(f"{label:<24}{value}\n")
    sys.stdout.write(json.dumps(asdict(result)) + "\n")
    return 0 if result.ratio >= GOAL_RATIO else 1


if __name__ == "__main__":
    raise SystemExit(main())
