"""Bound the L2 norm of one device's whole update."""

import math

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import ConfigError, PrivacyError

# Keeps a clipped vector under the bound for every order of summation a reader may use.
_SAFETY_MARGIN = 2.0**-22


def check_clip_norm(clip_norm: float) -> None:
    """Refuse anything but a finite number above 0.

    Raises:
        ConfigError: E-CLIP-NORM.
    """
    is_number = isinstance(clip_norm, int | float) and not isinstance(clip_norm, bool)
    if not is_number or not math.isfinite(clip_norm) or clip_norm <= 0:
        raise ConfigError(
            "E-CLIP-NORM", "a clip norm above 0", repr(clip_norm), "set clip_norm, for example 1.0"
        )


def clip_update(update: NDArray[np.float32], clip_norm: float) -> tuple[NDArray[np.float32], float]:
    """Scale an update down so that its L2 norm is at most the clip norm.

    Args:
        update: float32 [d]. It is not changed.
        clip_norm: L2 bound, update units.

    Returns:
        The clipped update, float32 [d] (the same array where nothing had to be done), and the norm
        before clipping. That norm depends on private data and must not leave the device.

    Raises:
        ConfigError: E-CLIP-NORM.
        PrivacyError: E-UPDATE-SHAPE for another type or shape; E-UPDATE-NOT-FINITE with the first
            index.

    Privacy:
        The norm is taken in float64 over the whole vector, and results are rounded toward zero, so
        the returned float32 values themselves obey the bound.
    """
    check_clip_norm(clip_norm)
    if not isinstance(update, np.ndarray) or update.dtype != np.float32 or update.ndim != 1:
        found = f"{getattr(update, 'dtype', type(update).__name__)} {getattr(update, 'shape', '')}"
        raise PrivacyError("E-UPDATE-SHAPE", "a float32 vector", found.strip())
    finite = np.isfinite(update)
    if not finite.all():
        index = int(np.argmin(finite))
        raise PrivacyError(
            "E-UPDATE-NOT-FINITE",
            "finite numbers",
            f"{update[index]} at index {index}",
            "lower the learning rate or check the data",
        )
    exact = update.astype(np.float64)
    norm = math.sqrt(float(np.sum(np.square(exact))))
    if norm <= clip_norm:
        return update, norm
    exact *= clip_norm / norm * (1 - _SAFETY_MARGIN)
    return _round_toward_zero(exact), norm


def _round_toward_zero(exact: NDArray[np.float64]) -> NDArray[np.float32]:
    """Cast float64 [d] to float32 [d] without growing any magnitude, subnormal numbers included."""
    nearest = exact.astype(np.float32)
    grown = np.abs(nearest.astype(np.float64)) > np.abs(exact)
    nearest[grown] = np.nextafter(nearest[grown], np.float32(0))
    return nearest
