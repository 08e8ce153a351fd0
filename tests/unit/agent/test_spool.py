"""The masked vector on flash: written once, whole or not at all, never another one."""

import errno
import os
from pathlib import Path

import pytest

from edgefl.agent.spool import FileSpool, StoreSpool
from edgefl.errors import StorageError
from edgefl.storage.memory import MemoryStore

VECTOR, OTHER = bytes(range(256)) * 40, b"another vector"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "masked-update.spool"


@pytest.mark.parametrize("kind", ["file", "store"])
def test_a_spool_keeps_the_newest_vector_over_a_restart(path: Path, kind: str) -> None:
    store = MemoryStore("spool")

    def started() -> FileSpool | StoreSpool:
        return FileSpool(path) if kind == "file" else StoreSpool(store)

    assert started().get() is None
    started().put(OTHER)
    started().put(VECTOR)
    assert started().get() == VECTOR
    started().clear()
    assert started().get() is None
    started().clear()


def test_any_damage_makes_it_absent(path: Path) -> None:
    FileSpool(path).put(VECTOR)
    whole = path.read_bytes()
    for place in (0, 20, 60, len(whole) - 1):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        assert FileSpool(path).get() is None
    for size_bytes in (0, 10, 47, len(whole) - 1):
        path.write_bytes(whole[:size_bytes])
        assert FileSpool(path).get() is None


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_power_that_fails_in_a_write_leaves_the_vector_before_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    class PowerCutError(Exception):
        pass

    def cut(*_: object) -> None:
        raise PowerCutError

    FileSpool(path).put(OTHER)
    with monkeypatch.context() as patched:
        patched.setattr(*((os, "fsync") if call == "fsync" else (Path, "replace")), cut)
        with pytest.raises(PowerCutError):
            FileSpool(path).put(VECTOR)
    assert FileSpool(path).get() == OTHER
    FileSpool(path).put(VECTOR)
    assert FileSpool(path).get() == VECTOR


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, "E-DISK-FULL"), (errno.EROFS, "E-STATE-UNWRITABLE")]
)
def test_a_disk_that_takes_no_more_is_named_and_nothing_is_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    FileSpool(path).put(OTHER)
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match=code):
        FileSpool(path).put(VECTOR)
    assert FileSpool(path).get() == OTHER
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_vector_is_written_once_for_each_round(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    fsync = os.fsync

    def counting(descriptor: int) -> None:
        written.append(os.fstat(descriptor).st_size)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", counting)
    FileSpool(path).put(VECTOR)
    assert [size for size in written if size >= len(VECTOR)] == [len(VECTOR) + 47]
