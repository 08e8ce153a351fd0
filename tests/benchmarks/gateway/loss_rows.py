"""G8 and G10: what dies and what is done to messages, each a test with real or simulated boards.

A row's figure is the number of its tests that failed; each checks that no update was lost that was
acknowledged, and that none is in a sum twice.
"""

import re
import subprocess
import sys
from collections.abc import Iterator

from tests.benchmarks.gateway.processes import ROOT, SideError
from tests.benchmarks.gateway.settings import Settings
from tests.benchmarks.secagg.results import Result, at_most, compare

_INTEGRATION, _SIMULATION = "tests/integration", "tests/simulation"
SCENARIOS: dict[str, tuple[str, ...]] = {
    "broker kill -9 in a round, back empty": (
        f"{_INTEGRATION}/test_broker_fleets.py::test_a_broker_dies_in_a_round_and_comes_back_empty",
        f"{_INTEGRATION}/test_brokers.py::test_a_broker_that_comes_back_empty_is_told_everything_again",
    ),
    "gateway kill -9 at its writes": (
        f"{_SIMULATION}/test_gateway_writes.py",
        f"{_INTEGRATION}/test_kills.py",
    ),
    "board's power cut in its writes": (f"{_SIMULATION}/test_board_writes.py",),
    "board's power cut between two chunks": (f"{_SIMULATION}/test_power_between_chunks.py",),
    "5 % doubled, others overtaken": (
        f"{_INTEGRATION}/test_disturbed_wire.py",
        "tests/property/test_transfer_machine.py",
    ),
    "mosquitto that drops, as by default": (
        f"{_INTEGRATION}/test_dropping_broker.py",
        f"{_INTEGRATION}/test_broker_fleets.py::test_a_gateway_does_not_run_over_a_broker_that_drops",
    ),
    "links cut in transfers": (
        f"{_INTEGRATION}/test_transfers.py",
        f"{_SIMULATION}/test_transfers.py",
    ),
    "drop-outs in every phase, 30 % and more": ("tests/property/test_dropouts.py",),
}
SUITE = (f"{_INTEGRATION}/test_brokers.py",)


def measure_losses(settings: Settings) -> Iterator[Result]:
    """G8: run the scenarios; their long forms too, unless it is to be quick."""
    for scenario, tests in SCENARIOS.items():
        passed, failed = _run(tests, with_long=not settings.is_quick)
        yield compare(
            "G8 " + scenario, f"{passed} tests", "failed", own=[failed], bar=at_most(0)
        )  # fmt: skip


def measure_suite(settings: Settings) -> Iterator[Result]:
    """G10: one suite over endpoint, mosquitto, NATS x1 and x3, iotcore and amqtt."""
    passed, failed = _run(SUITE, with_long=not settings.is_quick)
    yield compare(
        "G10 one suite over seven servers", f"{passed} tests", "failed", own=[failed],
        bar=at_most(0),
    )  # fmt: skip


def _run(tests: tuple[str, ...], *, with_long: bool) -> tuple[int, int]:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    if with_long:
        words += ["-m", "long or not long"]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    summary = ended.stdout.strip().splitlines()[-1] if ended.stdout.strip() else ended.stderr
    counts = {
        word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", summary)
    }
    if not counts:
        raise SideError(f"no tests ran: {summary[-300:]}")
    return counts.get("passed", 0), counts.get("failed", 0) + counts.get("error", 0)
