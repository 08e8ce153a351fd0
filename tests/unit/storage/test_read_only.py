"""Looking into a stopped process's state file leaves no trace, and sees all of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgefl.errors import StorageError
from edgefl.storage.read_only import read_namespaces
from edgefl.storage.sqlite import open_sqlite

_DIE_WITH_A_LOG = """
import os, sys
from pathlib import Path
from edgefl.storage.sqlite import open_sqlite
store = open_sqlite(Path(sys.argv[1]), namespace="history")
store._file._database.execute("PRAGMA wal_autocheckpoint = 0")
store.put("a", b"in the log alone")
os.kill(os.getpid(), 9)
"""


def _made(path: Path) -> Path:
    store = open_sqlite(path, namespace="history")
    store.put_many({"a": b"1", "b/1": b"2", "b/2": b"3"})
    store.close()
    return path


def test_rows_of_a_closed_file_are_read_without_a_trace(tmp_path: Path) -> None:
    path = _made(tmp_path / "s?#.sqlite")  # such names must not end the path in the address
    before = {entry.name: entry.stat().st_mtime_ns for entry in tmp_path.iterdir()}
    content = path.read_bytes()
    found = read_namespaces(path, ("history", "absent"))
    assert found["history"].get("a") == b"1"
    assert found["history"].get("c") is None
    assert found["history"].keys("b/") == ["b/1", "b/2"]
    assert found["absent"].keys() == []
    assert {entry.name: entry.stat().st_mtime_ns for entry in tmp_path.iterdir()} == before
    assert path.read_bytes() == content


def test_what_a_crash_left_in_the_log_is_seen(tmp_path: Path) -> None:
    path = _made(tmp_path / "s.sqlite")
    ended = subprocess.run(
        [sys.executable, "-c", _DIE_WITH_A_LOG, str(path)],
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    assert ended.returncode == -9
    assert b"in the log alone" not in path.read_bytes()
    assert read_namespaces(path, ("history",))["history"].get("a") == b"in the log alone"


def test_a_file_in_use_after_a_crash_is_named_as_locked(tmp_path: Path) -> None:
    path = _made(tmp_path / "s.sqlite")
    store = open_sqlite(path, namespace="history")
    store.put("a", b"changed")
    try:
        with pytest.raises(StorageError, match="E-STATE-LOCKED"):
            read_namespaces(path, ("history",))
    finally:
        store.close()


def test_damage_and_strangers_are_named(tmp_path: Path) -> None:
    path = _made(tmp_path / "s.sqlite")
    content = path.read_bytes()
    at = content.index(b"b/1")
    path.write_bytes(content[: at + 3] + b"9" + content[at + 4 :])
    with pytest.raises(StorageError, match="E-STATE-DAMAGED"):
        read_namespaces(path, ("history",))
    other = tmp_path / "other"
    other.write_bytes(b"text" * 1000)
    with pytest.raises(StorageError, match="E-STATE-DAMAGED"):
        read_namespaces(other, ("history",))
    with pytest.raises(StorageError, match="E-STATE-UNWRITABLE"):
        read_namespaces(tmp_path / "nothing", ("history",))
