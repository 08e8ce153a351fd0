"""How scripts/test runs the checks of two languages side by side, with every tool faked."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
_LIBRARY = """
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
say() { printf '%s\\n' "$*" >&2; }
prepare() { :; }
prepare_tflite() { return 1; }
ensure_linker() { :; }
ensure_rust() { :; }
ensure_peers() { :; }
"""
_TOOLS = ("ruff", "lint-imports", "mypy", "python", "cargo", "c++")


class Project:
    """The scripts, and tools that say what they are asked and may fail."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tools = root / "tools"
        (root / "scripts").mkdir(parents=True)
        for name in ("test", "steps.sh", "check-rust"):
            shutil.copy(SCRIPTS / name, root / "scripts" / name)
        (root / "scripts" / "lib.sh").write_text(_LIBRARY)
        self.tool("fuzz", "echo asked: fuzz $*", folder=root / "scripts")
        for name in _TOOLS:
            self.tool(name, f"echo asked: {name} $*")

    def tool(self, name: str, body: str, folder: Path | None = None) -> None:
        path = (folder or self._tools) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        path.chmod(0o755)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._root / "scripts" / "test", *words],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": f"{self._tools}{os.pathsep}{os.environ['PATH']}"},
            timeout=60,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def test_every_check_runs_and_is_shown(project: Project) -> None:
    done = project.run()
    assert done.returncode == 0, done.stderr
    shown = done.stdout + done.stderr
    for check in ("ruff check", "lint-imports", "mypy", "python -m pytest", "cargo clippy"):
        assert f"asked: {check}" in shown, check
    for check in ("cargo fmt", "cargo test", "cargo bench", "fuzz build"):
        assert f"asked: {check}" in shown, check
    assert "tests/integration" in shown
    assert "== passed in" in done.stderr
    assert "NOT RUN: TFLite training" in done.stderr


def test_fast_leaves_out_what_it_says(project: Project) -> None:
    done = project.run("--fast")
    shown = done.stdout + done.stderr
    assert done.returncode == 0
    assert "asked: cargo test" in shown
    for check in ("pytest -q -n 3", "cargo bench", "fuzz build"):
        assert f"asked: {check}" not in shown, check
    for name in ("integration tests", "fuzz targets compile", "benchmarks compile"):
        assert f"NOT RUN: {name}" in done.stderr, name
    assert project.run("--slow").returncode == 2


@pytest.mark.parametrize(
    ("tool", "words", "name"),
    [("cargo", "clippy", "Rust lint"), ("ruff", "format", "Python lint and format")],
)
def test_the_check_that_fails_is_named(project: Project, tool: str, words: str, name: str) -> None:
    project.tool(tool, f'[ "$1" != {words} ] || [ "$2" = --version ] || exit 3')
    done = project.run()
    assert done.returncode == 1
    assert f"== FAILED: {name}" in done.stderr
    assert "== passed" not in done.stderr


def test_a_failed_check_of_rust_is_noticed_before_the_long_tests(project: Project) -> None:
    project.tool("cargo", "exit 3")
    project.tool("mypy", "sleep 2")
    done = project.run()
    assert done.returncode == 1
    assert "== FAILED: Rust tests" in done.stderr
    assert "pytest" not in done.stdout


def test_a_failure_leaves_nothing_running(project: Project, tmp_path: Path) -> None:
    mark = tmp_path / "process"
    project.tool("cargo", f"echo $$ >{mark}.new && mv {mark}.new {mark} && exec sleep 50")
    project.tool("ruff", f"until [ -f {mark} ]; do sleep 0.1; done; exit 3")
    assert project.run().returncode == 1
    process = Path("/proc") / mark.read_text().strip()
    deadline_s = time.monotonic() + 10
    while process.exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not process.exists()
