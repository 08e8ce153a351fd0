"""A gateway makes room for its clients as far as the system lets it."""

import subprocess
import sys

import pytest

CODE = """
import resource, sys
from broker.open_files import allow_connections
soft, hard, count = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(allow_connections(count), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "count", "room", "limit"),
    [
        (256, 4096, 1000, 1000, 1256),  # raised as far as is needed
        (256, 512, 1000, 256, 512),  # and as far as is allowed
        (2048, 4096, 100, 100, 2048),  # never lowered
        (272, 272, 1000, 16, 272),  # little room is still some
        (260, 260, 4, 4, 260),  # and whoever wants no more gets it
    ],
)
def test_room_is_made_within_the_hard_limit(
    soft: int, hard: int, count: int, room: int, limit: int
) -> None:
    """In a process of its own, for a hard limit cannot be raised again."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(soft), str(hard), str(count)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(room), str(limit)]


@pytest.mark.parametrize(("limit", "count"), [(64, 1000), (271, 20_000), (256, 4)])
def test_a_gateway_that_would_turn_its_devices_away_is_refused(limit: int, count: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(limit), str(limit), str(count)],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "E-OPEN-FILES" in done.stderr
