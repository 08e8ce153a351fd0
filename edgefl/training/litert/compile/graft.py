"""Puts a new float head on a frozen .tflite backbone of the user's."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgefl.errors import TrainingError
from edgefl.training.bundle import (
    EVAL_ONNX,
    FEATURES_TFLITE,
    TRAIN_ONNX,
    pack_bundle,
    read_bundle,
)
from edgefl.training.kinds import ElementType, Loss
from edgefl.training.litert.compile.bundle import WithLitert
from edgefl.training.litert.compile.lower import DEFAULT_BATCH_ROWS, lower
from edgefl.training.litert.compile.proof import require_learning
from edgefl.training.litert.format.decode import read_model
from edgefl.training.litert.format.encode import write_model
from edgefl.training.litert.format.kinds import Builtin, TensorType
from edgefl.training.litert.format.model import ModelFile, Operator, Signature, Subgraph, Tensor
from edgefl.training.litert.format.tidy import drop_unread
from edgefl.training.litert.names import FEATURES
from edgefl.training.manifest import TensorSpec
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.normalize import TARGET_IR_VERSION, TARGET_OPSET
from edgefl.training.onnx.compile.optim import OptimizerSettings
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.names import BATCH_AXIS

_INPUT, _FEATURES, _OUTPUT = "input", "features", "logits"
_INTEGERS = frozenset({TensorType.INT8, TensorType.UINT8, TensorType.INT16})


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadOptions:
    """Choices for a new head.

    Attributes:
        outputs: Classes, or values per example.
        loss: What training makes small.
        optimizer: How a step uses the gradient.
        batch_rows: Rows of every call of the head.
        calls: Of a streaming backbone, which keeps state between calls: how many calls one example
            takes, each with the next part of it.
        seed: Of the head's first values.
    """

    outputs: int
    loss: Loss = Loss.CROSS_ENTROPY
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    batch_rows: int = DEFAULT_BATCH_ROWS
    calls: int = 1
    seed: int = 0


def prepare_head(backbone: bytes, options: HeadOptions) -> WithLitert:
    """Make a bundle whose front part is a .tflite file and whose head is new and trained.

    The features are what the backbone's last fully connected layer reads. An int8 backbone stays
    int8; its input and its features are float32 outside.

    Args:
        backbone: A .tflite file of builtin operators.
        options: Choices.

    Returns:
        A bundle for LiteRT alone.

    Raises:
        TrainingError: E-BACKBONE-DAMAGED, E-BACKBONE-FORM, E-BACKBONE-CALLS or
            E-LITERT-LEARNS-NOTHING.
    """
    if options.outputs < 1 or options.calls < 1:
        raise TrainingError(
            "E-BACKBONE-CALLS",
            "at least 1 output of the head and 1 call per example",
            f"{options.outputs} outputs, {options.calls} calls",
            "see 'edgefl model prepare --help'",
        )
    try:
        model = read_model(backbone)
    except ValueError as error:
        raise TrainingError(
            "E-BACKBONE-DAMAGED",
            "a .tflite file of builtin operators that edgefl knows",
            str(error),
            "convert the model anew without custom and Flex operators",
        ) from error
    front, input_shape, features = cut_backbone(model, calls=options.calls)
    step = compile_with(
        _head_model(features, options),
        CompileOptions(loss=options.loss, optimizer=options.optimizer, seed=options.seed),
    )
    head = read_bundle(step.bundle_bytes)
    files, program = lower(
        onnx.load_from_string(head.content(TRAIN_ONNX)),
        onnx.load_from_string(head.content(EVAL_ONNX)),
        None,
        head.manifest,
        batch_rows=options.batch_rows,
    )
    manifest = replace(
        head.manifest,
        input=TensorSpec(name=_INPUT, shape=input_shape, element_type=ElementType.FLOAT32),
        features=(TensorSpec(name=_FEATURES, shape=(features,)),),
        programs=(replace(program, facts={**program.facts, "calls_per_example": options.calls}),),
        splice_offsets=(),
        source_sha256=hashlib.sha256(backbone).hexdigest(),
        files={},
    )
    bundle_bytes = pack_bundle(
        manifest,
        {**files, FEATURES_TFLITE: write_model(front)},
        initial_params=head.initial_params,
    )
    untried = require_learning(read_bundle(bundle_bytes))
    return WithLitert(
        bundle_bytes=bundle_bytes,
        manifest=manifest,
        warnings=() if untried is None else (untried,),
    )


def cut_backbone(model: ModelFile, *, calls: int) -> tuple[ModelFile, tuple[int, ...], int]:
    """Let a model end before its last fully connected layer.

    Args:
        model: Any model with one input; changed.
        calls: Calls per example.

    Returns:
        The model with the signature `features`; the shape of one example; the number of features.

    Raises:
        TrainingError: E-BACKBONE-FORM or E-BACKBONE-CALLS.
    """
    subgraph = model.subgraphs[0] if model.subgraphs else Subgraph(name="")
    if len(subgraph.inputs) != 1:
        raise _misformed("a model with one input", f"{len(subgraph.inputs)}")
    tap = _last_layer(subgraph).inputs[0]
    is_stateful = any(one.code is Builtin.VAR_HANDLE for one in subgraph.operators)
    shape = subgraph.tensors[subgraph.inputs[0]].shape
    if len(shape) < 2 or (is_stateful and shape[0] != 1):
        raise _misformed("an input of rows, one per call of a streaming model", str(list(shape)))
    if calls > 1 and not is_stateful:
        raise TrainingError(
            "E-BACKBONE-CALLS",
            "one call per example of a backbone that keeps no state",
            str(calls),
            "leave the number of calls out",
        )
    rows = shape[0]
    values = int(np.prod(subgraph.tensors[tap].shape))
    if values % rows:
        raise _misformed(f"features of {rows} rows", str(list(subgraph.tensors[tap].shape)))
    first = _float_input(subgraph)
    last = _float_rows(subgraph, tap, [rows, values // rows])
    subgraph.inputs, subgraph.outputs = [first], [last]
    drop_unread(subgraph)
    (first,), (last,) = subgraph.inputs, subgraph.outputs
    entry = Signature(key=FEATURES, subgraph=0, inputs={_INPUT: first}, outputs={_FEATURES: last})
    model.signatures = [entry]
    return model, (shape[1] * calls, *shape[2:]), values // rows


def _last_layer(subgraph: Subgraph) -> Operator:
    layers = [one for one in subgraph.operators if one.code is Builtin.FULLY_CONNECTED]
    if not layers:
        raise _misformed("a model that ends in a fully connected layer", "none in it")
    return layers[-1]


def _float_input(subgraph: Subgraph) -> int:
    """Return a float32 input; integers are made of it inside."""
    (index,) = subgraph.inputs
    tensor = subgraph.tensors[index]
    if tensor.kind is TensorType.FLOAT32:
        return index
    if tensor.kind not in _INTEGERS or tensor.scales is None:
        raise _misformed("a float32 or quantized input", tensor.kind.name.lower())
    subgraph.tensors.append(Tensor(shape=tensor.shape, kind=TensorType.FLOAT32, name=_INPUT))
    first = len(subgraph.tensors) - 1
    step = Operator(code=Builtin.QUANTIZE, inputs=(first,), outputs=(index,))
    subgraph.operators.insert(0, step)
    return first


def _float_rows(subgraph: Subgraph, tap: int, shape: Sequence[int]) -> int:
    """Return the tapped tensor as float32 rows."""
    tensor = subgraph.tensors[tap]
    if tensor.kind is not TensorType.FLOAT32:
        if tensor.kind not in _INTEGERS or tensor.scales is None:
            raise _misformed("float32 or quantized features", tensor.kind.name.lower())
        tap = _appended(subgraph, Builtin.DEQUANTIZE, [tap], tensor.shape)
    sizes = np.array(shape, np.int32)
    subgraph.tensors.append(
        Tensor(shape=sizes.shape, kind=TensorType.INT32, content=sizes.tobytes())
    )
    return _appended(subgraph, Builtin.RESHAPE, [tap, len(subgraph.tensors) - 1], shape)


def _appended(
    subgraph: Subgraph, code: Builtin, inputs: Sequence[int], shape: Sequence[int]
) -> int:
    subgraph.tensors.append(Tensor(shape=tuple(shape), kind=TensorType.FLOAT32))
    output = len(subgraph.tensors) - 1
    subgraph.operators.append(Operator(code=code, inputs=tuple(inputs), outputs=(output,)))
    return output


def _head_model(features: int, options: HeadOptions) -> onnx.ModelProto:
    """Return one linear layer."""
    rng = np.random.default_rng(options.seed)
    weight = rng.standard_normal((options.outputs, features)) / np.sqrt(features)
    tensors = {
        "head.weight": weight.astype(np.float32),
        "head.bias": np.zeros(options.outputs, np.float32),
    }
    layer = helper.make_node("Gemm", [_FEATURES, *tensors], [_OUTPUT], name="head", transB=1)
    floats = TensorProto.FLOAT
    graph = helper.make_graph(
        [layer],
        "head",
        [helper.make_tensor_value_info(_FEATURES, floats, [BATCH_AXIS, features])],
        [helper.make_tensor_value_info(_OUTPUT, floats, [BATCH_AXIS, options.outputs])],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()],
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", TARGET_OPSET)],
        ir_version=TARGET_IR_VERSION,
        producer_name="edgefl",
    )


def _misformed(expected: str, found: str) -> TrainingError:
    return TrainingError(
        "E-BACKBONE-FORM", expected, found, "cut the model in its own framework first"
    )
