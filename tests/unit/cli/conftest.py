"""Run the command in this process and look at its exit code, stdout and stderr."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from edgefl.cli.main import main


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    def error(self) -> str:
        """Return the one line of an error; anything else on stderr fails the test."""
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("edgefl: E-"), self.err
        assert "Traceback" not in self.err
        return self.err.removeprefix("edgefl: ").rstrip("\n")


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Give a function that runs `edgefl` with some words."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def call(*words: object) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    yield call
    # The command points logging at the stderr of this test, which ends with it.
    root.handlers[:], root.level = handlers, level
