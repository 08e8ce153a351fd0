"""Common blocks of a bundle's files: stored once, put back exactly, and never read beyond."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import TrainingError
from edgefl.training.bundle import export_model, read_bundle
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from edgefl.training.shared_blocks import SHARED_BIN, SHARED_TABLE, share, unshare
from edgefl.training.stored_zip import pack_stored, unpack_stored
from tests.small_models import initializer, small_model, two_layers

LARGEST = 10_000_000
HIDDEN = 600


@pytest.fixture(scope="module")
def bundle_bytes():
    options = CompileOptions(trainable="head")
    return compile_with(two_layers(inputs=50, hidden=HIDDEN), options).bundle_bytes


def test_frozen_weights_are_stored_once(bundle_bytes):
    weights_bytes = 50 * HIDDEN * 4
    assert len(bundle_bytes) < 1.5 * weights_bytes
    entries = unpack_stored(bundle_bytes)
    assert len(entries[SHARED_BIN]) == weights_bytes
    bundle = read_bundle(bundle_bytes)
    for name in ("eval.onnx", "features.onnx", "export.template"):
        assert len(bundle.content(name)) > weights_bytes
        assert len(entries[name]) < weights_bytes


def test_what_is_put_together_trains_and_exports(bundle_bytes):
    bundle = read_bundle(bundle_bytes)
    trainer = OnnxTrainer(bundle)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 50)).astype(np.float32)
    trainer.fit(x, rng.integers(0, 3, 20), epochs=1, batch_size=5, lr=0.01, rng=rng)
    assert np.any(trainer.delta())
    assert len(export_model(bundle, trainer.params())) > 50 * HIDDEN * 4


def test_files_without_much_in_common_stay_as_they_are():
    options = CompileOptions(trainable="all")
    entries = unpack_stored(compile_with(two_layers(50, HIDDEN), options).bundle_bytes)
    assert SHARED_BIN not in entries
    assert share({"a.bin": b"x" * 9000, "b.bin": b"x" * 9000}) == {
        "a.bin": b"x" * 9000,
        "b.bin": b"x" * 9000,
    }


def test_parameters_equal_to_frozen_weights_are_stored_beside_them():
    zeros = [initializer(name, 64, 64, value=0.0) for name in ("first", "second", "third")]
    nodes = [
        ("MatMul", ["x", "first"], "a", {}),
        ("MatMul", ["a", "second"], "b", {}),
        ("MatMul", ["b", "third"], "y", {}),
    ]
    model = small_model(nodes, zeros, inputs=(("x", ["N", 64]),), output=("y", ["N", 64]))
    bundle = read_bundle(compile_with(model, CompileOptions(trainable="third")).bundle_bytes)
    assert not bundle.initial_params.any()
    assert "params.npz" not in bundle.contents


def test_a_changed_block_is_noticed(bundle_bytes):
    entries = unpack_stored(bundle_bytes)
    changed = bytearray(entries[SHARED_BIN])
    changed[5] ^= 1
    with pytest.raises(TrainingError, match="E-BUNDLE-HASH"):
        read_bundle(pack_stored(entries | {SHARED_BIN: bytes(changed)}))
    for missing in (SHARED_BIN, SHARED_TABLE):
        kept = {name: content for name, content in entries.items() if name != missing}
        with pytest.raises(TrainingError, match="E-BUNDLE"):
            read_bundle(pack_stored(kept))


@pytest.mark.parametrize(
    "table",
    [
        [],
        {"absent": []},
        {"a": 1},
        {"a": [[0, 0]]},
        {"a": [[0, 0, -1]]},
        {"a": [[0, 0, True]]},
        {"a": [[0, 0, 5]]},
        {"a": [[0, 3, 2]]},
        {"a": [[4, 0, 1]]},
        {"a": [[2, 0, 1], [1, 0, 1]]},
        {"a": [["0", 0, 1]]},
        {"a": [[0, 0, 2**60]]},
    ],
)
def test_tables_that_point_outside_are_refused(table):
    entries = {"a": b"abc", SHARED_BIN: b"0123", SHARED_TABLE: json.dumps(table).encode()}
    with pytest.raises(ValueError, match=r"shared\.json"):
        unshare(entries, largest_bytes=LARGEST)


@pytest.mark.parametrize("table_json", [b"", b"{", b"\xff", b"[" * 100_000])
def test_tables_that_are_no_json_are_refused(table_json):
    entries = {"a": b"abc", SHARED_BIN: b"0123", SHARED_TABLE: table_json}
    with pytest.raises(ValueError, match=r"."):
        unshare(entries, largest_bytes=LARGEST)


def test_a_small_archive_cannot_grow_without_bound():
    cuts = [[0, 0, 1000]] * 1000
    entries = {"a": b"", SHARED_BIN: bytes(1000), SHARED_TABLE: json.dumps({"a": cuts}).encode()}
    with pytest.raises(ValueError, match="more than 999999 bytes"):
        unshare(dict(entries), largest_bytes=999_999)
    assert unshare(dict(entries), largest_bytes=1_000_000).size_bytes("a") == 1_000_000


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_pieces_come_back_as_the_whole(data):
    shared = data.draw(st.binary(min_size=1, max_size=40))
    entry = data.draw(st.binary(max_size=20))
    positions = sorted(data.draw(st.lists(st.integers(0, len(entry)), max_size=4)))
    cuts, whole, last = [], b"", 0
    for at in positions:
        offset = data.draw(st.integers(0, len(shared)))
        length = data.draw(st.integers(0, len(shared) - offset))
        cuts.append([at, offset, length])
        whole += entry[last:at] + shared[offset : offset + length]
        last = at
    whole += entry[last:]
    entries = {"a": entry, SHARED_BIN: shared, SHARED_TABLE: json.dumps({"a": cuts}).encode()}
    files = unshare(entries, largest_bytes=LARGEST)
    assert files["a"] == whole
    assert files.size_bytes("a") == len(whole)
    assert list(files) == ["a"]
