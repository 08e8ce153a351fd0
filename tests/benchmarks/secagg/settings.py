"""How large and how often the goals are measured, and which peers take their turns."""

from dataclasses import dataclass

from tests.benchmarks.secagg.turns import PeerProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What all rows need.

    Attributes:
        repeats: Turns of each side; rows whose peer takes seconds take fewer and say so.
        slow_repeats: Turns where the peer takes seconds.
        is_quick: Small sizes, own side only, no goals: to see that everything runs.
        flower: Flower's environment, where there is one.
        python_aes: The same environment with `cryptography`.
        has_openssl: Whether `openssl speed` takes part.
    """

    repeats: int = 9
    slow_repeats: int = 3
    is_quick: bool = False
    flower: PeerProcess | None = None
    python_aes: PeerProcess | None = None
    has_openssl: bool = False

    def scaled(self, full: int, quick: int) -> int:
        """Return a size for this run."""
        return quick if self.is_quick else full
