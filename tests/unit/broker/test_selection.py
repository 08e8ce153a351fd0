"""Who is called to a round: by coins where that can be claimed, else by the gateway's choice."""

from dataclasses import replace

import pytest

from broker.selection import choose, claimed_rate
from broker.standings import Standing
from broker.task import TaskSpec
from edgefl.errors import ConfigError
from edgefl.privacy.sampling import ALWAYS, COIN_SIDES
from edgefl.protocol.presence import PowerBucket

SPEC = TaskSpec(
    name="arm",
    rounds=20,
    cohort=10,
    quorum=7,
    survivor_floor=7,
    colluders=1,
    clip_norm=1.0,
    noise_multiplier=0.0,
    epsilon_budget=8.0,
)
NOISY = replace(SPEC, noise_multiplier=1.0)
LARGE = replace(NOISY, cohort=500, quorum=200, survivor_floor=200, drop_permille=500)


def names(count: int) -> frozenset[str]:
    return frozenset(f"board-{number:05d}" for number in range(count))


def chosen(spec: TaskSpec, members: frozenset[str], **changes: object) -> frozenset[str]:
    return choice_of(spec, members, **changes).population


def choice_of(spec: TaskSpec, members: frozenset[str], **changes: object):  # type: ignore[no-untyped-def]
    arguments = {
        "members": members,
        "ready": members,
        "standings": {},
        "power": {},
        "attempt": 100,
        "nonce": bytes(32),
    }
    return choose(spec, **{**arguments, **changes})


def test_all_are_called_where_all_have_room() -> None:
    for spec in (SPEC, NOISY, LARGE):
        choice = choice_of(spec, names(8))
        assert (choice.population, choice.coin) == (names(8), ALWAYS)


def test_a_large_fleet_with_noise_throws_coins_that_can_be_claimed() -> None:
    choice = choice_of(LARGE, names(10_000))
    assert choice.population == names(10_000)
    rate = claimed_rate(LARGE, members=10_000, coin=choice.coin)
    assert rate == choice.coin / COIN_SIDES
    assert 0.03 < rate < 0.05


def test_a_coin_that_cannot_be_claimed_is_used_only_where_it_is_asked_for() -> None:
    assert choice_of(NOISY, names(40)).coin == ALWAYS
    forced = choice_of(replace(NOISY, selection="coin"), names(40))
    assert forced.coin != ALWAYS
    assert forced.population == names(40)
    assert claimed_rate(NOISY, members=40, coin=forced.coin) == 1.0


@pytest.mark.parametrize("members", [11, 12, 20, 100, 1_000])
def test_a_coin_so_small_that_nobody_comes_is_not_thrown_unasked(members: int) -> None:
    assert choice_of(NOISY, names(members)).coin == ALWAYS
    tiny = replace(NOISY, cohort=3, quorum=3, survivor_floor=3)
    assert choice_of(tiny, names(4)).coin == ALWAYS


def test_without_noise_or_where_the_gateway_shall_choose_no_coin_is_thrown() -> None:
    assert choice_of(replace(LARGE, noise_multiplier=0.0), names(10_000)).coin == ALWAYS
    assert choice_of(replace(LARGE, selection="gateway"), names(10_000)).coin == ALWAYS


def test_devices_that_are_not_there_throw_no_coin() -> None:
    ready = frozenset(sorted(names(10_000))[:5_000])
    choice = choice_of(LARGE, names(10_000), ready=ready)
    assert choice.population == ready
    assert choice.coin > choice_of(LARGE, names(10_000)).coin


def test_those_who_are_there_come_first_then_the_fed_then_the_reliable() -> None:
    members = names(40)
    ordered = sorted(members)
    away, low, shaky = ordered[:10], ordered[10:20], ordered[20:30]
    called = chosen(
        SPEC,
        members,
        ready=members - set(away),
        power=dict.fromkeys(low, PowerBucket.LOW),
        standings=dict.fromkeys(shaky, Standing(last_attempt=99, reliability=0.1)),
    )
    assert called == frozenset(ordered[30:])


def test_whoever_waited_longest_is_called_first() -> None:
    ordered = sorted(names(20))
    standings = {name: Standing(last_attempt=50 + number) for number, name in enumerate(ordered)}
    assert chosen(SPEC, names(20), standings=standings) == frozenset(ordered[:10])


def test_over_many_rounds_everybody_gets_as_many_turns() -> None:
    members, standings, turns = names(25), dict[str, Standing](), dict.fromkeys(names(25), 0)
    for attempt in range(1, 51):
        called = chosen(
            SPEC, members, standings=standings, attempt=attempt, nonce=attempt.to_bytes(32, "big")
        )
        for device in called:
            turns[device] += 1
            before = standings.get(device, Standing())
            standings[device] = before.after(attempt, is_completed=True)
    assert max(turns.values()) - min(turns.values()) <= 3


def test_as_many_more_are_called_as_usually_drop_out() -> None:
    spec = replace(SPEC, cohort=20, quorum=14, survivor_floor=14, goal=14)
    perfect = choice_of(spec, names(40))
    assert len(perfect.population) == 14
    few = replace(spec, cohort=30, quorum=20, survivor_floor=14)
    usual = dict.fromkeys(names(40), Standing(last_attempt=99, reliability=0.8))
    assert len(chosen(few, names(40), standings=usual)) == 18
    shaky = dict.fromkeys(names(40), Standing(last_attempt=99, reliability=0.6))
    assert len(chosen(spec, names(40), standings=shaky)) == 20
    hopeless = dict.fromkeys(names(60), Standing(last_attempt=99, reliability=0.0))
    assert len(chosen(few, names(60), standings=hopeless)) == 28


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"selection": "coin"}, "E-TASK-SELECTION"),
        ({"selection": "random"}, "E-TASK-CHOICE"),
        ({"deadlines": "never"}, "E-TASK-CHOICE"),
        ({"goal": 5}, "E-TASK-GOAL"),
        ({"goal": 11}, "E-TASK-GOAL"),
        ({"goal": 7, "selection": "coin", "noise_multiplier": 1.0}, "E-TASK-GOAL"),
        (
            {"selection": "coin", "noise_multiplier": 1.0, "mode": "one-upload"},
            "E-TASK-SELECTION",
        ),
    ],
)
def test_a_contradiction_is_refused(changes: dict[str, object], code: str) -> None:
    with pytest.raises(ConfigError, match=code):
        replace(SPEC, **changes)
