"""Rows on the gateway: unmasking beside Flower's server, memory, exactness of the sum."""

from collections.abc import Iterator, Mapping

from edgefl.protocol.plan import Thresholds
from edgefl.protocol.reasons import AdversaryClass, Phase
from tests.benchmarks.secagg.fleet_end import FleetEnd, digest_of
from tests.benchmarks.secagg.gateway_process import GatewayFigures, GatewayProcess
from tests.benchmarks.secagg.results import Result, at_least, at_most, compare
from tests.benchmarks.secagg.settings import Settings
from tests.benchmarks.secagg.turns import PeerProcess
from tests.benchmarks.secagg.whole_round import (
    GATEWAY_KEY,
    RoundSize,
    WholeRound,
    drive,
    key_epoch,
    run_round,
)

_MEBIBYTE = 2**20
_WITHOUT_VECTORS = {Phase.CHECK_IN.name, Phase.SHARE_KEYS.name}
_COPIES_IN_FLIGHT = 8


def measure(settings: Settings) -> Iterator[Result]:
    """Run a scaled round by turns with Flower's, then a round of 1,000 devices on our own."""
    yield from _scaled(settings)
    yield from measure_large(settings, has_aes=True)


def measure_without_aes(settings: Settings) -> Iterator[Result]:
    """Run the round of 1,000 devices with ChaCha20 masks."""
    yield from measure_large(settings, has_aes=False)


def every_tenth(devices: int) -> int:
    """Return how many of that many drop out."""
    return max(1, devices // 10)


# ---------------------------------------------------------------- scaled, by turns


def _scaled(settings: Settings) -> Iterator[Result]:
    size = RoundSize(
        devices=settings.scaled(100, 30),
        coordinates=settings.scaled(100_000, 500),
        corrupt_permille=100,
        drop_permille=100,
    )
    rounds = []
    answers: list[dict[str, object]] = []
    for _ in range(settings.scaled(settings.slow_repeats, 1)):
        rounds.append(_run_with_drops(size))
        if settings.flower is not None:
            answers.append(_flower_round(settings.flower, size, rounds[-1]))
    thresholds = rounds[0].plan.thresholds
    case = f"n={size.devices}, k={thresholds.degree}, d={size.coordinates}, 10 % drop"
    yield compare(
        "server unmask",
        case,
        "s",
        own=[done.gateway.unmask_cpu_s for done in rounds],
        peer=[float(str(answer["server_cpu_s"])) for answer in answers],
        peer_name="Flower",
        bar=at_least(100),
        stretch=at_least(250),
        note=f"threshold {thresholds.neighbourhood}; of two whole rounds, reconstruction and mask"
        " removal alone; ours checks each secret and the sum, and uses AES-128-CTR",
    )
    wrong = [float(done.wrong_coordinates) for done in rounds]
    yield compare(
        "sum exactness",
        case,
        "wrong coordinates",
        own=wrong,
        bar=at_most(0),
        note="against the sum of the survivors' vectors, encoded again without masks",
    )
    if answers and settings.flower is not None:
        survivors = size.devices - every_tenth(size.devices)
        yield compare(
            "server unmask",
            f"Flower computed from its parts, {case}",
            "s",
            own=[_flower_estimate(settings.flower, size, thresholds, survivors) for _ in answers],
            peer=[float(str(answer["server_cpu_s"])) for answer in answers],
            peer_name="Flower run whole",
            note="no goal: how well the parts foretell that the next figure is computed from",
        )
        yield Result(
            row="sum exactness",
            case="Flower, largest error of the mean",
            unit="update units",
            own=0.0,
            peer=max(float(str(answer["largest_error"])) for answer in answers),
            peer_name="Flower",
            repeats=len(answers),
            note="values in [-1, 1], clipping range 8, 2^22 levels",
        )


def _run_with_drops(size: RoundSize) -> WholeRound:
    names = key_epoch(size.devices, has_aes=size.has_aes).keys.devices
    done = run_round(size, _silent(names))
    if not done.is_committed:
        raise ArithmeticError("the round was not committed")
    return done


def _silent(names: tuple[str, ...]) -> Mapping[str, Phase]:
    """Let a tenth of the devices share keys and then say nothing, evenly spread."""
    step = len(names) // every_tenth(len(names))
    return dict.fromkeys(names[::step][: every_tenth(len(names))], Phase.MASKED_INPUT)


def _flower_round(flower: PeerProcess, size: RoundSize, done: WholeRound) -> dict[str, object]:
    thresholds = done.plan.thresholds
    return flower.ask(
        "server",
        clients=size.devices,
        neighbours=thresholds.degree,
        threshold=thresholds.neighbourhood,
        coordinates=size.coordinates,
        dropped=every_tenth(size.devices),
    )


# ---------------------------------------------------------------- 1,000 devices


def measure_large(settings: Settings, *, has_aes: bool) -> Iterator[Result]:
    """Run the large round, with the gateway in a process of its own."""
    size = RoundSize(
        devices=settings.scaled(1000, 30),
        coordinates=settings.scaled(1_000_000, 500),
        adversary=AdversaryClass.SEMI_MALICIOUS,
        corrupt_permille=110,
        drop_permille=100,
        has_aes=has_aes,
    )
    figures, exact = _run_large(size)
    prg = "AES-128-CTR" if has_aes else "ChaCha20"
    thresholds = figures.thresholds
    case = (
        f"n={size.devices}, k={thresholds.degree}, t={thresholds.neighbourhood},"
        f" d={size.coordinates}, 10 % drop, {prg}"
    )
    yield _large_unmask(settings, size, figures, case)
    yield Result(
        row="sum exactness",
        case=case,
        unit="sums that differ",
        own=0.0 if exact else 1.0,
        bar=at_most(0),
        note=f"{figures.survivors} survivors",
    )
    yield Result(
        row="gateway, whole round",
        case=case,
        unit="s",
        own=figures.cpu_s,
        note="CPU time of its process: all messages decoded, verified, signed, sums and unmasking",
    )
    yield from _memory(size, figures, case)


def _run_large(size: RoundSize) -> tuple[GatewayFigures, bool]:
    opened = key_epoch(size.devices, has_aes=size.has_aes)
    fleet = FleetEnd(
        opened.boards,
        gateway_key=GATEWAY_KEY.public_key,
        coordinates=size.coordinates,
        silent=_silent(opened.keys.devices),
    )
    gateway = GatewayProcess(size, opened.keys, opened.take_index())
    try:
        drive(gateway, fleet)
    finally:
        gateway.close()
    figures = gateway.figures
    if figures is None or figures.phase != Phase.COMMITTED.name:
        reason = "nothing" if figures is None else figures.reason
        raise ArithmeticError(f"the round was not committed: {reason}")
    exact = digest_of(fleet.exact_total(size.coordinates))
    return figures, exact == figures.total_sha256


def _large_unmask(
    settings: Settings, size: RoundSize, figures: GatewayFigures, case: str
) -> Result:
    peer: tuple[float, ...] = ()
    if settings.flower is not None:
        estimate = _flower_estimate(settings.flower, size, figures.thresholds, figures.survivors)
        peer = (estimate,)
    return compare(
        "server unmask",
        case,
        "s",
        own=[figures.unmask_cpu_s],
        peer=peer,
        peer_name="Flower, computed from its parts",
        # The goals are for the generator that a machine like this one uses.
        bar=at_least(100) if size.has_aes else None,
        stretch=at_least(250) if size.has_aes else None,
        note="ours run whole; Flower's from its measured parts: per survivor a seed combined of"
        " nine tenths of the shares and a mask, per dropped device a key combined, k agreements"
        " and masks",
    )


def _flower_estimate(
    flower: PeerProcess, size: RoundSize, thresholds: Thresholds, survivors: int
) -> float:
    """Return the seconds that Flower's server would take, of its parts measured now."""
    holders = thresholds.degree + 1
    parts = flower.ask(
        "server_parts",
        holders=holders,
        threshold=thresholds.neighbourhood,
        revealed=holders - every_tenth(holders),
        coordinates=size.coordinates,
    )
    seed_s, key_s, agree_s, mask_s = (
        float(str(parts[name])) for name in ("combine_seed_s", "combine_key_s", "agree_s", "mask_s")
    )
    per_dropped_s = key_s + thresholds.degree * (agree_s + mask_s)
    return survivors * (seed_s + mask_s) + (size.devices - survivors) * per_dropped_s


def _memory(size: RoundSize, figures: GatewayFigures, case: str) -> Iterator[Result]:
    """Say what the process grew by, phase by phase, and judge what the vectors take of it."""
    start_bytes, peaks = figures.start_bytes, figures.peak_bytes
    for phase, peak_bytes in peaks.items():
        yield Result(
            row="gateway memory",
            case=f"{phase}, {case}",
            unit="MiB above the start",
            own=(peak_bytes - start_bytes) / _MEBIBYTE,
            note=f"peak resident memory; {start_bytes / _MEBIBYTE:.0f} MiB at the start, with the"
            f" keys of {size.devices} devices; SHARE_KEYS holds what all devices sealed",
        )
    after_shares = max(peak for phase, peak in peaks.items() if phase not in _WITHOUT_VECTORS)
    packed_bytes = size.coordinates * size.ring_bits / 8
    allowed_bytes = 3 * 4 * size.coordinates + _COPIES_IN_FLIGHT * packed_bytes
    yield Result(
        row="gateway memory",
        case=f"vectors: above SHARE_KEYS, {case}",
        unit="MiB",
        own=(after_shares - peaks[Phase.SHARE_KEYS.name]) / _MEBIBYTE,
        bar=at_most(round(allowed_bytes / _MEBIBYTE, 1)) if size.coordinates >= 10**6 else None,
        note=f"bar: 3 x d x 4 B and one transfer in flight, in the {_COPIES_IN_FLIGHT} copies that"
        f" receiving, checking and decoding make of its {packed_bytes / _MEBIBYTE:.1f} MiB",
    )
