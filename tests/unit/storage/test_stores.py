"""What every key-value store does, in memory and on disk."""

import threading

import pytest

from edgefl.errors import ConfigError, StorageError
from edgefl.storage.batch import BatchStore
from edgefl.storage.memory import MemoryStore
from edgefl.storage.sqlite import open_sqlite


@pytest.fixture(params=["memory", "sqlite", "batch"])
def store(request, tmp_path):
    opened = MemoryStore() if request.param == "memory" else open_sqlite(tmp_path / "state.db")
    yield BatchStore(opened, namespace="state") if request.param == "batch" else opened
    opened.close()


def test_values_come_back(store):
    store.put("a", b"1")
    store.put("b", b"")
    assert (store.get("a"), store.get("b"), store.get("c")) == (b"1", b"", None)


def test_many_changes_are_one(store):
    store.put_many({"a": b"1", "b": b"2"})
    store.put_many({"a": None, "b": b"3", "c": b"4", "absent": None})
    assert {key: store.get(key) for key in store.keys()} == {"b": b"3", "c": b"4"}  # noqa: SIM118 - not a dict


def test_a_bad_key_among_many_changes_nothing(store):
    with pytest.raises(ConfigError):
        store.put_many({"a": b"1", "": b"2"})
    assert store.keys() == []


def test_keys_are_chosen_by_prefix_literally_and_sorted(store):
    for key in ("r/2", "r/10", "r%", "R/1", "s", "r/é"):
        store.put(key, b"x")
    assert store.keys("r/") == ["r/10", "r/2", "r/é"]
    assert store.keys("r%") == ["r%"]
    assert store.keys("r_") == []


def test_namespaces_are_apart_and_share_one_life(store):
    other = store.namespace("other")
    store.put("a", b"1")
    other.put("a", b"2")
    other.delete("b")
    assert (store.get("a"), other.get("a"), other.keys()) == (b"1", b"2", ["a"])
    store.close()
    store.close()
    with pytest.raises(StorageError, match="E-STATE-CLOSED"):
        other.get("a")
    with pytest.raises(StorageError, match="E-STATE-CLOSED"):
        other.put("a", b"3")


@pytest.mark.parametrize("key", ["", "x" * 257, "a\0b", "\ud800"])
def test_bad_keys_are_refused(store, key):
    with pytest.raises(ConfigError, match="E-STATE-KEY"):
        store.put(key, b"1")
    with pytest.raises(ConfigError, match="E-STATE-KEY"):
        store.get(key)


@pytest.mark.parametrize("name", ["", "1a", "a-b", "A", "a; DROP TABLE x", "x" * 33, "é"])
def test_bad_namespaces_are_refused(store, name):
    with pytest.raises(ConfigError, match="E-STATE-NAMESPACE"):
        store.namespace(name)


def test_threads_may_share_a_store(store):
    def work(number: int) -> None:
        for step in range(20):
            store.put(f"{number}/{step}", b"x")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.keys()) == 80


def test_a_memory_store_can_be_found_again_as_after_a_restart():
    before = MemoryStore("device")
    before.put("a", b"1")
    after = before.reopened()
    assert after.get("a") == b"1"
    with pytest.raises(StorageError):
        before.put("a", b"2")
