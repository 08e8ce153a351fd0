"""A new head on somebody's frozen .tflite: features, state, learning, export."""

import numpy as np
import pytest

from edgefl.errors import TrainingError
from edgefl.training.bundle import read_bundle
from edgefl.training.litert.compile import graft
from edgefl.training.litert.compile.graft import HeadOptions, prepare_head
from edgefl.training.litert.export import export_tflite
from edgefl.training.litert.format.decode import read_model
from edgefl.training.litert.format.encode import write_model
from edgefl.training.litert.format.kinds import Builtin, TensorType
from edgefl.training.litert.format.model import ModelFile, Operator, Scales, Subgraph, Tensor
from edgefl.training.litert.runtime.interpreter import load_interpreter
from edgefl.training.litert.runtime.trainer import LitertTrainer
from tests.unit.training.litert.test_trainer import fit

FLOAT, INT8, INT32 = TensorType.FLOAT32, TensorType.INT8, TensorType.INT32
RESOURCE = TensorType.RESOURCE
FEATURES, INPUTS, CLASSES = 8, 5, 3


def constant(values, **more):
    kinds = {"float32": FLOAT, "int8": INT8, "int32": INT32}
    kind = kinds[values.dtype.name]
    return Tensor(shape=values.shape, kind=kind, content=values.tobytes(), **more)


def dense(inputs, weight, output, activation=0):
    options = {"activation": activation} if activation else {}
    return Operator(
        code=Builtin.FULLY_CONNECTED,
        inputs=(inputs, weight, -1),
        outputs=(output,),
        options=options,
        version=4,
    )


def int8_backbone(rows=4):
    """x int8 -> fully connected, relu -> fully connected: the last one is to be replaced."""
    rng = np.random.default_rng(0)
    one = [(INT8, (rows, INPUTS), 0.05), (INT8, (rows, FEATURES), 0.02), (INT8, (rows, 2), 0.1)]
    flows = [
        Tensor(shape=shape, kind=kind, scales=Scales(scales=(scale,), zero_points=(-3,)))
        for kind, shape, scale in one
    ]
    weights = [
        constant(
            rng.integers(-90, 90, shape).astype(np.int8),
            scales=Scales(scales=(0.01,), zero_points=(0,)),
        )
        for shape in ((FEATURES, INPUTS), (2, FEATURES))
    ]
    subgraph = Subgraph(
        name="main",
        tensors=[*flows, *weights],
        inputs=[0],
        outputs=[2],
        operators=[dense(0, 3, 1, activation=1), dense(1, 4, 2)],
    )
    return write_model(ModelFile(subgraphs=[subgraph]))


def streaming_backbone():
    """Adds up what it is given, call after call, then a layer that is to be replaced."""
    rng = np.random.default_rng(1)
    zeros = np.zeros((1, 1, INPUTS), np.float32)
    main = Subgraph(
        name="main",
        tensors=[
            Tensor(shape=(1, 1, INPUTS), kind=FLOAT),
            Tensor(shape=(), kind=RESOURCE),
            Tensor(shape=(1, 1, INPUTS), kind=FLOAT),
            Tensor(shape=(1, 1, INPUTS), kind=FLOAT),
            constant(rng.normal(size=(2, INPUTS)).astype(np.float32)),
            Tensor(shape=(1, 2), kind=FLOAT),
        ],
        inputs=[0],
        outputs=[5],
        operators=[
            Operator(code=Builtin.CALL_ONCE, inputs=(), outputs=(), options={"subgraph": 1}),
            handle(1),
            Operator(code=Builtin.READ_VARIABLE, inputs=(1,), outputs=(2,)),
            Operator(code=Builtin.ADD, inputs=(2, 0), outputs=(3,)),
            Operator(code=Builtin.ASSIGN_VARIABLE, inputs=(1, 3), outputs=()),
            dense(3, 4, 5),
        ],
    )
    start = Subgraph(
        name="start",
        tensors=[Tensor(shape=(), kind=RESOURCE), constant(zeros)],
        operators=[handle(0), Operator(code=Builtin.ASSIGN_VARIABLE, inputs=(0, 1), outputs=())],
    )
    return write_model(ModelFile(subgraphs=[main, start]))


def handle(tensor):
    return Operator(
        code=Builtin.VAR_HANDLE, inputs=(), outputs=(tensor,), options={"shared_name": "sum"}
    )


def rows_of(n, *shape, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    x = rng.normal(size=(CLASSES, *shape))[y] + 0.3 * rng.normal(size=(n, *shape))
    return x.astype(np.float32), y


@pytest.fixture(scope="module")
def bundle():
    return read_bundle(prepare_head(int8_backbone(), HeadOptions(outputs=CLASSES)).bundle_bytes)


def test_features_are_what_the_last_layer_read(bundle):
    x, _ = rows_of(6, INPUTS)
    original = read_model(int8_backbone())
    original.subgraphs[0].outputs = [1]
    interpreter = load_interpreter().create(model_content=write_model(original))
    interpreter.allocate_tensors()
    trainer = LitertTrainer(bundle)
    weight = trainer.params()[: CLASSES * FEATURES].reshape(CLASSES, FEATURES)
    for start in (0, 2):
        part = x[start : start + 4]
        interpreter.set_tensor(0, np.clip(np.rint(part / 0.05) - 3, -128, 127).astype(np.int8))
        interpreter.invoke()
        features = (interpreter.get_tensor(1).astype(np.float64) + 3) * 0.02
        assert features.std() > 0.01
        assert np.abs(trainer.predict(part) - features @ weight.T).max() < 1e-5


def test_a_head_learns_on_an_int8_backbone(bundle):
    assert bundle.manifest.dimension == CLASSES * FEATURES + CLASSES
    x, y = rows_of(60, INPUTS)
    trainer = LitertTrainer(bundle)
    before = trainer.evaluate(x, y)
    fit(trainer, x, y, epochs=60, lr=1.0)
    after = trainer.evaluate(x, y)
    assert after.loss < 0.6 * before.loss
    assert after.accuracy > before.accuracy
    assert trainer.feature_rows_computed == 3 * 60


def test_streaming_state_starts_anew_for_each_example():
    options = HeadOptions(outputs=CLASSES, calls=4)
    bundle = read_bundle(prepare_head(streaming_backbone(), options).bundle_bytes)
    assert bundle.manifest.input.shape == (4, INPUTS)
    trainer = LitertTrainer(bundle)
    x, _ = rows_of(5, 4, INPUTS)
    weight = trainer.params()[: CLASSES * INPUTS].reshape(CLASSES, INPUTS)
    expected = x.sum(axis=1) @ weight.T
    assert np.abs(trainer.predict(x) - expected).max() < 1e-5
    assert np.abs(trainer.predict(x[::-1])[::-1] - expected).max() < 1e-5


def test_export_is_one_file_of_backbone_and_head(bundle):
    x, y = rows_of(12, INPUTS)
    trainer = LitertTrainer(bundle)
    fit(trainer, x, y, epochs=5)
    with_four = HeadOptions(outputs=CLASSES)
    one_row = read_bundle(prepare_head(int8_backbone(rows=1), with_four).bundle_bytes)
    content = export_tflite(one_row, trainer.params())
    run = load_interpreter().create(model_content=content).get_signature_runner("serving_default")
    found = np.concatenate([run(input=x[i : i + 1])["logits"] for i in range(12)])
    assert np.abs(found - trainer.predict(x)).max() < 1e-5


def test_what_cannot_be_a_backbone_is_refused():
    options = HeadOptions(outputs=CLASSES)
    with pytest.raises(TrainingError, match="E-BACKBONE-DAMAGED"):
        prepare_head(b"not a model", options)
    model = read_model(int8_backbone())
    model.subgraphs[0].operators.clear()
    with pytest.raises(TrainingError, match=r"E-BACKBONE-FORM.*fully connected"):
        prepare_head(write_model(model), options)
    with pytest.raises(TrainingError, match="E-BACKBONE-CALLS"):
        prepare_head(int8_backbone(), HeadOptions(outputs=CLASSES, calls=2))
    with pytest.raises(TrainingError, match="E-BACKBONE-CALLS"):
        prepare_head(int8_backbone(), HeadOptions(outputs=0))


def test_a_file_that_learns_nothing_is_caught(monkeypatch):
    def without_update(*graphs, **settings):
        files, program = original(*graphs, **settings)
        model = read_model(files["model.tflite"])
        step = model.subgraphs[0]
        entry = model.signature("train")
        frozen = entry.inputs["head.weight"], entry.inputs["head.bias"]
        # The new parameters are the old ones: the file loads, runs, and learns nothing.
        for name, source in zip(("head.weight", "head.bias"), frozen, strict=True):
            target = entry.outputs[f"edgefl.new.{name}"]
            for operator in step.operators:
                if target in operator.outputs:
                    shape = constant(np.array(step.tensors[source].shape, np.int32))
                    step.tensors.append(shape)
                    operator.code, operator.options = Builtin.RESHAPE, {}
                    operator.inputs = (source, len(step.tensors) - 1)
        return {**files, "model.tflite": write_model(model)}, program

    original = graft.lower
    monkeypatch.setattr(graft, "lower", without_update)
    with pytest.raises(TrainingError, match="E-LITERT-LEARNS-NOTHING"):
        prepare_head(int8_backbone(), HeadOptions(outputs=CLASSES))
