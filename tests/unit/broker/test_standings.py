"""Standings of devices: durable, moving, forgiving."""

import pytest

from broker.standings import Standing, Standings
from edgefl.errors import StorageError
from edgefl.storage.memory import MemoryStore


def test_a_restart_forgets_nothing() -> None:
    store = MemoryStore()
    standings = Standings(store)
    standings.note(1, called=["a", "b", "c"], lost=["b"])
    standings.note(2, called=["b"], lost=["b"])
    again = Standings(store)
    assert set(again) == {"a", "b", "c"}
    assert again["a"] == Standing(last_attempt=1, reliability=1.0)
    assert again["b"].last_attempt == 2
    assert again["b"].reliability == pytest.approx(standings["b"].reliability, abs=1e-3)
    assert again["b"].reliability < 0.6


def test_a_bad_name_fades() -> None:
    bad = Standing(last_attempt=10, reliability=0.1)
    assert bad.reliability_at(11) == pytest.approx(0.1)
    assert bad.reliability_at(31) == pytest.approx(0.5)
    assert bad.reliability_at(500) == 1.0


@pytest.mark.parametrize("row", [b"", b"\xff", b"\x82\x01", b"\x82\x01\x19\xff\xff", b"\x81\x01"])
def test_a_damaged_row_is_said(row: bytes) -> None:
    store = MemoryStore()
    store.put("a", row)
    with pytest.raises(StorageError, match="E-STATE-DAMAGED"):
        Standings(store)
