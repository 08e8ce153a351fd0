"""`edgefl agent predict`: use of the models that a device keeps, with or without labels."""

import argparse
import csv
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from edgefl.agent.models import ModelRecord, ModelShelf
from edgefl.cli.learning_options import add_backend, add_data, asked_backends
from edgefl.cli.options import HelpFormatter, add_common, add_json, default_state_dir
from edgefl.data.inputs import InputData
from edgefl.data.schema import schema_of
from edgefl.data.source import open_source
from edgefl.errors import ConfigError, StorageError
from edgefl.storage.files import require_replaceable
from edgefl.training.backends import backend_for
from edgefl.training.base import Evaluation, Trainer
from edgefl.training.loss_values import measure
from edgefl.training.opening import open_trainer

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODELS = "models"
"""Folder for kept models below an agent's state folder."""
_OWN, _GLOBAL = "own", "global"
_ROWS_AT_ONCE = 256
_TIME_DIGITS = 6

Row = dict[str, float | int | str]


def add_predict(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `edgefl agent predict`."""
    predict = commands.add_parser(
        "predict",
        help="predict with a model that this device keeps",
        description="Predict with a model that 'edgefl agent run' kept on this device: its own one "
        "(trained on its data after a round), or the last good one of the fleet. It works beside a "
        "running agent and without a network. The data need no labels; where there are some, the "
        "predictions are compared with them.",
        formatter_class=HelpFormatter,
    )
    add_data(predict)
    predict.add_argument("--newest", type=int, metavar="N", help="only the newest N windows")
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


def run_predict(options: argparse.Namespace) -> int:
    """Predict, and say which model did."""
    if options.newest is not None and options.newest < 1:
        raise ConfigError("E-NEWEST", "--newest of 1 or more", str(options.newest))
    source = open_source(options.data)
    shelf = ModelShelf((options.state or default_state_dir("agent")) / MODELS)
    record = _record(shelf, options.task)
    trainer = _trainer(shelf, record, options)
    everything = source.read_inputs(schema_of(trainer.manifest))
    data = everything.newest(options.newest or everything.examples)
    predictions = _Predictions(trainer, data, everything.examples - data.examples)
    if options.json:
        rows = list(predictions.rows())
        said = {**_said(record, options.model, predictions), "predictions": rows}
        sys.stdout.write(json.dumps(said) + "\n")
        return 0
    with _opened(options.output) as file:
        writer = csv.DictWriter(file, fieldnames=predictions.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(predictions.rows())
    targets = "labels" if trainer.manifest.loss.takes_labels else "values"
    sys.stderr.write(_text(_said(record, options.model, predictions), targets))
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


def _trainer(shelf: ModelShelf, record: ModelRecord, options: argparse.Namespace) -> Trainer:
    model = shelf.personal(record.task) if options.model == _OWN else shelf.good(record.task)
    if model is None:
        raise ConfigError(
            "E-NO-MODEL",
            f"a kept model '{options.model}' of task {record.task!r}",
            "none",
            "wait for the first round, or take the other --model",
        )
    bundle = shelf.bundle(record.task)
    backend = backend_for(bundle.manifest, asked_backends(options))
    trainer = open_trainer(bundle, backend, threads=options.threads)
    trainer.set_params(model.params)
    trainer.set_local(model.local)
    return trainer


class _Predictions:
    """Predicts some rows at a time, and compares with targets where there are any.

    Memory for outputs so depends neither on the number of windows nor on the output's size.
    """

    def __init__(self, trainer: Trainer, data: InputData, first_row: int) -> None:
        """Prepare.

        Args:
            trainer: With the model to use.
            data: What to predict on.
            first_row: Number of its first row, among those that are not asked for too.
        """
        self._trainer = trainer
        self._data = data
        self._first_row = first_row
        self._measured: list[Evaluation] = []

    @property
    def examples(self) -> int:
        """Return the number of rows."""
        return self._data.examples

    @property
    def notes(self) -> tuple[str, ...]:
        """Return remarks on the data."""
        return self._data.notes

    @property
    def columns(self) -> list[str]:
        """Return the names of the fields of each row."""
        spans = [] if self._data.spans_s is None else ["start_s", "end_s"]
        if self._trainer.manifest.loss.takes_labels:
            names = ["class_name"] if self._data.class_names else []
            return ["row", *spans, "class", *names, "probability"]
        width = int(np.prod(self._trainer.manifest.output.shape))
        return ["row", *spans, *(f"value{place}" for place in range(width))]

    def rows(self) -> Iterator[Row]:
        """Yield each row's prediction, oldest first."""
        loss = self._trainer.manifest.loss
        for start in range(0, self._data.examples, _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            outputs = self._trainer.predict(self._data.x[part])
            is_known = self._data.has_target[part]
            if is_known.any():
                targets = self._data.y[part][is_known]
                self._measured.append(measure(loss, outputs[is_known], targets))
            said = self._classes(outputs) if loss.takes_labels else _values(outputs)
            for place, row in enumerate(said, start):
                yield {"row": self._first_row + place, **self._span(place), **row}

    def evaluation(self) -> Evaluation | None:
        """Return how well the rows so far did; None if no target was known."""
        examples = sum(one.examples for one in self._measured)
        if examples == 0:
            return None
        shares = [one.examples / examples for one in self._measured]
        rights = [one.accuracy for one in self._measured if one.accuracy is not None]
        return Evaluation(
            accuracy=float(np.dot(shares, rights)) if rights else None,
            loss=float(np.dot(shares, [one.loss for one in self._measured])),
            examples=examples,
        )

    def _span(self, place: int) -> Row:
        if self._data.spans_s is None:
            return {}
        start_s, end_s = self._data.spans_s[place].round(_TIME_DIGITS).tolist()
        return {"start_s": start_s, "end_s": end_s}

    def _classes(self, outputs: "NDArray[np.float32]") -> Iterator[Row]:
        names = self._data.class_names
        shifted = np.exp(outputs.astype(np.float64) - outputs.max(axis=1, keepdims=True))
        for share in shifted / shifted.sum(axis=1, keepdims=True):
            number = int(share.argmax())
            name: Row = {}
            if names:
                name["class_name"] = names[number] if number < len(names) else ""
            yield {"class": number, **name, "probability": round(float(share.max()), 6)}


def _values(outputs: "NDArray[np.float32]") -> Iterator[Row]:
    for row in outputs:
        yield {f"value{place}": float(value) for place, value in enumerate(row.reshape(-1))}


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    """Give standard output, or a file that appears only once it is whole."""
    if path is None:
        yield sys.stdout
        return
    draft = path.with_name(f"{path.name}.new-{os.getpid()}")
    try:
        require_replaceable(path)
        with draft.open("w", encoding="utf-8") as file:
            yield file
        draft.replace(path)
    except OSError as error:
        raise StorageError(
            "E-OUT-WRITE", f"room and permission to write {path}", error.strerror or str(error)
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink()


def _said(record: ModelRecord, model: str, predictions: _Predictions) -> dict[str, object]:
    evaluation = predictions.evaluation()
    return {
        "task": record.task,
        "model": model,
        "from_round": record.personal_round if model == _OWN else record.good_round,
        "is_rolled_back": record.is_rolled_back and model == _GLOBAL,
        "examples": predictions.examples,
        "examples_with_target": 0 if evaluation is None else evaluation.examples,
        "accuracy": None if evaluation is None else evaluation.accuracy,
        "loss": None if evaluation is None else evaluation.loss,
        "notes": list(predictions.notes),
    }


def _text(said: dict[str, object], targets: str) -> str:
    kept = " (newer ones did worse here)" if said["is_rolled_back"] else ""
    return (
        f"{said['examples']} examples with the {said['model']} model of task {said['task']}, from "
        f"round {said['from_round']}{kept}: {_measured(said, targets)}\n"
    )


def _measured(said: dict[str, object], targets: str) -> str:
    known = said["examples_with_target"]
    if not known:
        notes = said["notes"]
        reason = f" ({'; '.join(notes)})" if isinstance(notes, list) and notes else ""
        return f"no usable {targets} to compare with{reason}"
    measured = f"loss {said['loss']:.4f}"
    if said["accuracy"] is not None:
        measured = f"accuracy {said['accuracy']:.3f}, {measured}"
    is_all = known == said["examples"]
    whose = f"their own {targets}" if is_all else f"the {targets} of {known} of them"
    return f"{measured} against {whose}"
