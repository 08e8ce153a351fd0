"""Whether the network costs money by volume.

Mobile modems are known by their kind. For all else NetworkManager is asked, which knows what a user
or a phone's hotspot told it. Without NetworkManager a network counts as unmetered.
"""

import shutil
import subprocess
from collections.abc import Callable

from edgefl.agent.power.tree import Tree

_TIMEOUT_S = 3.0
_MODEMS = ("wwan", "ppp", "rmnet", "wwp")
_DEFAULT_ROUTE = "00000000"


class MeteredNetwork:
    """Looks at the interface that the default route goes through.

    Args:
        tree: The board's files.
        ask_manager: Returns NetworkManager's word for an interface: `yes`, `no`, and either with
            `(guessed)`; None where it is not known.
    """

    def __init__(self, tree: Tree, ask_manager: Callable[[str], str | None] | None = None) -> None:
        """Ask nobody yet."""
        self._tree = tree
        self._ask_manager = _ask_nmcli if ask_manager is None else ask_manager

    def read(self) -> bool | None:
        """Tell whether traffic is paid for; None where nobody knows."""
        interface = self._default_interface()
        if interface is None:
            return None
        kind = self._tree.text(f"sys/class/net/{interface}/uevent") or ""
        if interface.startswith(_MODEMS) or "DEVTYPE=wwan" in kind.splitlines():
            return True
        if not self._tree.exists("run/NetworkManager"):
            return None
        word = (self._ask_manager(interface) or "").split()
        return {"yes": True, "no": False}.get(word[0]) if word else None

    def _default_interface(self) -> str | None:
        """Return the interface of the default route with the least metric."""
        routes = []
        for line in (self._tree.text("proc/net/route") or "").splitlines()[1:]:
            words = line.split()
            if len(words) > 6 and words[1] == _DEFAULT_ROUTE and words[6].isdecimal():
                routes.append((int(words[6]), words[0]))
        if not routes:
            return None
        name = min(routes)[1]
        return name if name.replace("-", "").replace(".", "").isalnum() else None


def _ask_nmcli(interface: str) -> str | None:
    program = shutil.which("nmcli")
    if program is None:
        return None
    words = [program, "-t", "-g", "GENERAL.METERED", "device", "show", interface]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program; the name was checked
            words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
