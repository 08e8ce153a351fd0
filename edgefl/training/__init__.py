"""Training on the device: data in, one flat update out. What programs may import is listed here.

A name is loaded when it is first used: a device has no compiler, and what trains nothing needs no
runtime.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefl.training.base import Evaluation, Trainer, TrainingData
    from edgefl.training.bundle import Bundle, export_model, read_bundle
    from edgefl.training.evaluate import Evaluator
    from edgefl.training.int8_export import export_int8_model
    from edgefl.training.kinds import Loss, Optimizer, QuantizationMode, Runtime
    from edgefl.training.litert.runtime.trainer import LitertTrainer
    from edgefl.training.onnx.compile.bundle import PreparedBundle, compile_with
    from edgefl.training.onnx.compile.normalize import load_model
    from edgefl.training.onnx.compile.optim import OptimizerSettings
    from edgefl.training.onnx.compile.options import CompileOptions
    from edgefl.training.onnx.compile.quantize.request import QuantizationRequest
    from edgefl.training.onnx.runtime.trainer import OnnxTrainer

__all__ = [
    "Bundle",
    "CompileOptions",
    "Evaluation",
    "Evaluator",
    "LitertTrainer",
    "Loss",
    "OnnxTrainer",
    "Optimizer",
    "OptimizerSettings",
    "PreparedBundle",
    "QuantizationMode",
    "QuantizationRequest",
    "Runtime",
    "Trainer",
    "TrainingData",
    "compile_with",
    "export_int8_model",
    "export_model",
    "load_model",
    "read_bundle",
]

_HOMES = {
    "base": ("Evaluation", "Trainer", "TrainingData"),
    "bundle": ("Bundle", "export_model", "read_bundle"),
    "evaluate": ("Evaluator",),
    "int8_export": ("export_int8_model",),
    "kinds": ("Loss", "Optimizer", "QuantizationMode", "Runtime"),
    "litert.runtime.trainer": ("LitertTrainer",),
    "onnx.compile.bundle": ("PreparedBundle", "compile_with"),
    "onnx.compile.normalize": ("load_model",),
    "onnx.compile.optim": ("OptimizerSettings",),
    "onnx.compile.options": ("CompileOptions",),
    "onnx.compile.quantize.request": ("QuantizationRequest",),
    "onnx.runtime.trainer": ("OnnxTrainer",),
}


def __getattr__(name: str) -> object:
    """Load a name's module at its first use."""
    for home, names in _HOMES.items():
        if name in names:
            value: object = getattr(importlib.import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    message = f"module '{__name__}' has no attribute '{name}'"
    raise AttributeError(message)


def __dir__() -> list[str]:
    """Return the names that programs may import."""
    return list(__all__)
