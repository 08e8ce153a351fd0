"""What an agent holds in memory with its trainer open and nothing trained yet.

    python -m tests.benchmarks.training.agent_memory RUNTIME BUNDLE

prints the resident memory of a process that has loaded all of the agent, its transport and the
training library, and opened the bundle: in KiB, Linux only.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def resident_kib(runtime: str, python: str) -> int | None:
    """Return the resident memory, or None where the runtime's library is missing.

    Args:
        runtime: `onnx` or `litert`.
        python: Interpreter of the environment to measure in; it needs what a device needs.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "demo.efl"
        _write_demo_bundle(path, runtime)
        command = [python, "-m", "tests.benchmarks.training.agent_memory", runtime, str(path)]
        found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if found.returncode != 0:
        sys.stderr.write(f"no {runtime} here: {found.stderr.strip().splitlines()[-1]}\n")
        return None
    return int(found.stdout)


def _write_demo_bundle(path: Path, runtime: str) -> None:
    from edgefl.training.kinds import Runtime
    from edgefl.training.onnx.compile.bundle import compile_with
    from edgefl.training.onnx.compile.options import CompileOptions
    from edgefl.training.onnx.demo_model import demo_model

    runtimes = tuple(dict.fromkeys((Runtime.ONNX, Runtime(runtime))))
    options = CompileOptions(runtimes=runtimes)
    path.write_bytes(compile_with(demo_model(1), options).bundle_bytes)


def main() -> None:
    """Open everything and print the resident memory."""
    import edgefl.agent.runtime
    import edgefl.cli.agent
    from edgefl.training.backends import Backend
    from edgefl.training.bundle import read_bundle
    from edgefl.training.kinds import Provider, Runtime
    from edgefl.training.opening import open_trainer

    runtime, path = Runtime(sys.argv[1]), Path(sys.argv[2])
    assert edgefl.agent.runtime is not None
    assert edgefl.cli.agent is not None
    backend = Backend(runtime=runtime, provider=Provider.CPU)
    trainer = open_trainer(read_bundle(path), backend)
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    resident = next(line for line in status if line.startswith("VmRSS:"))
    assert trainer.dimension > 0
    print(resident.split()[1])


if __name__ == "__main__":
    main()
