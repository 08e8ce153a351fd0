"""How much memory is free, and how long work waits for memory and processors.

Source: Linux, Documentation/accounting/psi.
"""

from edgefl.agent.power.tree import Tree, number_in

_MOST_KIB = 1e12


def free_memory_bytes(tree: Tree) -> float | None:
    """Return what the kernel could give to a program without swapping."""
    for line in (tree.text("proc/meminfo") or "").splitlines():
        words = line.split()
        if words[:1] == ["MemAvailable:"] and len(words) > 1:
            kib = number_in(words[1], 0, _MOST_KIB)
            return None if kib is None else 1024 * kib
    return None


def pressure_percent(tree: Tree, resource: str, who: str) -> float | None:
    """Return the share of the last 10 s in which work waited.

    Args:
        tree: The board's files.
        resource: `cpu`, `memory` or `io`.
        who: `some` for at least one task, `full` for all tasks at once.
    """
    for line in (tree.text(f"proc/pressure/{resource}") or "").splitlines():
        words = line.split()
        if words[:1] == [who] and len(words) > 1 and words[1].startswith("avg10="):
            return number_in(words[1].removeprefix("avg10="), 0, 100)
    return None
