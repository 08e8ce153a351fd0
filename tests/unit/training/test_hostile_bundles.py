"""Bundles whose hashes are right and whose graphs are not what the manifest says."""

import hashlib
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgefl.errors import EdgeflError, TrainingError
from edgefl.training.base import TrainingData
from edgefl.training.bundle import (
    EVAL_ONNX,
    FEATURES_ONNX,
    MANIFEST,
    PARAMS,
    TRAIN_ONNX,
    pack_bundle,
    read_bundle,
)
from edgefl.training.evaluate import Evaluator
from edgefl.training.local_update import local_update
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from edgefl.training.stored_zip import pack_stored, unpack_stored
from tests.small_models import two_layers

GOOD = read_bundle(compile_bundle(two_layers(4, 5, 3), trainable="head").bundle_bytes)
DATA = TrainingData(x=np.ones((6, 4), np.float32), y=np.array([0, 1, 2, 0, 1, 2]))
FILES = [TRAIN_ONNX, EVAL_ONNX, FEATURES_ONNX]


def patched(name, change):
    """Return the good bundle with one graph changed, all hashes fitting."""
    model = onnx.load_from_string(GOOD.contents[name])
    change(model.graph)
    return repacked({**GOOD.contents, name: model.SerializeToString()})


def repacked(contents, manifest=GOOD.manifest):
    """Return an archive as a hostile gateway makes it: any content, all hashes right."""
    good = unpack_stored(pack_bundle(manifest, GOOD.contents, initial_params=GOOD.initial_params))
    files = {**contents, PARAMS: good[PARAMS]}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return pack_stored({MANIFEST: replace(manifest, files=hashes).to_json(), **files})


def take_part(bundle_bytes):
    """Do what a device and a gateway do with a bundle."""
    bundle = read_bundle(bundle_bytes)
    trainer = OnnxTrainer(bundle)
    trainer.evaluate(DATA.x, DATA.y)
    update = local_update(
        trainer,
        GOOD.initial_params.tobytes(),
        DATA,
        epochs=2,
        batch_size=4,
        learning_rate=0.1,
        rng=np.random.default_rng(0),
    )
    Evaluator(bundle).evaluate(update, DATA)
    return update


def require_own_error(bundle_bytes):
    with pytest.raises(EdgeflError) as caught:
        take_part(bundle_bytes)
    assert str(caught.value).isprintable()
    return caught.value


def behind_first_output(graph, *nodes):
    """Put nodes, the last of which makes the first output, behind what made it."""
    name = graph.output[0].name
    for node in graph.node:
        for index, output in enumerate(node.output):
            if output == name:
                node.output[index] = "before"
    graph.node.extend(nodes)
    nodes[-1].output[0] = name
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")


def lose_an_input(graph):
    del graph.input[0]


def lose_an_output(graph):
    del graph.output[0]


def want_another_input(graph):
    graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, [3]))
    graph.node.append(helper.make_node("Identity", ["more"], ["same"]))
    graph.output.append(helper.make_tensor_value_info("same", TensorProto.FLOAT, [3]))


def take_another_type(graph):
    for value in graph.input:
        value.type.tensor_type.elem_type = TensorProto.DOUBLE


def give_too_much(graph):
    flat = numpy_helper.from_array(np.array([-1]), "flat")
    graph.initializer.append(flat)
    behind_first_output(
        graph,
        helper.make_node("Reshape", ["before", "flat"], ["line"]),
        helper.make_node("Concat", ["line", "line", "line"], [""], axis=0),
    )


def give_text(graph):
    behind_first_output(graph, helper.make_node("Cast", ["before"], [""], to=TensorProto.STRING))
    graph.output[0].type.tensor_type.elem_type = TensorProto.STRING


def ask_for_huge_memory(graph):
    graph.initializer.append(numpy_helper.from_array(np.full(3, 1 << 20), "sizes"))
    behind_first_output(
        graph,
        helper.make_node("ConstantOfShape", ["sizes"], ["huge"]),
        helper.make_node("ReduceMax", ["huge"], ["most"], keepdims=0),
        helper.make_node("Add", ["before", "most"], [""]),
    )


def read_another_file(graph):
    tensor = graph.initializer.add(name="outside", data_type=TensorProto.FLOAT, dims=[3])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/hostname")
    behind_first_output(graph, helper.make_node("Add", ["before", "outside"], [""]))


CHANGES = [
    lose_an_input,
    lose_an_output,
    want_another_input,
    take_another_type,
    give_too_much,
    give_text,
    ask_for_huge_memory,
    read_another_file,
]


def test_the_bundle_that_is_changed_below_is_good():
    assert FEATURES_ONNX in GOOD.contents
    assert np.abs(take_part(repacked(GOOD.contents))).sum() > 0


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("name", FILES)
def test_graphs_that_are_not_what_the_manifest_says_raise_our_error_alone(name, change):
    require_own_error(patched(name, change))


@pytest.mark.parametrize("name", FILES)
def test_files_in_each_others_place_raise_our_error_alone(name):
    others = [other for other in FILES if other != name]
    for other in others:
        require_own_error(repacked({**GOOD.contents, name: GOOD.contents[other]}))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [b"", b"\x08\x08", b"\xff" * 64], ids=["none", "two", "ones"])
def test_files_that_are_no_graphs_raise_our_error_alone(name, content):
    require_own_error(repacked({**GOOD.contents, name: content}))


def test_a_manifest_with_other_features_raises_our_error_alone():
    (feature,) = GOOD.manifest.features
    for shape in [(6,), (5, 1), (1,), ()]:
        manifest = replace(GOOD.manifest, features=(replace(feature, shape=shape),))
        require_own_error(repacked(GOOD.contents, manifest))


def test_flipped_bits_of_graphs_never_raise_anything_but_our_errors():
    rng = np.random.default_rng(3)
    refused = 0
    for trial in range(60):
        name = FILES[trial % len(FILES)]
        content = bytearray(GOOD.contents[name])
        for _ in range(rng.integers(1, 4)):
            content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        try:
            take_part(repacked({**GOOD.contents, name: bytes(content)}))
        except TrainingError:
            refused += 1
    assert refused > 10
