"""Clipping: the bound holds for the float32 result, and bad input is named."""

import math

import numpy as np
import pytest

from edgefl.errors import ConfigError, PrivacyError
from edgefl.privacy.clipping import clip_update


def test_short_update_passes_unchanged() -> None:
    update = np.array([0.3, -0.4], dtype=np.float32)
    clipped, norm = clip_update(update, 1.0)
    assert clipped is update
    assert norm == pytest.approx(0.5)


def test_zero_passes_as_zero() -> None:
    clipped, norm = clip_update(np.zeros(5, dtype=np.float32), 1.0)
    assert norm == 0.0
    assert not clipped.any()


def test_long_update_keeps_its_direction() -> None:
    update = np.array([30.0, -40.0], dtype=np.float32)
    clipped, norm = clip_update(update, 1.0)
    assert norm == 50.0
    assert clipped == pytest.approx([0.6, -0.8], rel=1e-6)
    assert update[0] == 30.0


def test_norm_does_not_overflow_float32() -> None:
    update = np.full(4, 3e38, dtype=np.float32)
    clipped, norm = clip_update(update, 2.0)
    assert norm == pytest.approx(6e38)
    assert clipped == pytest.approx([1.0] * 4, rel=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_not_finite_is_named_with_its_index(bad: float) -> None:
    update = np.zeros(10, dtype=np.float32)
    update[7] = bad
    with pytest.raises(PrivacyError, match=r"E-UPDATE-NOT-FINITE.* at index 7"):
        clip_update(update, 1.0)


@pytest.mark.parametrize("clip_norm", [0, 0.0, -1.0, math.nan, math.inf, "1.0", None, True])
def test_useless_clip_norm_is_refused(clip_norm: float) -> None:
    with pytest.raises(ConfigError, match="E-CLIP-NORM"):
        clip_update(np.zeros(2, dtype=np.float32), clip_norm)


@pytest.mark.parametrize(
    "update",
    [np.zeros(2), np.zeros((1, 2), dtype=np.float32), [0.0, 1.0], np.zeros(2, dtype=np.int32)],
)
def test_other_types_and_shapes_are_not_cast(update: np.ndarray) -> None:
    with pytest.raises(PrivacyError, match="E-UPDATE-SHAPE"):
        clip_update(update, 1.0)
