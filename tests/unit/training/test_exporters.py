"""Both of PyTorch's exporters lead to the same training bundle, whatever they write."""

import numpy as np
import pytest

from edgefl.training.onnx.compile.normalize import normalize
from edgefl.training.onnx.compile.weights import Weights
from tests import torch_vectors

# What exporters write around a batch axis that may vary.
OF_SHAPES = {"Shape", "Size", "ConstantOfShape", "Range", "CastLike", "Mod", "If", "Identity"}


@pytest.mark.parametrize("file", [file for _, file in torch_vectors.all_files()])
def test_nothing_is_left_of_computed_shapes(file):
    model = normalize(torch_vectors.model(file))
    operators = {node.op_type for node in model.graph.node}
    assert not operators & OF_SHAPES
    known = [*model.graph.value_info, *model.graph.output]
    for value in known:
        open_axes = [d for d in value.type.tensor_type.shape.dim if not d.HasField("dim_value")]
        assert len(open_axes) <= 1, f"{value.name}: only the batch axis may be open"
    assert {value.name for value in known} >= {
        output for node in model.graph.node for output in node.output if output
    }, "every value's shape is known"


@pytest.mark.parametrize("name", torch_vectors.NETS)
def test_all_files_of_a_net_have_the_same_weights(name):
    starts = torch_vectors.load(name).tensors("start")
    expected = sorted(float(np.abs(value).sum()) for value in starts.values())
    for file in torch_vectors.NETS[name]["files"]:
        model = normalize(torch_vectors.model(file))
        weights = Weights(model.graph)
        tensors = torch_vectors.initial_tensors(model, weights.candidates)
        found = sorted(float(np.abs(value).sum()) for value in tensors)
        assert found == pytest.approx(expected, rel=1e-6), file
