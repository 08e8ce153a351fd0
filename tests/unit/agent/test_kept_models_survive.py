"""Kept models after power cuts and damage: none are mixed, and no round fails because of them."""

import itertools
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from edgefl.agent import models
from edgefl.agent.models import KeptModel, ModelRecord, ModelShelf
from edgefl.errors import StorageError, TrainingError
from edgefl.training.bundle import read_bundle
from edgefl.training.onnx.compile.bundle import compile_bundle
from tests.small_models import linear_model
from tests.unit.agent.test_learning import (
    BUNDLE,
    BUNDLE_BYTES,
    Plan,
    bytes_of,
    easy_data,
    make_learner,
    write,
)

OTHER_BYTES = compile_bundle(linear_model()).bundle_bytes
OTHER = read_bundle(OTHER_BYTES)
EMPTY = np.zeros(0, np.float32)


class PowerCutError(BaseException):
    """The board went dark."""


def keep(shelf, bundle, bundle_bytes, value):
    model = KeptModel(params=np.full(len(bundle.initial_params), value, np.float32), local=EMPTY)
    record = ModelRecord(task="t", bundle_sha256=bundle.sha256, good_round=int(value))
    shelf.keep(record, bundle=bundle_bytes, good=model, personal=model)


@pytest.mark.parametrize("is_torn", [False, True], ids=["before", "after"])
def test_a_power_cut_at_any_write_leaves_no_models_of_two_bundles(tmp_path, monkeypatch, is_torn):
    replace_file = models.replace_file
    for cut in itertools.count():
        shelf = ModelShelf(tmp_path / f"models{cut}")
        keep(shelf, BUNDLE, BUNDLE_BYTES, 1)
        writes = itertools.count()

        def cut_off(path, content, cut=cut, writes=writes):
            is_cut = next(writes) == cut
            if not is_cut or is_torn:
                replace_file(path, content)
            if is_cut:
                raise PowerCutError

        monkeypatch.setattr(models, "replace_file", cut_off)
        try:
            keep(shelf, OTHER, OTHER_BYTES, 2)
            break
        except PowerCutError:
            pass
        finally:
            monkeypatch.setattr(models, "replace_file", replace_file)
        record = shelf.record("t")
        if record is not None:
            assert shelf.bundle("t").sha256 == record.bundle_sha256
            assert len(shelf.good("t").params) == len(shelf.bundle("t").initial_params)
            assert len(shelf.personal("t").params) == len(shelf.bundle("t").initial_params)
    assert cut == 4


def spoil_with_zeros(path):
    path.write_bytes(bytes(path.stat().st_size))


def spoil_by_half(path):
    os.truncate(path, path.stat().st_size // 2)


def spoil_with_a_folder(path):
    path.unlink()
    path.mkdir()


def spoil_with_an_endless_file(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def spoil_with_a_lost_link(path):
    path.unlink()
    path.symlink_to("nowhere")


SPOILS = [
    spoil_with_zeros,
    spoil_by_half,
    spoil_with_a_folder,
    spoil_with_an_endless_file,
    spoil_with_a_lost_link,
]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    write(folder / "data.npz", *easy_data())
    make_learner(folder).learn(Plan(), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    return folder


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
@pytest.mark.parametrize("name", ["record.json", "bundle.efl", "good.npz", "personal.npz"])
def test_whatever_is_damaged_is_whole_again_after_the_next_round(kept, tmp_path, name, spoil):
    folder = Path(shutil.copytree(kept, tmp_path / "device"))
    spoil(folder / "models" / "t" / name)
    learner = make_learner(folder)
    learner.learn(Plan(round_number=2), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    shelf = ModelShelf(folder / "models")
    record = shelf.record("t")
    assert record.last_round == 2
    shelf.require_bundle(record)
    assert (
        shelf.good("t").params.shape
        == shelf.personal("t").params.shape
        == (BUNDLE.manifest.dimension,)
    )


@pytest.mark.parametrize("name", ["good.npz", "personal.npz"])
@pytest.mark.parametrize("size", [0, 3], ids=["none", "three"])
def test_kept_models_of_another_size_are_replaced(kept, tmp_path, name, size):
    folder = Path(shutil.copytree(kept, tmp_path / "device"))
    np.savez(folder / "models" / "t" / name, params=np.zeros(size, np.float32), local=EMPTY)
    learner = make_learner(folder)
    learner.learn(Plan(round_number=2), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    assert ModelShelf(folder / "models").record("t").personal_round == 2


def test_kept_values_that_are_no_numbers_are_damage(kept, tmp_path):
    folder = Path(shutil.copytree(kept, tmp_path / "device"))
    spoiled = np.full(BUNDLE.manifest.dimension, np.nan, np.float32)
    np.savez(folder / "models" / "t" / "good.npz", params=spoiled, local=EMPTY)
    with pytest.raises(StorageError, match="E-MODEL-DAMAGED"):
        ModelShelf(folder / "models").good("t")


@pytest.mark.parametrize("content", [b"", b"12345", bytes(8)], ids=["none", "odd", "few"])
def test_parameters_of_any_length_raise_one_of_our_errors(kept, tmp_path, content):
    folder = Path(shutil.copytree(kept, tmp_path / "device"))
    with pytest.raises(TrainingError, match="E-PARAMS-SHAPE"):
        make_learner(folder).learn(Plan(), BUNDLE_BYTES, content)
