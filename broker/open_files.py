"""How many files and connections this process may have open."""

import resource
from typing import Final

_MOST_WANTED: Final = 65_536
_BESIDE_CLIENTS: Final = 256
"""State, ledger, libraries, the status page's own connections."""


def allow_connections(count: int) -> int:
    """Raise this process's own limit on open files as far as it may, for so many clients.

    Args:
        count: Most clients at a time.

    Returns:
        How many of them the limit leaves room for.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(max(count + _BESIDE_CLIENTS, soft), max(_MOST_WANTED, soft))
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if most > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(1, min(count, most - _BESIDE_CLIENTS))
