"""G9: how long a round pauses when the node of a NATS cluster dies that everybody is at."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.gateway.settings import Settings
from tests.benchmarks.secagg.results import Result, at_most, compare
from tests.integration.brokers import nats
from tests.integration.test_broker_fleets import require_all_counted, running_fleet

_ROUNDS = 2


def measure(settings: Settings) -> Iterator[Result]:
    """Kill the node while masked inputs are on their way, in fresh clusters."""
    pauses_s = [_pause_s() for _ in range(settings.repeats)]
    yield compare(
        "G9 from the loss of a NATS node to the next phase", "3 nodes, 3 agents, round committed",
        "s", own=pauses_s, bar=at_most(15),
    )  # fmt: skip


def _pause_s() -> float:
    with (
        contextlib.redirect_stdout(sys.stderr),
        tempfile.TemporaryDirectory(prefix="edgefl-cluster") as name,
        nats(Path(name) / "broker", 3) as brokers,
        running_fleet(Path(name), brokers) as fleet,
    ):
        fleet.submit(rounds=_ROUNDS)
        before = fleet.wait_for_phase("MASKED_INPUT", _ROUNDS)
        brokers.nodes[0].kill()
        after = fleet.wait_for_phase("UNMASKING", _ROUNDS)
        fleet.wait_for(lambda event: event["kind"] == "task-ended", "the end of the task")
        require_all_counted(fleet, _ROUNDS)
        if after["attempt"] != before["attempt"]:
            raise ArithmeticError("the attempt did not live through it")
        return float(after["time"] - before["time"])
