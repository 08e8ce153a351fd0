"""A state file that is damaged, foreign, locked or full is refused aloud and never replaced."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys

import pytest

from edgefl.errors import StorageError
from edgefl.storage.sqlite import open_sqlite
from edgefl.storage.sqlite_file import set_aside


@pytest.fixture
def path(tmp_path):
    """Return a state file with content, closed."""
    path = tmp_path / "folder" / "state.db"
    store = open_sqlite(path)
    store.put_many({f"key{number}": bytes([number]) * 500 for number in range(50)})
    store.close()
    return path


def refusal(path) -> StorageError:
    with pytest.raises(StorageError) as caught:
        open_sqlite(path)
    assert "\n" not in str(caught.value)
    return caught.value


def test_the_file_is_for_its_owner_only_and_stands_alone(path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["state.db"]
    store = open_sqlite(path)
    store.put("a", b"1")
    log = path.with_name("state.db-wal")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    store.close()


def test_a_flipped_bit_in_a_value_is_seen(path):
    content = bytearray(path.read_bytes())
    place = content.index(bytes([7]) * 500)
    content[place + 250] ^= 1
    path.write_bytes(content)
    error = refusal(path)
    assert error.code == "E-STATE-DAMAGED"
    assert str(path) in str(error)
    assert "--reset-state" in str(error)


def test_a_row_moved_to_another_key_is_seen(path):
    database = sqlite3.connect(path)
    database.execute("UPDATE ns_state SET key = 'key99' WHERE key = 'key3'")
    database.commit()
    database.close()
    assert refusal(path).code == "E-STATE-DAMAGED"


@pytest.mark.parametrize("keep", [0, 100, 5000])
def test_a_truncated_file_is_refused_each_time_and_kept(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    for _ in range(2):
        assert refusal(path).code == "E-STATE-DAMAGED"
        assert path.stat().st_size == keep


@pytest.mark.parametrize("garbage", [b"not a database at all" * 300, b"\0" * 8192])
def test_garbage_is_refused_and_kept(path, garbage):
    path.write_bytes(garbage)
    assert refusal(path).code == "E-STATE-DAMAGED"
    assert path.read_bytes() == garbage


def test_garbled_pages_are_seen(path):
    content = bytearray(path.read_bytes())
    content[4096:4200] = b"\xaa" * 104
    path.write_bytes(content)
    assert refusal(path).code == "E-STATE-DAMAGED"


def test_a_database_of_another_program_is_refused_and_kept(tmp_path):
    path = tmp_path / "theirs.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE ns_state (a)")
    database.commit()
    database.close()
    assert refusal(path).code == "E-STATE-DAMAGED"
    database = sqlite3.connect(path)
    assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("ns_state",)]
    database.close()


def test_a_newer_format_is_refused(path):
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    assert refusal(path).code == "E-STATE-VERSION"


def test_a_log_without_its_file_is_refused(path):
    path.rename(path.with_name("elsewhere"))
    path.with_name("state.db-wal").write_bytes(b"x" * 100)
    assert refusal(path).code == "E-STATE-DAMAGED"
    assert not path.exists()


def test_set_aside_keeps_the_old_and_lets_a_new_one_begin(path):
    for number in (1, 2):
        path.write_bytes(b"damaged" * 1000)
        assert set_aside(path) == path.with_name(f"state.db.damaged-{number}")
    assert path.with_name("state.db.damaged-1").read_bytes() == b"damaged" * 1000
    store = open_sqlite(path)
    assert store.keys() == []
    store.close()


def test_a_second_opener_is_refused_also_from_another_process(path):
    store = open_sqlite(path)
    try:
        assert refusal(path).code == "E-STATE-LOCKED"
        script = (
            "import sys; from pathlib import Path\n"
            "from edgefl.errors import StorageError\n"
            "from edgefl.storage.sqlite import open_sqlite\n"
            "try: open_sqlite(Path(sys.argv[1]))\n"
            "except StorageError as error: print(error.code)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
        )
        assert done.stdout == "E-STATE-LOCKED\n"
    finally:
        store.close()
    open_sqlite(path).close()


def test_a_full_database_loses_nothing(path):
    store = open_sqlite(path)
    # SQLite's own page limit gives the very error of a full disk
    store._file._database.execute("PRAGMA max_page_count = 20")
    with pytest.raises(StorageError) as caught:
        store.put_many({"key0": b"changed", "large": bytes(200_000)})
    assert caught.value.code == "E-DISK-FULL"
    assert store.get("key0") == bytes([0]) * 500
    assert store.get("large") is None
    store._file._database.execute("PRAGMA max_page_count = 10000")
    store.put("large", bytes(200_000))
    store.close()
    store = open_sqlite(path)
    assert len(store.keys()) == 51
    store.close()


def test_a_write_that_the_system_refuses_loses_nothing(path):
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from edgefl.errors import StorageError\n"
        "from edgefl.storage.sqlite import open_sqlite\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))\n"
        "store = open_sqlite(Path(sys.argv[1]))\n"
        "try:\n"
        "    for number in range(1000):\n"
        "        store.put(f'more{number}', bytes(5000))\n"
        "        print(f'more{number}', flush=True)\n"
        "except StorageError as error: print(error.code)\n"
        "store.put('key0', b'small'); print('still works')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False
    )
    lines = done.stdout.split()
    assert "E-DISK-FULL" in lines, done
    acknowledged = [line for line in lines if line.startswith("more")]
    assert 1 <= len(acknowledged) < 1000
    store = open_sqlite(path)
    assert set(acknowledged) == set(store.keys("more"))
    assert len(store.keys("key")) == 50
    store.close()


def test_an_unwritable_folder_is_named(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_bytes(b"")
    error = refusal(blocker / "state.db")
    assert error.code == "E-STATE-UNWRITABLE"


def test_deleted_values_are_gone_from_the_files(tmp_path):
    secret = b"one-time mask key" * 20
    store = open_sqlite(tmp_path / "state.db")
    store.put("secret", secret)
    store.delete("secret")
    for file in tmp_path.iterdir():
        assert secret[:40] not in file.read_bytes(), file.name
    store.close()


def test_the_loss_of_the_log_takes_no_acknowledged_change_back(tmp_path):
    """As after a careless copy of the file alone, or a log that the disk garbled."""
    path = tmp_path / "state.db"
    script = (
        "import os, sys; from pathlib import Path; from edgefl.storage.sqlite import open_sqlite\n"
        "store = open_sqlite(Path(sys.argv[1]))\n"
        "for number in range(20): store.put('spent', str(number).encode())\n"
        "os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run([sys.executable, "-c", script, str(path)], env=environment, check=False)
    log = path.with_name("state.db-wal")
    assert log.exists()
    garbled = tmp_path / "garbled.db"
    shutil.copy(path, garbled)
    garbled.with_name("garbled.db-wal").write_bytes(b"\xff" * log.stat().st_size)
    log.unlink()
    for survivor in (path, garbled):
        store = open_sqlite(survivor)
        assert store.get("spent") == b"19"
        store.close()


def test_a_read_only_file_system_is_named(path, monkeypatch):
    """Of which SQLite says that the disk fails. Real mounts take root: by hand."""
    before = path.read_bytes()
    monkeypatch.setattr("edgefl.storage.sqlite_file.os.access", lambda *_: False)
    with pytest.raises(StorageError, match=r"E-STATE-UNWRITABLE.*read-only"):
        open_sqlite(path)
    assert path.read_bytes() == before
