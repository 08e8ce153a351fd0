"""`edgefl model`: prepare an ONNX model for training on devices, and look into bundles."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.cli.options import add_common, add_json
from edgefl.cli.packages import require_packages
from edgefl.errors import StorageError

if TYPE_CHECKING:
    from edgefl.training.manifest import Manifest

_CHOICES = ("all", "head")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands."""
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    prepare = commands.add_parser(
        "prepare",
        help="make a training bundle from an ONNX model",
        description="Make a training bundle (.efl) from an ONNX model with one float32 input and "
        "logits [batch, classes] as first output. Devices then need stock onnxruntime only.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    prepare.add_argument("-o", "--output", type=Path, required=True, help="file to write (.efl)")
    _add_compile_options(prepare)
    prepare.set_defaults(run=run_prepare)
    check = commands.add_parser(
        "check",
        help="say whether a model can be trained on devices",
        description="Say whether an ONNX model can be trained on devices; every obstacle is named "
        "at once, and nothing is written.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    _add_compile_options(check)
    check.set_defaults(run=run_check)
    inspect = commands.add_parser(
        "inspect", help="show what is in a bundle", description="Verify a bundle and show it."
    )
    inspect.add_argument("bundle", type=Path, help="a bundle (.efl)")
    add_json(inspect)
    add_common(inspect)
    inspect.set_defaults(run=run_inspect)
    demo = commands.add_parser(
        "demo",
        help="write the demo's untrained model, to try the other commands on",
        description="Write the demo's untrained 1-D CNN as an ordinary ONNX model.",
    )
    demo.add_argument("-o", "--output", type=Path, required=True, help="file to write (.onnx)")
    add_common(demo)
    demo.set_defaults(run=run_demo)


def _add_compile_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="an ONNX model")
    parser.add_argument("--loss", default="cross_entropy", help="the loss")
    parser.add_argument(
        "--trainable",
        default="all",
        help="what is trained: all, head (the last linear layer), or names with commas between",
    )
    add_json(parser)
    add_common(parser)


def run_prepare(options: argparse.Namespace) -> int:
    """Compile and write a bundle."""
    require_packages("onnx")
    from edgefl.training.onnx.compile.bundle import compile_bundle
    from edgefl.training.onnx.compile.normalize import load_model

    prepared = compile_bundle(
        load_model(options.model), loss=options.loss, trainable=_trainable(options.trainable)
    )
    _write(options.output, prepared.bundle_bytes)
    facts = {
        "bundle": str(options.output),
        "size_bytes": len(prepared.bundle_bytes),
        **_facts(prepared.manifest),
    }
    _show(options, facts, prepared.warnings)
    return 0


def run_check(options: argparse.Namespace) -> int:
    """Compile, and write nothing."""
    require_packages("onnx")
    from edgefl.training.onnx.compile.bundle import compile_bundle
    from edgefl.training.onnx.compile.normalize import load_model

    prepared = compile_bundle(
        load_model(options.model), loss=options.loss, trainable=_trainable(options.trainable)
    )
    facts = {"model": str(options.model), "trains": True, **_facts(prepared.manifest)}
    _show(options, facts, prepared.warnings)
    return 0


def run_inspect(options: argparse.Namespace) -> int:
    """Verify a bundle and show its manifest."""
    from edgefl.training.bundle import read_bundle

    bundle = read_bundle(options.bundle)
    manifest = bundle.manifest
    facts = {
        "bundle": str(options.bundle),
        "sha256": bundle.sha256,
        **_facts(manifest),
        "optimizer": manifest.optimizer.value,
        "input_name": manifest.input.name,
        "output_name": manifest.output.name,
        "runtimes": {
            program.runtime.value: f"{program.minimum_version} or newer"
            for program in manifest.programs
        },
        "source_sha256": manifest.source_sha256,
    }
    _show(options, facts, ())
    return 0


def run_demo(options: argparse.Namespace) -> int:
    """Write the demo's model."""
    require_packages("onnx")
    from edgefl.training.onnx.demo_model import demo_model
    from edgefl.training.recipe import SPAR_RECIPE

    _write(options.output, demo_model(SPAR_RECIPE.model_seed).SerializeToString(deterministic=True))
    sys.stdout.write(f"{options.output}: the demo's model, untrained\n")
    return 0


def _trainable(text: str) -> str | list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    return text if text in _CHOICES else names


def _facts(manifest: "Manifest") -> dict[str, object]:
    return {
        "dimension": manifest.dimension,
        "classes": manifest.classes,
        "input_shape": list(manifest.input.shape),
        "loss": manifest.loss.value,
        "parameters": {slot.name: list(slot.shape) for slot in manifest.parameters},
    }


def _show(options: argparse.Namespace, facts: dict[str, object], warnings: tuple[str, ...]) -> None:
    if options.json:
        sys.stdout.write(json.dumps({**facts, "warnings": list(warnings)}) + "\n")
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            sys.stdout.write(f"{name}:\n")
            sys.stdout.writelines(f"  {key} {shape}\n" for key, shape in value.items())
        else:
            sys.stdout.write(f"{name}: {value}\n")
    sys.stdout.writelines(f"note: {warning}\n" for warning in warnings)


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise StorageError(
            "E-OUT-WRITE", f"room and permission to write {path}", error.strerror or str(error)
        ) from error
