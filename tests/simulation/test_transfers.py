"""Rounds whose messages travel in chunks, over bad links and through deaths, in virtual time."""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from edgefl.protocol import topics
from edgefl.protocol.plan import SessionPlan
from edgefl.types import Update
from firmware_sim.fleet import GatewayDeath, Scenario, SimulationResult, run_scenario
from firmware_sim.network import LinkQuality, VirtualNetwork
from firmware_sim.spar_scenario import spar_scenario

DEVICES = 10
SMALL_PACKETS = LinkQuality(max_packet_bytes=5 * 1024)
"""Chunks are 4 KiB then: masked inputs, parameters, plan and model bundle need several."""


def drift(device: str, plan: SessionPlan, bundle: bytes, parameters: bytes) -> Update:
    """Stand in for training: a small step, another per board."""
    del plan, bundle
    return np.full(len(parameters) // 4, 1e-3 * (1 + int(device[-1])), dtype=np.float32)


@cache
def scenario(rounds: int = 2) -> Scenario:
    whole = spar_scenario(
        devices=DEVICES, rounds=rounds, seed=11, deaths_per_device_hour=0.0, loss=0.0, limit_s=20.0
    )
    return replace(whole, train=drift, task=replace(whole.task, ring_bits=24))


@cache
def undisturbed() -> SimulationResult:
    return run_scenario(scenario())


def test_small_packets_change_nothing_but_the_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks_up: Counter[str] = Counter()
    publish = VirtualNetwork.publish

    def counting(
        network: VirtualNetwork, name: str, topic: str, payload: bytes, *, retain: bool = False
    ) -> None:
        chunks_up[name] += topics.upload_of(topic) is not None
        publish(network, name, topic, payload, retain=retain)

    monkeypatch.setattr(VirtualNetwork, "publish", counting)
    result = run_scenario(replace(scenario(), link=SMALL_PACKETS))
    # Each masked input takes two chunks, and nothing is sent twice over a good link.
    assert list((+chunks_up).values()) == DEVICES * [2 * 2]
    assert result.outcome == "done"
    assert [row["survivors"] for row in result.rounds] == [DEVICES, DEVICES]
    assert all(row["sum_check_held"] for row in result.rounds)
    assert result.transcript_sha256 != undisturbed().transcript_sha256
    assert len(result.rounds) == len(undisturbed().rounds)


def test_a_broker_that_swallows_large_packets_in_silence_is_found_out() -> None:
    """Plan and model go whole at first; nothing says why they do not arrive."""
    link = LinkQuality(max_packet_bytes=20_000, tells_limit=False)
    result = run_scenario(replace(scenario(), link=link))
    assert result.outcome == "done"
    assert [row["survivors"] for row in result.rounds] == [DEVICES, DEVICES]


@pytest.mark.parametrize("seed", range(2))
def test_lost_packets_and_dead_boards_cost_no_round(seed: int) -> None:
    bad = replace(
        scenario(),
        seed=seed,
        link=replace(SMALL_PACKETS, loss=0.1),
        deaths_per_device_hour=20.0,
        mean_outage_s=3.0,
    )
    result = run_scenario(bad)
    assert result.outcome == "done"
    assert all(row["sum_check_held"] for row in result.rounds if row["outcome"] == "COMMITTED")


def kill_gateway(at_s: float) -> None:
    deaths = (GatewayDeath(at_s=at_s, outage_s=1.0),)
    result = run_scenario(replace(scenario(), link=SMALL_PACKETS, gateway_deaths=deaths))
    assert result.outcome == "done"
    # The round goes on where it was: nobody's update is lost, and none is asked for twice.
    assert [row["attempt"] for row in result.rounds] == [1, 2]
    assert [row["survivors"] for row in result.rounds] == [DEVICES, DEVICES]
    assert all(row["sum_check_held"] for row in result.rounds)


@pytest.mark.parametrize("at_s", [2.1, 3.3, 4.7])
def test_a_gateway_that_dies_while_chunks_travel_goes_on_with_the_round(at_s: float) -> None:
    kill_gateway(at_s)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_gateway_may_die_at_any_time() -> None:
    for fifth in range(6, 36):
        kill_gateway(fifth / 5)
