"""`edgefl model prepare BACKBONE.tflite --head N`: a new head on a frozen .tflite file."""

import argparse

from edgefl.cli.model_text import manifest_facts, show
from edgefl.cli.packages import require_packages
from edgefl.errors import ConfigError, StorageError
from edgefl.storage.files import read_file, replace_file

_MOST_MODEL_BYTES = (1 << 31) - 1
"""Offsets in a .tflite file have 32 bits, one of them for the sign."""


def add_head_options(prepare: argparse.ArgumentParser) -> None:
    """Add what only a .tflite backbone needs."""
    prepare.add_argument(
        "--head",
        type=int,
        metavar="N",
        help="for a frozen .tflite model: replace its last fully connected layer by a new, trained "
        "one of N classes or values; the bundle is for litert alone",
    )
    prepare.add_argument(
        "--calls",
        type=int,
        default=1,
        help="of a streaming .tflite model, which keeps state between calls: calls per example",
    )


def takes_head(options: argparse.Namespace) -> bool:
    """Tell whether a .tflite backbone is given.

    Raises:
        ConfigError: E-MODEL-HEAD: a .tflite without --head, or the other way round.
    """
    is_backbone: bool = options.model.suffix == ".tflite"
    if is_backbone != (options.head is not None):
        raise ConfigError(
            "E-MODEL-HEAD",
            "--head N together with a .tflite model",
            f"{options.model.name} {'without' if is_backbone else 'with'} --head",
            "for a .tflite backbone say how many classes the new head has",
        )
    return is_backbone


def run_prepare_head(options: argparse.Namespace) -> int:
    """Cut the backbone, put a head on it, and write the bundle."""
    require_packages("onnx", "onnxruntime")
    from edgefl.training.litert.compile.graft import HeadOptions, prepare_head
    from edgefl.training.onnx.compile.bundle import loss_named, optimizer_named
    from edgefl.training.onnx.compile.optim import OptimizerSettings

    settings = HeadOptions(
        outputs=options.head,
        loss=loss_named(options.loss),
        optimizer=OptimizerSettings(
            kind=optimizer_named(options.optimizer),
            momentum=options.momentum,
            weight_decay=options.weight_decay,
        ),
        batch_rows=options.batch_rows,
        calls=options.calls,
        seed=options.seed,
    )
    try:
        backbone = read_file(options.model, _MOST_MODEL_BYTES)
    except OSError as error:
        raise ConfigError(
            "E-MODEL-FILE",
            f"a readable model at {options.model}",
            error.strerror or type(error).__name__,
            "check the path",
        ) from error
    prepared = prepare_head(backbone, settings)
    try:
        replace_file(options.output, prepared.bundle_bytes)
    except OSError as error:
        raise StorageError(
            "E-OUT-WRITE",
            f"room and permission to write {options.output}",
            error.strerror or str(error),
        ) from error
    facts = {
        "bundle": str(options.output),
        "size_bytes": len(prepared.bundle_bytes),
        **manifest_facts(prepared.manifest),
    }
    show(facts, prepared.warnings, as_json=options.json)
    return 0
