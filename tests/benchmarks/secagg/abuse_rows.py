"""Rows on abuse: what a hostile gateway is refused by our device, and by Flower's client."""

import re
import subprocess
import sys
from collections.abc import Iterator

from tests.benchmarks.secagg.results import Result, reaches
from tests.benchmarks.secagg.settings import Settings
from tests.benchmarks.secagg.turns import ROOT

_TESTS = tuple(
    f"tests/unit/protocol/test_hostile_{name}.py" for name in ("gateway", "keys", "unmasking")
)
_DEFENCES = 12
_OUTCOME = re.compile(r"^\S+\.py::TestDefence(\d+)\w*::.* (PASSED|FAILED|ERROR)\b", re.MULTILINE)


def measure(settings: Settings) -> Iterator[Result]:
    """Let a hostile gateway try each defence, and a hostile server what it can of Flower."""
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "--verbose", "-p", "no:cacheprovider", *_TESTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    passed, failed = parse_outcomes(finished.stdout)
    yield Result(
        row="abuse cases refused",
        case="defences that hold in all their tests",
        unit="defences",
        own=float(len(passed.keys() - failed.keys())),
        bar=reaches(_DEFENCES),
        note=f"{sum(passed.values())} attempts refused, {sum(failed.values())} not",
    )
    if settings.flower is not None:
        answer = settings.flower.ask("abuse")
        yield Result(
            row="abuse cases refused",
            case="attempts made on Flower's client",
            unit="attempts",
            own=float(len(answer)),
            peer=float(sum(bool(refused) for refused in answer.values())),
            peer_name="refused by Flower",
            note="; ".join(case for case, refused in answer.items() if not refused),
        )


def parse_outcomes(output: str) -> tuple[dict[int, int], dict[int, int]]:
    """Count tests by defence in what pytest printed with --verbose.

    Returns:
        Passed, and failed or broken, by the defence's number.
    """
    passed: dict[int, int] = {}
    failed: dict[int, int] = {}
    for found in _OUTCOME.finditer(output):
        counts = passed if found.group(2) == "PASSED" else failed
        counts[int(found.group(1))] = counts.get(int(found.group(1)), 0) + 1
    return passed, failed
