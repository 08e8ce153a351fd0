"""Rows on a device's whole work in a round beside Flower's client."""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from edgefl._native import Seed, agreement_public_keys
from edgefl.protocol.reasons import AdversaryClass
from tests.benchmarks.secagg.client_work import ClientWork
from tests.benchmarks.secagg.results import Result, at_least, compare
from tests.benchmarks.secagg.settings import Settings
from tests.benchmarks.secagg.turns import PeerProcess, cpu_seconds, take_turns
from tests.benchmarks.secagg.whole_round import RoundSize, run_round

_MASK_KEYS = 64
_AES = "AES-128-CTR"
_MACHINE = "whole device machine, identities checked"
_NOTE = (
    "both: keys, two secrets split for k neighbours, sealed, theirs opened, update encoded (Flower"
    " 32 bits in int64, ours clipped and rounded into 20), k + 1 masks, wire bytes, answer;"
    " neither: identities"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    neighbours: int
    coordinates: int
    bar: float
    stretch: float
    is_slow: bool


_SIZES = (
    _Size(neighbours=30, coordinates=1_000_000, bar=15, stretch=30, is_slow=False),
    _Size(neighbours=100, coordinates=100_000, bar=200, stretch=400, is_slow=True),
)


def measure(settings: Settings) -> Iterator[Result]:
    """Time both sizes, with each generator, in a key epoch's first round and in a later one."""
    for size in _SIZES:
        yield from _one_size(settings, size)
    yield _key_epoch(settings)


def _one_size(settings: Settings, size: _Size) -> Iterator[Result]:
    neighbours = settings.scaled(size.neighbours, 4)
    coordinates = settings.scaled(size.coordinates, 2_000)
    sides: dict[str, Callable[[], float]] = {}
    if settings.flower is not None:
        sides["flower"] = _flower_side(settings.flower, neighbours, coordinates)
    for prg, has_aes in ((_AES, True), ("ChaCha20", False)):
        work = ClientWork(neighbours, coordinates, has_aes=has_aes)
        sides[f"{prg}, first round of a key epoch"] = _first_round(work)
        sides[f"{prg}, later rounds"] = _later_round(work)
    sides[_MACHINE] = _machine_side(neighbours, coordinates)
    repeats = settings.slow_repeats if size.is_slow else settings.repeats
    figures = take_turns(sides, repeats)
    peer = figures.pop("flower", [])
    yield compare(
        f"whole client, k={neighbours}, d={coordinates}",
        _MACHINE,
        "ms",
        own=figures.pop(_MACHINE),
        peer=peer,
        peer_name="Flower",
        note="DeviceRound with AES-128-CTR, median device: besides, every neighbour's roster entry,"
        " bundle signature and mask key proved, graph drawn, all messages signed, state encoded"
        " for the flash; Flower does none of it",
    )
    for case, own in figures.items():
        yield compare(
            f"whole client, k={neighbours}, d={coordinates}",
            case,
            "ms",
            own=own,
            peer=peer,
            peer_name="Flower",
            # The goals are for the generator that a machine like this one uses.
            bar=at_least(size.bar) if case.startswith(_AES) else None,
            stretch=at_least(size.stretch) if case.startswith(_AES) else None,
            note=_NOTE,
        )


def _flower_side(flower: PeerProcess, neighbours: int, coordinates: int) -> Callable[[], float]:
    return lambda: flower.figure("client", neighbours=neighbours, coordinates=coordinates) * 1e3


def _first_round(work: ClientWork) -> Callable[[], float]:
    def side() -> float:
        prepared = work.prepare()
        return cpu_seconds(lambda: work.do(prepared, {})) * 1e3

    return side


def _later_round(work: ClientWork) -> Callable[[], float]:
    pair_secrets: dict[bytes, Seed] = {}
    work.do(work.prepare(), pair_secrets)

    def side() -> float:
        prepared = work.prepare()
        return cpu_seconds(lambda: work.do(prepared, pair_secrets)) * 1e3

    return side


def _machine_side(neighbours: int, coordinates: int) -> Callable[[], float]:
    """Return a side that runs a round of all machines, and gives the median device's time."""
    # So many corrupt devices ask for the complete graph.
    size = RoundSize(
        devices=neighbours + 1,
        coordinates=coordinates,
        adversary=AdversaryClass.SEMI_MALICIOUS,
        corrupt_permille=330,
        drop_permille=330,
    )

    def side() -> float:
        done = run_round(size, {})
        if not done.is_committed or done.degree != neighbours:
            raise ArithmeticError(f"no sum, or a degree of {done.degree}")
        used_s = [
            sum(traffic.cpu_s for traffic in done.fleet.traffic(name).values())
            for name in done.setup.keys.devices
        ]
        return statistics.median(used_s) * 1e3

    return side


def _key_epoch(settings: Settings) -> Result:
    seeds = [Seed.generate() for _ in range(_MASK_KEYS)]
    figures = take_turns(
        {"keys": lambda: cpu_seconds(lambda: agreement_public_keys(seeds)) * 1e3}, settings.repeats
    )
    return compare(
        "key epoch",
        f"{_MASK_KEYS} one-time mask keys",
        "ms",
        own=figures["keys"],
        note="once for as many rounds; Flower makes its keys in every round",
    )
