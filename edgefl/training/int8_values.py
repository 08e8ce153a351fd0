"""Numbers of int8 models: scales from ranges and weights, and rounding to integers (numpy only)."""

from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
_Number = TypeVar("_Number", bound=np.generic)

LARGEST_INT8: Final = 127
"""Weights use -127 to 127, so that zero is in the middle and the sign costs nothing."""
SMALLEST_SCALE: Final = np.float32(1e-10)
"""Scale of a channel of zeros, which any scale would do for."""
_SMALLEST_RANGE = 1e-6
_LARGEST_BIAS = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationScale:
    """How a value between layers becomes int8.

    Attributes:
        scale: Size of one step, above 0.
        zero_point: The integer that stands for 0.0.
    """

    scale: np.float32
    zero_point: int


def activation_scale(lowest: float, highest: float) -> ActivationScale:
    """Return the scale that spreads a range over all 256 integers and hits 0.0 exactly.

    Args:
        lowest: Least value to be represented, finite.
        highest: Greatest value, finite.

    Source: Jacob et al., arXiv:1712.05877, section 3.
    """
    low, high = min(lowest, 0.0), max(highest, 0.0)
    scale = np.float32(max(high - low, _SMALLEST_RANGE) / 255)
    return ActivationScale(scale=scale, zero_point=round(-128 - low / float(scale)))


def weight_scales(weight: Floats, axis: int | None, headroom: float = 1.0) -> Floats:
    """Return the step of each channel (or of the tensor) at which the largest value just fits.

    Args:
        weight: float32 [...].
        axis: Axis of the channels; None for one scale.
        headroom: Factor by which values may grow before they no longer fit.

    Returns:
        float32 [channels], or float32 [] for one scale; above 0.
    """
    others = None if axis is None else tuple(i for i in range(weight.ndim) if i != axis)
    largest = np.asarray(np.abs(weight).max(axis=others), np.float32) * np.float32(headroom)
    # Times the inverse, as the training graph does: a division may round otherwise.
    return np.asarray(np.maximum(largest * np.float32(1 / LARGEST_INT8), SMALLEST_SCALE))


def bias_scales(bias: Floats, product_scales: Floats) -> Floats:
    """Return the step of each bias: that of the products it is added to, if int32 holds it then.

    Args:
        bias: float32 [...].
        product_scales: float32 [] or [channels]: scale of the input times scale of the weights.

    Returns:
        float32 of the shape of `product_scales`.
    """
    needed = np.abs(bias).astype(np.float64) / _LARGEST_BIAS
    if product_scales.ndim == 0:
        needed = needed.max(keepdims=True).reshape(())
    return np.maximum(product_scales, needed).astype(np.float32)


def to_integers(
    values: Floats,
    scales: Floats,
    axis: int | None,
    *,
    zero_point: NDArray[np.generic],
) -> NDArray[np.generic]:
    """Round as QuantizeLinear does: to the nearest integer, ties to even, cut at the type's ends.

    Args:
        values: float32 [...].
        scales: float32 [] or [channels].
        axis: Axis of the channels; None for one scale.
        zero_point: Integer of [] or [channels]; its dtype is that of the result.

    Returns:
        Integers of the shape of `values`.
    """
    kind = np.iinfo(zero_point.dtype.name)
    steps = values / along(scales, axis, values.ndim)
    moved = np.rint(steps).astype(np.float64) + along(zero_point, axis, values.ndim)
    integers: NDArray[np.generic] = np.clip(moved, kind.min, kind.max).astype(zero_point.dtype)
    return integers


def to_floats(
    integers: NDArray[np.generic],
    scales: Floats,
    axis: int | None,
    *,
    zero_point: NDArray[np.generic],
) -> Floats:
    """Return what integers stand for, as DequantizeLinear does: float32 of the same shape."""
    shift = along(zero_point, axis, integers.ndim).astype(np.int64)
    moved = integers.astype(np.int64) - shift
    values: Floats = moved.astype(np.float32) * along(scales, axis, integers.ndim)
    return values


def along(per_channel: NDArray[_Number], axis: int | None, rank: int) -> NDArray[_Number]:
    """Shape values per channel so that they broadcast along an axis of a tensor.

    Args:
        per_channel: [] or [1] (one for all), or [channels].
        axis: Axis of the channels; None for one value.
        rank: Number of axes of the tensor.
    """
    if per_channel.size == 1:
        return per_channel.reshape(())
    if axis is None:
        message = f"{per_channel.size} scales without an axis"
        raise ValueError(message)
    return per_channel.reshape([-1 if index == axis % rank else 1 for index in range(rank)])
