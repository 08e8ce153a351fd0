"""The repository keeps its own rules: file heads and sizes, names, no traces of a machine."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = (".ci", "broker", "docs", "edgefl", "firmware_sim", "rust", "scripts", "tests")
_TEXT = {".json", ".lock", ".md", ".py", ".pyi", ".rs", ".sh", ".toml", ".txt", ""}
_MOST_LINES = {".py": 500, ".rs": 700}
_NOT_ON_A_DEVICE = (
    "amqtt",
    "broker",
    "cryptography",
    "dp_accounting",
    "firmware_sim",
    "hypothesis",
    "matplotlib",
    "onnx",
    "prometheus_client",
    "pydantic",
    "scipy",
    "tensorflow",
    "torch",
    "uvicorn",
)


def _files() -> list[Path]:
    files = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in _FOLDERS:
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    return sorted(
        path
        for path in files
        if path.suffix in _TEXT
        and not any(part in {"target", "__pycache__"} for part in path.parts)
        and path.name != ".coverage"
    )


def _named(*suffixes: str) -> list[Path]:
    return [path for path in _files() if path.suffix in suffixes]


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_walk_finds_the_sources() -> None:
    names = {_relative(path) for path in _files()}
    assert {"README.md", "edgefl/errors.py", "rust/edgefl-core/src/lib.rs", "scripts/test"} <= names
    assert len(names) > 150


# Written in pieces, or this file would find itself.
_TRACES = {
    "a path of somebody's machine": re.compile(
        r"(?<![\w/.])/" + r"(?:home|Users|root|work|opt|mnt)/\w"
    ),
    "a package mirror": re.compile(
        "--" + r"(?:extra-)?index-url|" + "art" + "ifactory|" + "nex" + "us/"
    ),
    "an address beyond loopback": re.compile(
        r"\b(?:10|192\.168|172\.16)\.\d+\.\d+(?:\.\d+)?\b(?=[:/])"
    ),
}


@pytest.mark.parametrize("what", _TRACES)
def test_no_file_holds(what: str) -> None:
    found = [
        f"{_relative(path)}:{number}: {line.strip()[:80]}"
        for path in _files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _TRACES[what].search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a path of somebody's machine", "see /" + "home/ann/edgefl"),
        ("a package mirror", "pip install --" + "index-url x"),
        ("an address beyond loopback", "http://192." + "168.1.2:80"),
    ],
)
def test_traces_are_recognised(what: str, line: str) -> None:
    assert _TRACES[what].search(line)


def test_every_python_file_says_in_its_first_line_what_it_does() -> None:
    silent = []
    for path in _named(".py"):
        text = path.read_text(encoding="utf-8")
        docstring = ast.get_docstring(ast.parse(text)) if text.strip() else None
        starts_with_it = text.startswith(('"""', 'r"""'))
        if docstring is None or not starts_with_it or len(docstring.splitlines()[0]) < 15:
            silent.append(_relative(path))
    assert silent == []


def test_every_rust_file_says_in_its_first_line_what_it_does() -> None:
    silent = [
        _relative(path)
        for path in _named(".rs")
        if not re.match(r"//!? \S.{10,}", path.read_text(encoding="utf-8"))
    ]
    assert silent == []


def test_no_source_file_is_too_long() -> None:
    lengths = {
        _relative(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in _named(*_MOST_LINES)
    }
    assert {name: n for name, n in lengths.items() if n > _MOST_LINES[Path(name).suffix]} == {}


def test_nothing_is_left_for_later_in_code() -> None:
    marks = re.compile(
        r"\b(?:" + "TO" + "DO|FIX" + "ME|XX" + r"X)\b|raise Not" + "ImplementedError"
    )
    found = [
        f"{_relative(path)}:{number}"
        for path in _named(".py", ".rs", ".sh")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if marks.search(line)
    ]
    assert found == []


def test_documents_install_the_distribution_by_its_own_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "edgefl-runtime"
    assert "edgefl-runtime" in (ROOT / "README.md").read_text()
    wrong = [
        f"{_relative(path)}: {line.strip()}"
        for path in _named(".md", ".py", ".sh", "")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(
            r"(?:pip|pipx|uv tool) install\b[^`]*['\"\s]edgefl(?!-runtime)(?:['\"\s`\[]|$)", line
        )
    ]
    assert wrong == []


def test_versions_agree() -> None:
    import edgefl

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert edgefl.__version__ == project == workspace
    assert f"## {project}" in (ROOT / "CHANGELOG.md").read_text()


def test_oldest_toolchains_agree_with_the_scripts() -> None:
    script = (ROOT / "scripts" / "lib.sh").read_text()
    python = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    rust = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    assert f"LEAST_PYTHON={python.removeprefix('>=')}\n" in script
    assert f"LEAST_RUST={rust}\n" in script


def _targets(path: Path) -> list[tuple[str, Path]]:
    """Return what a document names: links, relative to it, and paths of the repository."""
    text = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    named = re.findall(r"`((?:edgefl|broker|firmware_sim|rust|tests|docs|scripts)/[\w./-]+)`", text)
    return [(link, path.parent / link) for link in links] + [(name, ROOT / name) for name in named]


def test_links_and_paths_in_documents_exist() -> None:
    missing = [
        f"{_relative(path)} -> {name}"
        for path in _named(".md")
        for name, target in _targets(path)
        if not target.exists()
    ]
    assert missing == []


def test_every_document_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert [page for page in sorted(pages) if f"({page})" not in index] == []


def test_scripts_can_be_run_and_parsed() -> None:
    commands = ("scripts/demo", "scripts/test", "scripts/check-rust", ".ci/run")
    for name in commands:
        path = ROOT / name
        assert path.stat().st_mode & 0o111, name
        assert path.read_text().startswith("#!/usr/bin/env bash\n"), name
    for name in (*commands, "scripts/lib.sh", "scripts/steps.sh"):
        subprocess.run(["bash", "-n", str(ROOT / name)], check=True)


def test_an_agent_loads_nothing_that_a_board_lacks() -> None:
    program = (
        "import sys\n"
        "import edgefl.cli.agent, edgefl.cli.agent_run, edgefl.cli.main, edgefl.agent.runtime\n"
        "import edgefl.training.onnx.runtime.trainer\n"
        f"print(sorted(name for name in {_NOT_ON_A_DEVICE!r} if name in sys.modules))\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert shown.stdout == "[]\n"
