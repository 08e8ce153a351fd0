"""Names of the inputs and outputs that the compiler adds to a training graph and the runtime binds.

The prefix keeps them apart from any name in a user's model.
"""

from typing import Final

PREFIX: Final = "edgefl."
TARGET: Final = PREFIX + "target"
SAMPLE_WEIGHT: Final = PREFIX + "sample_weight"
LEARNING_RATE: Final = PREFIX + "lr"
LOSS: Final = PREFIX + "loss"
BATCH_AXIS: Final = "N"


def updated(parameter_name: str) -> str:
    """Return the output that carries a parameter's value after the step."""
    return f"{PREFIX}new.{parameter_name}"
