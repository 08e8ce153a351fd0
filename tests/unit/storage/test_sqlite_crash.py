"""kill -9 at any moment: every acknowledged write is there, and no half transaction."""

import signal
import subprocess
import sys
import time

import pytest

from edgefl.storage.sqlite import open_sqlite

WRITER = """
import sys
from pathlib import Path
from edgefl.storage.sqlite import open_sqlite
store = open_sqlite(Path(sys.argv[1]))
number = 0
while True:
    store.put_many({f"a{number}": bytes(1000), f"b{number}": bytes(1000), f"a{number - 5}": None})
    print(number, flush=True)
    number += 1
"""

MAKER = """
import sys
from pathlib import Path
from edgefl.storage.sqlite import open_sqlite
print("ready", flush=True)
open_sqlite(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("life_s", [0.0, 0.05, 0.2])
def test_acknowledged_writes_survive_kill_9(tmp_path, life_s):
    path = tmp_path / "state.db"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "0\n"
        time.sleep(life_s)
    finally:
        writer.kill()
        rest, _ = writer.communicate()
    assert writer.returncode == -signal.SIGKILL
    acknowledged = [0, *[int(line) for line in rest.split()]]
    last = acknowledged[-1]
    store = open_sqlite(path)
    stored = {int(key[1:]) for key in store.keys("b")}
    assert stored >= set(acknowledged)
    assert max(stored) <= last + 1  # one may be committed and not yet said
    newest = max(stored)
    assert {int(key[1:]) for key in store.keys("a")} == set(range(max(0, newest - 4), newest + 1))
    store.close()


def test_a_kill_while_the_file_is_made_leaves_no_half_made_one(tmp_path):
    for number in range(6):
        path = tmp_path / f"{number}.db"
        maker = subprocess.Popen(
            [sys.executable, "-c", MAKER, str(path)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert maker.stdout is not None
            maker.stdout.readline()
            time.sleep(0.002 * number)
        finally:
            maker.kill()
            maker.communicate()
        open_sqlite(path).close()
