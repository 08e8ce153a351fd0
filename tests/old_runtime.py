"""Holds the oldest onnxruntime that bundles are made for against the one of this environment.

    python -m tests.old_runtime --python OLD/bin/python
    python -m tests.old_runtime --python OLD/bin/python --store

OLD is an environment with `pip install 'onnxruntime==1.16.3' 'numpy<2'`. Each net that PyTorch
exported (tests/vectors/training), and a small one in quantized modes, is compiled once; both
runtimes then predict, take gradients and train ten steps, with their graph optimisations and
without. `--store` writes what the old one said beside the vectors, so that tests can do without it.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "tests" / "vectors" / "training" / "onnxruntime_1_16_3.npz"
TOLERANCES = {"output": 1e-6, "loss": 1e-6, "gradient": 1e-6, "update": 1e-5}
"""Shares of an array's largest value: sums are rounded in another order, and ten steps add up."""
HUGE_LR = 2.0**40
STEPS = 10

Results = dict[str, NDArray[np.generic]]


def results_of(bundle_path: Path, x: NDArray[np.generic], y: NDArray[np.generic]) -> Results:
    """Return what this environment's runtime makes of a bundle, by name."""
    from edgefl.training.bundle import read_bundle
    from edgefl.training.onnx.runtime.trainer import OnnxTrainer

    bundle = read_bundle(bundle_path)
    found: Results = {}
    for optimize in (True, False):
        form = "optimised" if optimize else "plain"
        trainer = OnnxTrainer(bundle, optimize=optimize)
        found[f"{form}/output"] = trainer.predict(x)
        settings = {"epochs": 1, "batch_size": len(x), "rng": np.random.default_rng(0)}
        found[f"{form}/loss"] = np.array(trainer.fit(x, y, lr=HUGE_LR, **settings))
        found[f"{form}/gradient"] = (trainer.delta() / -HUGE_LR).astype(np.float32)
        trainer.set_params(bundle.initial_params)
        trainer.fit(x, y, lr=0.05, **settings | {"epochs": STEPS})
        found[f"{form}/update"] = trainer.delta()
    return found


def difference(found: NDArray[np.generic], expected: NDArray[np.generic]) -> float:
    """Return the largest difference as a share of the largest value."""
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-12))


def write_inputs(folder: Path) -> None:
    """Compile the nets and lay their bundles and data into a folder."""
    from edgefl.training.kinds import Loss
    from edgefl.training.onnx.compile.bundle import compile_with
    from edgefl.training.onnx.compile.options import CompileOptions
    from tests import torch_vectors

    for name, net in torch_vectors.NETS.items():
        source = torch_vectors.model(net["files"][-1])
        prepared = compile_with(source, CompileOptions(loss=Loss(net["loss"])))
        (folder / f"{name}.efl").write_bytes(prepared.bundle_bytes)
        stored = torch_vectors.load(name)
        rows = slice(0, torch_vectors.BATCH)
        targets = torch_vectors.targets(name, stored.y[rows])
        np.savez(folder / f"{name}.npz", x=stored.x[rows], y=targets)
    _write_quantized(folder)


def _write_quantized(folder: Path) -> None:
    """Add steps through rounding; grids are left out, as they cut what `HUGE_LR` does."""
    from tests.unit.training import quant_nets

    x, y = quant_nets.moved_windows(16)
    for mode, trainable in (("static", "biases,head"), ("static", "lora:2,head"), ("qat", "all")):
        prepared = quant_nets.prepared(quant_nets.trained_net(), mode, trainable=trainable)
        name = f"{mode}-{trainable.partition(':')[0].partition(',')[0]}"
        (folder / f"{name}.efl").write_bytes(prepared.bundle_bytes)
        np.savez(folder / f"{name}.npz", x=x, y=y)


def run_folder(folder: Path, out: Path) -> None:
    """Compute the results of all nets of a folder."""
    found: Results = {}
    for bundle in sorted(folder.glob("*.efl")):
        with np.load(bundle.with_suffix(".npz")) as data:
            results = results_of(bundle, data["x"], data["y"])
        found |= {f"{bundle.stem}/{key}": value for key, value in results.items()}
    np.savez_compressed(out, **found)


def _results_with(python: str, folder: Path, out: Path) -> Results:
    command = [python, "-m", "tests.old_runtime", "--run", str(folder), str(out)]
    subprocess.run(command, check=True, cwd=ROOT)
    with np.load(out) as stored:
        return dict(stored)


def compare(old_python: str, *, is_stored: bool) -> int:
    """Run both, print the largest difference of each kind, and count those that are too large."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder)
        old = _results_with(old_python, folder, folder / "old.out.npz")
        new = _results_with(sys.executable, folder, folder / "new.out.npz")
    differences = {key: difference(new[key], old[key]) for key in old}
    for kind in ("output", "loss", "gradient", "update"):
        of_kind = {key: value for key, value in differences.items() if key.endswith(kind)}
        worst = max(of_kind, key=of_kind.__getitem__)
        print(f"{kind}: at most {of_kind[worst]:.1e} apart ({worst})")
    if is_stored:
        kept = {key: value for key, value in old.items() if "/optimised/" in key}
        np.savez_compressed(STORED, **kept)
    return sum(value > tolerance(key) for key, value in differences.items())


def tolerance(key: str) -> float:
    """Return the largest difference that a result may have."""
    return TOLERANCES[key.rpartition("/")[2]]


def main() -> int:
    """Compare, or do one side's part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", help="interpreter of the environment with the old runtime")
    parser.add_argument("--store", action="store_true", help="keep what the old one said")
    parser.add_argument("--run", nargs=2, type=Path, metavar=("FOLDER", "OUT"), help="one side")
    options = parser.parse_args()
    if options.run:
        run_folder(*options.run)
        return 0
    return 1 if compare(options.python, is_stored=options.store) else 0


if __name__ == "__main__":
    raise SystemExit(main())
