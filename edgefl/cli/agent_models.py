"""`edgefl agent check` and `edgefl agent predict`: a dry run, and use of kept models."""

import argparse
import csv
import io
import json
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.agent.models import ModelRecord, ModelShelf
from edgefl.cli.learning_options import add_backend, add_data, asked_backends
from edgefl.cli.options import add_common, add_json, default_state_dir
from edgefl.data.schema import schema_of
from edgefl.data.source import open_source
from edgefl.errors import ConfigError, StorageError
from edgefl.training.backends import backend_for
from edgefl.training.bundle import read_bundle
from edgefl.training.opening import open_trainer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgefl.training.manifest import Manifest

MODELS = "models"
"""Folder for kept models below an agent's state folder."""
_OWN, _GLOBAL = "own", "global"
_KIB_PER_MIB = 1024


def add_check(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `edgefl agent check`."""
    check = commands.add_parser(
        "check",
        help="train once on this board, and send nothing",
        description="Train one dry local epoch with a bundle on this board's data: says whether "
        "they fit, how long it takes, how much memory it needs and how large the update is. "
        "Nothing is sent and nothing is kept.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
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


def add_predict(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `edgefl agent predict`."""
    predict = commands.add_parser(
        "predict",
        help="predict with a model that this device keeps",
        description="Predict with a model that 'edgefl agent run' kept on this device: its own one "
        "(trained on its data after a round), or the last good one of the fleet. It works beside a "
        "running agent and without a network.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_data(predict)
    predict.add_argument("--state", type=Path, help="the agent's state folder")
    predict.add_argument("--task", help="the task whose model is meant; default: the newest one")
    predict.add_argument(
        "--model", choices=[_OWN, _GLOBAL], default=_OWN, help="the device's own, or the fleet's"
    )
    predict.add_argument("-o", "--output", type=Path, help="CSV file; default: standard output")
    add_backend(predict)
    add_json(predict)
    add_common(predict)
    predict.set_defaults(run=run_predict)


# ---------------------------------------------------------------- check


def run_check(options: argparse.Namespace) -> int:
    """Train one dry epoch and tell what it took."""
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


# ---------------------------------------------------------------- predict


def run_predict(options: argparse.Namespace) -> int:
    """Predict, and say which model did."""
    shelf = ModelShelf((options.state or default_state_dir("agent")) / MODELS)
    record = _record(shelf, options.task)
    model = shelf.personal(record.task) if options.model == _OWN else shelf.good(record.task)
    if model is None:
        raise ConfigError(
            "E-NO-MODEL",
            f"a kept model '{options.model}' of task {record.task!r}",
            "none",
            "wait for the first round, or take the other --model",
        )
    bundle = shelf.bundle(record.task)
    trainer = open_trainer(
        bundle, backend_for(bundle.manifest, asked_backends(options)), threads=options.threads
    )
    trainer.set_params(model.params)
    trainer.set_local(model.local)
    data = open_source(options.data).read(schema_of(bundle.manifest))
    outputs = trainer.predict(data.x)
    rows = _rows(outputs, bundle.manifest)
    evaluation = trainer.evaluate(data.x, data.y)
    from_round = record.personal_round if options.model == _OWN else record.good_round
    said = {
        "task": record.task,
        "model": options.model,
        "from_round": from_round,
        "is_rolled_back": record.is_rolled_back and options.model == _GLOBAL,
        "examples": data.examples,
        "accuracy": evaluation.accuracy,
        "loss": evaluation.loss,
    }
    if options.json:
        sys.stdout.write(json.dumps({**said, "predictions": rows}) + "\n")
        return 0
    _write(options.output, _as_csv(rows))
    sys.stderr.write(_predict_text(said))
    return 0


def _record(shelf: ModelShelf, task: str | None) -> ModelRecord:
    known = shelf.tasks()
    record = shelf.record(task or known[0]) if task or known else None
    if record is None:
        raise ConfigError(
            "E-NO-MODEL",
            "a model that this device keeps" + (f" of task {task!r}" if task else ""),
            f"models of {', '.join(known)}" if known else "none yet",
            "check --state and --task; the first round that this device trains in leaves one",
        )
    return record


def _rows(outputs: "NDArray[np.float32]", manifest: "Manifest") -> list[dict[str, float | int]]:
    if not manifest.loss.takes_labels:
        return [
            {f"value{place}": float(value) for place, value in enumerate(row.reshape(-1))}
            for row in outputs
        ]
    shifted = np.exp(outputs.astype(np.float64) - outputs.max(axis=1, keepdims=True))
    shares = shifted / shifted.sum(axis=1, keepdims=True)
    return [
        {"class": int(share.argmax()), "probability": round(float(share.max()), 6)}
        for share in shares
    ]


def _as_csv(rows: list[dict[str, float | int]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=["row", *rows[0]], lineterminator="\n")
    writer.writeheader()
    writer.writerows({"row": number, **row} for number, row in enumerate(rows))
    return text.getvalue()


def _write(path: Path | None, text: str) -> None:
    if path is None:
        sys.stdout.write(text)
        return
    try:
        path.write_text(text)
    except OSError as error:
        raise StorageError(
            "E-OUT-WRITE", f"room and permission to write {path}", error.strerror or str(error)
        ) from error


def _predict_text(said: dict[str, Any]) -> str:
    kept = " (newer ones did worse here)" if said["is_rolled_back"] else ""
    measured = f"loss {said['loss']:.4f}"
    if said["accuracy"] is not None:
        measured = f"accuracy {said['accuracy']:.3f}, {measured}"
    return (
        f"{said['examples']} examples with the {said['model']} model of task {said['task']}, from "
        f"round {said['from_round']}{kept}: {measured} against their own labels\n"
    )
