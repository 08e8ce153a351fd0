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
