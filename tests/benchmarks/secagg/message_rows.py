"""Rows on bytes: upload per coordinate, shares per neighbour, and every phase of a device."""

import statistics
from collections.abc import Iterator

from edgefl.protocol.reasons import OPEN_PHASES, AdversaryClass, Phase
from tests.benchmarks.secagg.client_work import ClientWork, exact_plan
from tests.benchmarks.secagg.results import Result, at_most
from tests.benchmarks.secagg.settings import Settings
from tests.benchmarks.secagg.whole_round import RoundSize, WholeRound, run_round

COORDINATES = 10_000
_NEIGHBOURS = 30


def measure(settings: Settings) -> Iterator[Result]:
    """Count the bytes of real messages."""
    yield from _upload(settings)
    for size in sizes(settings):
        done = run_round(size, {})
        yield from by_phase(size, done)


def sizes(settings: Settings) -> list[RoundSize]:
    """Return the rounds whose messages are counted."""
    curious = RoundSize(devices=16, coordinates=COORDINATES)
    if settings.is_quick:
        return [curious]
    return [
        curious,
        RoundSize(devices=100, coordinates=COORDINATES, corrupt_permille=100, drop_permille=100),
        RoundSize(
            devices=100,
            coordinates=COORDINATES,
            adversary=AdversaryClass.MALICIOUS,
            corrupt_permille=50,
            drop_permille=50,
        ),
        RoundSize(
            devices=1000,
            coordinates=COORDINATES,
            adversary=AdversaryClass.SEMI_MALICIOUS,
            corrupt_permille=110,
            drop_permille=100,
        ),
    ]


def _upload(settings: Settings) -> Iterator[Result]:
    coordinates = settings.scaled(1_000_000, 2_000)
    answer: dict[str, object] = {"upload_bytes": None, "sealed_bytes": None}
    if settings.flower is not None:
        answer = settings.flower.ask("client", neighbours=_NEIGHBOURS, coordinates=coordinates)
    peer_upload = _number(answer["upload_bytes"])
    for plan in (
        exact_plan(_NEIGHBOURS + 1, coordinates, ring_bits=20),
        exact_plan(_NEIGHBOURS + 1, coordinates, ring_bits=16, rotation=None),
    ):
        work = ClientWork(_NEIGHBOURS, coordinates, has_aes=True, privacy=plan)
        own = work.do(work.prepare(), {})
        case = f"b={plan.ring_bits}, d={coordinates}, n={plan.n_cohort}"
        yield _beside(
            "upload",
            case + (f", rotated in blocks of {plan.rotation_block}" if plan.rotation_block else ""),
            "bytes per ring value",
            own / plan.vector_length,
            None if peer_upload is None else peer_upload / coordinates,
            (2.5, 2.0),
            note=f"{own / coordinates:.5f} per coordinate of the update, with"
            f" {plan.padded_dimension - coordinates} of padding and 4 check values;"
            f" {plan.scale:.0f} levels to the clip norm",
        )
    work = ClientWork(_NEIGHBOURS, coordinates, has_aes=True)
    sealed = work.prepare().sealed
    yield _beside(
        "shares for one neighbour",
        "ciphertext with both",
        "bytes",
        float(len(sealed[1])),
        _number(answer["sealed_bytes"]),
        (200, 150),
    )


def _number(value: object) -> float | None:
    return None if value is None else float(str(value))


def _beside(
    row: str,
    case: str,
    unit: str,
    own: float,
    peer: float | None,
    goals: tuple[float, float],
    note: str = "",
) -> Result:
    return Result(
        row=row,
        case=case,
        unit=unit,
        own=own,
        peer=peer,
        peer_name="" if peer is None else "Flower",
        ratio=None if peer is None else peer / own,
        bar=at_most(goals[0]),
        stretch=at_most(goals[1]),
        note=note,
    )


def by_phase(size: RoundSize, done: WholeRound) -> Iterator[Result]:
    """Return what the median device sends and receives in each phase of a round without drops."""
    outcome, thresholds = done.gateway.outcome, done.plan.thresholds
    if outcome is None or outcome.total is None:
        raise ArithmeticError("the round was not committed")
    case = f"n={size.devices}, k={thresholds.degree}, {size.adversary.name}, d={size.coordinates}"
    for phase in OPEN_PHASES:
        traffic = [done.fleet.traffic(name).get(phase) for name in outcome.report.survivors]
        taking_part = [found for found in traffic if found is not None]
        if not taking_part:
            continue
        for direction, counts in (
            ("up", [found.up_bytes for found in taking_part]),
            ("down", [found.down_bytes for found in taking_part]),
        ):
            yield Result(
                row="bytes per device",
                case=f"{case}: {phase.name}, {direction}",
                unit="bytes",
                own=float(statistics.median(counts)),
                note=f"whole signed messages; {len(taking_part)} devices"
                + (", the committee" if phase is Phase.CERTIFICATE else ""),
            )
    plan_bytes = len(done.plan.to_bytes())
    yield Result(row="bytes per device", case=f"{case}: plan", unit="bytes", own=float(plan_bytes))
