"""A board without a clock chip wakes up in the past: how that is noticed, and waited for.

Time within rounds is monotonic, and needs no date. Certificates do: with a clock that is before
this release, every one of them is "not yet valid". Verification is never turned off for that; the
agent waits until something has set the clock.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

_LOGGER = logging.getLogger(__name__)

RELEASED_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
"""No clock that is right shows an earlier date; a release may raise it up to its own day."""
_NOTICE_S = 10.0
_LOOK_S = 1.0


def is_set(wall_clock_s: float) -> bool:
    """Tell whether a clock can be right: it is not before the release of this program."""
    return wall_clock_s >= RELEASED_S


def minute_of_day(wall_clock_s: float) -> float | None:
    """Return local time in minutes since midnight; None while the clock is not set."""
    if not is_set(wall_clock_s):
        return None
    local = time.localtime(wall_clock_s)
    return 60 * local.tm_hour + local.tm_min + local.tm_sec / 60


async def wait_until_set(
    wall_clock_s: Callable[[], float], alive: Callable[[], None], *, look_s: float = _LOOK_S
) -> None:
    """Wait until the clock can be right, and say every 10 seconds that this is waited for.

    Args:
        wall_clock_s: Seconds since 1970.
        alive: Called at each look: waiting for the time is no hanging.
        look_s: How often to look.
    """
    next_notice_s = time.monotonic()
    while not is_set(wall_clock_s()):
        if time.monotonic() >= next_notice_s:
            next_notice_s = time.monotonic() + _NOTICE_S
            _LOGGER.warning(
                "the clock shows %s, before this release of edgefl (%s): waiting for it to be set "
                "(NTP, a clock chip, or 'date'); certificates cannot be checked before",
                _date(wall_clock_s()),
                _date(RELEASED_S),
            )
        alive()
        await asyncio.sleep(look_s)


def _date(wall_clock_s: float) -> str:
    return datetime.fromtimestamp(wall_clock_s, tz=UTC).date().isoformat()
