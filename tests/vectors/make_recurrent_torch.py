"""Writes recurrent_torch.json: gradients of torch.nn.LSTM, GRU and RNN in ONNX layout, by autograd.

Run with PyTorch installed, from the repository's root: python tests/vectors/make_recurrent_torch.py
"""

import json
from pathlib import Path

import numpy as np
import torch

STEPS, BATCH, FEATURES, HIDDEN = 11, 2, 3, 2
# PyTorch's order of gates by ONNX's: LSTM has (i, f, g, o) for (i, o, f, c), GRU (r, z, n) for
# (z, r, h).
GATE_ORDER = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}
DIGITS = 9


def in_onnx_order(operator: str, rows: torch.Tensor) -> np.ndarray:
    """Reorder the blocks of gates; rows [gates * hidden, ...]."""
    blocks = np.split(rows.detach().numpy(), len(GATE_ORDER[operator]))
    return np.concatenate([blocks[index] for index in GATE_ORDER[operator]])


def layout(operator: str, values: dict[str, torch.Tensor], directions: int) -> dict[str, list]:
    """Stack weights, or their gradients, as ONNX's W, R and B."""
    suffixes = ["", "_reverse"][:directions]

    def stacked(*names: str) -> np.ndarray:
        return np.stack(
            [
                np.concatenate([in_onnx_order(operator, values[f"{n}{s}"]) for n in names])
                for s in suffixes
            ]
        )

    return {
        "w": plain(stacked("weight_ih_l0")),
        "r": plain(stacked("weight_hh_l0")),
        "b": plain(stacked("bias_ih_l0", "bias_hh_l0")),
    }


def plain(array: np.ndarray) -> list:
    """Return nested lists of floats with enough digits for float32."""
    return np.vectorize(lambda value: float(f"{value:.{DIGITS}g}"), otypes=[float])(array).tolist()


def case(operator: str, options: dict[str, object], seed: int) -> dict[str, object]:
    """Run one layer in float64 and return inputs, outputs, their weights and all gradients."""
    torch.manual_seed(seed)
    network = getattr(torch.nn, operator)(FEATURES, HIDDEN, dtype=torch.float64, **options)
    for parameter in network.parameters():
        # Values that float32 holds exactly, so that both sides start from the same point.
        parameter.data = parameter.data.float().double()
    directions = 2 if network.bidirectional else 1

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).double().requires_grad_(True)

    x = draw(STEPS, BATCH, FEATURES)
    states = [draw(directions, BATCH, HIDDEN) for _ in range(2 if operator == "LSTM" else 1)]
    y, last = network(x, tuple(states) if operator == "LSTM" else states[0])
    # ONNX's Y is [T, directions, N, H].
    y = y.reshape(STEPS, BATCH, directions, HIDDEN).transpose(1, 2)
    outputs = dict(
        zip(["y", "y_h", "y_c"], [y, *(last if operator == "LSTM" else [last])], strict=False)
    )
    seeds = {name: torch.randn(value.shape).double() for name, value in outputs.items()}
    sum((outputs[name] * seeds[name]).sum() for name in outputs).backward()
    inputs = dict(zip(["x", "h0", "c0"], [x, *states], strict=False))
    parameters = dict(network.named_parameters())
    gradients = {name: parameter.grad for name, parameter in parameters.items()}
    return {
        "name": f"{operator} {options}",
        "operator": operator,
        "directions": directions,
        "activation": "Relu" if options.get("nonlinearity") == "relu" else "Tanh",
        "inputs": {name: plain(value.detach().numpy()) for name, value in inputs.items()}
        | layout(operator, parameters, directions),
        "outputs": {name: plain(value.detach().numpy()) for name, value in outputs.items()},
        "seeds": {name: plain(value.numpy()) for name, value in seeds.items()},
        "gradients": {name: plain(value.grad.numpy()) for name, value in inputs.items()}
        | layout(operator, gradients, directions),
    }


def main() -> None:
    """Write the file beside this script."""
    forms = [
        ("LSTM", {}),
        ("LSTM", {"bidirectional": True}),
        ("GRU", {}),
        ("GRU", {"bidirectional": True}),
        ("RNN", {}),
        ("RNN", {"nonlinearity": "relu", "bidirectional": True}),
    ]
    document = {
        "provenance": f"PyTorch {torch.__version__.split('+')[0]}, autograd in float64; written by "
        "tests/vectors/make_recurrent_torch.py",
        "cases": [case(*form, seed) for seed, form in enumerate(forms)],
    }
    path = Path(__file__).with_name("recurrent_torch.json")
    path.write_text(json.dumps(document, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
