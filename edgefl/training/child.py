"""Runs a module of ours in a child process, so that a crash of a native library ends only that."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_SHOWN_CHARS = 200


def run_child(
    module: str, arguments: Sequence[str], timeout_s: float
) -> list[dict[str, object]] | str:
    """Run a module's `main`, which prints JSON lines and returns the exit code.

    Args:
        module: Its full name.
        arguments: What `sys.argv` holds from index 1.
        timeout_s: How long the child may take.

    Returns:
        The JSON objects that it printed, or in one line why it did not end well.
    """
    # The folder of the package goes first, as in this process; -P keeps others out.
    root = str(Path(__file__).parents[2])
    program = f"import sys; sys.path.insert(0, {root!r}); from {module} import main; "
    command = [sys.executable, "-P", "-c", program + "sys.exit(main())", *arguments]
    try:
        ended = subprocess.run(  # noqa: S603 - this interpreter, arguments of our own
            command, capture_output=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout_s:g} s"
    except OSError as error:
        return f"no child process: {error.strerror or error}"
    lines = _json_lines(ended.stdout)
    if ended.returncode < 0:
        return f"the process died of signal {-ended.returncode} (a native library crashed)"
    if ended.returncode > 0:
        last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        return f"exit code {ended.returncode}: {last[0][:_SHOWN_CHARS]}"
    return lines


def _json_lines(output: bytes) -> list[dict[str, object]]:
    """Return the objects among the lines; libraries print lines of their own."""
    found: list[dict[str, object]] = []
    for line in output.decode(errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found
