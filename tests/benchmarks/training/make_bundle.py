"""Prepares the bundle of a timed net.

    python -m tests.benchmarks.training.make_bundle NET/FORM OUT

A process of its own, since a device that trains never loads the compiler.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from edgefl.training.kinds import QuantizationMode
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.compile.quantize.request import QuantizationRequest
from tests.benchmarks.training.net_data import data
from tests.benchmarks.training.nets import model

CALIBRATION_ROWS = 128


def _int8_head(name: str) -> CompileOptions:
    rows = data(name)[0][:CALIBRATION_ROWS]
    quantization = QuantizationRequest(mode=QuantizationMode.STATIC, calibration=rows)
    return CompileOptions(trainable="head", quantization=quantization)


FORMS: dict[str, Callable[[str], CompileOptions]] = {
    "all": lambda _: CompileOptions(),
    "clipped": lambda _: CompileOptions(clips_examples=True),
    "float-head": lambda _: CompileOptions(trainable="head"),
    "int8-head": _int8_head,
}
"""What is trained, and how."""


def main() -> None:
    """Write one bundle."""
    name, _, form = sys.argv[1].partition("/")
    options = FORMS[form or "all"](name)
    Path(sys.argv[2]).write_bytes(compile_with(model(name), options).bundle_bytes)


if __name__ == "__main__":
    main()
