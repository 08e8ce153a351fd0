"""Every command in the documents works: run here, run by the named test, or at least parsed."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnxruntime
import pytest

from edgefl.cli import main as command_line

ROOT = Path(__file__).resolve().parents[2]
_PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
_PORT_IN_README = "18830"
_BLOCK = re.compile(
    r"(?:^<!-- (?P<marker>[a-z-]+)(?:: (?P<value>[^ ]+))? -->\n+)?^```sh\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_SPAN = re.compile(r"`(edgefl [a-z][^`]*)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of shell commands, with the comment above it."""

    page: str
    marker: str | None
    value: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.strip().splitlines()[0]}"


def _blocks() -> list[Block]:
    return [
        Block(page=page.name, marker=found["marker"], value=found["value"], text=found["text"])
        for page in _PAGES
        for found in _BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


BLOCKS = _blocks()


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each `edgefl` command of a block."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if "edgefl" not in words:
            continue
        command = words[words.index("edgefl") + 1 :]
        end = next(
            (index for index, word in enumerate(command) if word in {"&", "&&", "|", ";", ">"}),
            len(command),
        )
        yield command[:end]


def _environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path}


def _bash(text: str, cwd: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
    )


def test_the_documents_hold_the_blocks_that_are_tested_here() -> None:
    assert {block.value for block in BLOCKS if block.marker == "terminal"} == {
        "gateway",
        "devices",
        "owner",
        "owner-later",
    }
    assert any(block.marker is None for block in BLOCKS)
    fences = sum(page.read_text(encoding="utf-8").count("```sh\n") for page in _PAGES)
    assert fences == len(BLOCKS)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block_is_sound(block: Block) -> None:
    assert block.marker in {None, "run-by", "terminal", "parse-only"}
    subprocess.run(["bash", "-n", "-c", block.text], check=True)
    for command in _commands(block.text):
        options = command_line._parse(command)
        assert callable(options.run), command


def test_a_wrong_command_is_noticed() -> None:
    (command,) = _commands("edgefl task submit spar --cohorts 6 &\n")
    assert command == ["task", "submit", "spar", "--cohorts", "6"]
    with pytest.raises(SystemExit):
        command_line._parse(command)


def _named_in_text() -> list[str]:
    """Return each `edgefl ...` named in running text, alternatives spelled out."""
    named = set()
    for page in _PAGES:
        for span in _SPAN.findall(page.read_text(encoding="utf-8")):
            command = [word for word in span.split()[1:] if re.fullmatch(r"[a-z|-]+", word)]
            *first, last = command
            named |= {" ".join([*first, choice]) for choice in last.split("|")}
    return sorted(named)


@pytest.mark.parametrize("command", _named_in_text())
def test_command_named_in_text_exists(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in command.split() if word != "--help"]
    with pytest.raises(SystemExit) as ended:
        command_line._parse([*words, "--help"])
    assert ended.value.code == 0
    assert f"usage: edgefl {words[0]}" in capsys.readouterr().out


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.marker == "run-by"], ids=str)
def test_block_is_run_by_the_file_it_names(block: Block) -> None:
    assert block.value is not None
    runner = (ROOT / block.value).read_text(encoding="utf-8")
    script = ROOT / shlex.split(block.text, comments=True)[0]
    assert script.name in runner
    assert os.access(script, os.X_OK)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.marker is None], ids=str)
def test_block_runs(block: Block, tmp_path: Path) -> None:
    # Users' commands need no checkout around them; developers' are about one.
    folder = ROOT if block.page == "development.md" else tmp_path
    done = _bash(block.text, folder, timeout_s=110)
    assert done.returncode == 0, done.stdout + done.stderr


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class _Terminal:
    """A block that runs until it is ended, as in a terminal of its own."""

    def __init__(self, text: str, cwd: Path, log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "-c", text],
                cwd=cwd,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def shown(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """End the whole process group, politely first."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline_s = time.monotonic() + 10
            while time.monotonic() < deadline_s:
                try:
                    os.killpg(self._process.pid, number)
                except ProcessLookupError:
                    return
                self._process.poll()
                time.sleep(0.2)
        raise AssertionError("processes are left: " + self.shown())


def test_three_terminals_train_a_model(tmp_path: Path) -> None:
    port = str(_free_port())
    text = {
        block.value: block.text.replace(_PORT_IN_README, port)
        for block in BLOCKS
        if block.marker == "terminal"
    }
    terminals = [
        _Terminal(text[name], tmp_path, tmp_path / f"{name}.log") for name in ("gateway", "devices")
    ]
    gateway, devices = terminals
    try:
        submitted = _bash(text["owner"], tmp_path, timeout_s=60)
        assert submitted.returncode == 0, submitted.stderr
        deadline_s = time.monotonic() + 100
        while "task exercises done: 2 rounds" not in gateway.shown():
            assert time.monotonic() < deadline_s, gateway.shown() + devices.shown()
            time.sleep(0.5)
        fetched = _bash(text["owner-later"], tmp_path, timeout_s=60)
        assert fetched.returncode == 0, fetched.stderr
        assert "after 2 of 2 rounds" in fetched.stdout
    finally:
        for terminal in terminals:
            terminal.end()
    assert gateway.shown().count("COMMITTED: sum of") == 2
    session = onnxruntime.InferenceSession(
        tmp_path / "run" / "exercises.onnx", providers=["CPUExecutionProvider"]
    )
    assert len(session.get_inputs()) == 1
