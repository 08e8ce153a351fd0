"""The two files by which a gateway and whoever holds the enrolment key reach each other.

The gateway writes who wants in; the operator signs it elsewhere (`edgefl roster sign`) and puts the
roster beside it, where a running gateway finds it.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from edgefl.storage.enrolment import RosterCandidate, write_request
from edgefl.storage.files import read_file

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

    def write_request(self, devices: Mapping[str, bytes], leaving: Sequence[str] = ()) -> None:
        """Write who wants to be enrolled and who is out, in one step.

        Args:
            devices: Identity key by device.
            leaving: Devices in the roster that are out.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_request(
            self._folder / REQUEST_FILE,
            [
                RosterCandidate(device=device, identity_key=key, first_seen=now)
                for device, key in sorted(devices.items())
            ],
            leaving,
        )

    def read_new_roster(self) -> bytes | None:
        """Return the roster file's content if it is there and has changed."""
        path = self._folder / ROSTER_FILE
        try:
            status = path.stat()
            found = (status.st_mtime_ns, status.st_size)
            if found == self._seen or status.st_size > _MAX_ROSTER_BYTES:
                return None
            content = read_file(path, _MAX_ROSTER_BYTES)
        except OSError:
            return None
        self._seen = found
        return content
