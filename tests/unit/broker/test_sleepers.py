"""Whom a call counts on: devices that are there, awake or soon so, and not away."""

import pytest

from broker.population import Population
from edgefl.protocol.presence import Presence, PresenceKind
from edgefl.storage.memory import MemoryStore

AWAY = Presence(kind=PresenceKind.ONLINE, is_available=False)
READY = Presence(kind=PresenceKind.ONLINE)


@pytest.fixture
def population() -> Population:
    known = Population(MemoryStore("population"), grace_s=1.0)
    for number, device in enumerate(("d1", "d2")):
        known.pin(device, bytes([number]) * 32)
        known.is_heard(device)
    return known


def test_who_is_away_is_online_and_not_called(population: Population) -> None:
    population.note_presence("d1", AWAY)
    assert population.online() == {"d1", "d2"}
    assert population.ready() == {"d2"}
    population.is_heard("d1")  # whatever it sends meanwhile
    assert population.ready() == {"d2"}
    population.note_presence("d1", READY)
    population.is_heard("d1")
    assert population.ready() == {"d1", "d2"}


def test_a_status_may_come_before_the_first_hello(population: Population) -> None:
    population.note_presence("d3", AWAY)
    population.pin("d3", b"3" * 32)
    population.is_heard("d3")
    assert "d3" in population.online()
    assert "d3" not in population.ready()


def test_a_sleeper_is_neither_there_nor_gone(population: Population) -> None:
    assert not population.has_sleepers
    population.falls_asleep("d1", 100, 0.0, is_counted_on=True)
    population.falls_asleep("d2", 100, 0.0, is_counted_on=False)
    assert population.has_sleepers
    assert population.online() == set()
    assert population.ready() == {"d1"}
    assert population.take_gone(100.0) == []
    assert population.is_heard("d1")
    population.keep_sleepers(0.0)
    assert population.wakeup_s is not None
    # The other overslept by a tenth, and by the time that a radio may take.
    assert population.take_gone(population.wakeup_s - 0.1) == []
    assert population.take_gone(population.wakeup_s) == ["d2"]
    assert population.ready() == population.online() == {"d1"}
    assert population.wakeup_s is None


def test_shorter_phases_are_not_slept_through(population: Population) -> None:
    population.falls_asleep("d1", 100, 0.0, is_counted_on=True)
    population.falls_asleep("d2", 30, 0.0, is_counted_on=True)
    population.count_on_sleepers_until(50.0)
    assert population.ready() == {"d2"}


def test_strangers_are_not_put_to_sleep(population: Population) -> None:
    population.falls_asleep("nobody", 100, 0.0, is_counted_on=True)
    assert population.ready() == {"d1", "d2"}
    assert population.wakeup_s is None


# ------------------------------------------------------------ over a restart


class Lives:
    """A population over several lives of a gateway, each with a monotonic clock of its own."""

    def __init__(self) -> None:
        self.store = MemoryStore("population")
        self.wall_s = 1_800_000_000.0
        first = self.next()
        for number, device in enumerate(("d1", "d2", "d3")):
            first.pin(device, bytes([number]) * 32)
        self.first = first

    def next(self) -> Population:
        return Population(self.store, grace_s=1.0, wall_clock_s=lambda: self.wall_s)


def test_sleepers_sleep_on_over_a_restart_and_are_still_counted_on() -> None:
    lives = Lives()
    lives.first.falls_asleep("d1", 900, 5.0, is_counted_on=True)
    lives.first.falls_asleep("d2", 900, 5.0, is_counted_on=False)
    lives.first.falls_asleep("d3", 100, 5.0, is_counted_on=True)
    lives.first.keep_sleepers(5.0)
    lives.wall_s += 300
    second = lives.next()
    second.recall_sleepers(2.0)
    assert second.asleep() == {"d1", "d2"}, "d3 has overslept"
    assert second.ready() == {"d1"}
    assert second.online() == set()
    # An open round goes on to wait for them, and not only as long as for those that were online.
    second.presume(["d1", "d2", "d3"], 2.0, 15.0)
    assert second.take_gone(100.0) == ["d3"]
    assert second.take_gone(2.0 + 600) == []
    assert second.take_gone(2.0 + 600 * 1.1 + 10) == ["d1", "d2"]


def test_who_woke_before_the_end_does_not_sleep_after_it() -> None:
    lives = Lives()
    lives.first.falls_asleep("d1", 900, 0.0, is_counted_on=True)
    lives.first.keep_sleepers(0.0)
    lives.first.is_heard("d1")
    lives.first.keep_sleepers(1.0)
    assert lives.first.wakeup_s == 60.0, "stored once a minute at most"
    lives.first.keep_sleepers(60.0)
    second = lives.next()
    second.recall_sleepers(0.0)
    assert second.asleep() == set()


@pytest.mark.parametrize("wall_s", [0.0, 1_900_000_000.0])
def test_a_clock_that_jumps_wakes_everybody(wall_s: float) -> None:
    lives = Lives()
    lives.first.falls_asleep("d1", 900, 0.0, is_counted_on=True)
    lives.first.keep_sleepers(0.0)
    lives.wall_s = wall_s
    second = lives.next()
    second.recall_sleepers(0.0)
    assert (second.asleep(), second.ready()) == (set(), set())


def test_damage_to_the_list_of_sleepers_stops_nothing() -> None:
    lives = Lives()
    lives.store.namespace("sleep").put("sleepers", b"\xff nothing readable")
    second = lives.next()
    second.recall_sleepers(0.0)
    assert second.asleep() == set()


def test_a_list_that_nobody_changes_is_not_written_and_wakes_nobody() -> None:
    lives = Lives()
    lives.first.keep_sleepers(0.0)
    assert lives.first.wakeup_s is None
    assert lives.store.namespace("sleep").get("sleepers") is None
