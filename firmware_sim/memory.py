"""Refuses a fleet that does not fit into this machine's memory, before anything is started."""

import os
import resource
from pathlib import Path

from edgefl.errors import EnvironmentProblem

_MIB = 1 << 20
_BASE_BYTES = 100 * _MIB
_DEVICE_BYTES = 256 << 10
_PAIR_BYTES = 2 << 10
_SHARE_OF_FREE = 0.9
_CGROUP_FILES = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def estimate_bytes(devices: int) -> int:
    """Return the peak memory of a run, from above.

    Each pair of a cohort holds sealed shares and keys for each other, so the memory grows with the
    square of the cohort. The three constants are measured (docs/benchmarks.md) and rounded up.
    """
    return _BASE_BYTES + devices * _DEVICE_BYTES + devices * devices * _PAIR_BYTES


def available_bytes() -> int:
    """Return what this process may use: the least of free memory, control group and ulimit."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")]
    meminfo = _read(Path("/proc/meminfo"))
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            # It counts caches that the kernel gives back; the number of free pages does not.
            limits = [int(line.split()[1]) * 1024]
    limits += [int(text) for text in map(_read, _CGROUP_FILES) if text.isdecimal()]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min(limits)


def require_memory(devices: int, available: int | None = None) -> None:
    """Check that a fleet fits.

    Args:
        devices: Boards in one cohort.
        available: Bytes; None asks the machine.

    Raises:
        EnvironmentProblem: E-SIM-MEMORY, with the estimate and the largest fleet that fits.
    """
    limit = available_bytes() if available is None else available
    needed = estimate_bytes(devices)
    if needed <= limit * _SHARE_OF_FREE:
        return
    fits = 0
    while estimate_bytes(fits + 1) <= limit * _SHARE_OF_FREE:
        fits += 1
    raise EnvironmentProblem(
        "E-SIM-MEMORY",
        f"about {needed // _MIB} MiB for {devices} devices",
        f"{limit // _MIB} MiB that this process may use",
        f"simulate at most {fits} devices here" if fits else "free memory, or raise the limit",
    )


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
