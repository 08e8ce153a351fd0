"""`edgefl agent install|uninstall`: make the agent a service of systemd, and take it away again."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import edgefl
from edgefl.agent.config import read_agent_config
from edgefl.agent.status_file import SERVICE_NAME
from edgefl.agent.unit import Unit, is_in_a_home
from edgefl.cli.options import HelpFormatter, add_common
from edgefl.errors import ConfigError, EnvironmentProblem
from edgefl.storage.files import replace_file

_UNITS = "etc/systemd/system"
_CONFIG = "etc/edgefl/agent.toml"
_STATES = ("var/lib/private/edgefl", "var/lib/edgefl")
_RUNNING_SYSTEMD = Path("/run/systemd/system")
_SYSTEMCTL_S = 60


def add_install(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the two commands."""
    install = commands.add_parser(
        "install",
        help="make the agent a service that starts with the board",
        description="Write the service's unit and, if there is none, its settings file; then start "
        "it. A second run changes only what differs. Needs root.",
        formatter_class=HelpFormatter,
    )
    for name, what in (
        ("device", "this board's name; not needed after 'edgefl agent enrol'"),
        ("data", "the device's examples, as for 'edgefl agent run'"),
        ("gateway", "where the gateway listens"),
        ("fleet", "the fleet's name"),
    ):
        install.add_argument(f"--{name}", help=f"for a new settings file: {what}")
    install.add_argument(
        "--readable",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a folder with data below a home, which services do not see otherwise",
    )
    install.add_argument(
        "--group", action="append", default=[], help="a further group of the service, such as i2c"
    )
    install.add_argument("--no-start", action="store_true", help="write files only")
    _add_root(install)
    add_common(install)
    install.set_defaults(run=run_install)
    uninstall = commands.add_parser(
        "uninstall",
        help="take the service away",
        description="Stop the service and remove its unit. Settings, identity and the account of "
        "spent privacy stay, unless --purge is given. Needs root.",
    )
    uninstall.add_argument(
        "--purge", action="store_true", help="remove settings, identity and account too, for good"
    )
    _add_root(uninstall)
    add_common(uninstall)
    uninstall.set_defaults(run=run_uninstall)


def _add_root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root", type=Path, default=Path("/"), help="write below this folder, as for an image"
    )


def run_install(options: argparse.Namespace) -> int:
    """Write unit and settings, and start the service."""
    _require_shared_place(Path(sys.executable))
    _require_shared_place(Path(edgefl.__file__))
    config = options.root / _CONFIG
    try:
        config.parent.mkdir(parents=True, exist_ok=True)
        if config.exists():
            _say("kept", config)
        else:
            replace_file(config, _config_text(options).encode())
            config.chmod(0o644)
            _say("written", config)
        _check_config(config)
        _write_unit(options)
    except OSError as error:
        raise _not_writable(options.root, error) from None
    if not options.no_start:
        _start(options.root)
    return 0


def run_uninstall(options: argparse.Namespace) -> int:
    """Stop the service and remove what belongs to it."""
    unit = _unit_path(options.root)
    if _is_live(options.root) and unit.exists():
        _systemctl("disable", "--now", f"{SERVICE_NAME}.service")
    try:
        if unit.exists():
            unit.unlink()
            _say("removed", unit)
        if options.purge:
            _purge(options.root)
    except OSError as error:
        raise _not_writable(options.root, error) from None
    if _is_live(options.root):
        _systemctl("daemon-reload")
    if not options.purge:
        sys.stdout.write(
            "settings, identity and the account of spent privacy are kept; --purge removes them\n"
        )
    return 0


# ------------------------------------------------------------ files


def _write_unit(options: argparse.Namespace) -> None:
    readable = [folder.absolute() for folder in options.readable]
    unit = Unit(
        name=SERVICE_NAME,
        command=[sys.executable, "-m", "edgefl.cli", "agent", "run", "--config", f"/{_CONFIG}"],
        readable=readable,
        groups=options.group,
    )
    path, content = _unit_path(options.root), unit.text().encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_bytes() == content:
        _say("unchanged", path)
        return
    replace_file(path, content)
    path.chmod(0o644)
    _say("written", path)


def _config_text(options: argparse.Namespace) -> str:
    lines = ["# What 'edgefl agent run' is run with; docs/boards.md tells all keys."]
    for key in ("device", "fleet", "gateway", "data"):
        value = getattr(options, key)
        if value is not None and (not value.isprintable() or '"' in value or "\\" in value):
            raise ConfigError(
                "E-INSTALL-NAME", f"--{key} without quotes and backslashes", repr(value)[:80]
            )
        lines.append(f'# {key} = "..."' if value is None else f'{key} = "{value}"')
    return "\n".join([*lines, "", "[power]", "# on_battery = false", ""])


def _check_config(path: Path) -> None:
    """Find mistakes before the service does."""
    config = read_agent_config(path, is_named=True)
    if config.data is None:
        sys.stdout.write(f"note: name the device's examples in {path}: data = ...\n")
    elif is_in_a_home(Path(config.data)):
        sys.stdout.write(
            f"note: services see no homes; --readable {Path(config.data).parent} lets this one "
            "read its data\n"
        )


def _purge(root: Path) -> None:
    for place in _STATES:
        path = root / place
        if path.is_symlink():
            path.unlink()
            _say("removed", path)
        elif path.is_dir():
            shutil.rmtree(path)
            _say("removed", path)
    config = root / _CONFIG
    if config.exists():
        config.unlink()
        _say("removed", config)


def _unit_path(root: Path) -> Path:
    return Path(root) / _UNITS / f"{SERVICE_NAME}.service"


def _say(what: str, path: Path) -> None:
    sys.stdout.write(f"{what}: {path}\n")


def _require_shared_place(path: Path) -> None:
    """Refuse an installation that a service cannot see."""
    if is_in_a_home(path) or ".local" in path.parts:
        raise ConfigError(
            "E-INSTALL-HOME",
            "edgefl in a place that services see",
            f"{path}, in a user's home",
            "python3 -m venv /usr/local/lib/edgefl && /usr/local/lib/edgefl/bin/pip install "
            "edgefl-runtime, then /usr/local/lib/edgefl/bin/edgefl agent install",
        )


def _not_writable(root: Path, error: OSError) -> ConfigError:
    return ConfigError(
        "E-INSTALL-WRITE",
        f"to write the service's files below {root}",
        f"{error.strerror or type(error).__name__}: {error.filename}",
        "run it with sudo; on a read-only root file system, while it is mounted writable",
    )


# ------------------------------------------------------------ systemd


def _is_live(root: Path) -> bool:
    return root == Path("/") and _RUNNING_SYSTEMD.is_dir()


def _start(root: Path) -> None:
    if not _is_live(root):
        sys.stdout.write(
            "systemd does not run here; on the board: systemctl daemon-reload && "
            f"systemctl enable --now {SERVICE_NAME}\n"
        )
        return
    _systemctl("daemon-reload")
    _systemctl("enable", f"{SERVICE_NAME}.service")
    # Not 'start': a changed unit or settings file must come into effect.
    _systemctl("restart", "--no-block", f"{SERVICE_NAME}.service")
    sys.stdout.write("started; 'edgefl agent status' tells what it does\n")


def _systemctl(*words: str) -> None:
    program = shutil.which("systemctl")
    if program is None:
        raise EnvironmentProblem("E-NO-SYSTEMD", "systemctl", "none", "start the agent by hand")
    environment = {**os.environ, "SYSTEMD_PAGER": ""}
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program and fixed words
            [program, *words],
            capture_output=True,
            text=True,
            timeout=_SYSTEMCTL_S,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentProblem(
            "E-SYSTEMCTL", f"an answer within {_SYSTEMCTL_S} s", f"none to {' '.join(words)}"
        ) from None
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[:300]
        raise EnvironmentProblem("E-SYSTEMCTL", f"systemctl {' '.join(words)} to work", said)
