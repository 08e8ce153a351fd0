"""Every command in the documents works: run here, run by the named test, or at least parsed."""

import json
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
_PORTS_IN_README = ("18830", "18831")
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
    """Return a user's: nobody's shell knows that tests run three at a time."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    users = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**users, "PATH": path}


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
        "owner-looks",
        "operator",
        "strict-gateway",
        "strict-devices",
        "operator-later",
        "strict-owner",
    }
    assert sum(block.marker == "shortened" for block in BLOCKS) == 1
    assert any(block.marker is None for block in BLOCKS)
    fences = sum(page.read_text(encoding="utf-8").count("```sh\n") for page in _PAGES)
    assert fences == len(BLOCKS)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block_is_sound(block: Block) -> None:
    assert block.marker in {None, "run-by", "terminal", "parse-only", "shortened"}
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
            words = [word for word in span.split()[1:] if re.fullmatch(r"[a-z|-]+", word)]
            options = [word for word in words if word.startswith("-")]
            *first, last = [word for word in words if word not in options]
            named |= {" ".join([*first, choice, *options]) for choice in last.split("|")}
    return sorted(named)


@pytest.mark.parametrize("command", _named_in_text())
def test_command_named_in_text_exists(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in command.split() if not word.startswith("-")]
    with pytest.raises(SystemExit) as ended:
        command_line._parse([*words, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: edgefl {words[0]}" in shown
    for option in command.split()[len(words) :]:
        assert re.search(rf"{option}\b", shown), option


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


def _terminal_blocks() -> dict[str, str]:
    """Return the blocks that run beside others, by name, each of the README's ports replaced."""
    ports = {port: str(_free_port()) for port in _PORTS_IN_README}
    blocks = {str(block.value): block.text for block in BLOCKS if block.marker == "terminal"}
    for listed, free in ports.items():
        blocks = {name: text.replace(listed, free) for name, text in blocks.items()}
    return blocks


def _wait_for(text: str, terminal: _Terminal, others: _Terminal) -> None:
    deadline_s = time.monotonic() + 100
    while text not in (shown := terminal.shown()):
        is_hopeless = time.monotonic() > deadline_s or " failed: " in shown
        assert not is_hopeless, shown + others.shown()
        time.sleep(0.5)


def _run(text: str, folder: Path) -> str:
    done = _bash(text, folder, timeout_s=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _start(text: dict[str, str], names: tuple[str, str], folder: Path) -> list[_Terminal]:
    return [_Terminal(text[name], folder, folder / f"{name}.log") for name in names]


def test_three_terminals_train_a_model(tmp_path: Path) -> None:
    text = _terminal_blocks()
    terminals = _start(text, ("gateway", "devices"), tmp_path)
    gateway, devices = terminals
    try:
        _run(text["owner"], tmp_path)
        _wait_for("task exercises done: 2 rounds", gateway, devices)
        assert "after 2 of 2 rounds" in _run(text["owner-later"], tmp_path)
        looked = _run(text["owner-looks"], tmp_path)
        assert "person3-right" in looked
        assert re.search(r"^exercises +2 ", looked, re.MULTILINE)
    finally:
        for terminal in terminals:
            terminal.end()
    assert gateway.shown().count("COMMITTED: sum of") == 2
    session = onnxruntime.InferenceSession(
        tmp_path / "run" / "exercises.onnx", providers=["CPUExecutionProvider"]
    )
    assert len(session.get_inputs()) == 1


@pytest.mark.timeout(240)
def test_an_operator_signs_the_roster_of_a_gateway_that_is_not_trusted(tmp_path: Path) -> None:
    text = _terminal_blocks()
    _run(text["operator"], tmp_path)
    terminals = _start(text, ("strict-gateway", "strict-devices"), tmp_path)
    gateway, devices = terminals
    try:
        _run(text["strict-owner"], tmp_path)
        _wait_for("6 devices wait to be enrolled", gateway, devices)
        assert "6 devices" in _run(text["operator-later"], tmp_path)
        _wait_for("task strict done: 1 rounds", gateway, devices)
    finally:
        for terminal in terminals:
            terminal.end()
    assert "6 of 6 enrolled devices, roster 1 (roster signed by an operator)" in gateway.shown()
    assert "CERTIFICATE" in gateway.shown()
    assert "COMMITTED: sum of 6 devices, check held" in gateway.shown()


def test_the_shortened_demo_completes_its_rounds(tmp_path: Path) -> None:
    (block,) = [block for block in BLOCKS if block.marker == "shortened"]
    command = f"{block.text.strip()} --devices 6 --rounds 2 --no-kill --json --out out"
    done = _bash(command, tmp_path, timeout_s=110)
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["rounds_completed"] == outcome["rounds"] == 2
    assert outcome["exact_sum"] is True
    assert "malicious" in done.stderr
    failed = [line for line in done.stderr.splitlines() if line.startswith("FAILED: ")]
    # So few rounds do not train a model.
    assert all("accuracy" in line for line in failed), done.stderr
