"""Hypothesis profiles, chosen by EDGEFL_HYPOTHESIS_PROFILE, or `ci` where CI is set."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("dev", max_examples=40, stateful_step_count=40, **_COMMON)
# The same examples every time: a red build must be red again when it is looked into.
settings.register_profile(
    "ci", max_examples=100, stateful_step_count=50, derandomize=True, print_blob=True, **_COMMON
)
# Shows a raw failure at once, where shrinking a long history would take minutes.
settings.register_profile(
    "debug", max_examples=100, phases=[Phase.explicit, Phase.generate], **_COMMON
)
settings.load_profile(
    os.environ.get("EDGEFL_HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev")
)


def pytest_configure(config: pytest.Config) -> None:
    """Leave the tests that take minutes to those who ask for them by `-m long`."""
    if not config.option.markexpr:
        config.option.markexpr = "not long"
