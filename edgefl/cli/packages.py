"""Optional packages: which are there, and which extra brings a missing one."""

import importlib.util

from edgefl.errors import EnvironmentProblem

EXTRAS = {
    "onnxruntime": "onnx",
    "onnx": "prepare",
    "uvicorn": "gateway",
    "prometheus_client": "gateway",
    "matplotlib": "plots",
    "ai_edge_litert": "litert",
    "tflite_runtime": "tflite",
}
"""Extra of `edgefl-runtime` by import package."""


def is_installed(package: str) -> bool:
    """Tell whether a package can be found, without importing it."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def require_packages(*packages: str) -> None:
    """Check that packages are there.

    Raises:
        EnvironmentProblem: E-PACKAGE-MISSING, with what to install.
    """
    missing = [package for package in packages if not is_installed(package)]
    if missing:
        extras = ",".join(sorted({EXTRAS[package] for package in missing}))
        raise EnvironmentProblem(
            "E-PACKAGE-MISSING",
            f"the package {' and '.join(packages)}",
            f"no {' and no '.join(missing)} in this environment",
            f"install 'edgefl-runtime[{extras}]'",
        )
