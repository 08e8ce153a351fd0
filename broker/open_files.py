"""How many files and connections this process may have open."""

import resource
from typing import Final

from edgefl.errors import EnvironmentProblem

_MOST_WANTED: Final = 65_536
_BESIDE_CLIENTS: Final = 256
"""State, ledger, libraries, the status page's own connections."""
LEAST_CLIENTS: Final = 16
"""With room for fewer a gateway would be up, and turn its devices away."""


def allow_connections(count: int) -> int:
    """Raise this process's own limit on open files as far as it may, for so many clients.

    Args:
        count: Most clients at a time.

    Returns:
        How many of them the limit leaves room for.

    Raises:
        EnvironmentProblem: E-OPEN-FILES, that is for hardly anybody.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(max(count + _BESIDE_CLIENTS, soft), max(_MOST_WANTED, soft))
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if most > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    room = min(count, most - _BESIDE_CLIENTS)
    if room < min(count, LEAST_CLIENTS):
        raise EnvironmentProblem(
            "E-OPEN-FILES",
            f"a limit of at least {_BESIDE_CLIENTS + min(count, LEAST_CLIENTS)} open files",
            str(most),
            "raise it (ulimit -n, or LimitNOFILE of the service)",
        )
    return room
