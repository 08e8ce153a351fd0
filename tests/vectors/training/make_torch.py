"""Writes what PyTorch says of the nets: exported files, gradients, and 50 steps of each optimiser.

    python -m tests.vectors.training.make_torch          write the files beside this one
    python -m tests.vectors.training.make_torch --check  make them anew and compare

Needs an environment of its own: `pip install torch onnx onnxscript onnxruntime numpy`. The tests
need only the files. Gradients and steps are computed in float64 and stored as float32.
"""

import argparse
import io
import json
import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch.nn import functional

from tests.vectors.training.torch_nets import NETS, TOKENS, Net, seeded

FOLDER = Path(__file__).parent
ROWS, BATCH, EPOCHS = 80, 8, 5
ORDER_SEED = 3
MOMENTUM, WEIGHT_DECAY = 0.9, 0.01
ALL_OPSETS = range(13, 22)
# Each net by both exporters, once at a low and once at a high opset.
VARIANTS = (("torchscript", 13), ("torchscript", 17), ("dynamo", 18), ("dynamo", 21))

Arrays = dict[str, NDArray[np.generic]]


def variants(name: str) -> list[tuple[str, int]]:
    """Return the exporters and opsets that a net is stored with; the smallest net has them all."""
    if name != "mlp":
        return list(VARIANTS)
    scripts = [("torchscript", opset) for opset in ALL_OPSETS if opset <= 20]
    return scripts + [("dynamo", opset) for opset in ALL_OPSETS if opset >= 18]


def export(net: torch.nn.Module, example: torch.Tensor, exporter: str, opset: int) -> bytes:
    """Return an ONNX file with the batch axis left open and nothing folded away."""
    held = io.BytesIO()
    common = {"input_names": ["x"], "output_names": ["y"], "opset_version": opset}
    if exporter == "dynamo":
        batch = torch.export.Dim("batch")
        program = torch.onnx.export(
            net, (example,), dynamo=True, dynamic_shapes=({0: batch},), optimize=False, **common
        )
        program.save(held)
    else:
        axes = {"x": {0: "batch"}, "y": {0: "batch"}}
        torch.onnx.export(
            net,
            (example,),
            held,
            dynamo=False,
            dynamic_axes=axes,
            do_constant_folding=False,
            **common,
        )
    return without_notes(held.getvalue())


def without_notes(file_bytes: bytes) -> bytes:
    """Drop stack traces and the like, which hold paths and most of a small file."""
    model = onnx.load_from_string(file_bytes)
    parts = [model, model.graph, *model.graph.node, *model.graph.initializer, *model.functions]
    parts += [*model.graph.input, *model.graph.output, *model.graph.value_info]
    parts += [node for function in model.functions for node in function.node]
    for part in parts:
        part.doc_string = ""
        if hasattr(part, "metadata_props"):
            del part.metadata_props[:]
    return model.SerializeToString(deterministic=True)


def data(net: Net) -> Arrays:
    """Return inputs as int8, in 32nds where they are no tokens, and targets."""
    rng = np.random.default_rng([len(net.input_shape), net.classes, int(net.tokens)])
    shape = (ROWS, *net.input_shape)
    if net.tokens:
        x = rng.integers(0, TOKENS, shape).astype(np.int8)
    else:
        x = np.clip(np.round(rng.normal(size=shape) * 32), -127, 127).astype(np.int8)
    if net.loss in {"mse", "huber"}:
        y = rng.normal(0, 1.5, (ROWS, net.classes)).astype(np.float32)
    else:
        y = rng.integers(0, max(net.classes, 2), ROWS)
    return {"x": x, "y": y}


def inputs_of(net: Net, x: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return inputs as the model takes them."""
    return x.astype(np.int64) if net.tokens else (x / np.float32(32)).astype(np.float32)


def loss_of(net: Net, output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean over the rows."""
    if net.loss == "cross_entropy":
        return functional.cross_entropy(output, y)
    if net.loss == "binary_cross_entropy":
        return functional.binary_cross_entropy_with_logits(output[:, 0], y.to(output))
    of_values = functional.mse_loss if net.loss == "mse" else functional.huber_loss
    return of_values(output, y.to(output))


def vectors(name: str) -> Arrays:
    """Return everything that is stored of a net."""
    spec = NETS[name]
    stored = data(spec)
    x = torch.from_numpy(inputs_of(spec, stored["x"]))
    y = torch.from_numpy(stored["y"])
    if not spec.tokens:
        x = x.double()
    net = seeded(name).double()
    output = net(x[:BATCH])
    loss = loss_of(spec, output, y[:BATCH])
    loss.backward()
    stored["output"] = _float32(output)
    stored["loss"] = np.array(loss.item())
    for key, tensor in net.named_parameters():
        stored[f"start/{key}"] = _float32(tensor)
        stored[f"gradient/{key}"] = _float32(tensor.grad)
    for optimizer in ("sgd", "momentum", "adamw"):
        losses, trained = _fifty_steps(name, optimizer, x, y)
        stored[f"losses/{optimizer}"] = np.array(losses)
        for key, tensor in trained.items():
            stored[f"{optimizer}/{key}"] = _float32(tensor)
    return stored


def _float32(tensor: torch.Tensor) -> NDArray[np.float32]:
    return tensor.detach().numpy().astype(np.float32)


def _fifty_steps(
    name: str, optimizer: str, x: torch.Tensor, y: torch.Tensor
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Return the mean loss of each epoch, taken before each step, and the final tensors."""
    net = seeded(name).double()
    step = _optimizer(optimizer, net, NETS[name].lr)
    rng = np.random.default_rng(ORDER_SEED)
    means = []
    for _ in range(EPOCHS):
        order, losses = rng.permutation(ROWS), []
        for start in range(0, ROWS, BATCH):
            chosen = torch.from_numpy(order[start : start + BATCH])
            step.zero_grad()
            loss = loss_of(NETS[name], net(x[chosen]), y[chosen])
            loss.backward()
            step.step()
            losses.append(loss.item())
        means.append(float(np.mean(losses)))
    return means, dict(net.named_parameters())


def _optimizer(name: str, net: torch.nn.Module, lr: float) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(net.parameters(), lr=lr)
    if name == "momentum":
        return torch.optim.SGD(net.parameters(), lr=lr / 10, momentum=MOMENTUM)
    return torch.optim.AdamW(net.parameters(), lr=lr / 10, weight_decay=WEIGHT_DECAY)


def provenance() -> dict[str, object]:
    """Return what made the files."""
    return {
        "made_by": "tests/vectors/training/make_torch.py",
        "torch": torch.__version__.split("+")[0],
        "onnx": onnx.__version__,
        "numpy": np.__version__,
        "order_seed": ORDER_SEED,
        "rows": ROWS,
        "batch": BATCH,
        "epochs": EPOCHS,
        "momentum": MOMENTUM,
        "weight_decay": WEIGHT_DECAY,
        "nets": {
            name: {
                "loss": net.loss,
                "classes": net.classes,
                "tokens": net.tokens,
                "lr": {"sgd": net.lr, "momentum": net.lr / 10, "adamw": net.lr / 10},
                "files": [file_name(name, *variant) for variant in variants(name)],
            }
            for name, net in NETS.items()
        },
    }


def file_name(name: str, exporter: str, opset: int) -> str:
    """Return the name of an exported file."""
    return f"{name}-{exporter}-{opset}.onnx"


def write(names: list[str]) -> None:
    """Write the files of the named nets."""
    for name in names:
        example = torch.from_numpy(inputs_of(NETS[name], data(NETS[name])["x"]))[:2]
        for exporter, opset in variants(name):
            exported = export(seeded(name), example, exporter, opset)
            (FOLDER / file_name(name, exporter, opset)).write_bytes(exported)
            sys.stderr.write(f"{file_name(name, exporter, opset)}: {len(exported)} bytes\n")
        np.savez_compressed(FOLDER / f"{name}.npz", **vectors(name))
    text = json.dumps(provenance(), indent=1) + "\n"
    (FOLDER / "provenance.json").write_text(text, encoding="utf-8")


def check(names: list[str]) -> int:
    """Make the vectors anew; return how many differ."""
    differing = 0
    for name in names:
        with np.load(FOLDER / f"{name}.npz") as stored:
            for key, value in vectors(name).items():
                if not np.allclose(value, stored[key], rtol=1e-5, atol=1e-7):
                    sys.stdout.write(f"{name}: {key} differs\n")
                    differing += 1
    return differing


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the stored vectors")
    parser.add_argument("nets", nargs="*", metavar="NET", help=f"of {', '.join(NETS)}")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    names = options.nets or list(NETS)
    if options.check:
        return 1 if check(names) else 0
    write(names)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
