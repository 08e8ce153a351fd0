"""Each refusal of the core arrives as its exception of `edgefl.errors`, with all four parts."""

from collections.abc import Callable

import numpy as np
import pytest

from edgefl import _native, errors
from edgefl._native import AgreementKey, CancelFlag, Mask, Seed
from edgefl.errors import ConfigError, EdgeflError

SEED = Seed.from_bytes(bytes(32))
MASK = Mask(SEED, 1, subtract=False)
SHARE = bytes(40)
HUGE = 10**30


def ring(length: int = 3) -> np.ndarray:
    return np.zeros(length, dtype=np.uint32)


def narrow(length: int = 3) -> np.ndarray:
    return np.zeros(length, dtype=np.uint16)


def cancelled() -> CancelFlag:
    flag = CancelFlag()
    flag.cancel()
    return flag


def integers(length: int = 3) -> np.ndarray:
    return np.zeros(length, dtype=np.int64)


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def rounding(update: np.ndarray, scale: float = 1.0, bound: float = 1e9, attempts: int = 2) -> int:
    return _native.quantize(update, integers(len(update)), scale, bound, SEED, attempts)


def noise(variance: float, start: int = 0) -> None:
    values = np.full(64, start, dtype=np.int64)
    _native.add_skellam_noise(values, variance, SEED)


REFUSALS: list[tuple[type[EdgeflError], str, Callable[[], object]]] = [
    (errors.ConfigError, "E-RING-BITS", lambda: _native.pack(ring(), 7)),
    (errors.ConfigError, "E-RING-BITS", lambda: _native.pack(ring(), HUGE)),
    (errors.ConfigError, "E-RING-BITS", lambda: _native.apply_masks(ring(), -HUGE, [])),
    (errors.ConfigError, "E-RING-VALUE", lambda: _native.pack(ring() + np.uint32(256), 8)),
    (errors.ConfigError, "E-LENGTH", lambda: _native.check_coordinates(ring(), 8, bytes(31))),
    (
        errors.ConfigError,
        "E-LENGTH",
        lambda: _native.quantize(floats(1), integers(2), 1.0, 1.0, SEED),
    ),
    (errors.ConfigError, "E-QUANTIZE-SCALE", lambda: rounding(floats(1), scale=0.0)),
    (errors.ConfigError, "E-NORM-BOUND", lambda: rounding(floats(1), bound=float("nan"))),
    (errors.ConfigError, "E-ATTEMPTS", lambda: rounding(floats(1), attempts=0)),
    (errors.ConfigError, "E-ATTEMPTS", lambda: rounding(floats(1), attempts=HUGE)),
    (errors.ConfigError, "E-THREADS", lambda: _native.apply_masks(ring(), 8, [], threads=0)),
    (errors.ConfigError, "E-THREADS", lambda: _native.apply_masks(ring(), 8, [], threads=65)),
    (errors.ConfigError, "E-THREADS", lambda: _native.apply_masks(ring(), 8, [], threads=-1)),
    (errors.ConfigError, "E-LANE-WIDTH", lambda: _native.apply_masks(narrow(), 17, [MASK])),
    (errors.ConfigError, "E-PRG", lambda: Mask(SEED, 3, subtract=False)),
    (errors.ConfigError, "E-PRG", lambda: Mask(SEED, -HUGE, subtract=False)),
    (
        errors.Cancelled,
        "E-CANCELLED",
        lambda: _native.apply_masks(ring(), 8, [MASK], cancel=cancelled()),
    ),
    (errors.ConfigError, "E-SECRET-LENGTH", lambda: Seed.from_bytes(b"short")),
    (errors.PrivacyError, "E-UPDATE-NOT-FINITE", lambda: rounding(floats(1, np.nan, np.inf))),
    (errors.PrivacyError, "E-UPDATE-RANGE", lambda: rounding(floats(1e30))),
    (errors.PrivacyError, "E-UPDATE-NORM", lambda: rounding(floats(2), bound=3.0)),
    (errors.PrivacyError, "E-NOISE-VARIANCE", lambda: noise(-1.0)),
    (errors.PrivacyError, "E-NOISE-VARIANCE", lambda: noise(float("nan"))),
    (errors.PrivacyError, "E-NOISE-VARIANCE", lambda: noise(float("inf"))),
    (errors.PrivacyError, "E-NOISE-OVERFLOW", lambda: noise(1e6, start=2**63 - 1)),
    (errors.ShareError, "E-SHARE-THRESHOLD", lambda: _native.split_secret(SEED, 2, [1], SEED)),
    (errors.ShareError, "E-SHARE-THRESHOLD", lambda: _native.combine_shares([(1, SHARE)], -HUGE)),
    (errors.ShareError, "E-SHARE-POINT", lambda: _native.split_secret(SEED, 1, [0], SEED)),
    (errors.ShareError, "E-SHARE-POINT", lambda: _native.combine_shares([(HUGE, SHARE)], 1)),
    (errors.ShareError, "E-SHARE-POINT", lambda: _native.combine_shares([(-HUGE, SHARE)], 1)),
    (errors.ShareError, "E-SHARE-DUPLICATE", lambda: _native.split_secret(SEED, 1, [2, 2], SEED)),
    (errors.ShareError, "E-SHARE-LENGTH", lambda: _native.combine_shares([(1, b"")], 1)),
    (errors.ShareError, "E-SHARE-RANGE", lambda: _native.combine_shares([(1, b"\xff" * 40)], 1)),
    (errors.ShareError, "E-SHARE-TOO-FEW", lambda: _native.combine_shares([(1, SHARE)], 2)),
    (
        errors.ShareError,
        "E-SHARE-SECRET",
        lambda: _native.combine_shares([(1, bytes(39) + b"\x01")], 1),
    ),
    (errors.WireError, "E-PACKED-LENGTH", lambda: _native.unpack(bytes(4), 8, ring(3))),
    (errors.WireError, "E-PACKED-PADDING", lambda: _native.unpack(b"\0\0\0\x80", 9, ring(3))),
    (
        errors.RemoteProtocolError,
        "E-PUBLIC-KEY",
        lambda: AgreementKey.from_seed(SEED).agree(b"", b"", b""),
    ),
    (
        errors.RemoteProtocolError,
        "E-PUBLIC-KEY",
        lambda: AgreementKey.from_seed(SEED).agree(bytes(32), b"", b""),
    ),
    (errors.RemoteProtocolError, "E-SEALED", lambda: _native.open_sealed(SEED, bytes(80), b"")),
]


@pytest.mark.parametrize(("kind", "code", "action"), REFUSALS)
def test_refusals_arrive_as_their_exception(
    kind: type[EdgeflError], code: str, action: Callable[[], object]
) -> None:
    with pytest.raises(kind) as caught:
        action()
    assert type(caught.value) is kind
    assert caught.value.code == code
    assert caught.value.expected
    assert caught.value.found
    assert isinstance(caught.value.advice, str)
    assert str(caught.value).startswith(f"{code}: expected ")


def test_the_first_bad_coordinate_and_the_count_are_named() -> None:
    with pytest.raises(errors.PrivacyError, match="2 NaN or infinite, the first at index 1"):
        rounding(floats(1, np.nan, 2, -np.inf))


BAD_BUFFERS: list[tuple[str, np.ndarray]] = [
    ("E-BUFFER-FORMAT", np.zeros(3, dtype=np.int32)),
    ("E-BUFFER-FORMAT", np.zeros(3, dtype=np.uint64)),
    ("E-BUFFER-FORMAT", np.zeros(3, dtype=np.float32)),
    ("E-BUFFER-FORMAT", np.zeros(3, dtype=">u4")),
    ("E-BUFFER-SHAPE", np.zeros((3, 1), dtype=np.uint32)),
    ("E-BUFFER-SHAPE", np.zeros((), dtype=np.uint32)),
    ("E-BUFFER-SHAPE", np.zeros(6, dtype=np.uint32)[::2]),
    ("E-BUFFER-SHAPE", np.zeros(3, dtype=np.uint32)[::-1]),
    ("E-BUFFER-READONLY", np.frombuffer(bytes(12), dtype=np.uint32)),
]


@pytest.mark.parametrize(("code", "buffer"), BAD_BUFFERS)
def test_unusable_buffers_are_refused(code: str, buffer: np.ndarray) -> None:
    for action in (
        lambda: _native.apply_masks(buffer, 20, [MASK]),
        lambda: _native.unpack(bytes(9), 24, buffer),
    ):
        with pytest.raises(ConfigError) as caught:
            action()
        assert caught.value.code == code


def test_read_only_buffers_serve_for_reading() -> None:
    values = np.frombuffer(bytes(12), dtype=np.uint32)
    assert _native.pack(values, 8) == bytes(3)
    assert _native.check_coordinates(values, 8, bytes(32)) == [0, 0, 0, 0]


def test_wrong_types_are_type_errors() -> None:
    for action in (
        lambda: _native.pack([1, 2], 8),  # type: ignore[arg-type]
        lambda: _native.pack(ring(), "8"),  # type: ignore[arg-type]
        lambda: _native.apply_masks(ring(), 8, [SEED]),  # type: ignore[list-item]
        lambda: _native.split_secret(bytes(32), 1, [1], SEED),  # type: ignore[arg-type]
        lambda: Seed.from_bytes("x" * 32),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            action()


def test_a_refused_call_leaves_the_buffers_alone() -> None:
    values = np.full(64, 2**63 - 1, dtype=np.int64)
    with pytest.raises(errors.PrivacyError, match="E-NOISE-OVERFLOW"):
        _native.add_skellam_noise(values, 1e6, SEED)
    assert (values == 2**63 - 1).all()
    out = np.full(3, 7, dtype=np.uint32)
    with pytest.raises(errors.Cancelled):
        _native.apply_masks(out, 8, [MASK], cancel=cancelled())
    assert (out == 7).all()
    with pytest.raises(errors.WireError):
        _native.unpack(b"\0\0\0\x80", 9, out)
    assert (out == 7).all()


def test_empty_vectors_are_fine() -> None:
    _native.apply_masks(ring(0), 20, [MASK])
    _native.apply_masks(narrow(0), 16, [MASK])
    assert _native.pack(ring(0), 20) == b""
    _native.unpack(b"", 20, ring(0))
    assert _native.check_coordinates(ring(0), 20, bytes(32)) == [0, 0, 0, 0]
    assert rounding(floats()) == 1
