"""`edgefl agent status|pause|resume|logs`: look after an agent that runs on this board."""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from edgefl.agent.guard import PAUSE_FILE
from edgefl.agent.status_file import SERVICE_NAME, STATUS_FILE, read_status
from edgefl.cli.options import add_common, add_json, default_state_dir
from edgefl.errors import ConfigError, EnvironmentProblem
from edgefl.storage.files import replace_file

_NOT_RUNNING = 5
_SERVICE_STATE = Path("/var/lib/edgefl/agent")
_SERVICE_RUNTIME = Path("/run") / SERVICE_NAME


def add_status(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands."""
    status = commands.add_parser(
        "status",
        help="tell what the agent on this board does",
        description="Tell what the agent on this board does: link, round, power, why rounds are "
        "declined, privacy spent. Exit code 5 if it does not run.",
    )
    _add_state(status)
    add_json(status)
    status.set_defaults(run=run_status)
    for word, what in (("pause", "decline rounds"), ("resume", "take part in rounds again")):
        command = commands.add_parser(
            word,
            help=what,
            description=f"{what[0].upper()}{what[1:]}, after a restart too. A running agent "
            "notices within half a minute; a round that it is in goes on.",
        )
        _add_state(command)
        command.set_defaults(run=run_pause if word == "pause" else run_resume)
    logs = commands.add_parser(
        "logs", help="show the service's log", description="Show the service's log (journalctl)."
    )
    logs.add_argument("-f", "--follow", action="store_true", help="go on as lines come")
    logs.add_argument("-n", "--lines", type=int, default=50, help="how many lines [50]")
    add_common(logs)
    logs.set_defaults(run=run_logs)


def _add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state", type=Path, help="the agent's state folder [the service's, or the user's]"
    )
    add_common(parser)


def run_status(options: argparse.Namespace) -> int:
    """Print what the status file says."""
    folder = _state_dir(options)
    found = _read(folder, is_named=options.state is not None)
    is_paused = _is_paused(folder)
    facts: dict[str, object] = {"is_running": False, **(found or {}), "is_paused": is_paused}
    if options.json:
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        sys.stdout.write(_text(facts, folder))
    return 0 if facts["is_running"] else _NOT_RUNNING


def run_pause(options: argparse.Namespace) -> int:
    """Let the agent decline rounds."""
    folder = _state_dir(options)
    try:
        replace_file(folder / PAUSE_FILE, b"paused by 'edgefl agent pause'\n")
    except OSError as error:
        raise _unwritable(folder, error) from None
    sys.stdout.write("paused: rounds are declined until 'edgefl agent resume'\n")
    return 0


def run_resume(options: argparse.Namespace) -> int:
    """Let the agent take part again."""
    folder = _state_dir(options)
    try:
        (folder / PAUSE_FILE).unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None
    sys.stdout.write("resumed: the agent takes part in rounds\n")
    return 0


def run_logs(options: argparse.Namespace) -> int:
    """Become journalctl."""
    program = shutil.which("journalctl")
    if program is None:
        raise EnvironmentProblem(
            "E-NO-JOURNAL",
            "systemd's journalctl",
            "none",
            "an agent that was started by hand logs to its standard error",
        )
    if options.lines < 1:
        raise ConfigError("E-LINES", "1 line or more", str(options.lines))
    words = [program, "-u", SERVICE_NAME, "-n", str(options.lines)]
    sys.stdout.flush()
    os.execv(program, [*words, *(["-f"] if options.follow else [])])  # noqa: S606 - no shell


def _state_dir(options: argparse.Namespace) -> Path:
    if options.state is not None:
        return Path(options.state)
    try:
        is_service = _SERVICE_STATE.is_dir()
    except PermissionError:  # It is the service's, and this is another user.
        is_service = True
    return _SERVICE_STATE if is_service else default_state_dir("agent")


def _is_paused(folder: Path) -> bool | None:
    try:
        return (folder / PAUSE_FILE).exists()
    except PermissionError:
        return None


def _read(folder: Path, *, is_named: bool) -> dict[str, object] | None:
    places = [folder / STATUS_FILE]
    if not is_named or folder == _SERVICE_STATE:
        places.insert(0, _SERVICE_RUNTIME / STATUS_FILE)
    return next((found for place in places if (found := read_status(place)) is not None), None)


def _text(facts: dict[str, object], folder: Path) -> str:
    if "device" not in facts:
        return f"no agent has run with the state folder {folder}\n"
    state = "running" if facts["is_running"] else "not running; this is what it did last"
    lines = [
        f"{facts['device']} in fleet {facts['fleet']}: {state}",
        f"link: {facts['link']} ({facts['gateway']})",
        f"round: {_round_text(facts)}",
        f"power: {facts['supply']}{_level_text(facts)}; rounds are {_declined_text(facts)}",
        f"privacy: {_spent_text(facts)}",
    ]
    if facts["last_error"]:
        lines.append(f"last problem: {facts['last_error']}")
    return "\n".join(lines) + "\n"


def _spent_text(facts: dict[str, object]) -> str:
    if facts["spent_epsilon"] is None:
        return "the account was lost with a damaged state file; every round is declined"
    most = facts["most_epsilon"]
    return f"epsilon {facts['spent_epsilon']} of {most} spent over all tasks, against the gateway"


def _round_text(facts: dict[str, object]) -> str:
    last = f"last: {facts['last_round']}" if facts["last_round"] else "none yet"
    if facts["round_number"] is None:
        return last
    return f"{facts['round_number']}, {facts['phase']}; {last}"


def _level_text(facts: dict[str, object]) -> str:
    return "" if facts["level_percent"] is None else f", battery {facts['level_percent']} %"


def _declined_text(facts: dict[str, object]) -> str:
    reasons = facts["declines_because"]
    told = [str(reason) for reason in reasons] if isinstance(reasons, list) else []
    if facts["is_paused"] and not any("paused" in reason for reason in told):
        told.insert(0, "paused by its owner")
    return f"declined: {', '.join(told)}" if told else "taken part in"


def _unwritable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(
        "E-STATE-FOLDER",
        f"a state folder {folder} that can be written to",
        error.strerror or type(error).__name__,
        "name it with --state, and run this as the user that the agent runs as, or as root",
    )
