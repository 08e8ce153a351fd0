"""Local training for rounds: fresh data, kept models, roll-back, and data that will not do."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from edgefl.agent.learning import LocalLearner, is_misfit, split_rows
from edgefl.agent.models import ModelShelf
from edgefl.data.source import open_source
from edgefl.errors import DataError, EnvironmentProblem
from edgefl.protocol.plan import TrainingPlan
from edgefl.training.backends import Backend, ProbedBackend
from edgefl.training.base import TrainingData
from edgefl.training.bundle import read_bundle
from edgefl.training.kinds import Runtime
from edgefl.training.selftest import PROBE_CASE, load_case
from edgefl.training.selftest_cases import __file__ as CASES  # noqa: N812

BUNDLE_BYTES = (Path(CASES).parent / f"{PROBE_CASE}.efl").read_bytes()
BUNDLE = read_bundle(BUNDLE_BYTES)
TERMS = TrainingPlan(local_epochs=3, batch_size=8, learning_rate=0.1)
ABLE = (ProbedBackend(backend=Backend(runtime=Runtime.ONNX), infers=True, trains=True),)


@dataclasses.dataclass
class Plan:
    """The fields of a session plan that training reads."""

    round_number: int = 1
    task: str = "t"
    bundle_sha256: bytes = bytes.fromhex(BUNDLE.sha256)
    training: TrainingPlan = TERMS


def easy_data(rows=40, seed=0):
    """Labels that a small net can learn: the largest of five inputs."""
    x = np.random.default_rng(seed).normal(size=(rows, 12)).astype(np.float32)
    return x, x[:, :5].argmax(1)


def write(path, x, y):
    np.savez(path, x=x, y=y)
    return path


@pytest.fixture
def learner(tmp_path):
    write(tmp_path / "data.npz", *easy_data())
    return make_learner(tmp_path)


def make_learner(tmp_path, **changes):
    fields = {
        "source": open_source(str(tmp_path / "data.npz")),
        "shelf": ModelShelf(tmp_path / "models"),
        "able": ABLE,
    }
    return LocalLearner(**(fields | changes))


def bytes_of(params):
    return params.astype("<f4").tobytes()


def test_an_update_is_trained_minus_received(learner, tmp_path):
    learned = learner.learn(Plan(), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    assert learned.examples == 40
    assert str(learned.backend) == "onnx/cpu"
    own = ModelShelf(tmp_path / "models").personal("t")
    np.testing.assert_allclose(own.params, BUNDLE.initial_params + learned.update, atol=1e-6)


def test_the_source_is_read_anew_for_each_round(learner, tmp_path):
    learner.learn(Plan(), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    write(tmp_path / "data.npz", *easy_data(rows=55))
    learned = learner.learn(Plan(round_number=2), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    assert learned.examples == 55


def test_the_record_says_what_is_kept(learner, tmp_path):
    learner.learn(Plan(round_number=7), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    record = ModelShelf(tmp_path / "models").record("t")
    assert (record.good_round, record.personal_round, record.last_round) == (7, 7, 7)
    assert record.backend == "onnx/cpu"
    assert not record.is_rolled_back
    assert record.personal_loss < record.good_loss


def test_a_worse_global_model_is_not_served(learner, tmp_path):
    shelf = ModelShelf(tmp_path / "models")
    good = BUNDLE.initial_params
    learner.learn(Plan(round_number=1), BUNDLE_BYTES, bytes_of(good))
    learned = learner.learn(Plan(round_number=2), BUNDLE_BYTES, bytes_of(good * 40))
    record = shelf.record("t")
    assert (record.good_round, record.is_rolled_back, record.last_round) == (1, True, 2)
    assert np.array_equal(shelf.good("t").params, good)
    # The device still trains from what it received.
    assert np.abs(learned.update).max() > 0
    learner.learn(Plan(round_number=3), BUNDLE_BYTES, bytes_of(good))
    record = shelf.record("t")
    assert (record.good_round, record.is_rolled_back) == (3, False)


def test_a_worse_model_of_ones_own_is_not_kept(learner, tmp_path):
    shelf = ModelShelf(tmp_path / "models")
    gentle, wild = Plan(round_number=1), Plan(round_number=2)
    learner.learn(gentle, BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    before = shelf.personal("t")
    wild.training = dataclasses.replace(wild.training, learning_rate=30.0)
    learner.learn(wild, BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    assert np.array_equal(shelf.personal("t").params, before.params)
    assert shelf.record("t").personal_round == 1


def test_models_of_another_bundle_are_replaced(learner, tmp_path):
    shelf = ModelShelf(tmp_path / "models")
    learner.learn(Plan(), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    other = dataclasses.replace(shelf.record("t"), bundle_sha256="00" * 32, good_loss=0.0)
    shelf.keep(other)
    learner.learn(Plan(round_number=5), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params * 2))
    assert shelf.record("t").good_round == 5
    assert shelf.record("t").bundle_sha256 == BUNDLE.sha256


def test_damaged_models_begin_anew(learner, tmp_path):
    learner.learn(Plan(), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    (tmp_path / "models" / "t" / "good.npz").write_bytes(b"garbled")
    learner.learn(Plan(round_number=2), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    assert ModelShelf(tmp_path / "models").record("t").good_round == 2


def test_a_full_disk_costs_no_update(learner, monkeypatch, caplog):
    from edgefl.errors import StorageError

    def full(*_, **__):
        raise StorageError("E-MODEL-WRITE", "room", "none")

    monkeypatch.setattr(ModelShelf, "keep", full)
    learned = learner.learn(Plan(), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    assert np.abs(learned.update).max() > 0
    assert "E-MODEL-WRITE" in caplog.text


def test_no_data_declines_rounds_for_a_while(tmp_path):
    nothing = np.zeros((0, 12), np.float32), np.zeros(0, np.int64)
    write(tmp_path / "data.npz", *nothing)
    now = [100.0]
    learner = make_learner(tmp_path, now_s=lambda: now[0])
    learner.look()
    assert not learner.has_data
    now[0] += 61
    assert learner.has_data  # Time to look again.
    with pytest.raises(DataError, match="E-DATA-EMPTY") as caught:
        learner.learn(Plan(), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    assert not is_misfit(caught.value)
    assert not learner.has_data


def test_data_of_another_shape_are_a_misfit(tmp_path):
    write(tmp_path / "data.npz", np.zeros((5, 3), np.float32), np.zeros(5, np.int64))
    with pytest.raises(DataError) as caught:
        make_learner(tmp_path).learn(Plan(), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    assert is_misfit(caught.value)


def test_a_bundle_for_another_library_is_named(tmp_path):
    write(tmp_path / "data.npz", *easy_data())
    with pytest.raises(EnvironmentProblem, match="E-BUNDLE-RUNTIME"):
        make_learner(tmp_path, able=()).learn(Plan(), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))


@pytest.mark.parametrize(
    ("rows", "share", "measured"), [(40, 0.25, 10), (40, 0.0, 40), (3, 0.2, 3)]
)
def test_rows_to_measure_with_are_spread_and_apart(rows, share, measured):
    x, y = easy_data(rows)
    training, validation = split_rows(TrainingData(x=x, y=y), share)
    assert validation.examples == measured
    if measured < rows:
        assert training.examples + validation.examples == rows
        both = np.concatenate([training.x, validation.x])
        assert {row.tobytes() for row in both} == {row.tobytes() for row in x}
        assert np.array_equal(validation.x[[0, -1]], x[[0, -1]])


def test_only_rows_to_train_on_are_trained_on(tmp_path):
    write(tmp_path / "data.npz", *easy_data())
    learned = make_learner(tmp_path, validation_share=0.5).learn(
        Plan(), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params)
    )
    assert learned.examples == 20
    assert load_case(PROBE_CASE).bundle.sha256 == BUNDLE.sha256
