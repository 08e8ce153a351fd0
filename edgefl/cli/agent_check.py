"""`edgefl agent check`: one dry epoch on this board's own data."""

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.cli.learning_options import add_backend, add_data, asked_backends
from edgefl.cli.options import HelpFormatter, add_common, add_json
from edgefl.data.schema import schema_of
from edgefl.data.source import open_source
from edgefl.storage.files import require_file
from edgefl.training.backends import backend_for
from edgefl.training.bundle import read_bundle
from edgefl.training.opening import open_trainer

_KIB_PER_MIB = 1024


def add_check(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `edgefl agent check`."""
    check = commands.add_parser(
        "check",
        help="train once on this board, and send nothing",
        description="Train one dry local epoch with a bundle on this board's data: says whether "
        "they fit, how long it takes, how much memory it needs and how large the update is. "
        "Nothing is sent and nothing is kept.",
        formatter_class=HelpFormatter,
    )
    check.add_argument("--bundle", type=Path, required=True, help="a bundle (.efl)")
    add_data(check)
    check.add_argument("--epochs", type=int, default=1, help="passes over the data")
    check.add_argument("--batch-size", type=int, default=16, help="rows of a step")
    check.add_argument("--lr", type=float, default=0.05, help="learning rate")
    check.add_argument(
        "--example-clip",
        type=float,
        help="bound of each example's gradient, for bundles that clip examples",
    )
    add_backend(check)
    add_json(check)
    add_common(check)
    check.set_defaults(run=run_check)


def run_check(options: argparse.Namespace) -> int:
    """Train one dry epoch and tell what it took."""
    require_file(options.bundle)
    bundle = read_bundle(options.bundle)
    backend = backend_for(bundle.manifest, asked_backends(options))
    data = open_source(options.data).read(schema_of(bundle.manifest))
    before_mib = _peak_mib()
    started_s = time.monotonic()
    trainer = open_trainer(bundle, backend, threads=options.threads)
    opened_s = time.monotonic()
    before = trainer.evaluate(data.x, data.y)
    measured_s = time.monotonic()
    trainer.fit(
        data.x,
        data.y,
        epochs=options.epochs,
        batch_size=options.batch_size,
        lr=options.lr,
        rng=np.random.default_rng(),
        example_clip=options.example_clip,
    )
    trained_s = time.monotonic()
    after = trainer.evaluate(data.x, data.y)
    steps = options.epochs * -(-data.examples // options.batch_size)
    facts: dict[str, object] = {
        "bundle": str(options.bundle),
        "backend": str(backend),
        "examples": data.examples,
        "dimension": trainer.dimension,
        "local_dimension": trainer.manifest.local_dimension,
        "open_s": round(opened_s - started_s, 4),
        "train_s": round(trained_s - measured_s, 4),
        "step_ms": round(1000 * (trained_s - measured_s) / steps, 4),
        "peak_memory_mib": round(_peak_mib(), 1),
        "peak_memory_before_mib": round(before_mib, 1),
        "update_norm": float(np.linalg.norm(trainer.delta().astype(np.float64))),
        "loss_before": before.loss,
        "loss_after": after.loss,
        "accuracy_before": before.accuracy,
        "accuracy_after": after.accuracy,
    }
    if options.json:
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        sys.stdout.write(_check_text(facts, steps))
    return 0


def _check_text(facts: dict[str, Any], steps: int) -> str:
    accuracy = ""
    if facts["accuracy_before"] is not None:
        accuracy = (
            f", accuracy {facts['accuracy_before']:.3f} -> {facts['accuracy_after']:.3f} (on the "
            "examples trained on)"
        )
    return (
        f"the data fit: {facts['examples']} examples, {facts['dimension']} averaged parameters, "
        f"{facts['local_dimension']} that stay here; {facts['backend']}\n"
        f"time: {facts['open_s']:.3f} s to open, {facts['train_s']:.3f} s to train in {steps} "
        f"steps of {facts['step_ms']:.2f} ms\n"
        f"memory: {facts['peak_memory_mib']:.0f} MiB at the peak, "
        f"{facts['peak_memory_before_mib']:.0f} MiB before the model was opened\n"
        f"update: L2 norm {facts['update_norm']:.4g} before clipping (a task's --clip-norm near "
        "it clips little)\n"
        f"loss: {facts['loss_before']:.4f} -> {facts['loss_after']:.4f}{accuracy}\n"
    )


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB_PER_MIB
