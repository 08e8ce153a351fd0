"""Plans by wire key, kept from earlier versions: field numbers, choices and derived numbers."""

import json
import math
from pathlib import Path

import pytest

from edgefl.privacy.plan import PrivacyPlan, make_privacy_plan

_FILE = Path(__file__).parents[2] / "vectors" / "regression_privacy_plan.json"
CASES = json.loads(_FILE.read_text(encoding="utf-8"))["cases"]

# Another machine's logarithm may differ in the last digits, and the search for the scale with it.
_TOLERANCE = 1e-9


def plain(values: dict[str, object]) -> dict[str, object]:
    return {name: math.inf if value == "infinity" else value for name, value in values.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_wire_form_is_read_and_written_as_before(case: dict[str, dict[str, object]]) -> None:
    wire = {int(key): value for key, value in plain(case["wire"]).items()}
    plan = PrivacyPlan.from_wire(wire)
    assert plan.to_wire() == wire
    for name, value in case["derived"].items():
        # Exponents of about 30 turn a last digit into more of them.
        assert getattr(plan, name) == pytest.approx(value, rel=1e-6), name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_same_choices_make_the_same_plan(case: dict[str, dict[str, object]]) -> None:
    made = make_privacy_plan(**plain(case["choices"])).to_wire()
    for key, value in plain(case["wire"]).items():
        if isinstance(value, float):
            assert made[int(key)] == pytest.approx(value, rel=_TOLERANCE)
        else:
            assert made[int(key)] == value
