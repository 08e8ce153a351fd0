"""Local training for rounds: fresh data, kept models, roll-back, and data that will not do."""

import dataclasses
import sqlite3
from contextlib import closing
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


def test_without_data_rounds_are_declined_until_some_are_seen(tmp_path, caplog):
    nothing = np.zeros((0, 12), np.float32), np.zeros(0, np.int64)
    write(tmp_path / "data.npz", *nothing)
    learner = make_learner(tmp_path)
    assert learner.has_data
    learner.look()
    learner.look_again()
    assert not learner.has_data
    assert caplog.text.count("rounds are declined") == 1
    write(tmp_path / "data.npz", *easy_data())
    learner.look_again()
    assert learner.has_data
    write(tmp_path / "data.npz", *nothing)
    with pytest.raises(DataError, match="E-DATA-EMPTY") as caught:
        learner.learn(Plan(), BUNDLE_BYTES, bytes_of(BUNDLE.initial_params))
    assert not is_misfit(caught.value)
    assert not learner.has_data


def test_looking_takes_a_hundredth_of_the_time_at_most(tmp_path):
    ticks = iter([0.0, 0.05, 100.0, 102.5])
    learner = make_learner(
        tmp_path,
        source=open_source(str(tmp_path / "none.npz")),
        cpu_s=lambda: next(ticks),
    )
    learner.look_again()
    assert learner.pause_s == 10
    learner.look_again()
    assert learner.pause_s == pytest.approx(250)


SETTINGS = {
    "csv": '[source]\nkind = "csv"\npath = "log"\n{rows}',
    "sqlite": '[source]\nkind = "sqlite"\npath = "log.db"\ntable = "log"\n{rows}',
    "npz": '[source]\nkind = "npz"\npath = "log.npz"\n',
    "python": '[source]\nkind = "python"\nentry = "log.py:log"\n',
}
ROWS = '[columns]\nchannels = ["a"]\nlabel = "k"\n[window]\nlength = 1\n'


def described(tmp_path, kind):
    (tmp_path / "sensor.toml").write_text(SETTINGS[kind].format(rows=ROWS))
    return make_learner(tmp_path, source=open_source(str(tmp_path / "sensor.toml")))


@pytest.mark.parametrize("kind", ["csv", "sqlite", "npz"])
def test_what_a_settings_file_names_may_come_later(tmp_path, kind):
    learner = described(tmp_path, kind)
    learner.look()
    assert not learner.has_data


@pytest.mark.parametrize("name", ["log.csv", "log.db:log", "log.npz"])
def test_a_path_in_a_command_line_must_be_there(tmp_path, name):
    learner = make_learner(tmp_path, source=open_source(str(tmp_path / name)))
    with pytest.raises(DataError, match="E-DATA-MISSING"):
        learner.look()


def test_code_that_is_missing_does_not_come_later(tmp_path):
    with pytest.raises(DataError, match="E-DATA-PYTHON"):
        described(tmp_path, "python").look()


@pytest.mark.parametrize("content", ["", "a,k", "a,k\n", "a,k\n1,\n"])
def test_a_file_without_rows_yet_is_waited_for(tmp_path, content):
    (tmp_path / "log.csv").write_text(content.replace("k", "label"))
    learner = make_learner(tmp_path, source=open_source(str(tmp_path / "log.csv")))
    learner.look()
    assert not learner.has_data
    with (tmp_path / "log.csv").open("w") as file:
        file.write("a,label\n1,0\n")
    learner.look_again()
    assert learner.has_data


def test_a_database_without_tables_or_held_by_its_logger_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("edgefl.data.sqlite_rows._WAIT_S", 0.05)
    learner = described(tmp_path, "sqlite")
    with closing(sqlite3.connect(tmp_path / "log.db", isolation_level=None)) as database:
        learner.look()
        assert not learner.has_data
        database.execute("CREATE TABLE log (a, k)")
        database.execute("BEGIN EXCLUSIVE")
        database.execute("INSERT INTO log VALUES (1, 0)")
        learner.look()
        assert not learner.has_data
        database.execute("COMMIT")
        learner.look_again()
        assert learner.has_data
        database.execute("ALTER TABLE log RENAME TO lag")
    with pytest.raises(DataError, match="E-DATA-TABLE"):
        learner.look()


@pytest.mark.parametrize("kind", ["csv", "sqlite", "npz"])
def test_what_is_there_but_wrong_stops_at_the_start(tmp_path, kind):
    if kind == "npz":
        np.savez(tmp_path / "log.npz", z=[1])
    elif kind == "csv":
        (tmp_path / "log").mkdir()
        (tmp_path / "log" / "1.csv").write_text("b,k\n1,0\n")
    else:
        (tmp_path / "log.db").mkdir()
    with pytest.raises(DataError, match=r"E-DATA-(KEYS|COLUMN|UNREADABLE)"):
        described(tmp_path, kind).look()


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
