"""A damaged ledger is written anew from the rows in the state file, or the gateway stays down."""

from pathlib import Path

import pytest

from broker.ledger_store import LEDGER_FILE, LedgerCopy, WitnessedLedger, open_ledger
from edgefl.errors import StorageError
from edgefl.storage.batch import BatchStore
from edgefl.storage.memory import MemoryStore
from tests.ledger_rows import release


class Fleet:
    """A ledger and the state beside it, over several lives of a gateway."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LEDGER_FILE
        self.durable = MemoryStore("gateway")

    def life(self, *attempts: int, lost: tuple[int, ...] = (), is_state_older: bool = False) -> int:
        """Open, charge these attempts, and return how many rows there are.

        The batch of the lost ones is not stored.
        """
        store = BatchStore(self.durable, namespace="gateway")
        copy = LedgerCopy(store)
        with open_ledger(self.path, copy, is_state_older=is_state_older) as file:
            ledger = WitnessedLedger(file, copy)
            for attempt in attempts:
                ledger.append(release(attempt=attempt))
            store.batch.commit()
            for attempt in lost:
                ledger.append(release(attempt=attempt))
            return len(ledger.ledger)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    fleet = Fleet(tmp_path)
    assert fleet.life(1, 2, 3) == 3
    return fleet


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "bit":
        path.write_bytes(content.replace(b'"attempt":2', b'"attempt":7'))
    elif how == "cut":
        path.write_bytes(b"".join(content.splitlines(keepends=True)[:1]))
    elif how == "garbage":
        path.write_bytes(b"\x00\xff" * 300 + b"\n")
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["bit", "cut", "garbage", "gone"])
def test_a_damaged_ledger_is_written_anew_with_every_row(fleet: Fleet, how: str) -> None:
    whole = fleet.path.read_bytes()
    damage(fleet.path, how)
    found = fleet.path.read_bytes() if fleet.path.exists() else None
    assert fleet.life() == 3
    assert fleet.path.read_bytes() == whole
    assert fleet.path.stat().st_mode & 0o077 == 0
    aside = fleet.path.with_name(f"{LEDGER_FILE}.damaged-1")
    assert (aside.read_bytes() if aside.exists() else None) == found
    assert fleet.life(4) == 4


def test_a_row_whose_batch_was_lost_is_kept(fleet: Fleet) -> None:
    assert fleet.life(lost=(4,)) == 4
    assert fleet.life() == 4
    damage(fleet.path, "gone")
    assert fleet.life() == 4, "the next life repeated it in the state"


def test_a_row_beyond_the_copy_survives_damage_behind_it(fleet: Fleet) -> None:
    assert fleet.life(lost=(4,)) == 4
    with fleet.path.open("ab") as file:
        file.write(b"not a row\n")
    assert fleet.life() == 4


def test_a_damaged_ledger_beside_an_older_state_keeps_the_gateway_down(fleet: Fleet) -> None:
    damage(fleet.path, "bit")
    before = fleet.path.read_bytes()
    with pytest.raises(StorageError, match="E-LEDGER-DAMAGED"):
        fleet.life(is_state_older=True)
    assert fleet.path.read_bytes() == before


def test_a_whole_ledger_beside_an_older_state_is_taken_as_it_is(fleet: Fleet) -> None:
    older = MemoryStore("gateway", file=fleet.durable._file).reopened()
    older.namespace("ledger").delete("row/00000002")
    older.delete("ledger-witness")
    fleet.durable = older
    assert fleet.life(is_state_older=True) == 3


def test_a_copy_with_a_gap_mends_nothing(fleet: Fleet) -> None:
    fleet.durable.namespace("ledger").delete("row/00000001")
    damage(fleet.path, "bit")
    with pytest.raises(StorageError, match="E-LEDGER-DAMAGED"):
        fleet.life()


def test_a_ledger_of_another_history_is_replaced_by_the_one_that_was_charged(
    fleet: Fleet, tmp_path: Path
) -> None:
    whole = fleet.path.read_bytes()
    (tmp_path / "other").mkdir()
    other = Fleet(tmp_path / "other")
    other.life(8, 9, 10, 11)
    fleet.path.write_bytes(other.path.read_bytes())
    assert fleet.life() == 3
    assert fleet.path.read_bytes() == whole


def test_a_ledger_without_a_state_is_not_mended(fleet: Fleet) -> None:
    fleet.durable = MemoryStore("gateway")
    damage(fleet.path, "bit")
    with pytest.raises(StorageError, match="E-LEDGER-DAMAGED"):
        fleet.life()
