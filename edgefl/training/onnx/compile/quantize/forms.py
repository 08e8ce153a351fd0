"""The forms that one model takes: as trained, as measured, and as deployed in int8."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import onnx
from onnx import numpy_helper

from edgefl.errors import TrainingError
from edgefl.training.base import Inputs
from edgefl.training.int8_values import weight_scales
from edgefl.training.kinds import QuantizationMode
from edgefl.training.manifest import Quantization
from edgefl.training.onnx.compile.differentiate import values_on_path
from edgefl.training.onnx.compile.quantize.build import Hold, build
from edgefl.training.onnx.compile.quantize.deploy import int8_files
from edgefl.training.onnx.compile.quantize.fold import fold_batch_normalization
from edgefl.training.onnx.compile.quantize.plan import RoundingPlan, make_plan
from edgefl.training.onnx.compile.quantize.qdq_source import is_quantized, open_quantized
from edgefl.training.onnx.compile.quantize.ranges import measure_ranges
from edgefl.training.onnx.compile.quantize.rounding import Grid

GRID_HEADROOM: Final = 1.5
"""How far weights on a fixed grid may outgrow the largest first one of their channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedForms:
    """What a bundle is made from.

    Attributes:
        training: What the training step computes.
        whole: What is measured, and what `predict` computes.
        grids: By name of a trained weight, the grid it is kept on.
        files: Template and slots of the int8 model; empty if its activations have no scales.
        quantization: For the manifest.
        warnings: What the user should know, one line each.
    """

    training: onnx.ModelProto
    whole: onnx.ModelProto
    grids: Mapping[str, Grid]
    files: Mapping[str, bytes]
    quantization: Quantization
    warnings: tuple[str, ...]


class Quantizer:
    """Turns a model into its forms, in two steps.

    First `model` is there to choose the trained tensors from, and perhaps to add low-rank ones;
    then `forms` knows what is trained.
    """

    def __init__(
        self, model: onnx.ModelProto, mode: QuantizationMode, calibration: Inputs | None
    ) -> None:
        """Open a quantized model, or calibrate a float one.

        Args:
            model: Normalized model.
            mode: What the user wants.
            calibration: Rows of the model's input for the ranges of activations; nobody's private
                data.

        Raises:
            TrainingError: E-MODEL-CALIBRATION when a mode needs rows and has none.
            DataError: E-CALIBRATION-ROWS.
        """
        self._mode = mode
        self._source_plan: RoundingPlan | None = None
        self._ranges: dict[str, tuple[float, float]] = {}
        self._rows = 0 if calibration is None else len(calibration)
        self._has_unused_rows = False
        if is_quantized(model):
            opened = open_quantized(model)
            self.model, self._source_plan = opened.model, opened.plan
            self._has_unused_rows = calibration is not None
        else:
            self.model = _prepared(model, mode)
            _require_calibration(mode, calibration)
            if calibration is not None:
                self._ranges = measure_ranges(self.model, calibration)

    def forms(
        self,
        trained: Collection[str],
        *,
        training_model: onnx.ModelProto | None = None,
        changed: Collection[str] | None = None,
    ) -> QuantizedForms:
        """Return the forms.

        Args:
            trained: Names of the trained tensors, local ones included.
            training_model: `model` with low-rank tensors added; None if there are none.
            changed: Tensors of `model` whose values change: `trained`, unless low-rank tensors
                change others.
        """
        float_model = self.model if training_model is None else training_model
        mode = self._resolved_mode(frozenset(trained))
        grids = self._grids(frozenset(trained), mode)
        training = self._training_form(float_model, frozenset(trained), mode, grids)
        is_simulated = self._source_plan is None and mode in _FLOAT_EVALUATION
        deployed = self._deployed(grids, mode, frozenset(trained if changed is None else changed))
        return QuantizedForms(
            training=training,
            whole=float_model if is_simulated else training,
            grids=grids,
            files=deployed,
            quantization=Quantization(mode=mode, facts=self._facts(bool(deployed))),
            warnings=self._warnings(mode),
        )

    def _resolved_mode(self, trained: frozenset[str]) -> QuantizationMode:
        """Return what is really done: a quantized source decides it by what is trained."""
        if self._source_plan is None or self._mode is QuantizationMode.GRID:
            return self._mode
        trains_integers = any(weight.name in trained for weight in self._source_plan.weights)
        return QuantizationMode.QAT if trains_integers else QuantizationMode.STATIC

    def _grids(self, trained: frozenset[str], mode: QuantizationMode) -> dict[str, Grid]:
        if mode is not QuantizationMode.GRID:
            return {}
        plan = self._source_plan or make_plan(self.model.graph, self._ranges)
        tensors = {tensor.name: tensor for tensor in self.model.graph.initializer}
        grids: dict[str, Grid] = {}
        for weight in plan.weights:
            if weight.name in trained:
                values = numpy_helper.to_array(tensors[weight.name]).astype(np.float32)
                scale = weight.scale
                if scale is None:
                    scale = weight_scales(values, weight.axis, GRID_HEADROOM)
                grids[weight.name] = Grid(scale=scale, axis=weight.axis, rank=values.ndim)
        return grids

    def _training_form(
        self,
        model: onnx.ModelProto,
        trained: frozenset[str],
        mode: QuantizationMode,
        grids: Mapping[str, Grid],
    ) -> onnx.ModelProto:
        if mode is QuantizationMode.NONE:
            return model
        plan = self._source_plan
        if plan is None and mode is QuantizationMode.STATIC:
            moving = values_on_path(model.graph.node, trained)
            plan = make_plan(model.graph, self._ranges, float_weights=trained, float_values=moving)
        elif plan is None:
            plan = make_plan(model.graph, self._ranges)
        plan = _with_grids(plan, grids)
        holds = {weight.name: Hold.ROUNDED for weight in plan.weights if weight.name in trained}
        holds |= {bias.name: Hold.FLOAT for bias in plan.biases if bias.name in trained}
        return build(model, plan, holds).model

    def _deployed(
        self, grids: Mapping[str, Grid], mode: QuantizationMode, changed: frozenset[str]
    ) -> dict[str, bytes]:
        model, plan = self.model, self._source_plan
        if plan is None:
            if not self._ranges:
                return {}
            if mode is QuantizationMode.NONE:
                model = fold_batch_normalization(model, keep=changed)
            plan = make_plan(model.graph, self._ranges)
        return int8_files(model, _with_grids(plan, grids), changed)

    def _facts(self, has_int8_model: bool) -> dict[str, str | int | float | bool]:
        facts: dict[str, str | int | float | bool] = {"int8_export": has_int8_model}
        if self._source_plan is not None:
            facts["source"] = "quantized (QDQ)"
        elif self._rows:
            facts["calibration_rows"] = self._rows
            facts["activations"] = "int8 with zero point, one scale per tensor"
            facts["weights"] = "int8, one scale per output channel"
            for name in make_plan(self.model.graph, self._ranges).activations:
                if name in self._ranges:
                    low, high = self._ranges[name]
                    facts[f"range of {name}"] = f"{low:.6g} to {high:.6g}"
        return facts

    def _warnings(self, mode: QuantizationMode) -> tuple[str, ...]:
        warnings = []
        if self._has_unused_rows:
            warnings.append("the model is quantized already; the calibration data are not used")
        if self._source_plan is not None and mode is not self._mode:
            warnings.append(f"the model is quantized already and is trained as '{mode.value}'")
        return tuple(warnings)


_FLOAT_EVALUATION = frozenset({QuantizationMode.NONE, QuantizationMode.QAT, QuantizationMode.GRID})


def _prepared(model: onnx.ModelProto, mode: QuantizationMode) -> onnx.ModelProto:
    return model if mode is QuantizationMode.NONE else fold_batch_normalization(model)


def _require_calibration(mode: QuantizationMode, calibration: Inputs | None) -> None:
    if mode is not QuantizationMode.NONE and calibration is None:
        raise TrainingError(
            "E-MODEL-CALIBRATION",
            f"calibration rows for '{mode.value}', from which activations get their scales",
            "none, and a float32 model",
            f"give them as '--quantize {mode.value}:CALIBRATION.npz' with an array x; they must "
            "be nobody's private data",
        )


def _with_grids(plan: RoundingPlan, grids: Mapping[str, Grid]) -> RoundingPlan:
    weights = tuple(
        replace(weight, scale=grids[weight.name].scale) if weight.name in grids else weight
        for weight in plan.weights
    )
    return replace(plan, weights=weights)
