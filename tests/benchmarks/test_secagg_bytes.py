"""Bytes that a device sends and receives in each phase, tracked with the time of a whole round."""

import statistics

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from edgefl.protocol.reasons import OPEN_PHASES, AdversaryClass, Phase
from tests.benchmarks.secagg.whole_round import RoundSize, run_round

COORDINATES = 10_000
_PACKED_BYTES = (COORDINATES + 4) * 20 // 8


@pytest.mark.benchmark(group="secure aggregation")
@pytest.mark.parametrize(
    "size",
    [
        RoundSize(devices=16, coordinates=COORDINATES),
        RoundSize(
            devices=40,
            coordinates=COORDINATES,
            adversary=AdversaryClass.MALICIOUS,
            corrupt_permille=20,
            drop_permille=50,
        ),
    ],
    ids=["curious, complete", "malicious, sparse"],
)
def test_bytes_per_device_and_phase(benchmark: BenchmarkFixture, size: RoundSize) -> None:
    done = benchmark.pedantic(run_round, args=(size, {}), rounds=1)
    assert done.wrong_coordinates == 0
    for phase in OPEN_PHASES:
        traffic = [done.fleet.traffic(name).get(phase) for name in done.setup.keys.devices]
        present = [found for found in traffic if found is not None]
        if not present:
            assert phase is Phase.CERTIFICATE
            assert size.adversary is AdversaryClass.HONEST_BUT_CURIOUS
            continue
        sent = statistics.median(found.up_bytes for found in present)
        received = statistics.median(found.down_bytes for found in present)
        benchmark.extra_info[f"{phase.name.lower()}_sent_bytes"] = sent
        benchmark.extra_info[f"{phase.name.lower()}_received_bytes"] = received
        if phase is Phase.MASKED_INPUT:
            # What is around the vector must stay small.
            assert _PACKED_BYTES < sent < _PACKED_BYTES + 300
