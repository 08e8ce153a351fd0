"""One side of the step benchmark as a process: train epochs when asked and say what they took."""

import resource
import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.peers.json_lines import Json, serve

BATCH = 32
LR = 0.01

Epoch = Callable[[], float]
"""Trains one epoch over the data it was made with and returns the mean loss."""


def batches(rows: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of each batch of one shuffled epoch."""
    order = rng.permutation(rows)
    for start in range(0, rows, BATCH):
        yield order[start : start + BATCH]


def serve_steps(open_net: Callable[[str], tuple[Epoch, int]], versions: Json) -> None:
    """Answer `open`, `time` and `memory`.

    Args:
        open_net: Takes a net's name; returns its epoch and the steps in one.
        versions: What the side runs on.
    """
    opened: dict[str, tuple[Epoch, int]] = {}

    def open_one(request: Json) -> Json:
        name = str(request["net"])
        opened[name] = open_net(name)
        epoch, _ = opened[name]
        return {"losses": [epoch() for _ in range(3)]}

    def time_one(request: Json) -> Json:
        epoch, steps = opened[str(request["net"])]
        started, times = time.monotonic(), []
        while not times or time.monotonic() - started < float(str(request["seconds"])):
            before = time.process_time()
            epoch()
            times.append((time.process_time() - before) / steps)
        return {"cpu_s": float(np.median(times)), "epochs": len(times)}

    def memory(_: Json) -> Json:
        return {"peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}

    serve({"open": open_one, "time": time_one, "memory": memory, "versions": lambda _: versions})
