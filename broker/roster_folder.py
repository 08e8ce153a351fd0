"""The two files by which a gateway and whoever holds the enrolment key reach each other.

The gateway writes who wants in; the operator signs it elsewhere (`edgefl roster sign`) and puts the
roster beside it, where a running gateway finds it.
"""

import json
from collections.abc import Mapping
from pathlib import Path

REQUEST_FILE = "roster-request.json"
ROSTER_FILE = "roster.cbor"
_MAX_ROSTER_BYTES = 64 << 20


class RosterFolder:
    """The gateway's side of both files.

    Args:
        folder: The gateway's state folder.
    """

    def __init__(self, folder: Path) -> None:
        """Read nothing yet."""
        self._folder = folder
        self._seen: tuple[int, int] | None = None

    def write_request(self, devices: Mapping[str, bytes]) -> None:
        """Write who wants to be enrolled, in one step.

        Args:
            devices: Identity key by device.
        """
        wanted = [
            {"device": device, "identity_key": key.hex()} for device, key in sorted(devices.items())
        ]
        path = self._folder / REQUEST_FILE
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
        temporary.replace(path)

    def read_new_roster(self) -> bytes | None:
        """Return the roster file's content if it is there and has changed."""
        path = self._folder / ROSTER_FILE
        try:
            status = path.stat()
            found = (status.st_mtime_ns, status.st_size)
            if found == self._seen or status.st_size > _MAX_ROSTER_BYTES:
                return None
            content = path.read_bytes()
        except OSError:
            return None
        self._seen = found
        return content
