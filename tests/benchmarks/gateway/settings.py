"""How large and how often the gateway's goals are measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What all rows need.

    Attributes:
        repeats: Turns of each side.
        is_quick: Small sizes, no goals: to see that everything runs.
    """

    repeats: int = 5
    is_quick: bool = False

    def scaled(self, full: int, quick: int) -> int:
        """Return a size for this run."""
        return quick if self.is_quick else full
