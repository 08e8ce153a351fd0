"""Remembers bundles in whose first training the agent's process died.

A bundle comes from the gateway. One whose graph crashes the native library, or takes more memory
than there is, ends the process; what restarts the agent would then run it again, for ever. So
before a process first trains with a bundle it writes which, and takes that back afterwards. A
power cut looks the same, hence more than one such end is needed before a bundle is refused.
"""

import contextlib
import json
from pathlib import Path

from edgefl.errors import TrainingError
from edgefl.storage.files import replace_file
from edgefl.training.json_fields import Fields

MOST_DEATHS = 5
"""Ends in a row after which a bundle is run no more."""
_NAME = "started.json"
_LARGEST_BYTES = 4096


class DeadlyBundles:
    """The note of one device; without room for it, nothing is remembered.

    Args:
        folder: Where the note is kept; made when it is written.
    """

    def __init__(self, folder: Path) -> None:
        """Read nothing yet."""
        self._path = folder / _NAME
        self._survived = ""

    def begin(self, sha256: str) -> None:
        """Note that training with a bundle begins, if it is this process's first with it.

        Args:
            sha256: Hex digest of the bundle.

        Raises:
            TrainingError: E-BUNDLE-DEADLY.
        """
        if sha256 == self._survived:
            return
        deaths = self._deaths(sha256)
        if deaths >= MOST_DEATHS:
            raise TrainingError(
                "E-BUNDLE-DEADLY",
                "a bundle that this board can train with",
                f"{deaths} ends of the agent in a row during its first training with this one",
                f"give the board more memory or power, or prepare a smaller model; remove "
                f"{self._path} to try it again",
            )
        note = json.dumps({"sha256": sha256, "deaths": deaths + 1}).encode()
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(self._path, note)

    def end(self, sha256: str) -> None:
        """Note that the process outlived training, whether it gave an update or an error."""
        if sha256 == self._survived:
            return
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._survived = sha256

    def _deaths(self, sha256: str) -> int:
        try:
            if not self._path.is_file():
                return 0
            with self._path.open("rb") as file:
                fields = Fields(json.loads(file.read(_LARGEST_BYTES)), "note")
            return fields.integer("deaths") if fields.text("sha256") == sha256 else 0
        except (OSError, ValueError, RecursionError):
            return 0
