"""Run `edgefl` within the test's process, and look at what it left behind."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from edgefl.cli.main import main


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str

    def error(self) -> str:
        """Return the one line of an error; anything else on stderr fails the test."""
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("edgefl: E-"), self.err
        return self.err.removeprefix("edgefl: ").rstrip("\n")

    def refuses(self, error_code: str, exit_code: int) -> str:
        """Check the one line of an error, and return it."""
        lines = [line for line in self.err.splitlines() if line.startswith("edgefl: ")]
        assert len(lines) == 1, self.err
        assert self.err.splitlines()[-1] == lines[0], self.err
        assert "Traceback" not in self.err
        line = lines[0].removeprefix("edgefl: ")
        assert line.startswith(f"{error_code}: expected "), line
        assert "; found " in line
        assert self.code == exit_code, line
        return line


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Ended]]:
    """Give a function that runs a command within this process, which is quicker."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def call(*words: object) -> Ended:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as usage:  # argparse's own way to end
            code = int(str(usage.code))
        captured = capsys.readouterr()
        return Ended(code=code, out=captured.out, err=captured.err)

    yield call
    root.handlers[:], root.level = handlers, level
