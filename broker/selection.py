"""Who is called to a round: whoever's own coin falls heads, or whom the gateway chooses.

A coin amplifies privacy against those who see the released models only, as long as nobody selects
afterwards; so it is used where there is noise, and where its amplification can be claimed. Else the
gateway chooses: devices that are there, fed, and reliable, and those first that waited longest.
Then no amplification is claimed anywhere.
"""

import hashlib
import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import StrEnum

from broker.standings import Standing
from broker.task import TaskSpec
from edgefl.privacy.sampling import ALWAYS, COIN_SIDES, CoinRounds, coin_for, likeliest_coin
from edgefl.protocol.presence import PowerBucket

_LEAST_RELIABILITY = 0.5
"""Devices that completed fewer of their rounds are called after the others."""
_LEAST_SUCCESS = 0.99
"""Of rounds by coin with enough devices and not too many; else coins are not thrown unasked."""
_MOST_DROPOUT = 0.5
"""Of the rate that over-selection makes up for."""


class SelectionMode(StrEnum):
    """How a task's cohorts come about."""

    AUTO = "auto"
    COIN = "coin"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Who is called to a round.

    Attributes:
        population: Devices that may check in.
        coin: What each of them throws, of `COIN_SIDES`; `ALWAYS` where all take part.
    """

    population: frozenset[str]
    coin: int = ALWAYS


def choose(
    spec: TaskSpec,
    *,
    members: Set[str],
    ready: Set[str],
    standings: Mapping[str, Standing],
    power: Mapping[str, PowerBucket],
    attempt: int,
    nonce: bytes,
) -> Choice:
    """Return who is called.

    Args:
        spec: The task.
        members: Devices of the key epoch.
        ready: Devices that are online and would take part.
        standings: What is known of each device's earlier rounds; absent for a newcomer.
        power: How devices said that they are fed; absent for not said.
        attempt: Number of this attempt.
        nonce: Of the call; decides among equals.
    """
    able = members & ready
    coin = _coin_of(spec, len(able))
    if coin is not None:
        return Choice(population=frozenset(able), coin=coin)

    def rank(device: str) -> tuple[bool, bool, bool, int, bytes]:
        standing = standings.get(device, Standing())
        return (
            device not in ready,
            power.get(device) is PowerBucket.LOW,
            standing.reliability_at(attempt) < _LEAST_RELIABILITY,
            standing.last_attempt,
            hashlib.sha256(nonce + device.encode()).digest(),
        )

    most = _invitations(spec, [standings.get(device, Standing()) for device in able], attempt)
    return Choice(population=frozenset(sorted(members, key=rank)[:most]))


def claimed_rate(spec: TaskSpec, *, members: int, coin: int) -> float:
    """Return the sampling rate that accounts may use; 1 where none may be claimed.

    Args:
        spec: The task.
        members: Devices that were called.
        coin: What each of them threw, of `COIN_SIDES`.
    """
    if coin == ALWAYS:
        return 1.0
    return _rounds(spec, members, coin).claimable_rate(spec.delta)


def _rounds(spec: TaskSpec, members: int, coin: int) -> CoinRounds:
    return CoinRounds(
        coin=coin,
        members=members,
        survivor_floor=spec.survivor_floor,
        most=spec.cohort,
        attempts=spec.rounds * spec.max_attempts,
    )


def expected_size(coin: int, members: int) -> float | None:
    """Return how many devices a coin brings in the mean; None where all take part."""
    return None if coin == ALWAYS else members * coin / COIN_SIDES


def _coin_of(spec: TaskSpec, able: int) -> int | None:
    """Return the coin, or None where the gateway chooses."""
    is_wanted = spec.selection != SelectionMode.GATEWAY and spec.noise_multiplier > 0
    if not is_wanted or able <= spec.cohort:
        return None
    coin = coin_for(able, spec.cohort)
    is_claimable = claimed_rate(spec, members=able, coin=coin) < 1
    # A coin so small that nobody comes adds nothing to delta either.
    if is_claimable and _rounds(spec, able, coin).success >= _LEAST_SUCCESS:
        return coin
    if spec.selection == SelectionMode.COIN:
        return likeliest_coin(able, spec.survivor_floor, spec.cohort)
    return None


def _invitations(spec: TaskSpec, able: list[Standing], attempt: int) -> int:
    """Return how many are called, so that about the goal survives the usual dropouts."""
    if spec.goal is None or not able:
        return spec.cohort
    mean = sum(standing.reliability_at(attempt) for standing in able) / len(able)
    kept = max(1 - _MOST_DROPOUT, mean)
    return min(spec.cohort, math.ceil(spec.goal / kept))
