"""Clipped updates obey the norm bound exactly, in any order of summation."""

from fractions import Fraction

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgefl.privacy.clipping import clip_update

UPDATES = arrays.arrays(
    np.float32,
    st.integers(1, 40),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)
CLIP_NORMS = st.floats(min_value=1e-45, max_value=1e30, exclude_min=True)


def exact_norm_squared(update: np.ndarray) -> Fraction:
    return sum((Fraction(float(x)) ** 2 for x in update), Fraction(0))


@given(UPDATES, CLIP_NORMS)
@example(np.full(30, 3e38, dtype=np.float32), 1.0)
@example(np.array([1e-44, 1e-44], dtype=np.float32), 1e-44)
def test_result_is_within_the_bound(update: np.ndarray, clip_norm: float) -> None:
    clipped, norm = clip_update(update, clip_norm)
    assert clipped.dtype == np.float32
    assert float(np.sqrt(np.sum(np.square(clipped.astype(np.float64))))) <= clip_norm
    if norm > clip_norm:
        assert exact_norm_squared(clipped) <= Fraction(clip_norm) ** 2


@given(UPDATES, st.floats(min_value=1e-20, max_value=1e20))
def test_clipping_only_shrinks_and_keeps_signs(update: np.ndarray, clip_norm: float) -> None:
    clipped, _ = clip_update(update, clip_norm)
    assert (np.abs(clipped) <= np.abs(update)).all()
    assert ((np.sign(clipped) == np.sign(update)) | (clipped == 0)).all()


@given(UPDATES, st.floats(min_value=1e-10, max_value=1e10))
def test_clipping_loses_next_to_nothing(update: np.ndarray, clip_norm: float) -> None:
    clipped, norm = clip_update(update, clip_norm)
    if norm > clip_norm:
        kept = float(np.linalg.norm(clipped.astype(np.float64)))
        assert kept >= clip_norm * (1 - 1e-6) - 1e-43
