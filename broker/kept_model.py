"""Read a task's newest model from its folder: parameters and summary that belong together.

The gateway replaces the files one after the other, so a power cut may leave a new model beside an
old summary, and a disk may garble either. The summary names the hash of the parameters.
"""

import hashlib
import io
import time
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from broker.task_folder import (
    PARAMETERS,
    PARAMETERS_HASH,
    damaged_result,
    read_summary,
    result_folder,
)

_TRIES: Final = 10
_PAUSE_S: Final = 0.1
"""Between tries: a running gateway may be replacing the files just now."""


def read_kept_model(state_dir: Path, name: str) -> tuple[NDArray[np.float32], dict[str, object]]:
    """Return a task's newest parameters, float32 [d] where they are whole, and its summary.

    Args:
        state_dir: The gateway's.
        name: The task, which has a committed round.

    Raises:
        StorageError: E-RESULT-DAMAGED, they are damaged or do not belong together.
    """
    path = result_folder(state_dir, name) / PARAMETERS
    content, summary = _read_pair(state_dir, name, path)
    try:
        parameters: NDArray[np.float32] = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception as error:  # what numpy raises on damaged bytes has no common type
        raise damaged_result(path, "parameters", type(error).__name__) from error
    return parameters, summary


def _read_pair(state_dir: Path, name: str, path: Path) -> tuple[bytes, dict[str, object]]:
    for _ in range(_TRIES):
        summary = read_summary(state_dir, name)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise damaged_result(
                path, "parameters", error.strerror or type(error).__name__
            ) from error
        # A result of an earlier version has no hash; the gateway's next start adds it.
        wanted = summary.get(PARAMETERS_HASH)
        if wanted is None or wanted == hashlib.sha256(content).hexdigest():
            return content, summary
        time.sleep(_PAUSE_S)
    raise damaged_result(
        path, "parameters", "others than those that result.json names by their hash"
    )
