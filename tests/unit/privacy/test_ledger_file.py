"""The ledger on disk: durability calls, locks, damage and torn lines."""

import errno
import logging
import os
import stat
from pathlib import Path

import pytest

from broker import ledger as ledger_module
from broker.ledger import LedgerFile
from edgefl.errors import LocalProtocolError, StorageError
from edgefl.privacy.accounting import gaussian_rdp
from edgefl.privacy.ledger import GENESIS_HASH, Release


def release(number: int) -> Release:
    return Release(
        task="arm",
        round_number=number,
        attempt=0,
        session_id=f"{number:064x}",
        mechanism="skellam",
        z_effective=1.0,
        n_survivors=10,
        colluders=1,
        rdp=gaussian_rdp(1.0),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the place of a ledger with three entries."""
    place = tmp_path / "ledger.jsonl"
    with LedgerFile.create(place) as ledger_file:
        for number in range(3):
            ledger_file.append(release(number))
    return place


def test_entries_come_back(path: Path) -> None:
    with LedgerFile.open(path) as ledger_file:
        assert len(ledger_file.ledger) == 3
        assert ledger_file.torn_line is None
        ledger_file.append(release(3))
    with LedgerFile.open(path) as ledger_file:
        assert [entry.release.round_number for entry in ledger_file.ledger.entries] == [0, 1, 2, 3]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_missing_ledger_is_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="E-LEDGER-MISSING"):
        LedgerFile.open(tmp_path / "ledger.jsonl")
    assert not list(tmp_path.iterdir())


def test_existing_ledger_is_not_created_again(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(StorageError, match="E-LEDGER-EXISTS"):
        LedgerFile.create(path)
    assert path.read_bytes() == before


def test_second_gateway_is_refused(path: Path) -> None:
    with LedgerFile.open(path), pytest.raises(StorageError, match="E-LEDGER-LOCKED"):
        LedgerFile.open(path)
    LedgerFile.open(path).close()


def test_append_syncs_the_line_before_it_returns(path: Path, monkeypatch) -> None:
    calls: list[str] = []
    real_write, real_sync = os.write, os.fsync
    monkeypatch.setattr(
        os, "write", lambda fd, data: (calls.append("write"), real_write(fd, data))[1]
    )
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), real_sync(fd))[1])
    with LedgerFile.open(path) as ledger_file:
        ledger_file.append(release(3))
    assert calls == ["write", "fsync"]


def test_creation_syncs_file_and_directory(tmp_path: Path, monkeypatch) -> None:
    synced: list[bool] = []
    real_sync = os.fsync

    def recording_sync(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        real_sync(descriptor)

    monkeypatch.setattr(os, "fsync", recording_sync)
    LedgerFile.create(tmp_path / "ledger.jsonl").close()
    assert synced == [False, True]


def test_short_writes_are_continued(path: Path, monkeypatch) -> None:
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, data[:100]))
    with LedgerFile.open(path) as ledger_file:
        ledger_file.append(release(3))
    with LedgerFile.open(path) as ledger_file:
        assert len(ledger_file.ledger) == 4


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_failed_write_is_not_counted_and_ends_the_object(
    path: Path, monkeypatch, call: str
) -> None:
    def full_disk(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with LedgerFile.open(path) as ledger_file:
        with monkeypatch.context() as patch:
            patch.setattr(ledger_module.os, call, full_disk)
            with pytest.raises(StorageError, match=r"E-LEDGER-WRITE.*No space left"):
                ledger_file.append(release(3))
        assert len(ledger_file.ledger) == 3
        with pytest.raises(StorageError, match="E-LEDGER-WRITE"):
            ledger_file.append(release(3))


def test_closed_ledger_takes_nothing(path: Path) -> None:
    ledger_file = LedgerFile.open(path)
    ledger_file.close()
    ledger_file.close()
    with pytest.raises(StorageError, match="E-LEDGER-WRITE"):
        ledger_file.append(release(3))


def test_session_is_charged_once(path: Path) -> None:
    before = path.read_bytes()
    with LedgerFile.open(path) as ledger_file, pytest.raises(LocalProtocolError):
        ledger_file.append(release(1))
    assert path.read_bytes() == before


@pytest.mark.parametrize("torn", [b"{", b'{"attempt":0', b"\0" * 300, b"\xff\xfe"])
def test_torn_last_line_is_set_aside_aloud(path: Path, caplog, torn: bytes) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    with caplog.at_level(logging.WARNING), LedgerFile.open(path) as ledger_file:
        assert ledger_file.torn_line is not None
        assert ledger_file.torn_line.size_bytes == len(torn)
        assert ledger_file.torn_line.path.read_bytes() == torn
        ledger_file.append(release(3))
    assert "set aside" in caplog.text
    assert path.read_bytes().startswith(whole)
    with LedgerFile.open(path) as ledger_file:
        assert len(ledger_file.ledger) == 4
        assert ledger_file.torn_line is None


def test_whole_entry_without_its_newline_is_torn_too(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    with LedgerFile.open(path) as ledger_file:
        assert len(ledger_file.ledger) == 2
        ledger_file.append(release(2))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content.replace(b'"attempt":0', b'"attempt":1', 1),
        lambda content: content[content.index(b"\n") + 1 :],
        lambda content: b"\0" * 50 + content[50:],
        lambda content: content + b"\n",
        lambda content: content + b"{}\n",
        lambda content: b"\xff" + content,
        lambda content: content.replace(b"\n", b"\r\n"),
        lambda content: content + content,
    ],
)
def test_any_other_damage_is_refused_and_left_alone(path: Path, damage) -> None:
    damaged = damage(path.read_bytes()) + b"torn as well"
    path.write_bytes(damaged)
    with pytest.raises(StorageError, match="E-LEDGER-DAMAGED") as caught:
        LedgerFile.open(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == damaged
    assert list(path.parent.iterdir()) == [path]
    # The lock is free again, or the repaired file could not be opened.
    path.write_bytes(b"")
    LedgerFile.open(path).close()


def test_witness_refuses_a_ledger_that_was_rolled_back(path: Path) -> None:
    with LedgerFile.open(path) as ledger_file:
        witness = (len(ledger_file.ledger), ledger_file.ledger.head)
        ledger_file.append(release(3))
    LedgerFile.open(path, witness).close()
    LedgerFile.open(path, (0, GENESIS_HASH)).close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    with pytest.raises(StorageError, match="E-LEDGER-ROLLED-BACK"):
        LedgerFile.open(path, witness)
    LedgerFile.open(path).close()


def test_unreadable_place_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="E-LEDGER-WRITE"):
        LedgerFile.open(tmp_path)
    with pytest.raises(StorageError, match="E-LEDGER-WRITE"):
        LedgerFile.create(tmp_path / "absent" / "ledger.jsonl")
