"""Tell Ed25519 public keys from 32 bytes that no secret key of anybody belongs to.

Signatures are checked strictly, so such a key verifies nothing; named where a person gives it, it
is a message instead of a fleet in which no roster ever counts.
Not guaranteed: that anybody holds the secret of a key that passes.
Source: RFC 8032, sections 5.1 and 5.1.3.
"""

WEAK_KEY = "E-ENROLMENT-KEY-WEAK"
"""The code of refusals of such a key as an enrolment key."""

_FIELD = 2**255 - 19
_CURVE_D = -121665 * pow(121666, -1, _FIELD) % _FIELD
_SIGN = 1 << 255


def weakness_of(public_key: bytes) -> str | None:
    """Return in words why a key is none; None for a usable one.

    Args:
        public_key: 32 bytes. Not secret: the time it takes depends on them.
    """
    y = int.from_bytes(public_key, "little") & ~_SIGN
    if y >= _FIELD:
        return "an encoding that is not canonical"
    if _is_of_small_order(y):
        return "a point of small order, with which signatures mean nothing"
    if not _is_on_curve(y):
        return "no point of the curve"
    return None


def _is_of_small_order(y: int) -> bool:
    """Tell whether eight times a point is the neutral element.

    The points of order 1, 2 and 4 have y = 1, -1 and 0. One of order 8 has an order-4 double, hence
    x^2 = -y^2, and by the curve's equation d y^4 + 2 y^2 - 1 = 0.
    """
    square = y * y % _FIELD
    return y in (0, 1, _FIELD - 1) or (_CURVE_D * square * square + 2 * square - 1) % _FIELD == 0


def _is_on_curve(y: int) -> bool:
    """Tell whether x^2 = (y^2 - 1) / (d y^2 + 1) has a root (Euler's criterion)."""
    square = y * y % _FIELD
    # A quotient is a square if and only if the product is.
    product = (square - 1) * (_CURVE_D * square + 1) % _FIELD
    return pow(product, (_FIELD - 1) // 2, _FIELD) <= 1
