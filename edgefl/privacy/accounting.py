"""Renyi differential privacy: mechanisms, composition, conversion; plain `math`, for boards too.

An RDP curve is a tuple of divergences, one per order, in nats. Curves of the same orders add up
under composition. Every function here is an upper bound; none is an estimate.
"""

import math
from collections.abc import Sequence

from edgefl.errors import PrivacyError

RDP_ORDERS: tuple[float, ...] = (
    *(1 + step / 100 for step in range(2, 21)),
    *(1 + step / 20 for step in range(5, 20)),
    *(step / 4 for step in range(8, 25)),
    *(float(order) for order in range(7, 33)),
    *(40.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0, 512.0, 1024.0),
)
"""Orders of the ledger and of every plan; the fine grid near 1 serves noise far below the norm."""

RdpCurve = tuple[float, ...]

# The conversion is numerically unstable, and useless, closer to order 1.
_LEAST_ORDER = 1.01
# Below this the squares underflow; infinity is a bound as well.
_NO_NOISE = 1e-100
_MAX_SERIES_TERMS = 1000
# exp(-30) of the total is below the rounding of a double sum of a thousand terms.
_NEGLIGIBLE_LOG = 30.0


def check_orders(orders: Sequence[float]) -> None:
    """Refuse orders at which no divergence is defined here.

    Raises:
        PrivacyError: E-RDP-ORDER, an order is not a number above 1.
    """
    for order in orders:
        if not (math.isfinite(order) and order > 1):
            raise PrivacyError("E-RDP-ORDER", "orders above 1", repr(order))


def gaussian_rdp(noise_multiplier: float, orders: Sequence[float] = RDP_ORDERS) -> RdpCurve:
    """Return the RDP of one Gaussian release.

    Args:
        noise_multiplier: Noise std on the sum divided by the L2 sensitivity, at least 0.
        orders: Renyi orders above 1.

    Returns:
        One divergence per order; infinity without noise.

    Raises:
        PrivacyError: E-NOISE-MULTIPLIER or E-RDP-ORDER.

    Source: Mironov 2017 (arXiv:1702.07476), proposition 7.
    """
    _check_noise_multiplier(noise_multiplier)
    check_orders(orders)
    if noise_multiplier < _NO_NOISE:
        return tuple(math.inf for _ in orders)
    return tuple(order / (2 * noise_multiplier * noise_multiplier) for order in orders)


def skellam_rdp(
    variance: float,
    l2_squared: float,
    l1: float,
    dimension: int,
    orders: Sequence[float] = RDP_ORDERS,
) -> RdpCurve:
    """Return the RDP of one release of an integer vector with Skellam noise.

    Whole orders use the published bound. Other orders use that of `skellam_rdp_any_order`, whose
    proof is in docs/privacy.md; without it a release with little noise could only be charged at
    order 2, nearly twice its worth.

    Args:
        variance: Variance of the noise in each coordinate of the sum, integer units squared.
        l2_squared: Bound of the squared L2 norm of one device's integer vector.
        l1: Bound of its L1 norm.
        dimension: Number of coordinates.
        orders: Renyi orders above 1.

    Returns:
        One divergence per order; infinity without noise.

    Raises:
        PrivacyError: E-NOISE-VARIANCE or E-RDP-ORDER.

    Source: Agarwal, Kairouz, Liu 2021 (arXiv:2110.04995), theorem 3.5 summed over coordinates.
    """
    check_orders(orders)
    if math.isnan(variance) or variance < 0:
        raise PrivacyError("E-NOISE-VARIANCE", "a variance of at least 0", repr(variance))
    if variance < _NO_NOISE:
        return tuple(math.inf for _ in orders)
    return tuple(
        _skellam_rdp_whole_order(variance, l2_squared, l1, order)
        if order.is_integer()
        else skellam_rdp_any_order(variance, l2_squared, l1, dimension, order)
        for order in map(float, orders)
    )


def skellam_rdp_any_order(
    variance: float, l2_squared: float, l1: float, dimension: int, order: float
) -> float:
    """Bound the Renyi divergence of Skellam noise at any real order above 1.

    The negative log probability of Skellam noise has second differences of at most
    `2 ln(I0(variance) / I1(variance))`, about 1/variance. The bound is that of a Gaussian with this
    curvature, plus a term for the order times the shift not being whole.

    Args:
        variance: Variance per coordinate of the sum, above 0.
        l2_squared: Bound of the squared L2 norm of the integer shift.
        l1: Bound of its L1 norm.
        dimension: Number of coordinates.
        order: Renyi order above 1.

    Returns:
        The divergence in nats.

    Source: docs/privacy.md, "Skellam noise at orders that are not whole"; the ratio of Bessel
    functions is bounded as in Amos 1974 (Mathematics of Computation 28, 239-251).
    """
    curvature = 2 * math.log((0.5 + math.hypot(variance, 1.5)) / variance)
    changed_coordinates = min(float(dimension), l1, l2_squared)
    lattice = 0.0 if order.is_integer() else changed_coordinates / (4 * (order - 1))
    return curvature / 2 * (order * l2_squared + lattice)


def _skellam_rdp_whole_order(variance: float, l2_squared: float, l1: float, order: float) -> float:
    """Return the published bound at a whole order of at least 2."""
    gaussian = order * l2_squared / (2 * variance)
    small_norm = ((2 * order - 1) * l2_squared + 6 * l1) / (4 * variance**2)
    large_norm = 3 * l1 / (2 * variance)
    return gaussian + min(small_norm, large_norm)


def compose(curves: Sequence[Sequence[float]]) -> RdpCurve:
    """Add RDP curves of the same orders; the result does not depend on their sequence.

    Raises:
        PrivacyError: E-RDP-LENGTH, the curves have different lengths or there is none.
    """
    if len({len(curve) for curve in curves}) != 1:
        raise PrivacyError(
            "E-RDP-LENGTH", "curves of one common length", repr([len(curve) for curve in curves])
        )
    return tuple(math.fsum(values) for values in zip(*curves, strict=True))


def repeat(curve: Sequence[float], times: int) -> RdpCurve:
    """Return the RDP of the same release made `times` times, at least 0."""
    if times < 0:
        raise PrivacyError("E-ROUNDS", "a count of at least 0", repr(times))
    return tuple(0.0 if times == 0 else times * value for value in curve)


def epsilon_from_rdp(orders: Sequence[float], curve: Sequence[float], delta: float) -> float:
    """Convert an RDP curve to the smallest epsilon that holds with `delta`.

    Args:
        orders: Renyi orders above 1.
        curve: One divergence per order, each at least 0; infinity is allowed.
        delta: Between 0 and 1, both excluded.

    Returns:
        Epsilon, at least 0; infinity where no order gives a bound.

    Raises:
        PrivacyError: E-DELTA, E-RDP-LENGTH, E-RDP-ORDER or E-RDP-VALUE.

    Source: Canonne, Kamath, Steinke 2020 (arXiv:2004.00010), proposition 12; for tiny divergences
    delta^2 <= 1 - exp(-KL) (Bretagnolle and Huber 1979).
    """
    if not 0 < delta < 1:
        raise PrivacyError("E-DELTA", "a delta between 0 and 1", repr(delta))
    if len(orders) != len(curve) or not orders:
        raise PrivacyError("E-RDP-LENGTH", f"{len(orders)} divergences", str(len(curve)))
    check_orders(orders)
    best = math.inf
    for order, divergence in zip(orders, curve, strict=True):
        if math.isnan(divergence) or divergence < 0:
            raise PrivacyError("E-RDP-VALUE", "divergences of at least 0", repr(divergence))
        best = min(best, _epsilon_at_order(order, divergence, delta))
    return max(0.0, best)


def _epsilon_at_order(order: float, divergence: float, delta: float) -> float:
    if delta**2 + math.expm1(-divergence) > 0:
        return 0.0
    if order <= _LEAST_ORDER:
        return math.inf
    return divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


def poisson_gaussian_rdp(
    sampling_rate: float, noise_multiplier: float, orders: Sequence[float] = RDP_ORDERS
) -> RdpCurve:
    """Return the RDP of one Gaussian release whose cohort was drawn by independent coins.

    Args:
        sampling_rate: Probability q that a device takes part, 0 to 1.
        noise_multiplier: Noise std on the sum divided by the L2 sensitivity, at least 0.
        orders: Renyi orders above 1, whole or not.

    Returns:
        One divergence per order; infinity where the series does not converge.

    Raises:
        PrivacyError: E-SAMPLING-RATE, E-NOISE-MULTIPLIER or E-RDP-ORDER.

    Source: Mironov, Talwar, Zhang 2019 (arXiv:1908.10530), sections 3.1 and 3.3.
    """
    check_sampling_rate(sampling_rate)
    _check_noise_multiplier(noise_multiplier)
    check_orders(orders)
    if sampling_rate == 0:
        return tuple(0.0 for _ in orders)
    if sampling_rate == 1 or noise_multiplier < _NO_NOISE:
        return gaussian_rdp(noise_multiplier, orders)
    return tuple(
        _log_moment(sampling_rate, noise_multiplier, order) / (order - 1)
        for order in map(float, orders)
    )


def poisson_amplified_rdp(
    sampling_rate: float, curve: Sequence[float], orders: Sequence[float] = RDP_ORDERS
) -> RdpCurve:
    """Bound the RDP of any mechanism whose cohort was drawn by independent coins.

    A whole order needs the mechanism's curve at every whole order from 2 up to it; other orders
    take the amplified value of the next whole order. Where that does not help, the unamplified
    value stays, which is always a bound.

    Args:
        sampling_rate: Probability q that a device takes part, 0 to 1.
        curve: The mechanism's RDP without sampling, one value per order.
        orders: Renyi orders above 1.

    Returns:
        One divergence per order.

    Raises:
        PrivacyError: E-SAMPLING-RATE, E-RDP-ORDER or E-RDP-LENGTH.

    Source: Zhu and Wang 2019 (ICML, "Poisson subsampled Renyi differential privacy"), theorem 5.
    """
    check_sampling_rate(sampling_rate)
    check_orders(orders)
    if len(orders) != len(curve):
        raise PrivacyError("E-RDP-LENGTH", f"{len(orders)} divergences", str(len(curve)))
    if sampling_rate == 0:
        return tuple(0.0 for _ in orders)
    if sampling_rate == 1:
        return tuple(curve)
    by_order = {int(o): value for o, value in zip(orders, curve, strict=True) if o == int(o)}
    return tuple(
        min(value, _amplified_at(sampling_rate, by_order, math.ceil(order)))
        for order, value in zip(orders, curve, strict=True)
    )


def check_sampling_rate(sampling_rate: float) -> None:
    """Refuse anything but a probability.

    Raises:
        PrivacyError: E-SAMPLING-RATE.
    """
    if not 0 <= sampling_rate <= 1:
        raise PrivacyError("E-SAMPLING-RATE", "a probability from 0 to 1", repr(sampling_rate))


def _amplified_at(rate: float, by_order: dict[int, float], order: int) -> float:
    if any(step not in by_order for step in range(2, order + 1)):
        return math.inf
    log_rate, log_rest = math.log(rate), math.log1p(-rate)
    total = (order - 1) * log_rest + math.log1p((order - 1) * rate)
    for step in range(2, order + 1):
        constant = 0.0 if step == 2 else math.log(3)
        term = (
            constant
            + math.log(math.comb(order, step))
            + step * log_rate
            + (order - step) * log_rest
            + (step - 1) * by_order[step]
        )
        total = _log_add(total, term)
    return total / (order - 1)


def _log_moment(rate: float, noise_multiplier: float, order: float) -> float:
    if order.is_integer():
        return _log_moment_whole(rate, noise_multiplier, int(order))
    return _log_moment_fractional(rate, noise_multiplier, order)


def _log_moment_whole(rate: float, noise_multiplier: float, order: int) -> float:
    log_rate, log_rest = math.log(rate), math.log1p(-rate)
    total = -math.inf
    for step in range(order + 1):
        log_weight = _log_binomial(order, step) + step * log_rate + (order - step) * log_rest
        total = _log_add(total, log_weight + (step * step - step) / (2 * noise_multiplier**2))
    return total


def _log_moment_fractional(rate: float, noise_multiplier: float, order: float) -> float:
    """Sum both half-line series; absolute values of the signed terms keep it an upper bound."""
    double_variance = 2 * noise_multiplier**2
    split = noise_multiplier**2 * math.log(1 / rate - 1) + 0.5
    log_rate, log_rest = math.log(rate), math.log1p(-rate)
    width = math.sqrt(2) * noise_multiplier
    total = -math.inf
    last_left = last_right = -math.inf
    for step in range(_MAX_SERIES_TERMS):
        rest = order - step
        log_binomial = _log_binomial(order, step)
        left = log_binomial + step * log_rate + rest * log_rest
        left += (step * step - step) / double_variance + _log_half_erfc((step - split) / width)
        right = log_binomial + rest * log_rate + step * log_rest
        right += (rest * rest - rest) / double_variance + _log_half_erfc((split - rest) / width)
        total = _log_add(total, _log_add(left, right))
        falling = left < last_left and right < last_right
        if falling and max(left, right) < total - _NEGLIGIBLE_LOG:
            return total
        last_left, last_right = left, right
    return math.inf


def _log_binomial(upper: float, lower: int) -> float:
    return math.lgamma(upper + 1) - math.lgamma(lower + 1) - math.lgamma(upper - lower + 1)


def _log_half_erfc(x: float) -> float:
    """Return ln(erfc(x) / 2), by the asymptotic series where erfc itself would underflow."""
    if x < 25:
        return math.log(math.erfc(x) / 2)
    inverse = 1 / (2 * x * x)
    series = 1 - inverse * (1 - 3 * inverse * (1 - 5 * inverse * (1 - 7 * inverse)))
    return -x * x - math.log(2 * x * math.sqrt(math.pi)) + math.log(series)


def _log_add(left: float, right: float) -> float:
    """Return ln(exp(left) + exp(right)) without overflow."""
    low, high = min(left, right), max(left, right)
    if math.isinf(high):
        return high
    return high + math.log1p(math.exp(low - high))


def _check_noise_multiplier(noise_multiplier: float) -> None:
    if math.isnan(noise_multiplier) or noise_multiplier < 0:
        raise PrivacyError("E-NOISE-MULTIPLIER", "a number of at least 0", repr(noise_multiplier))
