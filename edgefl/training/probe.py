"""What runs in the child process of a probe: `probe` tries one case, `selftest` all of them.

It prints one JSON line for each result as soon as there is one, so that a crash leaves what came
before it.
"""

import importlib.metadata
import json
import sys
from dataclasses import asdict

from edgefl.training.backends import Backend
from edgefl.training.kinds import Provider, Runtime
from edgefl.training.selftest import PROBE_CASE, load_case, run_case, run_cases

_PACKAGES = {
    Runtime.ONNX: ("onnxruntime", "onnxruntime-gpu"),
    Runtime.LITERT: ("ai-edge-litert", "tflite-runtime"),
}


def main() -> int:
    """Run what the arguments say: MODE RUNTIME PROVIDER."""
    mode, runtime, provider = sys.argv[1:]
    backend = Backend(runtime=Runtime(runtime), provider=Provider(provider))
    cases = run_cases(backend) if mode == "selftest" else [run_case(load_case(PROBE_CASE), backend)]
    for result in cases:
        _print({"version": package_version(backend.runtime), **asdict(result)})
    return 0


def package_version(runtime: Runtime) -> str:
    """Return name and release of the package that brings a runtime, or an empty text."""
    for distribution in _PACKAGES[runtime]:
        try:
            return f"{distribution} {importlib.metadata.version(distribution)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def _print(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
