"""What is said of a reading, and that it is said only when it is so."""

import numpy as np
import pytest

from edgefl.data.check import judge
from edgefl.data.reading import LeftOut, Reading
from edgefl.data.schema import DataSchema, schema_of
from edgefl.training.bundle import read_bundle
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model

RNG = np.random.default_rng(5)
SCHEMA = DataSchema(input_shape=(8, 3), classes=3)


def reading(count=60, **changes):
    x = RNG.normal(size=(count, 8, 3)).astype(np.float32)
    known = {
        "x": x,
        "y": np.arange(count, dtype=np.int64) % 3,
        "channels": ("a", "b", "c"),
        "channel_axis": 2,
        "rows": count * 8,
    }
    return Reading(**(known | changes))


def warnings(one, schema=SCHEMA):
    return " / ".join(judge(one, schema, "mine").warnings)


def test_good_data_are_given_no_warning():
    found = judge(reading(), SCHEMA, "mine")
    assert found.warnings == ()
    assert found.problems == ()
    assert found.classes == (20, 20, 20)
    assert found.memory_bytes == 60 * 8 * 3 * 4 + 60 * 8
    assert [channel.name for channel in found.channels] == ["a", "b", "c"]


def test_ranges_are_those_of_the_channel():
    one = reading()
    one.x[3, 2, 1], one.x[4, 5, 1] = -50, 60
    channel = judge(one, SCHEMA, "mine").channels[1]
    assert (channel.least, channel.most) == (-50, 60)
    turned = judge(reading(x=one.x.transpose(0, 2, 1).copy(), channel_axis=1), None, "mine")
    assert turned.channels[1] == channel
    flat = judge(reading(channel_axis=None), None, "mine").channels
    assert [channel.name for channel in flat] == ["all"]


def test_a_channel_that_never_changes():
    one = reading()
    one.x[:, :, 2] = 1.0
    assert "channel c never changes" in warnings(one)
    assert "range" not in warnings(one)


def test_a_sensor_at_the_end_of_its_range():
    one = reading()
    np.clip(one.x[:, :, 0], -1.5, 1.5, out=one.x[:, :, 0])
    assert "channel a is at an end of its range in 1" in warnings(one)
    # A motion that turns round slowly dwells near its ends, where no sensor cuts it.
    swing = np.sin(np.arange(60 * 8) / 7).reshape(60, 8)
    one.x[:, :, 0] = np.round(swing, 2)
    assert (one.x[:, :, 0] == 1).mean() > 0.02
    assert warnings(one) == ""
    # A switch has few values, which says nothing about its range.
    one.x[:, :, 0] = one.x[:, :, 0] > 0
    assert warnings(one) == ""


def test_missing_values():
    assert "channel b has no finite number in 10 % of the rows" in warnings(
        reading(faulty_values={"b": 48})
    )
    assert warnings(reading(faulty_values={"b": 4})) == ""


def test_examples_that_are_not_finite_are_a_problem():
    one = reading()
    one.x[2, 1, 0] = np.nan
    (problem,) = judge(one, SCHEMA, "mine").problems
    assert problem.code == "E-DATA-NOT-FINITE"
    one.x[:] = np.nan
    channel = judge(one, SCHEMA, "mine").channels[0]
    assert channel.faulty_share == 1


def test_every_misfit_is_named():
    found = judge(reading(y=np.full(60, 3)), DataSchema(input_shape=(9, 3), classes=3), "mine")
    assert [problem.code for problem in found.problems] == ["E-DATA-SHAPE", "E-DATA-LABEL"]
    values = judge(reading(), DataSchema(input_shape=(8, 3), values=2), "mine")
    assert [problem.code for problem in values.problems] == ["E-DATA-SHAPE"]
    (negative,) = judge(reading(y=np.full(60, -1)), SCHEMA, "mine").problems
    assert negative.code == "E-DATA-LABEL"
    tokens = DataSchema(input_shape=(8, 3), classes=3, takes_tokens=True)
    assert [one.code for one in judge(reading(), tokens, "mine").problems] == ["E-DATA-DTYPE"]
    labels = judge(reading(y=np.zeros((60, 1), np.float32)), SCHEMA, "mine")
    assert [problem.code for problem in labels.problems] == ["E-DATA-DTYPE"]
    assert labels.classes == ()


def test_no_example_is_a_problem_with_its_reasons():
    found = judge(
        reading(0, rows=8, left_out={LeftOut.UNLABELLED: 8}, channels=("a", "b", "c")),
        SCHEMA,
        "mine",
    )
    assert found.problems[0].code == "E-DATA-EMPTY"
    assert "rows without a label: 8" in found.problems[0].found
    assert found.warnings == ("no row has a label; training needs them",)


def test_classes():
    assert "no example of class 1" in warnings(reading(y=np.arange(60) % 2 * 2))
    named = reading(y=np.arange(60) % 2 * 2, class_names=("rest", "walk", "run"))
    assert "no example of class 1 (walk)" in warnings(named)
    lopsided = np.zeros(60, np.int64)
    lopsided[:2] = 1, 2
    assert "58 of 60 examples are of class 0" in warnings(reading(y=lopsided))
    two_names = reading(class_names=("rest", "walk"))
    assert warnings(two_names) == "2 names of classes for a model of 3"
    assert "only 6 examples" in warnings(reading(6))


def test_rows_and_labels():
    one = reading(
        clock_steps=2,
        skipped_bytes=9,
        class_names=("rest", "walk", "run"),
        unknown_labels={"wlak": 3},
        notes=("a note",),
    )
    found = warnings(one)
    assert "time went backwards 2 times" in found
    assert "9 bytes of older recordings" in found
    assert "label 'wlak' of 3 rows is not in the list of classes; did you mean walk?" in found
    assert found.endswith("a note")


@pytest.fixture(scope="module")
def manifest():
    return read_bundle(compile_bundle(demo_model(0)).bundle_bytes).manifest


def test_the_schema_of_a_bundle(manifest):
    assert schema_of(manifest) == DataSchema(input_shape=(64, 6), classes=7)
