"""Waits while the disk is full: what was stored stands, and the agent goes on from there."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

_LOGGER = logging.getLogger(__name__)

ENOUGH_BYTES = 1 << 20
"""More than the state of a round; an update to be spooled may still not fit, and is told then."""
_LOOK_S = 5.0
_LOOKS_PER_NOTICE = 12


async def wait_for_room(
    folder: Path, alive: Callable[[], None], *, pause_s: float = 0.0, look_s: float = _LOOK_S
) -> None:
    """Wait until there is room again, and say so every minute.

    Args:
        folder: Where the state is.
        alive: Called at each look: waiting for room is no hanging.
        pause_s: Least time to wait, whether there is room or not.
        look_s: How often to look.
    """
    looks, ends_s = 0, time.monotonic() + pause_s
    while not _has_room(folder) or time.monotonic() < ends_s:
        if looks % _LOOKS_PER_NOTICE == 0:
            _LOGGER.warning(
                "the disk of %s is full: rounds are declined until there is room; nothing that "
                "was stored is lost",
                folder,
            )
        looks += 1
        alive()
        await asyncio.sleep(look_s)


def _has_room(folder: Path) -> bool:
    """Write for a try: file systems that reserve or compress tell wrong numbers."""
    trial = folder / f"room-{os.getpid()}.try"
    try:
        with trial.open("wb") as file:
            file.write(bytes(ENOUGH_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            trial.unlink(missing_ok=True)
    return True
