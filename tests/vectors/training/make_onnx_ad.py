"""Writes what onnx-ad, another automatic differentiation of ONNX graphs, says of the nets.

    python -m tests.vectors.training.make_onnx_ad          write the file beside this one
    python -m tests.vectors.training.make_onnx_ad --check  make it anew and compare

Needs an environment of its own: `pip install onnx-ad onnxruntime numpy`. Nets that onnx-ad refuses
are named on standard error and left out. It differentiates the file that PyTorch exported, weights
as inputs; the gradient of the loss at the output, in float64, is the seed.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ad
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tests import torch_vectors

OUT = Path(__file__).parent / "onnx_ad.npz"
EXPORTER = "torchscript-17"

Arrays = dict[str, NDArray[np.generic]]


def gradients(name: str) -> Arrays:
    """Return the gradient of each weight by its name in the exported file."""
    stored = torch_vectors.load(name)
    rows = slice(0, torch_vectors.BATCH)
    x, y = stored.x[rows], stored.y[rows]
    model = torch_vectors.model(f"{name}-{EXPORTER}.onnx")
    weights = _weights_to_inputs(model, len(x))
    seed = _seed(torch_vectors.NETS[name]["loss"], stored.arrays["output"].astype(np.float64), y)
    # Its layout "onnx" appends an axis for several seeds at once; here there is one.
    adjoint = onnx_ad.reverse(model, inputs=list(weights), outputs=["y"], layout="onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        adjoint.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds: Arrays = {"x": x, **weights, "adj_y": seed.astype(np.float32)[..., None]}
    wanted = {value.name for value in session.get_inputs()}
    found = session.run(
        [f"adj_{key}" for key in weights],
        {key: value for key, value in feeds.items() if key in wanted},
    )
    return {
        key: np.asarray(value).reshape(weights[key].shape)
        for key, value in zip(weights, found, strict=True)
    }


def _weights_to_inputs(model: onnx.ModelProto, rows: int) -> Arrays:
    """Make weights inputs and the batch a fixed one; return the weights."""
    graph = model.graph
    weights = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and "running" not in tensor.name
    }
    kept = [tensor for tensor in graph.initializer if tensor.name not in weights]
    copies = [numpy_helper.from_array(numpy_helper.to_array(t), t.name) for t in kept]
    del graph.initializer[:], graph.value_info[:]
    graph.initializer.extend(copies)
    graph.input[0].type.tensor_type.shape.dim[0].dim_value = rows
    graph.output[0].type.tensor_type.shape.dim[0].dim_value = rows
    for name, value in weights.items():
        graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, value.shape))
    return weights


def _seed(loss: str, output: NDArray[np.float64], y: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return the gradient of the mean loss with respect to the output."""
    if loss == "cross_entropy":
        shifted = np.exp(output - output.max(1, keepdims=True))
        return (shifted / shifted.sum(1, keepdims=True) - np.eye(output.shape[1])[y]) / len(y)
    if loss == "binary_cross_entropy":
        return (1 / (1 + np.exp(-output)) - y[:, None]) / len(y)
    error = output - y
    return (2 * error if loss == "mse" else np.clip(error, -1, 1)) / error.size


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the stored file")
    is_check = parser.parse_args().check
    found: Arrays = {"version": np.array(_version())}
    for name in torch_vectors.NETS:
        try:
            found |= {f"{name}/{key}": value for key, value in gradients(name).items()}
        except Exception as error:  # noqa: BLE001 - whatever it refuses is left out, by name
            sys.stderr.write(f"{name}: {type(error).__name__}: {str(error)[:200]}\n")
        else:
            sys.stderr.write(f"{name}: differentiated\n")
    if not is_check:
        np.savez_compressed(OUT, **found)
        return 0
    with np.load(OUT) as stored:
        names = set(stored.files) - {"version"}
        same = [np.allclose(stored[name], found[name], rtol=1e-4, atol=1e-7) for name in names]
    return 0 if all(same) else 1


def _version() -> str:
    from importlib import metadata

    return metadata.version("onnx-ad")


if __name__ == "__main__":
    raise SystemExit(main())
