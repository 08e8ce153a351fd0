"""TFLite files: what is written can be read back, and bytes of strangers cannot do harm."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.errors import TrainingError
from edgefl.training.litert.compile.lower import lower_entries
from edgefl.training.litert.format.decode import read_model
from edgefl.training.litert.format.encode import write_model
from edgefl.training.litert.format.kinds import OPTION_TABLES, Builtin, FieldKind, TensorType
from edgefl.training.litert.format.model import (
    ModelFile,
    Operator,
    Scales,
    Signature,
    Subgraph,
    Tensor,
)
from edgefl.training.litert.format.outline import (
    read_outline,
    require_builtins,
    require_inputs_of_rank,
)
from edgefl.training.litert.format.parts import Node, Nodes, Numbers, write_file
from edgefl.training.litert.format.tables import FileBytes
from tests.unit.training.litert.nets import sound_net

SAMPLES = {
    FieldKind.INT8: 3,
    FieldKind.BOOL: True,
    FieldKind.INT32: 7,
    FieldKind.FLOAT32: 0.5,
    FieldKind.INT32S: (1, -2, 3),
    FieldKind.TEXT: "state",
}


def small_model(code=Builtin.ADD, shape=(2, 3), **options):
    content = np.arange(np.prod(shape), dtype=np.float32).tobytes()
    subgraph = Subgraph(
        name="small",
        tensors=[
            Tensor(shape=shape, kind=TensorType.FLOAT32, name="x"),
            Tensor(shape=shape, kind=TensorType.FLOAT32, content=content),
            Tensor(
                shape=shape,
                kind=TensorType.INT8,
                scales=Scales(scales=(0.5, 0.25), zero_points=(-3, 4), axis=0),
                is_variable=True,
            ),
        ],
        inputs=[0],
        outputs=[2],
        operators=[
            Operator(code=code, inputs=(0, 1, -1), outputs=(2,), options=options, version=2)
        ],
    )
    entry = Signature(key="run", subgraph=0, inputs={"x": 0}, outputs={"é": 2})
    return ModelFile(subgraphs=[subgraph], signatures=[entry], description="a test")


@pytest.mark.parametrize("code", [code for code in Builtin if code is not Builtin.CUSTOM])
def test_every_operator_and_option_is_read_back(code):
    fields = OPTION_TABLES[code].fields if code in OPTION_TABLES else ()
    options = {field.name: SAMPLES[field.kind] for field in fields}
    options = {
        name: (not default if isinstance(default := field.default, bool) else options[name])
        for name, field in zip(options, fields, strict=True)
    }
    model = small_model(code, **options)
    assert read_model(write_model(model)) == model


def test_constants_lie_on_sixteen_bytes():
    for length in range(8, 48):
        content = bytes(range(100, 100 + length))
        model = small_model()
        model.subgraphs[0].name = "n" * length
        model.subgraphs[0].tensors[1] = Tensor(
            shape=(length,), kind=TensorType.UINT8, content=content
        )
        written = write_model(model)
        assert written.index(content) % 16 == 0


def test_equal_models_give_equal_bytes():
    assert write_model(small_model()) == write_model(small_model())


@pytest.fixture(scope="module")
def written():
    return write_model(lower_entries({"run": sound_net()}, batch_rows=2))


def test_outline_lists_entries_and_operators(written):
    outline = read_outline(written, name="a file")
    assert outline.entries["run"].inputs["x"].shape == (2, 4, 40)
    assert outline.entries["run"].outputs["output"].shape == (2, 3)
    assert Builtin.CONV_2D in outline.operators
    assert not outline.custom
    require_builtins(outline, name="a file")


@given(data=st.data())
def test_damaged_bytes_are_refused_or_read_never_worse(written, data):
    damaged = bytearray(written)
    for _ in range(data.draw(st.integers(1, 8))):
        position = data.draw(st.integers(0, len(damaged) - 1))
        damaged[position] = data.draw(st.integers(0, 255))
    _read_both(bytes(damaged))


@given(data=st.data())
def test_bytes_with_wild_offsets_are_refused_or_read(written, data):
    damaged = bytearray(written)
    position = 4 * data.draw(st.integers(0, len(damaged) // 4 - 1))
    wild = data.draw(st.sampled_from([0, 1, 4, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFC]))
    damaged[position : position + 4] = wild.to_bytes(4, "little")
    _read_both(bytes(damaged))


@given(cut=st.integers(0, 2000))
def test_cut_files_are_refused(written, cut):
    with pytest.raises(TrainingError, match="E-TFLITE-DAMAGED"):
        read_outline(written[:cut], name="a file")


@given(noise=st.binary(max_size=300))
def test_noise_behind_a_good_beginning_is_refused_or_read(noise):
    _read_both(b"\x08\0\0\0TFL3" + noise)


def _read_both(content):
    try:
        read_outline(content, name="a file")
    except TrainingError as error:
        assert error.code == "E-TFLITE-DAMAGED"  # noqa: PT017 - any other code is the failure
    with contextlib.suppress(ValueError):
        read_model(content)


def test_a_small_file_that_unfolds_to_a_large_one_is_refused():
    # One list of 1,000 operators that each of 1,000 subgraphs points to.
    count = 1000
    operators = Nodes([Node({}) for _ in range(count)])
    shared = write_file(Node({2: Nodes([Node({3: operators})])}), b"TFL3")
    subgraph_list = FileBytes(shared).root(b"TFL3")
    assert len(subgraph_list.tables(2)[0].tables(3)) == count
    # Many entries in front of the one subgraph, all pointing forward to it.
    vtable_and_root = write_file(Node({2: Numbers("I", [0] * count)}), b"TFL3")
    target = len(vtable_and_root) + _position_of_only_subgraph(shared)
    content = bytearray(vtable_and_root + shared)
    first = vtable_and_root.index(count.to_bytes(4, "little")) + 4
    for index in range(count):
        place = first + 4 * index
        content[place : place + 4] = (target - place).to_bytes(4, "little")
    subgraphs = FileBytes(bytes(content)).root(b"TFL3").tables(2)
    with pytest.raises(ValueError, match="more than"):
        _ = [subgraph.tables(3) for subgraph in subgraphs]


def _position_of_only_subgraph(content):
    marker = (1).to_bytes(4, "little")
    place = content.index(marker, 12) + 4
    return place + int.from_bytes(content[place : place + 4], "little")


def test_custom_and_flex_operators_are_refused():
    content = write_model(small_model(Builtin.CUSTOM))
    with pytest.raises(TrainingError, match="E-TFLITE-OPERATORS"):
        require_builtins(read_outline(content, name="a file"), name="a file")
    with pytest.raises(ValueError, match="operator"):
        read_model(content)


def test_inputs_without_axes_are_refused():
    outline = read_outline(write_model(small_model(shape=())), name="a file")
    with pytest.raises(TrainingError, match=r"E-TFLITE-RANK.*run\(x\)"):
        require_inputs_of_rank(outline, name="a file")
