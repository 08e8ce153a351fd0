"""Bundles that end the process are run a few times and then no more; others always."""

import signal
import subprocess
import sys

import pytest

from edgefl.agent.deadly_bundles import MOST_DEATHS, DeadlyBundles
from edgefl.errors import TrainingError
from tests.unit.agent.test_learning import (
    BUNDLE,
    BUNDLE_BYTES,
    Plan,
    bytes_of,
    easy_data,
    make_learner,
    write,
)

DYING = """
import os, signal
from pathlib import Path
from edgefl.agent.deadly_bundles import DeadlyBundles
DeadlyBundles(Path({folder!r})).begin({sha256!r})
os.kill(os.getpid(), signal.SIGKILL)
"""


def die(folder, sha256):
    program = DYING.format(folder=str(folder), sha256=sha256)
    ended = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    return ended.returncode


def begun(folder, times, sha256="aa"):
    for _ in range(times):
        DeadlyBundles(folder).begin(sha256)


def test_a_process_that_is_killed_leaves_its_note(tmp_path):
    begun(tmp_path, MOST_DEATHS - 1)
    assert die(tmp_path, "aa") == -signal.SIGKILL
    with pytest.raises(TrainingError, match="E-BUNDLE-DEADLY"):
        DeadlyBundles(tmp_path).begin("aa")
    assert die(tmp_path, "aa") == 1


def test_another_bundle_is_run(tmp_path):
    begun(tmp_path, MOST_DEATHS)
    DeadlyBundles(tmp_path).begin("bb")
    # One note is enough: the gateway hands out one bundle at a time.
    DeadlyBundles(tmp_path).begin("aa")


def test_an_end_in_good_order_forgives(tmp_path):
    begun(tmp_path, MOST_DEATHS - 1)
    bundles = DeadlyBundles(tmp_path)
    bundles.begin("aa")
    bundles.end("aa")
    begun(tmp_path, MOST_DEATHS)


def test_only_the_first_training_of_a_process_is_noted(tmp_path):
    bundles = DeadlyBundles(tmp_path)
    bundles.begin("aa")
    bundles.end("aa")
    bundles.begin("aa")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 4000, b'{"sha256": "aa", "deaths": "9"}'])
def test_a_damaged_note_is_none(tmp_path, content):
    (tmp_path / "started.json").write_bytes(content)
    DeadlyBundles(tmp_path).begin("aa")


def test_without_a_place_for_the_note_training_goes_on(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    begun(tmp_path / "file" / "below", MOST_DEATHS + 1)


def test_a_learner_refuses_it_and_says_what_to_do(tmp_path):
    write(tmp_path / "data.npz", *easy_data())
    begun(tmp_path / "models", MOST_DEATHS, BUNDLE.sha256)
    learner = make_learner(tmp_path)
    with pytest.raises(TrainingError, match=r"remove .*started\.json"):
        learner.learn(Plan(), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    (tmp_path / "models" / "started.json").unlink()
    assert learner.learn(Plan(), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params)).examples == 40


def test_a_learner_leaves_no_note_behind_errors(tmp_path):
    write(tmp_path / "data.npz", *easy_data())
    for _ in range(MOST_DEATHS + 1):
        with pytest.raises(TrainingError, match="E-PARAMS-SHAPE"):
            make_learner(tmp_path).learn(Plan(), BUNDLE_BYTES, b"")
