"""Rows on masks: expansion beside Flower, beside Python with AES, and beside OpenSSL."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from edgefl import _native
from edgefl._native import Mask, RingSum, Seed
from tests.benchmarks.peers import openssl
from tests.benchmarks.secagg.results import Goal, Result, at_least, compare
from tests.benchmarks.secagg.settings import Settings
from tests.benchmarks.secagg.turns import cpu_seconds, take_turns

MASKS = 30
_PRGS = {"chacha20": 1, "aes-128-ctr": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One kernel, or the call that a gateway makes, which picks the fastest.

    Attributes:
        backend: None for `RingSum.apply_masks`, over the whole vector.
        kernel: Name of the code that runs.
    """

    prg: str
    backend: str | None
    kernel: str
    lane_bits: int

    def __str__(self) -> str:
        code = f"RingSum.apply_masks ({self.kernel})" if self.backend is None else self.kernel
        return f"{self.prg}, {code}, u{self.lane_bits}"


def measure(settings: Settings) -> Iterator[Result]:
    """Time mask expansion of every backend against the peers."""
    yield from _beside_flower(settings)
    yield from _beside_python_aes(settings)
    yield from _beside_openssl(settings)


def _cases() -> list[_Case]:
    return [
        _Case(prg=prg, backend=backend, kernel=backend or available[0], lane_bits=lane_bits)
        for prg, available in _native.backends().items()
        for backend in (None, *available)
        for lane_bits in (32, 16)
    ]


def _own_side(case: _Case, coordinates: int) -> Callable[[], float]:
    """Return a side that gives ns per coordinate and mask."""
    if case.backend is not None:
        backend = case.backend
        return lambda: _native.measure_backend(case.prg, backend, case.lane_bits)
    masks = [
        Mask(Seed.from_bytes(number.to_bytes(32, "little")), _PRGS[case.prg], number % 2 == 1)
        for number in range(MASKS)
    ]
    total = RingSum(coordinates, case.lane_bits)

    def whole_call() -> float:
        return cpu_seconds(lambda: total.apply_masks(masks)) * 1e9 / (coordinates * MASKS)

    return whole_call


def _beside_flower(settings: Settings) -> Iterator[Result]:
    coordinates, flower = settings.scaled(1_000_000, 20_000), settings.flower
    cases = _cases()
    sides = {str(case): _own_side(case, coordinates) for case in cases}
    if flower is not None:
        sides = {
            "flower": lambda: (
                flower.figure("masks", coordinates=coordinates, masks=MASKS)
                * 1e9
                / (coordinates * MASKS)
            ),
            **sides,
        }
    figures = take_turns(sides, settings.repeats)
    for case in cases:
        bar, stretch = _flower_goals(case)
        yield compare(
            "masks beside Flower",
            str(case),
            "ns per coordinate and mask",
            own=figures[str(case)],
            peer=figures.get("flower", ()),
            peer_name="Flower",
            bar=bar,
            stretch=stretch,
            note=f"k={MASKS}; Flower and RingSum over d={coordinates}, kernels alone"
            " over one tile; Flower: numpy's generator seeded with 32 bits, into int64",
        )


def _flower_goals(case: _Case) -> tuple[Goal | None, Goal | None]:
    bars = {"avx2": 4.0, "aes-ni": 10.0, "vaes": 10.0}
    bar = bars.get(case.kernel)
    return (
        None if bar is None else at_least(bar),
        at_least(20.0) if case.kernel == "vaes" else None,
    )


def _beside_python_aes(settings: Settings) -> Iterator[Result]:
    peer = settings.python_aes
    if peer is None:
        return
    coordinates = settings.scaled(1_000_000, 20_000)
    cases = _aes_kernels()
    figures = take_turns(
        {
            "peer": lambda: (
                peer.figure("masks", coordinates=coordinates, masks=MASKS)
                * 1e9
                / (coordinates * MASKS)
            ),
            **{str(case): _own_side(case, coordinates) for case in cases},
        },
        settings.repeats,
    )
    for case in cases:
        yield compare(
            "masks beside cryptography + numpy",
            str(case),
            "ns per coordinate and mask",
            own=figures[str(case)],
            peer=figures["peer"],
            peer_name="cryptography AES-128-CTR, numpy add",
            bar=_goal(case, {"aes-ni": 2.0, "vaes": 2.0}),
            stretch=_goal(case, {"vaes": 3.0}),
            note="the same generator on both sides",
        )


def _beside_openssl(settings: Settings) -> Iterator[Result]:
    if not settings.has_openssl:
        return
    cases = _aes_kernels()
    coordinates = settings.scaled(1_000_000, 20_000)

    def gigabytes_per_s(case: _Case) -> Callable[[], float]:
        side = _own_side(case, coordinates)
        return lambda: case.lane_bits / 8 / side()

    figures = take_turns(
        {"peer": openssl.measure, **{str(case): gigabytes_per_s(case) for case in cases}},
        settings.repeats,
    )
    for case in cases:
        yield compare(
            "keystream beside openssl speed",
            str(case),
            "GB/s",
            own=figures[str(case)],
            peer=figures["peer"],
            peer_name=f"openssl aes-128-ctr, {openssl.BLOCK_BYTES} B",
            more_is_better=True,
            bar=_goal(case, {"aes-ni": 0.7, "vaes": 1.4}),
            note="ours adds the keystream to the vector; OpenSSL encrypts one block of zeros again"
            " and again",
        )


def _aes_kernels() -> list[_Case]:
    return [
        case
        for case in _cases()
        if case.prg == "aes-128-ctr"
        and (case.backend is None or case.backend in {"aes-ni", "vaes"})
        and case.lane_bits == 32
    ]


def _goal(case: _Case, ratios: Mapping[str, float]) -> Goal | None:
    ratio = ratios.get(case.kernel)
    return None if ratio is None else at_least(ratio)
