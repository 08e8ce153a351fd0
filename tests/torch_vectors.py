"""Reads what PyTorch said of the stored nets, and lines its tensors up with those of a bundle."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from edgefl.training.evaluate import split_params
from edgefl.training.manifest import Manifest

FOLDER = Path(__file__).parent / "vectors" / "training"
PROVENANCE = json.loads((FOLDER / "provenance.json").read_text(encoding="utf-8"))
NETS: dict[str, dict] = PROVENANCE["nets"]
ORDER_SEED, BATCH, EPOCHS = (PROVENANCE[key] for key in ("order_seed", "batch", "epochs"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """What is stored of one net.

    Attributes:
        name: The net.
        arrays: By name: `start/T`, `gradient/T`, `sgd/T`... for each tensor T of the module.
    """

    name: str
    arrays: dict[str, NDArray[np.generic]]

    @property
    def x(self) -> NDArray[np.generic]:
        """Inputs as the model takes them."""
        stored = self.arrays["x"]
        if NETS[self.name]["tokens"]:
            return stored.astype(np.int64)
        return (stored / np.float32(32)).astype(np.float32)

    @property
    def y(self) -> NDArray[np.generic]:
        return self.arrays["y"]

    def tensors(self, kind: str) -> dict[str, NDArray[np.float32]]:
        """One kind of tensors by their name in the module."""
        prefix = f"{kind}/"
        found = {k.removeprefix(prefix): v for k, v in self.arrays.items() if k.startswith(prefix)}
        return {name: value.astype(np.float32) for name, value in found.items()}

    def lined_up(
        self, manifest: Manifest, initial: NDArray[np.float32], kind: str
    ) -> dict[str, NDArray[np.float32]]:
        """PyTorch's tensors under a bundle's names and in its shapes.

        Exporters rename tensors and turn matrices over; each has values that no other has.
        """
        starts, wanted = self.tensors("start"), self.tensors(kind)
        found = {}
        for name, value in split_params(initial, manifest.parameters).items():
            matches = [
                turned(wanted[key]).reshape(value.shape)
                for key, start in starts.items()
                for turned in (np.asarray, np.transpose)
                if start.size == value.size and np.array_equal(turned(start).ravel(), value.ravel())
            ]
            assert matches, f"no tensor of the module has the values of {name}"
            found[name] = matches[0]
        assert len(found) == len(starts), "every tensor of the module is trained"
        return found


def load(name: str) -> Vectors:
    with np.load(FOLDER / f"{name}.npz") as stored:
        return Vectors(name=name, arrays=dict(stored))


def model(file: str) -> onnx.ModelProto:
    return onnx.load(FOLDER / file)


def all_files() -> list[tuple[str, str]]:
    """Each net with each of its exported files."""
    return [(name, file) for name, net in NETS.items() for file in net["files"]]


def initial_tensors(source: onnx.ModelProto, names: list[str]) -> list[NDArray[np.generic]]:
    """The values of some initializers."""
    by_name = {tensor.name: tensor for tensor in source.graph.initializer}
    return [numpy_helper.to_array(by_name[name]) for name in names]


def targets(name: str, y: NDArray[np.generic]) -> NDArray[np.generic]:
    """Targets as a net's loss takes them."""
    return y.astype(np.float32)[:, None] if NETS[name]["loss"] == "binary_cross_entropy" else y
