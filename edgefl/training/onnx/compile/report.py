"""Says of a model whether it can be trained: every obstacle at once, and what its operators are."""

import enum
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import onnx

from edgefl.errors import EdgeflError, TrainingError
from edgefl.training.onnx import names
from edgefl.training.onnx.compile.bundle import PreparedBundle, compile_with
from edgefl.training.onnx.compile.describe import input_spec
from edgefl.training.onnx.compile.differentiate import differentiate, reads_any, values_on_path
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.normalize import normalize
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.compile.plan import Plan, make_plan
from edgefl.training.onnx.compile.rules import find_rule
from edgefl.training.onnx.compile.select import ALL
from edgefl.training.onnx.compile.sound_model import require_sound
from edgefl.training.onnx.compile.source_obstacles import (
    source_obstacles,
    unsupported_node,
)

_T = TypeVar("_T")
_OPTION_CODES = frozenset(
    {"E-MODEL-TRAINABLE", "E-MODEL-LOCAL", "E-MODEL-LORA", "E-MODEL-CALIBRATION"}
    | {"E-CALIBRATION-ROWS", "E-MODEL-NO-GRADIENT"}
)
_UNKNOWN_CODES = frozenset({"E-MODEL-OPSET", "E-MODEL-FOREIGN-OPS"})


class Verdict(enum.Enum):
    """What can be done with a model.

    Attributes:
        TRAINABLE: It trains with the options that were given.
        OPTIONS: The options do not fit it; other options may.
        INFERENCE_ONLY: It runs, but cannot be trained as it is.
    """

    TRAINABLE = "trainable"
    OPTIONS = "options do not fit"
    INFERENCE_ONLY = "inference only"


class Coverage(enum.Enum):
    """What becomes of an operator in training.

    Attributes:
        COVERED: Gradients flow through it.
        REFUSED: They would have to, but there is no rule, or not for this form.
        OFF_PATH: No gradient needs to.
    """

    COVERED = "covered"
    REFUSED = "refused"
    OFF_PATH = "not on the gradient path"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCount:
    """How often an operator occurs with one outcome."""

    operator: str
    coverage: Coverage
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """What was found out about a model.

    Attributes:
        verdict: Whether it can be trained.
        obstacles: Everything that is in the way, in the order of its discovery.
        operators: Table of operators, by name.
        prepared: The bundle that would be made; None with obstacles.
    """

    verdict: Verdict
    obstacles: tuple[EdgeflError, ...]
    operators: tuple[OperatorCount, ...]
    prepared: PreparedBundle | None


def examine(source: onnx.ModelProto, options: CompileOptions) -> ModelReport:
    """Look for all obstacles, and compile if there are none.

    Args:
        source: A model as its exporter wrote it.
        options: What is asked for.
    """
    obstacles: list[EdgeflError] = []
    _try(obstacles, lambda: require_sound(source))
    if obstacles:
        return _report(obstacles, (), frozenset(), frozenset())
    obstacles += source_obstacles(source)
    # What no rule of ONNX describes has no shape, so nothing more can be said then.
    is_known = not any(error.code in _UNKNOWN_CODES for error in obstacles)
    base = _try(obstacles, lambda: normalize(source)) if is_known else None
    if base is None:
        return _report(obstacles, source.graph.node, frozenset(), frozenset())
    _try(obstacles, lambda: input_spec(base.graph.input[0]))
    source_names = {tensor.name for tensor in source.graph.initializer}
    plan = _try(obstacles, lambda: make_plan(base, options, source_names=source_names))
    if plan is None and (options.trainable != ALL or options.local):
        # What all layers would meet is worth knowing even if the choice of them is wrong.
        everything = replace(options, trainable=ALL, local=())
        ignored: list[EdgeflError] = []
        plan = _try(ignored, lambda: make_plan(base, everything))
    if plan is None:
        report = _report(obstacles, base.graph.node, frozenset(), frozenset())
        # With nothing to train at all, no choice of tensors helps.
        is_hopeless = options.trainable == ALL and obstacles[-1].code == "E-MODEL-TRAINABLE"
        return replace(report, verdict=Verdict.INFERENCE_ONLY) if is_hopeless else report
    path = values_on_path(plan.forward, plan.trained)
    refused = _gradient_obstacles(plan, path, obstacles)
    if obstacles:
        return _report(obstacles, plan.forward, path, refused)
    prepared = _try(obstacles, lambda: compile_with(source, options))
    return replace(_report(obstacles, plan.forward, path, refused), prepared=prepared)


def _try(obstacles: list[EdgeflError], work: Callable[[], _T]) -> _T | None:
    try:
        return work()
    except EdgeflError as error:
        seen = {str(known) for known in obstacles}
        if str(error) not in seen:
            obstacles.append(error)
        return None


def _gradient_obstacles(plan: Plan, path: set[str], obstacles: list[EdgeflError]) -> frozenset[str]:
    """Add what the backward pass cannot do; return the first outputs of the nodes at fault."""
    lacking = [node for node in plan.forward if reads_any(node, path) and find_rule(node) is None]
    known = {str(error) for error in obstacles}
    found = [unsupported_node(node) for node in lacking]
    refusals: list[TrainingError] = []
    emitter = GraphEmitter(plan.model)
    _try(
        obstacles,
        lambda: differentiate(
            emitter,
            plan.trained_forward,
            plan.trained,
            plan.output.name,
            names.PREFIX + "output_gradient",
            obstacles=refusals,
        ),
    )
    obstacles += [error for error in [*found, *refusals] if str(error) not in known]
    return frozenset(node.output[0] for node in lacking)


def _report(
    obstacles: Sequence[EdgeflError],
    nodes: Sequence[onnx.NodeProto],
    path: frozenset[str] | set[str],
    refused: frozenset[str],
) -> ModelReport:
    counts: Counter[tuple[str, Coverage]] = Counter()
    for node in nodes:
        coverage = Coverage.OFF_PATH
        if node.output[0] in refused:
            coverage = Coverage.REFUSED
        elif reads_any(node, path):
            coverage = Coverage.COVERED
        counts[node.op_type, coverage] += 1
    operators = [
        OperatorCount(operator=operator, coverage=coverage, count=count)
        for (operator, coverage), count in counts.items()
    ]
    return ModelReport(
        verdict=_verdict(obstacles),
        obstacles=tuple(obstacles),
        operators=tuple(sorted(operators, key=lambda one: (one.operator, one.coverage.value))),
        prepared=None,
    )


def _verdict(obstacles: Sequence[EdgeflError]) -> Verdict:
    if not obstacles:
        return Verdict.TRAINABLE
    if all(error.code in _OPTION_CODES for error in obstacles):
        return Verdict.OPTIONS
    return Verdict.INFERENCE_ONLY
