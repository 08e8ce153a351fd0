"""The set-up behind scripts/demo and scripts/test, on machines that lack something (all faked)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

LIBRARY = Path(__file__).resolve().parents[2] / "scripts" / "lib.sh"
_TOOLS = ("cat", "cut", "dirname", "head", "mktemp", "rm", "sort", "tail", "touch", "chmod")
_NEW_RUST = "rustc 1.85.0 (4d91de4e4 2025-02-17)"
_NEW_CARGO = "cargo 1.85.0 (d73d2caf9 2024-12-31)"


class Machine:
    """A PATH of its own, with only what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self._bin = folder / "bin"
        self._bin.mkdir()
        self._home = folder / "home"
        for tool in _TOOLS:
            found = shutil.which(tool)
            assert found is not None
            (self._bin / tool).symlink_to(found)
        self.add("uname", "echo Linux")
        self.user(1000)

    def add(self, name: str, body: str, folder: Path | None = None) -> None:
        path = (folder or self._bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        path.chmod(0o755)

    def rust(self, rustc: str, cargo: str, folder: Path | None = None) -> None:
        self.add("rustc", f"echo '{rustc}'", folder)
        self.add("cargo", f"echo '{cargo}'", folder)

    def user(self, number: int) -> None:
        self.add("id", f"echo {number}")

    @property
    def cargo_folder(self) -> Path:
        return self._home / ".cargo" / "bin"

    @property
    def log(self) -> Path:
        return self._home.parent / "apt.log"

    def add_apt(self) -> None:
        """Add an apt-get that notes what it is asked, and then brings a Rust."""
        self.add(
            "apt-get",
            f'echo "$*" >> {self.log}\n'
            f'[ "$1" = install ] || exit 0\n'
            f"for name in rustc cargo; do\n"
            f"    printf '#!{shutil.which('bash')}\\necho %s 1.85.0\\n' $name > {self._bin}/$name\n"
            f"    chmod 755 {self._bin}/$name\n"
            f"done",
        )

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        # /usr/bin, where the library looks for Debian's Rust, is moved into the fake machine.
        library = LIBRARY.read_text().replace(" /usr/bin;", f" {self._home.parent}/usr-bin;")
        script = self._home.parent / "lib.sh"
        script.write_text(library)
        return subprocess.run(
            [str(shutil.which("bash")), "-c", f"set -euo pipefail; . {script}; {command}"],
            check=False,
            capture_output=True,
            text=True,
            env={"PATH": str(self._bin), "HOME": str(self._home), "TMPDIR": str(self._bin)},
            timeout=30,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_fake_machine_replaces_the_place_that_it_means_to() -> None:
    assert LIBRARY.read_text().count(" /usr/bin;") == 1


def test_a_new_rust_on_the_path_is_taken(machine: Machine) -> None:
    machine.rust(_NEW_RUST, _NEW_CARGO)
    done = machine.run("ensure_rust; command -v rustc")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_old_rust_on_the_path_gives_way_to_a_new_one_of_the_user(machine: Machine) -> None:
    machine.rust("rustc 1.63.0", "cargo 1.65.0")
    machine.rust(_NEW_RUST, _NEW_CARGO, machine.cargo_folder)
    done = machine.run("ensure_rust; command -v rustc")
    assert done.stdout.strip() == str(machine.cargo_folder / "rustc")


@pytest.mark.parametrize("version", ["1.9.0", "1.84.1", "0.99.0"])
def test_versions_are_compared_as_numbers(machine: Machine, version: str) -> None:
    machine.rust(f"rustc {version}", _NEW_CARGO)
    assert machine.run("find_rust").returncode == 1


@pytest.mark.parametrize("version", ["1.85.0", "1.100.0", "2.0.0"])
def test_newer_versions_are_taken(machine: Machine, version: str) -> None:
    machine.rust(f"rustc {version}", f"cargo {version}")
    assert machine.run("find_rust").returncode == 0


def test_root_on_debian_gets_rust_without_losing_a_package(machine: Machine) -> None:
    machine.user(0)
    machine.add_apt()
    done = machine.run("ensure_rust")
    assert done.returncode == 0, done.stderr
    update, install = machine.log.read_text().splitlines()
    assert update.startswith("update")
    assert install.startswith("install")
    assert "--no-remove" in install
    assert install.endswith("rustc-web cargo-web")


def test_others_on_debian_get_the_one_line(machine: Machine) -> None:
    machine.add_apt()
    done = machine.run("ensure_rust")
    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert "sudo apt-get update && sudo apt-get install -y rustc-web cargo-web" in line
    assert not machine.log.exists()


def test_elsewhere_the_line_says_where_rust_comes_from(machine: Machine) -> None:
    done = machine.run("ensure_rust")
    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert "expected Rust 1.85 or newer" in line
    assert "rustup.rs" in line


def test_an_old_python_is_named_in_one_line(machine: Machine) -> None:
    machine.add("python3", "exit 1")
    done = machine.run("VENV=$HOME/none; ensure_venv")
    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert "expected Python 3.11 or newer" in line


def test_a_failing_step_shows_its_output_and_ends(machine: Machine) -> None:
    machine.add("broken", "echo what went wrong; exit 3")
    done = machine.run("quietly 'the step' broken; echo never")
    assert done.returncode == 4
    assert "what went wrong" in done.stderr
    assert "the step" in done.stderr.splitlines()[-1]
    assert "never" not in done.stdout


def test_a_quiet_step_reads_no_input(machine: Machine) -> None:
    done = machine.run("quietly 'reading' cat </dev/zero; echo done")
    assert done.stdout == "done\n"


def test_a_changed_source_asks_for_a_new_build(tmp_path: Path) -> None:
    root = tmp_path / "project"
    for name in ("rust/a.rs", "Cargo.toml", "Cargo.lock", "edgefl/_native.abi3.so"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("one\n")
    (root / "scripts").mkdir()
    shutil.copy(LIBRARY, root / "scripts" / "lib.sh")
    (root / "target").mkdir()

    def is_built(before: str = "") -> bool:
        script = f"set -euo pipefail; . {root}/scripts/lib.sh; {before} is_core_built"
        return subprocess.run(["bash", "-c", script], check=False, env=os.environ).returncode == 0

    assert not is_built()
    assert is_built('core_inputs | digest >"$ROOT/target/edgefl-core-built";')
    assert is_built()
    (root / "rust/a.rs").write_text("two\n")
    assert not is_built()
    (root / "rust/a.rs").write_text("one\n")
    assert is_built()
    (root / "edgefl/_native.abi3.so").write_text("another build\n")
    assert not is_built()
