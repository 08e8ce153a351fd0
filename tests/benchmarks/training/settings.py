"""How often the goals of on-device training are measured, and which peers take their turns."""

import sys
from dataclasses import dataclass

OWN_MODULE = "tests.benchmarks.peers.training_own"
TORCH_MODULE = "tests.benchmarks.peers.training_torch"
ORT_MODULE = "tests.benchmarks.peers.training_ort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What all rows need.

    Attributes:
        repeats: Turns of each side.
        turn_s: How long a side trains in one turn; of its epochs the median counts.
        is_quick: One short turn, own side only, no goals: to see that everything runs.
        torch_python: Interpreter of an environment with PyTorch.
        ort_python: Interpreter of an environment with onnxruntime-training.
        litert_python: Interpreter of an environment with a LiteRT library.
    """

    repeats: int = 9
    turn_s: float = 0.5
    is_quick: bool = False
    torch_python: str | None = None
    ort_python: str | None = None
    litert_python: str | None = None

    def sides(self) -> dict[str, tuple[str, str]]:
        """Return interpreter and module of each side that is there."""
        found = {
            "ours": (sys.executable, OWN_MODULE),
            "onnxruntime-training": (self.ort_python, ORT_MODULE),
            "torch": (self.torch_python, TORCH_MODULE),
        }
        return {name: (python, module) for name, (python, module) in found.items() if python}
