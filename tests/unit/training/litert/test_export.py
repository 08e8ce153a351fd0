"""Exports for inference: the same outputs as the bundle's own, in the interpreter's usual form."""

import numpy as np
import pytest

from edgefl.errors import TrainingError
from edgefl.training.litert.export import export_int8_tflite, export_tflite, has_int8_tflite
from edgefl.training.litert.format.decode import read_model
from edgefl.training.litert.format.kinds import Builtin, TensorType
from edgefl.training.litert.runtime.interpreter import load_interpreter
from edgefl.training.litert.runtime.trainer import LitertTrainer
from edgefl.training.onnx.demo_model import demo_model
from tests.unit.training.litert.nets import image_net, labelled, mlp, sound_net, word_net
from tests.unit.training.litert.test_trainer import fit, prepare

NETS = {
    "demo": (demo_model, 7),
    "mlp": (mlp, 3),
    "image": (image_net, 4),
    "sound": (sound_net, 3),
    "words": (word_net, 3),
}


def model_of(name):
    make, classes = NETS[name]
    return (make(3) if name == "demo" else make()), classes


def outputs_of(content, bundle, x):
    run = load_interpreter().create(model_content=content).get_signature_runner("serving_default")
    name = bundle.manifest.input.name
    rows = [run(**{name: x[i : i + 1]})[bundle.manifest.output.name] for i in range(len(x))]
    return np.concatenate(rows)


@pytest.fixture(scope="module", params=NETS)
def trained(request):
    model, classes = model_of(request.param)
    bundle = prepare(model)
    x, y = labelled(model, 24, classes)
    trainer = LitertTrainer(bundle)
    fit(trainer, x, y, epochs=3)
    return bundle, trainer, x


def test_float_export_says_what_the_trainer_says(trained):
    bundle, trainer, x = trained
    content = export_tflite(bundle, trainer.params())
    assert np.abs(outputs_of(content, bundle, x) - trainer.predict(x)).max() < 1e-5
    assert np.abs(trainer.predict(x) - LitertTrainer(bundle).predict(x)).max() > 1e-3


def test_int8_export_is_close(trained):
    bundle, trainer, x = trained
    assert has_int8_tflite(bundle)
    content = export_int8_tflite(bundle, trainer.params())
    expected = trainer.predict(x)
    found = outputs_of(content, bundle, x)
    assert 0 < np.abs(found - expected).max() < 0.08 * np.abs(expected).max()
    kinds = [tensor.kind for tensor in read_model(content).subgraphs[0].tensors]
    assert TensorType.INT8 in kinds


def test_layers_are_joined_with_bias_and_activation():
    bundle = prepare(demo_model(3))
    (subgraph,) = read_model(export_tflite(bundle, bundle.initial_params)).subgraphs
    codes = [operator.code for operator in subgraph.operators if operator.code != Builtin.RESHAPE]
    conv, head = Builtin.CONV_2D, Builtin.FULLY_CONNECTED
    assert codes == [conv, conv, Builtin.MEAN, head]
    activations = [one.options["activation"] for one in subgraph.operators if one.code is conv]
    assert activations == [3, 3]


def test_frozen_statistics_join_the_convolution():
    bundle = prepare(image_net())
    (subgraph,) = read_model(export_tflite(bundle, bundle.initial_params)).subgraphs
    first = next(one for one in subgraph.operators if one.code is Builtin.CONV_2D)
    assert first.options["activation"] == 1


def test_int8_weights_are_smaller():
    bundle = prepare(mlp(inputs=384, hidden=64, classes=6))
    sizes = [
        len(export(bundle, bundle.initial_params)) for export in (export_tflite, export_int8_tflite)
    ]
    assert sizes[1] < 0.35 * sizes[0]


def test_local_tensors_take_part():
    bundle = prepare(demo_model(3), local="head")
    x = np.random.default_rng(0).normal(size=(3, 64, 6)).astype(np.float32)
    trainer = LitertTrainer(bundle)
    trainer.set_local(bundle.initial_local + np.float32(0.5))
    content = export_tflite(bundle, trainer.params(), trainer.local())
    assert np.abs(outputs_of(content, bundle, x) - trainer.predict(x)).max() < 1e-5


def test_wrong_parameters_are_refused():
    bundle = prepare(demo_model(3))
    with pytest.raises(TrainingError, match="E-PARAMS-SHAPE"):
        export_tflite(bundle, bundle.initial_params[1:])
    with pytest.raises(TrainingError, match="E-PARAMS-NOT-FINITE"):
        export_tflite(bundle, bundle.initial_params * np.float32(np.nan))
