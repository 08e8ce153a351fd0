"""Rows on uplinks per device, and on drops at every stage."""

import statistics
from collections.abc import Iterator

from edgefl.protocol.reasons import OPEN_PHASES, AdversaryClass, Phase
from tests.benchmarks.secagg.results import Result, at_most, reaches
from tests.benchmarks.secagg.settings import Settings
from tests.benchmarks.secagg.whole_round import RoundSize, WholeRound, key_epoch, run_round

_STAGES_BESIDE = 4
"""Flower has no certificate; its stages stand beside our other four."""


def measure(settings: Settings) -> Iterator[Result]:
    """Count uplinks, and let one device fall silent in each phase."""
    size = RoundSize(
        devices=settings.scaled(60, 24),
        coordinates=100,
        adversary=AdversaryClass.MALICIOUS,
        corrupt_permille=20,
        drop_permille=50,
    )
    yield from _uplinks(size)
    yield from _stages(settings, size)


def _uplinks(size: RoundSize) -> Iterator[Result]:
    done = run_round(size, {})
    outcome = done.gateway.outcome
    if outcome is None or outcome.total is None or outcome.plan is None:
        raise ArithmeticError("the round was not committed")
    ordinary: list[int] = []
    signers: list[int] = []
    for name in outcome.report.survivors:
        traffic = done.fleet.traffic(name)
        after_check_in = sum(
            found.uplinks for phase, found in traffic.items() if phase is not Phase.CHECK_IN
        )
        has_signed = Phase.CERTIFICATE in traffic and traffic[Phase.CERTIFICATE].uplinks > 0
        (signers if has_signed else ordinary).append(after_check_in)
    case = f"n={size.devices}, certificate on"
    for kind, counts, bar in (("ordinary device", ordinary, 3), ("committee member", signers, 4)):
        if counts:
            yield Result(
                row="uplinks after check-in",
                case=f"{kind}, {case}",
                unit="messages",
                own=float(max(counts)),
                bar=at_most(bar),
                note=f"{len(counts)} devices, median {statistics.median(counts):g}; Flower 4, with"
                " no check that all see the same lists",
            )


def _stages(settings: Settings, size: RoundSize) -> Iterator[Result]:
    names = key_epoch(size.devices, has_aes=size.has_aes).keys.devices
    survived = {phase: _is_survived(run_round(size, {names[1]: phase})) for phase in OPEN_PHASES}
    peer = None
    if settings.flower is not None:
        answer = settings.flower.ask("drops", clients=8)
        peer = float(sum(bool(outcome) for outcome in answer.values()))
    yield Result(
        row="stages at which one drop is survived",
        case=f"check-in, share keys, masked input, unmasking; n={size.devices}",
        unit="stages",
        own=float(sum(survived[phase] for phase in OPEN_PHASES if phase is not Phase.CERTIFICATE)),
        peer=peer,
        peer_name="" if peer is None else "Flower",
        bar=reaches(_STAGES_BESIDE),
        note="sums exact",
    )
    yield Result(
        row="stages at which one drop is survived",
        case="certificate",
        unit="stages",
        own=float(survived[Phase.CERTIFICATE]),
        bar=reaches(1),
    )


def _is_survived(done: WholeRound) -> bool:
    return done.is_committed and done.wrong_coordinates == 0
