"""Models trained elsewhere learn a new device's examples, from `edgefl model prepare` on.

The long version, with silero-vad, is tests/benchmarks/training/real_models.py.
"""

from dataclasses import replace

import pytest

from tests.benchmarks.training.real_models import fine_tune, har_cases, mobilenet_cases

CASES = {f"{case.name}, {case.options[1]}": case for case in [*har_cases(), *mobilenet_cases()]}
# Share of the held-out examples; about half of what was seen.
GAINS = {
    "har-cnn, all": 0.03,
    "har-gru, all": 0.01,
    "har-attention, all": 0.02,
    "har-attention, lora:4,head": 0.01,
    "mobilenet, all": 0.4,
    "mobilenet, head": 0.12,
}


@pytest.mark.parametrize("name", GAINS)
def test_a_real_model_learns_a_new_device(name, tmp_path):
    found = fine_tune(replace(CASES[name], epochs=4), tmp_path / "case.efl")
    assert found.loss_after < 0.9 * found.loss_before
    assert found.accuracy_after >= found.accuracy_before + GAINS[name]
