"""An emulated 64-bit ARM board with the wheel of `scripts/wheel`, in a fleet with others."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.real import LiveFleet, agent_words, wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

_ROOT = Path(__file__).parents[2]
_EMULATED_S = 600.0
"""Everything takes twenty times as long on it."""


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `edgefl` of the board."""
    folder = Path(os.environ.get("EDGEFL_ARM_BOARD", tmp_path_factory.mktemp("arm") / "board"))
    subprocess.run([_ROOT / "scripts" / "arm-board", folder], check=True)
    return folder / "edgefl"


def test_its_cryptography_gives_the_standards_values(board: Path) -> None:
    ended = subprocess.run(
        [board, "selftest", "crypto"], capture_output=True, text=True, timeout=_EMULATED_S
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_it_trains_and_masks_in_a_round_with_boards_of_another_kind(
    board: Path, tmp_path: Path
) -> None:
    with LiveFleet(tmp_path, devices=2) as fleet:
        words = agent_words(tmp_path / "arm", fleet.port, "--max-epsilon", 10_000, device="arm")
        with subprocess.Popen([board, *map(str, words), "--ignore-power"]) as agent:
            try:
                fleet.submit("mixed", "--rounds", 1, "--phase-limit-s", _EMULATED_S)
                wait_until(
                    lambda: any(event["kind"] == "round" for event in fleet.events()),
                    "a round",
                    timeout_s=_EMULATED_S,
                )
            finally:
                agent.terminate()
        closed = next(event for event in fleet.events() if event["kind"] == "round")
        assert (closed["outcome"], closed["survivors"]) == ("COMMITTED", 3), json.dumps(closed)
