"""When a board works for rounds: each condition, its second threshold, and what is told of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.agent.eligibility import (
    HEAT_RETURN_C,
    LEVEL_RETURN_PERCENT,
    SUPPLY_SETTLES_S,
    Eligibility,
    Moment,
    Obstacle,
    bucket_of,
)
from edgefl.agent.power.energy import FIRST_GUESS_PERCENT, EnergyBook
from edgefl.agent.power.policy import PowerPolicy, Window, read_power_policy
from edgefl.agent.power.readings import BatteryReading, Heat, Readings, Supply
from edgefl.errors import ConfigError
from edgefl.protocol.presence import PowerBucket
from edgefl.storage.memory import MemoryStore

MIB = 1 << 20
GOOD = Readings(
    heat=Heat(hottest_c=40.0, margin_c=50.0),
    is_undervolted=False,
    free_memory_bytes=1e9,
    memory_pressure_percent=0.0,
    cpu_pressure_percent=0.0,
    free_disk_bytes=1e9,
    is_metered=False,
)


def on(supply: Supply, level: float | None = None, shutdown: float | None = None) -> Readings:
    battery = BatteryReading(
        source="test", supply=supply, level_percent=level, shutdown_percent=shutdown
    )
    return replace(GOOD, battery=battery)


class Board:
    def __init__(self, **policy: object) -> None:
        self.eligibility = Eligibility(PowerPolicy(**policy))
        self.now_s = 0.0

    def judge(self, readings: Readings = GOOD, **more: object) -> set[Obstacle]:
        self.now_s += SUPPLY_SETTLES_S
        moment = {"now_s": self.now_s, "readings": readings, "minute_of_day": 720.0, **more}
        return set(self.eligibility.judge(Moment(**moment)).obstacles)


def test_a_board_on_the_mains_works_and_an_unknown_sensor_forbids_nothing() -> None:
    assert Board().judge() == set()
    assert Board().judge(Readings()) == set()


@pytest.mark.parametrize(
    ("supply", "expected"),
    [
        (Supply.EXTERNAL, set()),
        (Supply.NOT_DISCHARGING, set()),
        (Supply.BATTERY, {Obstacle.ON_BATTERY}),
        (Supply.UNKNOWN, {Obstacle.ON_BATTERY}),
    ],
)
def test_external_power_or_not_discharging(supply: Supply, expected: set[Obstacle]) -> None:
    assert Board().judge(on(supply, 90.0)) == expected
    assert Board(on_battery=True).judge(on(supply, 90.0)) == set()


def test_a_loose_plug_must_hold_for_a_while() -> None:
    board = Board()
    assert board.judge(on(Supply.BATTERY, 90.0))
    board.now_s -= 1
    assert board.judge(on(Supply.EXTERNAL, 90.0)) == {Obstacle.ON_BATTERY}
    assert board.judge(on(Supply.EXTERNAL, 90.0)) == set()


@pytest.mark.parametrize(
    ("obstacle", "bad", "edge", "good"),
    [
        (
            Obstacle.LOW_BATTERY,
            on(Supply.EXTERNAL, 29.0),
            on(Supply.EXTERNAL, 30.0 + LEVEL_RETURN_PERCENT - 0.1),
            on(Supply.EXTERNAL, 30.0 + LEVEL_RETURN_PERCENT),
        ),
        (
            Obstacle.HOT,
            replace(GOOD, heat=Heat(hottest_c=90.0, margin_c=9.9)),
            replace(GOOD, heat=Heat(hottest_c=90.0, margin_c=10.0 + HEAT_RETURN_C - 0.1)),
            replace(GOOD, heat=Heat(hottest_c=90.0, margin_c=10.0 + HEAT_RETURN_C)),
        ),
        (
            Obstacle.HOT,
            replace(GOOD, heat=Heat(hottest_c=75.1)),
            replace(GOOD, heat=Heat(hottest_c=75.0 - HEAT_RETURN_C + 0.1)),
            replace(GOOD, heat=Heat(hottest_c=75.0 - HEAT_RETURN_C)),
        ),
        (
            Obstacle.LOW_DISK,
            replace(GOOD, free_disk_bytes=31.0 * MIB),
            replace(GOOD, free_disk_bytes=39.0 * MIB),
            replace(GOOD, free_disk_bytes=40.0 * MIB),
        ),
        (
            Obstacle.LOW_MEMORY,
            replace(GOOD, free_memory_bytes=63.0 * MIB),
            replace(GOOD, free_memory_bytes=79.0 * MIB),
            replace(GOOD, free_memory_bytes=80.0 * MIB),
        ),
        (
            Obstacle.BUSY,
            replace(GOOD, memory_pressure_percent=25.1),
            replace(GOOD, memory_pressure_percent=18.8),
            replace(GOOD, memory_pressure_percent=18.7),
        ),
    ],
)
def test_what_failed_holds_again_beyond_a_second_threshold(
    obstacle: Obstacle, bad: Readings, edge: Readings, good: Readings
) -> None:
    board = Board()
    assert board.judge(edge) == set()
    assert board.judge(bad) == {obstacle}
    assert board.judge(edge) == {obstacle}
    assert board.judge(good) == set()
    assert board.judge(edge) == set()


def test_processors_may_be_asked_to_be_idle() -> None:
    busy = replace(GOOD, cpu_pressure_percent=51.0)
    assert Board().judge(busy) == set()
    assert Board(most_cpu_pressure_percent=50.0).judge(busy) == {Obstacle.BUSY}


def test_undervoltage_and_metered_networks_forbid_rounds() -> None:
    assert Board().judge(replace(GOOD, is_undervolted=True)) == {Obstacle.UNDERVOLTED}
    paid = replace(GOOD, is_metered=True)
    assert Board().judge(paid) == {Obstacle.METERED}
    assert Board(allow_metered=True).judge(paid) == set()


def test_a_pause_is_kept() -> None:
    assert Board().judge(is_paused=True) == {Obstacle.PAUSED}


@pytest.mark.parametrize(
    ("minute", "is_within"),
    [(22 * 60 - 0.1, False), (22 * 60, True), (0, True), (389.9, True), (390, False)],
)
def test_hours_may_pass_midnight(minute: float, is_within: bool) -> None:
    night = Board(hours=(Window(from_minute=22 * 60, to_minute=390),))
    expected = set() if is_within else {Obstacle.OUTSIDE_HOURS}
    assert night.judge(minute_of_day=minute) == expected


def test_hours_need_a_clock() -> None:
    night = Board(hours=(Window(from_minute=60, to_minute=120),))
    assert night.judge(minute_of_day=None) == {Obstacle.CLOCK_UNSET}
    assert Board().judge(minute_of_day=None) == set()


# ---------------------------------------------------------------- energy


@pytest.mark.parametrize(
    ("level", "shutdown", "round_percent", "fails"),
    [(9.0, None, 2.0, False), (8.9, None, 2.0, True), (24.0, 20.0, 2.0, False),
     (23.9, 20.0, 2.0, True), (44.9, None, 20.0, True)],
)  # fmt: skip
def test_a_board_that_would_die_before_unmasking_does_not_begin(
    level: float, shutdown: float | None, round_percent: float, fails: bool
) -> None:
    board = Board(on_battery=True, least_level_percent=0.0)
    found = board.judge(on(Supply.BATTERY, level, shutdown), round_percent=round_percent)
    assert found == ({Obstacle.ROUND_TOO_LONG} if fails else set())
    fed = Board(least_level_percent=0.0)
    assert fed.judge(on(Supply.EXTERNAL, level, shutdown), round_percent=round_percent) == set()


def test_what_a_round_takes_is_learned_and_kept() -> None:
    store = MemoryStore("power")
    book = EnergyBook(store)
    assert book.round_percent == FIRST_GUESS_PERCENT
    book.begin(on(Supply.BATTERY, 80.0))
    book.end(on(Supply.BATTERY, 70.0))
    assert book.round_percent == 10.0
    assert EnergyBook(store).round_percent == 10.0
    book.begin(on(Supply.BATTERY, 70.0))
    book.end(on(Supply.BATTERY, 69.0))
    assert book.round_percent == 8.0
    assert EnergyBook(store).round_percent == 10.0  # not worth a write


def test_rounds_on_a_charger_teach_nothing() -> None:
    book = EnergyBook(MemoryStore("power"))
    for begin, end in (
        (on(Supply.EXTERNAL, 80.0), on(Supply.BATTERY, 50.0)),
        (on(Supply.BATTERY, 80.0), on(Supply.NOT_DISCHARGING, 50.0)),
        (on(Supply.BATTERY, 50.0), on(Supply.BATTERY, 60.0)),
        (on(Supply.BATTERY, None), on(Supply.BATTERY, 60.0)),
    ):
        book.begin(begin)
        book.end(end)
    book.end(on(Supply.BATTERY, 1.0))
    assert book.round_percent == FIRST_GUESS_PERCENT


@pytest.mark.parametrize("stored", [b"", b"nan", b"-1", b"1e9", b"\xff"])
def test_a_strange_estimate_is_begun_anew(stored: bytes) -> None:
    store = MemoryStore("power")
    store.put("round-percent", stored)
    assert EnergyBook(store).round_percent == FIRST_GUESS_PERCENT


# ---------------------------------------------------------------- what leaves the board


@given(level=st.none() | st.floats(0, 100), supply=st.sampled_from(Supply))
def test_only_a_coarse_bucket_is_told(level: float | None, supply: Supply) -> None:
    bucket = bucket_of(on(supply, level))
    if supply is Supply.EXTERNAL:
        assert bucket is PowerBucket.EXTERNAL
    elif level is None:
        assert bucket is PowerBucket.UNKNOWN
    else:
        bounds = {
            PowerBucket.LOW: (0, 30),
            PowerBucket.MIDDLE: (30, 60),
            PowerBucket.HIGH: (60, 101),
        }
        low, high = bounds[bucket]
        assert low <= level < high


# ---------------------------------------------------------------- the owner's table


def test_an_owner_sets_every_condition() -> None:
    policy = read_power_policy(
        {
            "on_battery": True,
            "least_level_percent": 40,
            "hours": ["22:00-06:30", "12:00-13:00"],
            "allow_metered": True,
            "most_cpu_pressure_percent": 30.5,
            "sleep_s": 900,
            "battery_curve": [[3.3, 0], [4.1, 100]],
            "charging_sign": -1,
        },
        "agent.toml",
    )
    assert policy.on_battery
    assert policy.least_level_percent == 40
    assert policy.hours[0] == Window(from_minute=1320, to_minute=390)
    assert policy.sensors.battery_curve == ((3.3, 0.0), (4.1, 100.0))
    assert policy.sensors.charging_sign == -1
    assert policy.least_free_disk_mib == PowerPolicy().least_free_disk_mib


@pytest.mark.parametrize(
    "table",
    [
        {"on_batery": True}, {"on_battery": 1}, {"least_level_percent": "30"},
        {"least_level_percent": 101}, {"least_level_percent": float("nan")},
        {"least_level_percent": True}, {"hours": "22:00-06:00"}, {"hours": ["22:00-25:00"]},
        {"hours": ["10:00-10:00"]}, {"hours": [22]}, {"sleep_s": 100_000}, {"keepalive_s": 901},
        {"battery_curve": [[4.1, 100], [3.3, 0]]}, {"battery_curve": [[3.3]]},
        {"battery_curve": [[3.3, True], [4, 1]]}, {"battery_curve": [[3.3, 101]]},
        {"charging_sign": 2}, {"charging_sign": True}, {"battery_curve": 3},
    ],
)  # fmt: skip
def test_what_is_misspelt_or_out_of_range_is_refused(table: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as refused:
        read_power_policy(table, "agent.toml")
    assert refused.value.code == "E-POWER-POLICY"
