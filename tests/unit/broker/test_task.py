"""A task's rotation and weights: what reaches the privacy plan, and what is refused."""

import math

import pytest

from broker.task import TaskSpec
from edgefl.errors import ConfigError

EXACT = {
    "name": "t",
    "rounds": 3,
    "cohort": 16,
    "quorum": 16,
    "survivor_floor": 10,
    "colluders": 1,
    "clip_norm": 1.0,
    "noise_multiplier": 0.0,
    "epsilon_budget": math.inf,
}
DIMENSION = 1907


def test_rotation_is_on_unless_turned_off() -> None:
    assert TaskSpec(**EXACT).privacy_plan(DIMENSION).rotation_block == 2048
    assert TaskSpec(**EXACT, rotation=False).privacy_plan(DIMENSION).rotation_block == 0


def test_weight_bound_reaches_the_plan() -> None:
    spec = TaskSpec(**EXACT, weighted=True, weight_bound=100)
    assert spec.privacy_plan(DIMENSION).weight_bound == 100
    assert TaskSpec.from_json(spec.to_json()) == spec


def test_weights_with_noise_get_no_plan() -> None:
    noisy = {**EXACT, "noise_multiplier": 1.0, "epsilon_budget": 1e3}
    spec = TaskSpec(**noisy, weighted=True, weight_bound=100)
    with pytest.raises(ConfigError, match="E-WEIGHT-WITH-NOISE"):
        spec.privacy_plan(DIMENSION)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"weighted": True}, "E-TASK-WEIGHTS"),
        ({"weight_bound": 5}, "E-TASK-WEIGHTS"),
        ({"weighted": True, "weight_bound": 0}, "E-TASK-WEIGHTS"),
        ({"weighted": True, "weight_bound": 2.0}, "E-TASK-WEIGHTS"),
        ({"weighted": 1, "weight_bound": 5}, "E-TASK-FLAG"),
        ({"rotation": "no"}, "E-TASK-FLAG"),
    ],
)
def test_contradictory_weights_are_refused(changes: dict[str, object], code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TaskSpec(**{**EXACT, **changes})
    assert caught.value.code == code


def test_task_from_before_the_options_is_read() -> None:
    spec = TaskSpec(**EXACT)
    old = {"rotation", "weighted", "weight_bound"}
    lines = spec.to_json().splitlines()
    kept = [line for line in lines if not any(f'"{name}"' in line for name in old)]
    text = "\n".join(kept).replace(",\n}", "\n}")
    assert TaskSpec.from_json(text) == spec
