"""Refuses an onnxruntime older than a bundle was made for, before it fails in the middle."""

import re

from edgefl.errors import TrainingError
from edgefl.training.kinds import Runtime
from edgefl.training.manifest import Manifest
from edgefl.training.onnx.runtime.quiet import onnxruntime


def require_version(manifest: Manifest, found: str = onnxruntime.__version__) -> None:
    """Compare the installed release with what the bundle's program needs.

    Args:
        manifest: Of the bundle.
        found: The installed release.

    Raises:
        TrainingError: E-RUNTIME-VERSION.
    """
    program = manifest.program(Runtime.ONNX)
    if program is not None and _numbers(found) < _numbers(program.minimum_version):
        raise TrainingError(
            "E-RUNTIME-VERSION",
            f"onnxruntime {program.minimum_version} or newer",
            f"onnxruntime {found}",
            f"pip install 'onnxruntime>={program.minimum_version}'",
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:3])
