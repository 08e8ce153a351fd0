"""A small file that tells `edgefl agent status` what the running agent does.

A service has it in its folder below /run, which is memory. It is written when something changes,
and never as a sign of life: that would wear the flash of a board without such a folder.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from edgefl.storage.files import read_file

STATUS_FILE = "status.json"
SERVICE_NAME = "edgefl-agent"
_MOST_BYTES = 65_536
_MODE = 0o644
"""For everybody on the board: below /run; a state folder lets nobody else in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """What the agent does.

    Attributes:
        link: `connected`, `asleep`, or why there is no link.
        round_number: Of the open round; None outside of one.
        declines_because: Why rounds are declined; empty while they are not.
        supply: Where the current comes from.
        level_percent: Of the battery, for its owner's eyes on this board.
        spent_epsilon: Over all tasks, against the gateway.
        last_round: How the last round ended.
        last_error: The newest refusal or failure.
    """

    device: str
    fleet: str
    gateway: str
    version: str
    started_at_s: float
    link: str = "not connected"
    knows_gateway: bool = False
    round_number: int | None = None
    phase: str | None = None
    declines_because: tuple[str, ...] = ()
    supply: str = "unknown"
    level_percent: int | None = None
    spent_epsilon: float | None = None
    most_epsilon: float | None = None
    last_round: str = ""
    last_error: str = ""


def status_path(state_dir: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return where an agent of this state folder writes its status."""
    runtime = environment.get("RUNTIME_DIRECTORY")
    return (Path(runtime) if runtime else state_dir) / STATUS_FILE


def write_status(path: Path, status: AgentStatus) -> None:
    """Replace the file; without syncing, for it is worth nothing after a crash.

    A full or read-only disk is no reason to stop.
    """
    content = {**asdict(status), "process_id": os.getpid(), "process_start": _start_of(os.getpid())}
    draft = path.with_name(f"{path.name}.new-{os.getpid()}")
    try:
        draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        draft.chmod(_MODE)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def read_status(path: Path) -> dict[str, object] | None:
    """Return what the file says, with `is_running` added; None where there is none to be read."""
    try:
        content = json.loads(read_file(path, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    process_id = content.pop("process_id", None)
    began = content.pop("process_start", None)
    is_running = (
        isinstance(process_id, int) and began is not None and _start_of(process_id) == began
    )
    return {"is_running": is_running, **content}


def _start_of(process_id: int) -> str | None:
    """Return when a process began, in the kernel's ticks: process numbers are used again."""
    try:
        content = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The program's name is in brackets and may hold blanks.
    words = content.rpartition(")")[2].split()
    return words[19] if len(words) > 19 else None
