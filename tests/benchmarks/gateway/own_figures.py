"""CPU time and memory of processes, as the kernel keeps them."""

import os
import re
import time
from pathlib import Path

import numpy as np

Figures = dict[str, float]


def cpu_and_memory() -> Figures:
    """Return this process's CPU seconds, its resident memory and the peak of that."""
    return {"cpu_s": time.process_time(), **memory_of(os.getpid())}


def forget_peak(process_id: int | None = None) -> None:
    """Set the peak back to what is resident now. Source: proc(5), clear_refs."""
    Path(f"/proc/{process_id or os.getpid()}/clear_refs").write_text("5", encoding="ascii")


def memory_of(process_id: int) -> Figures:
    """Return resident bytes of a process, and their peak."""
    status = Path(f"/proc/{process_id}/status").read_text("ascii")
    return {"rss_bytes": _field(status, "VmRSS"), "peak_bytes": _field(status, "VmHWM")}


def cpu_of(process_id: int) -> float:
    """Return the CPU seconds of another process whose threads do not end meanwhile."""
    total_ns = 0
    for task in Path(f"/proc/{process_id}/task").iterdir():
        total_ns += int((task / "schedstat").read_text("ascii").split()[0])
    return total_ns / 1e9


def random_bytes(count: int) -> bytes:
    """Return bytes that do not compress, the same every time."""
    return np.random.default_rng(2).bytes(count)


def _field(status: str, name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    if found is None:
        raise OSError(f"no {name} in the status of a process")
    return int(found.group(1)) * 1024


def ticks_of(process_id: int) -> float:
    """Return the CPU seconds of another process, threads that have ended included."""
    fields = Path(f"/proc/{process_id}/stat").read_text("ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
