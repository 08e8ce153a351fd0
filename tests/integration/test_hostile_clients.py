"""A thousand hostile connections cost a running gateway a bounded amount, and others nothing."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.integration import hostile_clients
from tests.integration.local_clients import round_trip_s
from tests.integration.real import LiveFleet, Process, devices_seen, wait_until

SIEGE_S = 6.0
MOST_MB = 230
"""Of its own bounds: 128 MB wait for clients, 32 MB for the gateway, 64 MB are half here."""


def resident_mb(process_id: int) -> float:
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def open_files(process_id: int) -> int:
    return len(list(Path(f"/proc/{process_id}/fd").iterdir()))


@pytest.mark.timeout(180)
def test_a_siege_costs_a_bounded_amount_and_keeps_nobody_out(tmp_path: Path) -> None:
    with LiveFleet(tmp_path) as fleet:
        process_id = fleet.gateway.process_id
        files_before, mb_before = open_files(process_id), resident_mb(process_id)
        siege = Process(tmp_path, fleet.port, program=(hostile_clients.__file__,))
        most_mb, most_files, trips_s = 0.0, 0, []
        try:
            fleet.add_agent("honest")
            until_s = time.monotonic() + SIEGE_S
            while time.monotonic() < until_s or "honest" not in devices_seen(fleet):
                assert time.monotonic() < until_s + 60, "the honest agent is kept out"
                trips_s.append(asyncio.run(round_trip_s(fleet.port)))
                most_mb = max(most_mb, resident_mb(process_id))
                most_files = max(most_files, open_files(process_id))
                time.sleep(0.05)
            assert siege.is_running, siege.err
        finally:
            siege.kill()
        assert most_files - files_before > 400
        assert most_mb - mb_before < MOST_MB
        assert sorted(trips_s)[len(trips_s) // 2] < 1.0
        wait_until(lambda: open_files(process_id) <= files_before + 3, "the end of connections")
        assert fleet.gateway.is_running
