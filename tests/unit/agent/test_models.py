"""The models that a device keeps: written whole, bounded, and safe against names and damage."""

import dataclasses
import os

import numpy as np
import pytest

from edgefl.agent.models import MOST_TASKS, KeptModel, ModelRecord, ModelShelf
from edgefl.errors import StorageError, TrainingError


def model(value):
    return KeptModel(params=np.full(4, value, np.float32), local=np.full(2, -value, np.float32))


def record(task="t", **changes):
    return dataclasses.replace(
        ModelRecord(task=task, bundle_sha256="ab" * 32, good_round=3, good_loss=0.5), **changes
    )


def test_what_is_kept_comes_back(tmp_path):
    shelf = ModelShelf(tmp_path / "models")
    assert shelf.tasks() == []
    assert shelf.record("t") is None
    assert shelf.good("t") is None
    shelf.keep(record(), bundle=b"bundle", good=model(1), personal=model(2))
    again = ModelShelf(tmp_path / "models")
    assert again.tasks() == ["t"]
    assert again.record("t") == record()
    assert np.array_equal(again.good("t").params, model(1).params)
    assert np.array_equal(again.personal("t").local, model(2).local)


def test_what_is_not_given_stays(tmp_path):
    shelf = ModelShelf(tmp_path)
    shelf.keep(record(), good=model(1), personal=model(2))
    shelf.keep(record(last_round=4), personal=model(3))
    assert np.array_equal(shelf.good("t").params, model(1).params)
    assert np.array_equal(shelf.personal("t").params, model(3).params)
    assert shelf.record("t").last_round == 4


def test_old_tasks_make_room(tmp_path):
    shelf = ModelShelf(tmp_path)
    for index in range(MOST_TASKS + 2):
        shelf.keep(record(f"t{index}"), good=model(index))
        os.utime(tmp_path / f"t{index}" / "record.json", (index, index))
    shelf.keep(record("newest"), good=model(9))
    assert shelf.tasks()[0] == "newest"
    assert len(shelf.tasks()) == MOST_TASKS
    assert shelf.record("t0") is None


@pytest.mark.parametrize("task", ["../outside", "/etc", "..", "a/b", "", "A b", "x" * 300, "\0"])
def test_a_tasks_name_never_leaves_the_folder(tmp_path, task):
    folder = tmp_path / "state" / "models"
    shelf = ModelShelf(folder)
    shelf.keep(record(task), good=model(1))
    assert shelf.tasks() == [task]
    assert shelf.record(task).task == task
    assert np.array_equal(shelf.good(task).params, model(1).params)
    (kept,) = folder.iterdir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state"]
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["models"]
    shelf.forget(task)
    assert not kept.exists()


@pytest.mark.parametrize("name", ["record.json", "good.npz", "personal.npz"])
@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"PK\x05\x06", b"\xff" * 100, None])
def test_damage_is_named_and_can_be_removed(tmp_path, name, content):
    shelf = ModelShelf(tmp_path)
    shelf.keep(record(), good=model(1), personal=model(2))
    path = tmp_path / "t" / name
    path.write_bytes(path.read_bytes()[:-9] if content is None else content)
    with pytest.raises(StorageError, match="E-MODEL-DAMAGED") as caught:
        (shelf.record("t"), shelf.good("t"), shelf.personal("t"))
    assert "\n" not in str(caught.value)
    shelf.forget("t")
    assert shelf.record("t") is None


def test_pickled_arrays_are_refused(tmp_path):
    shelf = ModelShelf(tmp_path)
    shelf.keep(record(), good=model(1))
    np.savez(tmp_path / "t" / "good.npz", params=np.array([{}], object), local=np.zeros(1))
    with pytest.raises(StorageError, match="E-MODEL-DAMAGED"):
        shelf.good("t")


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    shelf = ModelShelf(tmp_path)
    shelf.keep(record(), good=model(1))

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"E-MODEL-WRITE.*No space left"):
        shelf.keep(record(good_round=4), good=model(2))
    assert np.array_equal(shelf.good("t").params, model(1).params)
    assert shelf.record("t") == record()
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["good.npz", "record.json"]


def test_a_bundle_that_is_gone_is_named(tmp_path):
    shelf = ModelShelf(tmp_path)
    shelf.keep(record(), good=model(1))
    with pytest.raises(TrainingError, match="E-BUNDLE-MISSING"):
        shelf.bundle("t")
