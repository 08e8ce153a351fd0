"""Prepares a training bundle from an ONNX model: the compiler's entry point."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import onnx

from edgefl.errors import TrainingError
from edgefl.training.bundle import (
    EVAL_ONNX,
    EXPORT_TEMPLATE,
    FEATURES_ONNX,
    TRAIN_ONNX,
    pack_bundle,
)
from edgefl.training.kinds import Loss, Optimizer, Runtime
from edgefl.training.manifest import Manifest
from edgefl.training.onnx.compile.check import require_examples_apart, require_rules
from edgefl.training.onnx.compile.describe import input_spec, make_manifest
from edgefl.training.onnx.compile.graphs import (
    eval_graph,
    features_graph,
    serialize,
    train_graph,
)
from edgefl.training.onnx.compile.normalize import normalize
from edgefl.training.onnx.compile.optim import OptimizerSettings
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.compile.plan import Plan, make_plan
from edgefl.training.onnx.compile.select import ALL
from edgefl.training.onnx.compile.sound_model import require_sound
from edgefl.training.onnx.compile.source_obstacles import source_obstacles
from edgefl.training.onnx.compile.template import ExportTemplate, float_values, make_template

Progress = Callable[[str, float], None]
"""Takes what was just finished and how long it took, s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedBundle:
    """The result of a preparation.

    Attributes:
        bundle_bytes: The bundle file.
        manifest: Its manifest, without file hashes.
        warnings: What the user should know, one line each.
    """

    bundle_bytes: bytes
    manifest: Manifest
    warnings: tuple[str, ...]


def compile_bundle(
    source: onnx.ModelProto,
    *,
    loss: str = "cross_entropy",
    trainable: str | Sequence[str] = ALL,
    optimizer: str = "sgd",
) -> PreparedBundle:
    """Prepare a model with the usual constants.

    Args:
        source: A model as its exporter wrote it.
        loss: A `Loss` by its value.
        trainable: Terms as `select` reads them.
        optimizer: An `Optimizer` by its value.

    Raises:
        TrainingError: As `compile_with` raises; E-MODEL-LOSS or E-MODEL-OPTIMIZER.
    """
    options = CompileOptions(
        loss=loss_named(loss),
        optimizer=OptimizerSettings(kind=optimizer_named(optimizer)),
        trainable=trainable,
    )
    return compile_with(source, options)


def compile_with(
    source: onnx.ModelProto, options: CompileOptions, *, progress: Progress | None = None
) -> PreparedBundle:
    """Prepare a model in memory.

    Args:
        source: A model as its exporter wrote it.
        options: What is asked for.
        progress: Told after each part of the work.

    Returns:
        The bundle.

    Raises:
        TrainingError: The model cannot be trained.
    """
    clock = _Clock(progress)
    require_sound(source)
    source_sha256 = hashlib.sha256(source.SerializeToString(deterministic=True)).hexdigest()
    _require_known_form(source)
    base = normalize(source)
    clock.lap("read the model and inferred its shapes")
    input_spec(base.graph.input[0])
    source_names = {tensor.name for tensor in source.graph.initializer}
    plan = make_plan(base, options, source_names=source_names)
    require_rules(plan.forward, plan.trained)
    require_examples_apart(plan.model, plan.forward, plan.input.name)
    step = train_graph(plan)
    contents = {TRAIN_ONNX: serialize(step.graph), EVAL_ONNX: serialize(eval_graph(plan))}
    front = features_graph(plan)
    if front is not None:
        contents[FEATURES_ONNX] = serialize(front)
    clock.lap("wrote the training step")
    template = _template(plan)
    manifest = make_manifest(plan, template, source_sha256, step.facts)
    contents |= {EXPORT_TEMPLATE: template.template, **plan.int8_files}
    bundle_bytes = pack_bundle(
        manifest,
        contents,
        initial_params=float_values(plan.model, plan.averaged),
        initial_local=float_values(plan.model, plan.local),
    )
    clock.lap("packed the bundle")
    warnings = (*plan.warnings, *step.warnings)
    if Runtime.LITERT in options.runtimes:
        # Here, since it imports this package.
        from edgefl.training.litert.compile.bundle import add_litert

        both = add_litert(bundle_bytes, batch_rows=options.batch_rows)
        clock.lap("wrote the TFLite form and saw it learn")
        bundle_bytes, manifest = both.bundle_bytes, replace(both.manifest, files={})
        warnings = (*warnings, *both.warnings)
    return PreparedBundle(bundle_bytes=bundle_bytes, manifest=manifest, warnings=warnings)


def loss_named(name: str) -> Loss:
    """Return a loss by its value.

    Raises:
        TrainingError: E-MODEL-LOSS.
    """
    if name not in {kind.value for kind in Loss}:
        raise _unknown("loss", name, [kind.value for kind in Loss])
    return Loss(name)


def optimizer_named(name: str) -> Optimizer:
    """Return an optimiser by its value.

    Raises:
        TrainingError: E-MODEL-OPTIMIZER.
    """
    if name not in {kind.value for kind in Optimizer}:
        raise _unknown("optimizer", name, [kind.value for kind in Optimizer])
    return Optimizer(name)


def _require_known_form(source: onnx.ModelProto) -> None:
    """Refuse a model that cannot be read as it stands; several obstacles make one message."""
    obstacles = list(source_obstacles(source))
    if obstacles:
        first = obstacles[0]
        alike = [error.found for error in obstacles if error.code == first.code]
        raise TrainingError(first.code, first.expected, ", ".join(alike), first.advice)


def _unknown(what: str, name: str, known: Sequence[str]) -> TrainingError:
    return TrainingError(
        f"E-MODEL-{what.upper()}",
        f"a {what} among {', '.join(known)}",
        repr(name),
        "see 'edgefl model prepare --help'",
    )


def _template(plan: Plan) -> ExportTemplate:
    """Cut the holes for trained tensors; low-rank changes join the weights beside them."""
    factors = {name for layer in plan.lora for name in layer.trained}
    holes = [name for name in plan.trained if name not in factors]
    return make_template(plan.base, holes, kept=[layer.weight for layer in plan.lora])


class _Clock:
    """Tells how long each part of the work took."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._last_s = time.monotonic()

    def lap(self, what: str) -> None:
        now_s = time.monotonic()
        if self._progress is not None:
            self._progress(what, now_s - self._last_s)
        self._last_s = now_s
