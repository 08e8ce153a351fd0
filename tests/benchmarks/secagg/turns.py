"""Let peers and our own code take turns, each timed by its own CPU clock."""

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[3]


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time that one call of `work` takes in this process, all threads together."""
    started = time.process_time()
    work()
    return time.process_time() - started


def take_turns(sides: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Ask each side for one figure, `repeats` times around.

    A busy machine then slows all sides, and a ratio within one time around says something.
    """
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            figures[name].append(side())
    return figures


class PeerError(Exception):
    """A peer could not do what it was asked for."""


class PeerProcess:
    """A peer in an environment of its own, which does one thing at a time when asked.

    Args:
        python: Interpreter of the environment.
        module: A module that calls `tests.benchmarks.peers.json_lines.serve`.
    """

    def __init__(self, python: str, module: str) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [python, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def ask(self, operation: str, **arguments: float | str) -> dict[str, object]:
        """Let it work once, and return its answer.

        Raises:
            PeerError: It could not, or it ended.
        """
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        if pipe_in is None or pipe_out is None:
            raise PeerError("the peer has no pipes")
        pipe_in.write(json.dumps({"op": operation, **arguments}) + "\n")
        pipe_in.flush()
        line = pipe_out.readline()
        if not line:
            raise PeerError(f"the peer ended during {operation!r}")
        answer: dict[str, object] = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{operation}: {answer['error']}")
        return answer

    def figure(self, operation: str, name: str = "cpu_s", **arguments: float | str) -> float:
        """Let it work once, and return one number of its answer."""
        return float(str(self.ask(operation, **arguments)[name]))

    def __enter__(self) -> "PeerProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it: it stops when nobody asks any more."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
