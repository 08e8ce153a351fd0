"""`edgefl model`: prepare an ONNX model for training on devices, and look into bundles."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.cli.model_head import add_head_options, run_prepare_head, takes_head
from edgefl.cli.model_text import bundle_facts, manifest_facts, report_facts, show, show_report
from edgefl.cli.options import HelpFormatter, add_common, add_json
from edgefl.cli.packages import require_packages
from edgefl.errors import EdgeflError, StorageError, TrainingError
from edgefl.storage.files import replace_file, require_file, require_replaceable
from edgefl.training.kinds import Loss, Optimizer, Runtime

if TYPE_CHECKING:
    import onnx

    from edgefl.training.onnx.compile.options import CompileOptions

# Shorter work needs no account of itself.
_WORTH_TELLING_S = 2.0
_MEBIBYTE = 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands."""
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    prepare = commands.add_parser(
        "prepare",
        help="make a training bundle from an ONNX model",
        description="Make a training bundle (.efl) from an ONNX model with one input, whose first "
        "axis is the batch. Devices then need stock onnxruntime or LiteRT only. At the end the "
        "step is run once as a device would run it.",
        formatter_class=HelpFormatter,
    )
    prepare.add_argument("-o", "--output", type=Path, required=True, help="file to write (.efl)")
    _add_compile_options(prepare)
    add_head_options(prepare)
    prepare.set_defaults(run=run_prepare)
    check = commands.add_parser(
        "check",
        help="say whether a model can be trained on devices",
        description="Say whether an ONNX model can be trained on devices; every obstacle is named "
        "at once, with what to do, and nothing is written. Exit code 0: it trains; 2: it does not.",
        formatter_class=HelpFormatter,
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
    parser.add_argument(
        "--loss", default="cross_entropy", help=", ".join(kind.value for kind in Loss)
    )
    parser.add_argument(
        "--optimizer", default="sgd", help=", ".join(kind.value for kind in Optimizer)
    )
    parser.add_argument(
        "--trainable",
        default="all",
        help="what is trained, with commas between: all, head (the last layer), last:N (the last N "
        "layers), biases, lora:R or lora:R:PATTERN (low-rank changes of rank R), names, or "
        "patterns such as 'block3.*'",
    )
    parser.add_argument(
        "--local",
        default="",
        help="which of these stay on the device and are never sent, as in --trainable",
    )
    parser.add_argument(
        "--quantize",
        default="none",
        help="none, static (int8 in front of what is trained), qat (trained as if rounded to int8) "
        "or grid (weights stay int8), with example inputs: static:CALIBRATION.npz",
    )
    parser.add_argument(
        "--calibration",
        type=Path,
        help="example inputs (array x of an .npz) for int8 scales; with --quantize none they make "
        "an int8 export possible",
    )
    parser.add_argument(
        "--runtime", default="onnx", help="onnx, or onnx,litert for a bundle that both can train"
    )
    parser.add_argument(
        "--batch-rows", type=int, default=16, help="rows of a step on litert, which has fixed sizes"
    )
    parser.add_argument(
        "--clip-examples",
        action="store_true",
        help="clip the gradient of each example on its own (example-level DP-SGD)",
    )
    parser.add_argument("--momentum", type=float, default=0.9, help="of the optimizer momentum")
    parser.add_argument("--weight-decay", type=float, default=0.01, help="of the optimizer adamw")
    parser.add_argument("--lora-alpha", type=float, help="strength of lora; the rank if left out")
    parser.add_argument("--seed", type=int, default=0, help="of the first values of lora")
    add_json(parser)
    add_common(parser)


def run_prepare(options: argparse.Namespace) -> int:
    """Compile, try and write a bundle."""
    if takes_head(options):
        return run_prepare_head(options)
    require_packages("onnx", "onnxruntime")
    from edgefl.training.onnx.compile.bundle import compile_with

    chosen = _compile_options(options)
    source = _load(options.model)
    try:
        prepared = compile_with(source, chosen, progress=_tell)
    except TrainingError as error:
        raise _with_count(error, source, chosen) from error
    facts: dict[str, object] = {
        "bundle": str(options.output),
        "size_bytes": len(prepared.bundle_bytes),
        **manifest_facts(prepared.manifest),
        **_write_tried(options.output, prepared.bundle_bytes),
    }
    show(facts, prepared.warnings, as_json=options.json)
    return 0


def run_check(options: argparse.Namespace) -> int:
    """Look for obstacles, and write nothing."""
    require_packages("onnx")
    from edgefl.training.onnx.compile.report import examine

    report = examine(_load(options.model), _compile_options(options))
    if options.json:
        show(report_facts(str(options.model), report), (), as_json=True)
    else:
        show_report(str(options.model), report)
    if not report.obstacles:
        return 0
    if len(report.obstacles) == 1:
        raise report.obstacles[0]
    raise TrainingError(
        "E-MODEL-OBSTACLES",
        "a model without obstacles",
        f"{len(report.obstacles)} ({report.verdict.value})",
        "see the list above",
    )


def run_inspect(options: argparse.Namespace) -> int:
    """Verify a bundle and show its manifest."""
    from edgefl.training.bundle import read_bundle

    require_file(options.bundle)
    bundle = read_bundle(options.bundle)
    show({"bundle": str(options.bundle), **bundle_facts(bundle)}, (), as_json=options.json)
    return 0


def run_demo(options: argparse.Namespace) -> int:
    """Write the demo's model."""
    require_packages("onnx")
    from edgefl.training.onnx.demo_model import demo_model
    from edgefl.training.recipe import SPAR_RECIPE

    _write(options.output, demo_model(SPAR_RECIPE.model_seed).SerializeToString(deterministic=True))
    sys.stdout.write(f"{options.output}: the demo's model, untrained\n")
    return 0


def _load(path: Path) -> "onnx.ModelProto":
    from edgefl.training.onnx.compile.normalize import load_model

    require_file(path)
    return load_model(path)


def _compile_options(options: argparse.Namespace) -> "CompileOptions":
    from edgefl.training.onnx.compile.bundle import loss_named, optimizer_named
    from edgefl.training.onnx.compile.optim import OptimizerSettings
    from edgefl.training.onnx.compile.options import CompileOptions
    from edgefl.training.onnx.compile.quantize.request import parse_quantization

    for calibration in (options.calibration, options.quantize.partition(":")[2]):
        if calibration:
            require_file(Path(calibration))
    return CompileOptions(
        loss=loss_named(options.loss),
        optimizer=OptimizerSettings(
            kind=optimizer_named(options.optimizer),
            momentum=options.momentum,
            weight_decay=options.weight_decay,
        ),
        trainable=options.trainable,
        local=options.local,
        lora_alpha=options.lora_alpha,
        seed=options.seed,
        clips_examples=options.clip_examples,
        quantization=parse_quantization(options.quantize, options.calibration),
        runtimes=tuple(_runtime(name) for name in options.runtime.split(",")),
        batch_rows=options.batch_rows,
    )


def _runtime(name: str) -> Runtime:
    try:
        return Runtime(name.strip())
    except ValueError:
        raise TrainingError(
            "E-MODEL-RUNTIME", "onnx or onnx,litert", repr(name), "correct --runtime"
        ) from None


def _with_count(
    error: TrainingError, source: "onnx.ModelProto", options: "CompileOptions"
) -> EdgeflError:
    """Say with the first obstacle that there are more."""
    from edgefl.training.onnx.compile.report import examine

    others = [one for one in examine(source, options).obstacles if str(one) != str(error)]
    if len(others) < 1 or all(one.code == error.code for one in others):
        return error
    more = f"{len(others)} more obstacles: see 'edgefl model check'"
    advice = f"{error.advice}; {more}" if error.advice else more
    return TrainingError(error.code, error.expected, error.found, advice)


def _write_tried(path: Path, content: bytes) -> dict[str, object]:
    """Write beside the target, run the step as a device would, and only then put it in place."""
    from edgefl.training.trial import try_bundle

    beside = path.with_name(f".{path.name}.part")
    try:
        require_replaceable(path)
        replace_file(beside, content)
        started_s = time.monotonic()
        trial = try_bundle(beside)
        _tell("ran the step in a process of its own", time.monotonic() - started_s)
        beside.replace(path)
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        beside.unlink(missing_ok=True)
    return {
        "trial_step_ms": round(1000 * trial.step_s, 3),
        "trial_peak_mib": round(trial.peak_bytes / _MEBIBYTE, 1),
    }


def _tell(what: str, took_s: float) -> None:
    if took_s >= _WORTH_TELLING_S:
        sys.stderr.write(f"{took_s:.1f} s: {what}\n")


def _write(path: Path, content: bytes) -> None:
    try:
        replace_file(path, content)
    except OSError as error:
        raise _unwritten(path, error) from error


def _unwritten(path: Path, error: OSError) -> StorageError:
    return StorageError(
        "E-OUT-WRITE", f"room and permission to write {path}", error.strerror or str(error)
    )
