"""G4: what an upload costs on the wire, TLS and all headers included, and what a cut costs."""

import json
import subprocess
import sys
from collections.abc import Iterator

from tests.benchmarks.gateway.processes import ROOT, SideError
from tests.benchmarks.gateway.settings import Settings
from tests.benchmarks.secagg.results import Result, at_most, compare

_SIZES = (250_000, 4_000_000)
_WINDOW_BYTES = 4 * 65_536
_KIB = 1024


def measure(settings: Settings) -> Iterator[Result]:
    """Upload in a network namespace whose counters see nothing else."""
    for size_bytes in _SIZES:
        uploads, again_bytes = _measure_one(size_bytes, settings.repeats)
        ours = [one["up_bytes"] / size_bytes for one in uploads]
        case = f"{size_bytes // 1000:,} kB in chunks of 64 KiB, TLS 1.3"
        yield compare(
            "G4 IP bytes sent, beside the packed vector", case, "times", own=ours,
            bar=at_most(1.05),
        )  # fmt: skip
        yield compare(
            "- IP bytes received", case, "kB",
            own=[one["down_bytes"] / 1e3 for one in uploads],
        )  # fmt: skip
        yield compare(
            "- both ways by the namespace's own counter, beside the sum of the above", case,
            "times",
            own=[one["counted_bytes"] / (one["up_bytes"] + one["down_bytes"]) for one in uploads],
        )  # fmt: skip
        yield compare(
            "G4 sent again after a cut, most of five", case, "KiB", own=[again_bytes / _KIB],
            bar=at_most(_WINDOW_BYTES / _KIB),
        )  # fmt: skip


def _measure_one(size_bytes: int, repeats: int) -> tuple[list[dict[str, int]], int]:
    words = ["unshare", "-rn", sys.executable, "-m", "tests.benchmarks.gateway.wire_side"]
    words += ["--size-bytes", str(size_bytes), "--repeats", str(repeats)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SideError(f"no figures from a network namespace: {ended.stderr[-500:]}")
    found = json.loads(ended.stdout)
    return found["uploads"], found["again_bytes"]
