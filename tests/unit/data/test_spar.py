"""The shipped recordings: the right bytes, the right people, nobody in two places."""

import hashlib
from importlib.resources import files

import numpy as np
import pytest

from edgefl.data import (
    HELD_OUT_PERSONS,
    TRAINING_PERSONS,
    Arm,
    device_shard,
    held_out,
    load_npz,
    load_spar,
    save_npz,
    spar,
)
from edgefl.errors import DataError

FILE_SHA256 = "a4ae6f4c7f01dd927ff141582596e1059c9b1e4c654d2d6f552c4a69af52393d"


def test_the_shipped_file_is_the_one_the_script_wrote():
    shipped = files("edgefl.data").joinpath("spar.npz").read_bytes()
    assert hashlib.sha256(shipped).hexdigest() == FILE_SHA256
    assert len(shipped) <= 580_000


def test_licence_and_source_ship_beside_it():
    folder = files("edgefl.data")
    assert "Redistribution and use" in folder.joinpath("SEGLEARN_LICENSE.txt").read_text()
    attribution = folder.joinpath("ATTRIBUTION.md").read_text()
    assert "arXiv:1802.01489" in attribution
    assert "seglearn" in attribution


def test_shapes_types_and_units():
    data = load_spar()
    assert data.windows.shape == (1833, 64, 6)
    assert data.windows.dtype == np.float32
    assert data.labels.dtype == np.int64
    assert set(data.labels.tolist()) == set(range(7)) == set(range(spar.CLASSES))
    # A watch at rest or in slow motion feels about 1 g.
    strength = np.linalg.norm(data.windows[:, :, :3], axis=2)
    assert 0.9 < np.median(strength) < 1.1


def test_the_right_arm_speaks_in_terms_of_the_left():
    shipped = files("edgefl.data").joinpath("spar.npz")
    with shipped.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        right = archive["side"] == 1
        raw = archive["window"][right] / np.float32(32)
    mirrored = load_spar().windows[right]
    assert np.array_equal(mirrored * [-1, 1, 1, 1, -1, -1], raw)
    # With arms hanging, both watches' x axes then feel gravity with one sign.
    pendulum = spar.persons(TRAINING_PERSONS)
    rows = pendulum.x[pendulum.y == 0, :, 0].mean(axis=1)
    assert (rows > 0).mean() > 0.9


def test_every_person_and_arm_holds_every_exercise():
    total = 0
    for person in (*TRAINING_PERSONS, *HELD_OUT_PERSONS):
        for arm in Arm:
            shard = device_shard(person, arm)
            assert 50 <= shard.examples <= 120
            assert set(shard.y.tolist()) == set(range(7))
            total += shard.examples
    assert total == 1833


def test_held_out_persons_are_nine_and_ten_and_train_nothing():
    assert HELD_OUT_PERSONS == (9, 10)
    assert not set(HELD_OUT_PERSONS) & set(TRAINING_PERSONS)
    evaluation = held_out()
    assert evaluation.examples == 392
    training = {row.tobytes() for row in spar.persons(TRAINING_PERSONS).x}
    assert not training & {row.tobytes() for row in evaluation.x}


def test_the_shared_arrays_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        load_spar().windows[0] = 0


def test_unknown_persons_are_refused():
    with pytest.raises(DataError, match=r"E-DATA-PERSON.*11"):
        device_shard(11, Arm.LEFT)


def test_a_damaged_installation_gives_one_line(tmp_path, monkeypatch):
    (tmp_path / "spar.npz").write_bytes(b"PK\x03\x04 torn")
    monkeypatch.setattr(spar, "files", lambda _: tmp_path)
    load_spar.cache_clear()
    try:
        with pytest.raises(DataError, match="E-DATA-DAMAGED") as caught:
            load_spar()
        assert "\n" not in str(caught.value)
    finally:
        load_spar.cache_clear()


def test_a_shard_survives_its_file(tmp_path):
    shard = device_shard(3, Arm.RIGHT)
    save_npz(tmp_path / "shard.npz", shard)
    read = load_npz(tmp_path / "shard.npz", input_shape=spar.INPUT_SHAPE, classes=spar.CLASSES)
    assert np.array_equal(read.x, shard.x)
    assert np.array_equal(read.y, shard.y)
