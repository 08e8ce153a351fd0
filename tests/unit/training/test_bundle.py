"""The bundle file: reproducible, verified, bounded, and exportable without onnx."""

import dataclasses
import io
import json
import re
import zipfile

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import TrainingError
from edgefl.training import bundle as bundle_module
from edgefl.training.bundle import (
    EXPORT_TEMPLATE,
    INT8_SLOTS,
    INT8_TEMPLATE,
    export_model,
    pack_bundle,
    pack_for_devices,
    read_bundle,
)
from edgefl.training.kinds import ElementType, Loss, Optimizer, QuantizationMode, Runtime
from edgefl.training.manifest import (
    Manifest,
    Merge,
    ParameterSlot,
    Program,
    Quantization,
    TensorSpec,
    parse_manifest,
)
from edgefl.training.onnx.compile.bundle import compile_bundle, compile_with
from edgefl.training.onnx.compile.normalize import load_model
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.compile.quantize.request import QuantizationRequest
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.onnx.runtime.quiet import onnxruntime
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from edgefl.training.stored_zip import pack_stored, unpack_stored
from tests.small_models import two_layers

BUNDLE_BYTES = compile_bundle(demo_model(1)).bundle_bytes
ENTRIES = unpack_stored(BUNDLE_BYTES)


def test_equal_models_give_equal_bytes():
    assert compile_bundle(demo_model(1)).bundle_bytes == BUNDLE_BYTES
    assert compile_bundle(demo_model(2)).bundle_bytes != BUNDLE_BYTES


def test_the_manifest_tells_what_the_graphs_expect():
    manifest = read_bundle(BUNDLE_BYTES).manifest
    assert manifest.dimension == 1911
    assert manifest.input.shape == (64, 6)
    assert manifest.classes == 7
    assert [slot.name for slot in manifest.parameters] == [
        "conv1.weight",
        "conv1.bias",
        "conv2.weight",
        "conv2.bias",
        "head.weight",
        "head.bias",
    ]
    assert [slot.offset for slot in manifest.parameters] == [0, 480, 496, 1776, 1792, 1904]


def test_initial_parameters_are_the_models_and_cannot_be_changed():
    bundle = read_bundle(BUNDLE_BYTES)
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in demo_model(1).graph.initializer}
    expected = np.concatenate([weights[s.name].reshape(-1) for s in bundle.manifest.parameters])
    assert np.array_equal(bundle.initial_params, expected)
    with pytest.raises(ValueError, match="read-only"):
        bundle.initial_params[0] = 1


def test_a_bundle_on_disk_reads_the_same(tmp_path):
    model_path, out_path = tmp_path / "model.onnx", tmp_path / "bundle.efl"
    onnx.save(demo_model(1), model_path)
    out_path.write_bytes(compile_bundle(load_model(model_path)).bundle_bytes)
    assert out_path.read_bytes() == BUNDLE_BYTES
    assert read_bundle(out_path).sha256 == read_bundle(BUNDLE_BYTES).sha256


@pytest.mark.parametrize("name", ["train.onnx", "eval.onnx", "params.npz", "export.template"])
def test_a_changed_file_is_named(name):
    content = bytearray(ENTRIES[name])
    content[len(content) // 2] ^= 1
    with pytest.raises(TrainingError, match=f"E-BUNDLE-HASH.*{re.escape(name)}"):
        read_bundle(pack_stored(ENTRIES | {name: bytes(content)}))


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_a_missing_file_is_named(name):
    kept = {key: value for key, value in ENTRIES.items() if key != name}
    with pytest.raises(TrainingError, match=f"E-BUNDLE-DAMAGED.*{re.escape(name)}"):
        read_bundle(pack_stored(kept))


def test_foreign_and_missing_files_give_one_line(tmp_path):
    for content in (b"", b"not a zip", BUNDLE_BYTES[:-30], pack_stored({"a": b"b"})):
        with pytest.raises(TrainingError, match="E-BUNDLE-DAMAGED") as caught:
            read_bundle(content)
        assert "\n" not in str(caught.value)
    with pytest.raises(TrainingError, match="E-BUNDLE-MISSING"):
        read_bundle(tmp_path / "none.efl")


def test_compressed_archives_are_refused_unread():
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in ENTRIES.items():
            archive.writestr(name, content if name != "train.onnx" else bytes(50_000_000))
    assert len(target.getvalue()) < 200_000
    with pytest.raises(TrainingError, match=r"E-BUNDLE-DAMAGED.*compressed"):
        read_bundle(target.getvalue())


def test_too_large_files_are_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle_module, "LARGEST_BUNDLE_BYTES", 1000)
    path = tmp_path / "large.efl"
    path.write_bytes(BUNDLE_BYTES)
    for source in (path, BUNDLE_BYTES):
        with pytest.raises(TrainingError, match="E-BUNDLE-TOO-LARGE"):
            read_bundle(source)


@settings(max_examples=150, deadline=None)
@given(position=st.integers(0, len(BUNDLE_BYTES) - 1), mask=st.integers(1, 255))
def test_any_flipped_byte_is_refused_or_harmless(position, mask):
    changed = bytearray(BUNDLE_BYTES)
    changed[position] ^= mask
    original = read_bundle(BUNDLE_BYTES)
    try:
        found = read_bundle(bytes(changed))
    except TrainingError:
        return
    # Only unused bits of the zip's own headers (dates, attributes) may differ without notice.
    assert found.sha256 != original.sha256
    assert found.contents == original.contents
    assert np.array_equal(found.initial_params, original.initial_params)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(field=st.sampled_from(sorted(json.loads(ENTRIES["manifest.json"]))), value=JSON_VALUES)
def test_any_manifest_value_is_refused_or_read(field, value):
    document = json.loads(ENTRIES["manifest.json"])
    document[field] = value
    entries = ENTRIES | {"manifest.json": json.dumps(document).encode()}
    try:
        read_bundle(pack_stored(entries))
    except TrainingError:
        return


def slot(name, shape, offset):
    return ParameterSlot(name=name, shape=shape, offset=offset)


ONNX = Program(runtime=Runtime.ONNX, minimum_version="1.16.3", facts={"opset": 17})


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"parameters": (slot("a", (2,), 0), slot("b", (2,), 3))}, "'b' does not follow"),
        ({"parameters": (slot("a", (2,), 0), slot("a", (2,), 2))}, "twice"),
        ({"local": (slot("c", (2,), 1),)}, "'c' does not follow"),
        ({"local": (slot("a", (2,), 0),)}, "twice"),
        ({"frozen": (TensorSpec(name="b", shape=(2,)),)}, "twice"),
        ({"parameters": ()}, "0 averaged values"),
        ({"output": TensorSpec(name="y", shape=())}, "output 'y'"),
        ({"output": TensorSpec(name="y", shape=(2**30, 2))}, "rows of"),
        ({"input": TensorSpec(name="x", shape=(2**30, 2**30))}, "rows of"),
        ({"features": (TensorSpec(name="f", shape=(2**27,)),)}, "rows of"),
        (
            {"features": (TensorSpec(name="f", shape=(2,), element_type=ElementType.OTHER),)},
            "rows of",
        ),
        ({"programs": ()}, "no program"),
        ({"programs": (ONNX, ONNX)}, "two for one runtime"),
        ({"splice_offsets": (4,)}, "1 export positions"),
    ],
)
def test_contradictory_manifests_are_refused(changes, complaint):
    good = Manifest(
        parameters=(slot("a", (2, 1), 0), slot("b", (2,), 2)),
        local=(slot("kept", (3,), 0),),
        frozen=(TensorSpec(name="count", shape=(), element_type=ElementType.INT64),),
        input=TensorSpec(name="x", shape=(3,)),
        output=TensorSpec(name="y", shape=(2,)),
        loss=Loss.CROSS_ENTROPY,
        optimizer=Optimizer.SGD,
        features=(TensorSpec(name="f", shape=(4,), element_type=ElementType.INT8),),
        quantization=Quantization(mode=QuantizationMode.STATIC, facts={"rows": 100}),
        programs=(ONNX,),
        splice_offsets=(5, 9, 7),
        source_sha256="00",
        files={},
    )
    assert parse_manifest(good.to_json()) == good
    with pytest.raises(ValueError, match=complaint):
        dataclasses.replace(good, **changes)


def test_the_exported_model_computes_what_the_trainer_predicts():
    trainer = OnnxTrainer(BUNDLE_BYTES)
    rng = np.random.default_rng(4)
    x = rng.normal(size=(40, 64, 6)).astype(np.float32)
    trainer.fit(x, rng.integers(0, 7, 40), epochs=2, batch_size=8, lr=0.1, rng=rng)
    exported = export_model(read_bundle(BUNDLE_BYTES), trainer.params())
    onnx.checker.check_model(onnx.load_from_string(exported), full_check=True)
    session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
    logits = session.run(["logits"], {"window": x})[0]
    assert np.abs(logits - trainer.predict(x)).max() < 1e-5
    weights = {
        t.name: onnx.numpy_helper.to_array(t)
        for t in onnx.load_from_string(exported).graph.initializer
    }
    for s in trainer.manifest.parameters:
        expected = trainer.params()[s.offset : s.offset + s.size].reshape(s.shape)
        assert np.array_equal(weights[s.name], expected)


def test_exporting_the_first_parameters_gives_the_source_weights_back():
    exported = onnx.load_from_string(
        export_model(read_bundle(BUNDLE_BYTES), read_bundle(BUNDLE_BYTES).initial_params)
    )
    assert list(exported.graph.initializer) == list(demo_model(1).graph.initializer)
    assert list(exported.graph.node) == list(demo_model(1).graph.node)


def test_export_refuses_parameters_of_another_model():
    with pytest.raises(TrainingError, match="E-PARAMS-SHAPE"):
        export_model(read_bundle(BUNDLE_BYTES), np.zeros(5, np.float32))


def _merge(scale, offset=0):
    return Merge(target="frozen", shape=(2, 1), offset=offset, left="a", right="b", scale=scale)


@pytest.mark.parametrize("scale", ["1e999", "NaN", "1" + 400 * "0", "true", '"1"'])
def test_factors_that_are_no_numbers_are_refused(scale):
    document = json.loads(ENTRIES["manifest.json"])
    document["merges"] = [_merge(7.0).to_json()]
    text = json.dumps(document).replace('"scale": 7.0', f'"scale": {scale}')
    with pytest.raises(ValueError, match="'scale' is missing or not"):
        parse_manifest(text.encode())


@pytest.mark.parametrize(
    "offsets",
    [{}, {0: 10**6}, {0: 2**62}],
    ids=["as made", "behind the end", "far behind the end"],
)
def test_export_positions_must_lie_within_the_template(offsets):
    bundle = read_bundle(BUNDLE_BYTES)
    moved = [offsets.get(i, at) for i, at in enumerate(bundle.manifest.splice_offsets)]
    manifest = dataclasses.replace(bundle.manifest, splice_offsets=tuple(moved))
    packed = pack_bundle(manifest, bundle.contents, initial_params=bundle.initial_params)
    if not offsets:
        assert packed == BUNDLE_BYTES
        return
    with pytest.raises(TrainingError, match="E-BUNDLE-DAMAGED"):
        read_bundle(packed)


def test_export_positions_must_not_lie_within_merged_values():
    bundle = read_bundle(BUNDLE_BYTES)
    first = min(bundle.manifest.splice_offsets)
    merges = tuple(
        Merge(target="t", shape=(16, 30), offset=at, left="conv1.bias", right="r", scale=1.0)
        for at in (first - 4, first - 8)
    )
    slots = (*bundle.manifest.parameters, slot("r", (30,), 1911))
    manifest = dataclasses.replace(
        bundle.manifest,
        parameters=slots,
        merges=merges,
        splice_offsets=tuple(range(len(slots) - 2)),
    )
    params = np.zeros(1941, np.float32)
    with pytest.raises(TrainingError, match="one after another"):
        read_bundle(pack_bundle(manifest, bundle.contents, initial_params=params))


def _quantized(mode):
    rows = np.random.default_rng(0).normal(size=(16, 64, 6)).astype(np.float32)
    request = QuantizationRequest(mode=mode, calibration=rows)
    return read_bundle(
        compile_with(demo_model(1), CompileOptions(quantization=request)).bundle_bytes
    )


def test_devices_get_a_bundle_without_what_only_exports_need():
    whole = _quantized(QuantizationMode.QAT)
    packed = pack_for_devices(whole)
    device = read_bundle(packed)
    assert set(whole.contents) - set(device.contents) == {
        EXPORT_TEMPLATE,
        INT8_TEMPLATE,
        INT8_SLOTS,
    }
    assert pack_for_devices(device) == packed
    assert device.manifest.vector_sha256 == whole.manifest.vector_sha256
    assert device.manifest.quantization == whole.manifest.quantization
    with pytest.raises(TrainingError, match="E-BUNDLE-PART"):
        export_model(device, device.initial_params)
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(20, 64, 6)).astype(np.float32), rng.integers(0, 7, 20)
    results = []
    for bundle in (whole, device):
        trainer = OnnxTrainer(bundle)
        trainer.fit(x, y, epochs=2, batch_size=8, lr=0.1, rng=np.random.default_rng(5))
        results.append((trainer.delta(), trainer.predict(x)))
    for found, expected in zip(*results, strict=True):
        assert np.array_equal(found, expected)


def test_devices_download_no_float_weights_of_an_int8_backbone():
    rows = np.random.default_rng(0).normal(size=(16, 256)).astype(np.float32)
    request = QuantizationRequest(mode=QuantizationMode.STATIC, calibration=rows)
    options = CompileOptions(trainable="head", quantization=request)
    whole = compile_with(two_layers(256, 512, 10), options).bundle_bytes
    assert len(pack_for_devices(read_bundle(whole))) < 0.3 * len(whole)


def test_devices_keep_the_ends_of_grids():
    device = read_bundle(pack_for_devices(_quantized(QuantizationMode.GRID)))
    assert INT8_SLOTS in device.contents
    assert INT8_TEMPLATE not in device.contents
    trainer = OnnxTrainer(device)
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(64, 64, 6)).astype(np.float32), rng.integers(0, 7, 64)
    with pytest.raises(TrainingError, match="E-TRAIN-DIVERGED"):
        trainer.fit(x, y, epochs=3, batch_size=8, lr=1e4, rng=rng)
