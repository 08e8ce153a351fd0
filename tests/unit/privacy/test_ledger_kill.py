"""SIGKILL at every point of an append: what was acknowledged is there, nothing else is believed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker.ledger import LedgerFile
from edgefl.privacy.accounting import gaussian_rdp
from edgefl.privacy.ledger import Release

ACKNOWLEDGED_BEFORE = 3

# Runs in a process of its own: appends for ever, tells each finished append on stdout, and kills
# itself at the named point of append number ACKNOWLEDGED_BEFORE.
CHILD = """
import os, signal, sys
from pathlib import Path
from broker.ledger import LedgerFile
from edgefl.privacy.accounting import gaussian_rdp
from edgefl.privacy.ledger import Release

path, point, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
real_write, real_sync = os.write, os.fsync
number = 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def write(descriptor, data):
    if number == last and point == "before write":
        die()
    if number == last and point == "half written":
        real_write(descriptor, data[: len(data) // 2])
        die()
    if number == last and point == "newline missing":
        real_write(descriptor, data[:-1])
        die()
    return real_write(descriptor, data)

def sync(descriptor):
    if number == last and point == "before sync":
        die()
    real_sync(descriptor)
    if number == last and point == "after sync":
        die()

ledger_file = LedgerFile.create(path)
os.write, os.fsync = write, sync
while True:
    ledger_file.append(
        Release(
            task="arm", round_number=number, attempt=0, session_id=f"{number:064x}",
            mechanism="skellam", z_effective=1.0, n_survivors=10, colluders=1,
            rdp=gaussian_rdp(1.0),
        )
    )
    real_write(1, b"%d\\n" % number)
    number += 1
"""


def start(path: Path, point: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), point, str(ACKNOWLEDGED_BEFORE)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )


def append_once_more(ledger_file: LedgerFile) -> None:
    number = len(ledger_file.ledger)
    ledger_file.append(
        Release(
            task="arm",
            round_number=number,
            attempt=1,
            session_id=f"{number + 1000:064x}",
            mechanism="skellam",
            z_effective=1.0,
            n_survivors=10,
            colluders=1,
            rdp=gaussian_rdp(1.0),
        )
    )


@pytest.mark.parametrize(
    ("point", "entries", "is_torn"),
    [
        ("before write", 3, False),
        ("half written", 3, True),
        ("newline missing", 3, True),
        ("before sync", 4, False),
        ("after sync", 4, False),
    ],
)
def test_kill_at_a_point_of_append(tmp_path: Path, point: str, entries: int, is_torn: bool) -> None:
    path = tmp_path / "ledger.jsonl"
    with start(path, point) as child:
        output, _ = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL
    assert output.split() == [b"0", b"1", b"2"]
    with LedgerFile.open(path) as ledger_file:
        # The kernel outlives the process: a complete line counts though it was never acknowledged,
        # which charges too much rather than too little.
        assert len(ledger_file.ledger) == entries
        assert (ledger_file.torn_line is not None) == is_torn
        append_once_more(ledger_file)
    with LedgerFile.open(path) as ledger_file:
        assert len(ledger_file.ledger) == entries + 1


def test_kill_from_outside_loses_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with start(path, "nowhere") as child:
        assert child.stdout is not None
        acknowledged = [int(child.stdout.readline()) for _ in range(25)]
        child.kill()
        rest, _ = child.communicate(timeout=60)
    acknowledged += [int(line) for line in rest.split()]
    with LedgerFile.open(path) as ledger_file:
        numbers = [entry.release.round_number for entry in ledger_file.ledger.entries]
    assert numbers[: len(acknowledged)] == acknowledged
    assert len(numbers) <= len(acknowledged) + 1
