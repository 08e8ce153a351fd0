"""Names of the inputs and outputs that the compiler adds to a training graph and the runtime binds.

The prefix keeps them apart from any name in a user's model.
"""

from typing import Final

PREFIX: Final = "edgefl."
TARGET: Final = PREFIX + "target"
SAMPLE_WEIGHT: Final = PREFIX + "sample_weight"
LEARNING_RATE: Final = PREFIX + "lr"
PROX_MU: Final = PREFIX + "prox_mu"
MAX_GRADIENT_NORM: Final = PREFIX + "max_gradient_norm"
EXAMPLE_CLIP: Final = PREFIX + "example_clip"
EXAMPLE_NORMS: Final = PREFIX + "example_norms"
STEP: Final = PREFIX + "step"
LOSS: Final = PREFIX + "loss"
BATCH_AXIS: Final = "N"


def updated(parameter_name: str) -> str:
    """Return the output that carries a parameter's value after the step."""
    return f"{PREFIX}new.{parameter_name}"


def received(parameter_name: str) -> str:
    """Return the input that carries a parameter's value at the start of the round (FedProx)."""
    return f"{PREFIX}received.{parameter_name}"


def state(kind: str, parameter_name: str) -> str:
    """Return the input that carries what an optimiser keeps for a parameter between steps."""
    return f"{PREFIX}{kind}.{parameter_name}"


def new_state(kind: str, parameter_name: str) -> str:
    """Return the output that carries the same after the step."""
    return f"{PREFIX}new.{kind}.{parameter_name}"


def rounding(parameter_name: str) -> str:
    """Return the input that carries a uniform number per value, for rounding onto a grid."""
    return f"{PREFIX}rounding.{parameter_name}"
