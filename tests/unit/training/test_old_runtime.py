"""This environment's onnxruntime computes what 1.16.3 was seen to compute, optimised or not.

`python -m tests.old_runtime` runs the old one again; scripts/test does so.
"""

import numpy as np
import pytest

from tests import old_runtime, torch_vectors


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles")
    old_runtime.write_inputs(folder)
    return folder


@pytest.fixture(scope="module")
def stored():
    with np.load(old_runtime.STORED) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("name", torch_vectors.NETS)
def test_results_are_those_of_the_oldest_runtime(name, inputs, stored):
    with np.load(inputs / f"{name}.npz") as data:
        found = old_runtime.results_of(inputs / f"{name}.efl", data["x"], data["y"])
    assert np.abs(found["plain/gradient"]).max() > 0
    for key, value in found.items():
        kind = key.rpartition("/")[2]
        difference = old_runtime.difference(value, stored[f"{name}/optimised/{kind}"])
        # Both sides round: this runtime with its optimisations and without, the old one with them.
        assert difference <= 2 * old_runtime.tolerance(key), key
