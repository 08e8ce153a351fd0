"""The models with which onnx tests its backends, brought to opset 17, to be differentiated.

Their modules are imported one by one, since making all of them takes 8 seconds.
"""

import importlib
import warnings
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper, version_converter

from tests.gradient_check import OPSET, check_gradients

_PACKAGE = "onnx.backend.test.case.node"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeModel:
    """One model of one node.

    Attributes:
        name: As onnx calls it.
        op_type: The node's operator.
        model: At opset 17; inputs that are no floats have become initializers.
        inputs: The float inputs by name.
    """

    name: str
    op_type: str
    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]


def node_models(modules: dict[str, str], *, left_out=()) -> list[NodeModel]:
    """Return the single-node float32 models of some operators.

    Args:
        modules: Module of onnx's node tests by operator, as in {"Softmax": "softmax"}.
        left_out: Names of models that are not wanted; each must exist.
    """
    node_tests = importlib.import_module(_PACKAGE)
    with warnings.catch_warnings():
        # Some modules divide by zero while they compute what to expect.
        warnings.simplefilter("ignore", RuntimeWarning)
        for module in modules.values():
            importlib.import_module(f"{_PACKAGE}.{module}")
    found = []
    for case in node_tests._NodeTestCases:
        nodes = case.model.graph.node
        if len(nodes) != 1 or nodes[0].op_type not in modules or "_expanded" in case.name:
            continue
        inputs = dict(
            zip([v.name for v in case.model.graph.input], case.data_sets[0][0], strict=True)
        )
        if not _has_tensors_alone(inputs):
            continue
        found.append(_at_opset_17(case, inputs))
    unknown = set(left_out) - {model.name for model in found}
    assert not unknown, f"no models named {sorted(unknown)}"
    kept = [model for model in found if model.name not in left_out]
    return sorted(kept, key=lambda model: model.name)


def _has_tensors_alone(inputs) -> bool:
    """Tell whether the inputs are tensors, no sequences or optionals, with floats among them."""
    tensors = all(isinstance(value, np.ndarray | np.generic) for value in inputs.values())
    return tensors and any(value.dtype == np.float32 for value in inputs.values())


def _at_opset_17(case, inputs) -> NodeModel:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    fixed = [name for name, value in inputs.items() if value.dtype != np.float32]
    kept = [value for value in model.graph.input if value.name not in fixed]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(inputs[name], name) for name in fixed)
    if model.opset_import[0].version > OPSET:
        model = _converted(model)
    return NodeModel(
        name=case.name,
        op_type=case.model.graph.node[0].op_type,
        model=model,
        inputs={name: value for name, value in inputs.items() if name not in fixed},
    )


def _converted(model: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return version_converter.convert_version(model, OPSET)
    except RuntimeError:
        # The converter cannot lower operators of which later versions only took in more types.
        model.opset_import[0].version = OPSET
        return model


def check_node_model(case: NodeModel, *, frozen=(), zero_allowed=()) -> None:
    """Check the gradients of the first output with respect to all float inputs but the frozen."""
    check_gradients(
        case.model,
        case.inputs,
        [name for name in case.inputs if name not in frozen],
        outputs=[case.model.graph.node[0].output[0]],
        zero_allowed=zero_allowed,
    )
