"""Rows on Shamir sharing of a 32-byte secret beside Flower's."""

from collections.abc import Iterator

from edgefl._native import Seed, combine_many, split_secrets
from tests.benchmarks.secagg.results import Result, at_least, compare
from tests.benchmarks.secagg.settings import Settings
from tests.benchmarks.secagg.turns import PeerProcess, cpu_seconds, take_turns

HOLDERS, THRESHOLD = 101, 67
_CALLS = 50
"""Calls per turn: one alone is too short for the clock."""


def measure(settings: Settings) -> Iterator[Result]:
    """Time split and combine; a combination computes its Lagrange coefficients anew each time."""
    secret, coefficients = Seed.generate(), Seed.generate()
    points = list(range(1, HOLDERS + 1))
    (shares,) = split_secrets([secret], THRESHOLD, points, coefficients)
    chosen, chosen_points = shares[:THRESHOLD], points[:THRESHOLD]

    def split_many_times() -> None:
        for _ in range(_CALLS):
            split_secrets([secret], THRESHOLD, points, coefficients)

    def combine_many_times() -> None:
        for _ in range(_CALLS):
            combine_many(chosen_points, [chosen], THRESHOLD)

    (found,) = combine_many(chosen_points, [chosen], THRESHOLD)
    if found is None or found.export_bytes() != secret.export_bytes():
        raise ArithmeticError("the shares do not give the secret back")
    sides = {
        "split": lambda: cpu_seconds(split_many_times) / _CALLS * 1e3,
        "combine": lambda: cpu_seconds(combine_many_times) / _CALLS * 1e3,
    }
    if settings.flower is not None:
        flower = _Flower(settings.flower)
        sides = {"flower split": flower.split_ms, "flower combine": flower.combine_ms, **sides}
    figures = take_turns(sides, settings.repeats)
    for name, bar, stretch in (("split", 500, 1500), ("combine", 2000, 10_000)):
        yield compare(
            "Shamir, 32 bytes",
            f"{name}, {HOLDERS} holders, threshold {THRESHOLD}",
            "ms",
            own=figures[name],
            peer=figures.get(f"flower {name}", ()),
            peer_name="Flower",
            bar=at_least(bar),
            stretch=at_least(stretch),
            note="one secret; a device's two and a neighbourhood's many share the set-up",
        )


class _Flower:
    """Splits and combines in one go; hands out both figures.

    Args:
        peer: Flower's process.
    """

    def __init__(self, peer: PeerProcess) -> None:
        self._peer = peer
        self._combine_s = 0.0

    def split_ms(self) -> float:
        answer = self._peer.ask("shamir", holders=HOLDERS, threshold=THRESHOLD)
        self._combine_s = float(str(answer["combine_s"]))
        return float(str(answer["split_s"])) * 1e3

    def combine_ms(self) -> float:
        return self._combine_s * 1e3
