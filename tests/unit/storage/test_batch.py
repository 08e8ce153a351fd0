"""Changes of many steps are shown at once, and stored in one transaction."""

import pytest

from edgefl.errors import ConfigError, StorageError
from edgefl.storage.batch import BatchStore
from edgefl.storage.memory import MemoryStore
from edgefl.storage.sqlite import open_sqlite


@pytest.fixture(params=["memory", "sqlite"])
def durable(request, tmp_path):
    opened = MemoryStore() if request.param == "memory" else open_sqlite(tmp_path / "state.db")
    yield opened
    opened.close()


def test_nothing_is_durable_before_the_commit_and_everything_after_it(durable):
    durable.put_many({"old": b"1", "gone": b"2"})
    batch = BatchStore(durable, namespace="state")
    other = batch.namespace("other")
    batch.put("new", b"3")
    batch.delete("gone")
    other.put("old", b"4")
    assert (batch.keys(), other.keys(), batch.get("gone")) == (["new", "old"], ["old"], None)
    assert (durable.keys(), durable.namespace("other").keys()) == (["gone", "old"], [])

    batch.batch.commit()

    assert batch.batch.is_empty
    assert (durable.keys(), durable.namespace("other").get("old")) == (["new", "old"], b"4")


def test_a_batch_that_is_dropped_changes_nothing(durable):
    durable.put("a", b"1")
    BatchStore(durable, namespace="state").put("a", b"2")
    assert BatchStore(durable, namespace="state").get("a") == b"1"


def test_a_value_that_changes_later_is_stored_as_it_was(durable):
    batch, value = BatchStore(durable, namespace="state"), bytearray(b"1")
    batch.put("a", value)
    value[0] = 0
    batch.batch.commit()
    assert durable.get("a") == b"1"


def test_changes_across_namespaces_are_all_or_nothing(durable):
    with pytest.raises(ConfigError, match="E-STATE-KEY"):
        durable.put_across({"one": {"a": b"1"}, "two": {"": b"2"}})
    assert durable.namespace("one").keys() == []


def test_a_commit_that_fails_leaves_the_earlier_state(tmp_path):
    durable = open_sqlite(tmp_path / "state.db")
    batch = BatchStore(durable, namespace="state")
    batch.put("a", b"1")
    durable.close()
    with pytest.raises(StorageError, match="E-STATE-CLOSED"):
        batch.batch.commit()
    again = open_sqlite(tmp_path / "state.db")
    assert again.keys() == []
    again.close()
