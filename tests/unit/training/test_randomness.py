"""Python's own generator in place of numpy's: orders and numbers are even."""

import subprocess
import sys

import numpy as np

from edgefl.training.randomness import SmallRandomness


def test_every_order_is_one_of_all_rows_and_all_are_alike():
    drawn = SmallRandomness(1)
    firsts = np.zeros(6, np.int64)
    for _ in range(6000):
        order = drawn.permutation(6)
        assert order.dtype == np.int64
        assert sorted(order) == list(range(6))
        firsts[order[0]] += 1
    # Six counts around 1,000 with a standard deviation of 29; false alarm below 1e-6.
    assert np.abs(firsts - 1000).max() < 160


def test_numbers_are_even_from_0_to_below_1():
    numbers = SmallRandomness(2).random((100, 1000), np.float32)
    assert numbers.dtype == np.float32
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts = np.histogram(numbers, bins=10, range=(0, 1))[0]
    # Each around 10,000 with a standard deviation of 95; false alarm below 1e-6.
    assert np.abs(counts - 10_000).max() < 600


def test_equal_seeds_give_equal_draws():
    one, two = SmallRandomness(7), SmallRandomness(7)
    assert np.array_equal(one.permutation(20), two.permutation(20))
    assert np.array_equal(one.random((3, 4)), two.random((3, 4)))
    assert not np.array_equal(SmallRandomness().permutation(50), SmallRandomness().permutation(50))


def test_an_agent_loads_no_generator_of_numpy():
    code = (
        "import sys, edgefl.cli.agent, edgefl.agent.runtime, edgefl.training.onnx.runtime.trainer; "
        "sys.exit('numpy.random' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
