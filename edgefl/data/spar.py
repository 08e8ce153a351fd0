"""The SPAR shoulder-exercise recordings that ship with edgefl; see ATTRIBUTION.md beside them."""

import enum
import io
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import DataError
from edgefl.training.base import TrainingData

EXERCISES: Final = ("PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW")
"""Names of the classes, in label order."""
CLASSES: Final = len(EXERCISES)
INPUT_SHAPE: Final = (64, 6)
"""One window: 64 samples at 25 Hz (2.56 s) of ax, ay, az in g and wx, wy, wz in 3 rad/s."""

HELD_OUT_PERSONS: Final = (9, 10)
"""Evaluation only: fixed before any model was trained on these data."""
TRAINING_PERSONS: Final = (1, 2, 3, 4, 5, 6, 7, 8)

# The grid of scripts/make_spar.py: one step is 1/32 g or 3/32 rad/s. It follows from the sensor's
# units and from no person's data, so dequantizing tells a device nothing about another.
_STEPS_PER_UNIT: Final = np.float32(32.0)

# The right arm's motions are the left arm's in a mirror whose normal is the watch's x axis. A
# mirror turns round the component of acceleration along its normal, and the two components of
# rotation across it. So a device that knows its arm can speak in the terms of the left arm; no
# statistic of anyone's data takes part.
_RIGHT_TO_LEFT: Final = np.array([-1, 1, 1, 1, -1, -1], np.float32)


class Arm(enum.IntEnum):
    """The arm that wore the watch; the value is the one in the file."""

    LEFT = 0
    RIGHT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SparData:
    """All recordings, sorted by person and arm.

    Attributes:
        windows: float32 [n, 64, 6]; the right arm's are mirrored to the left.
        labels: int64 [n], index into `EXERCISES`.
        person: uint8 [n], 1 to 10.
        arm: uint8 [n], a value of `Arm`.
    """

    windows: NDArray[np.float32]
    labels: NDArray[np.int64]
    person: NDArray[np.uint8]
    arm: NDArray[np.uint8]

    def select(self, rows: NDArray[np.bool_]) -> TrainingData:
        """Return the chosen rows.

        Args:
            rows: bool [n].

        Raises:
            DataError: E-DATA-EMPTY when no row is chosen.
        """
        return TrainingData(x=self.windows[rows], y=self.labels[rows])


@cache
def load_spar() -> SparData:
    """Read the file that ships in the package; the arrays are shared and read-only.

    Raises:
        DataError: E-DATA-DAMAGED when the installed file is not readable.
    """
    try:
        npz_bytes = files("edgefl.data").joinpath("spar.npz").read_bytes()
        with np.load(io.BytesIO(npz_bytes), allow_pickle=False) as archive:
            data = SparData(
                windows=_dequantize(archive["window"], archive["side"]),
                labels=archive["label"].astype(np.int64),
                person=archive["person"],
                arm=archive["side"],
            )
    except Exception as error:
        raise DataError(
            "E-DATA-DAMAGED",
            "the demo data of this installation",
            f"an unreadable spar.npz ({type(error).__name__})",
            "install edgefl-runtime again",
        ) from error
    for array in (data.windows, data.labels, data.person, data.arm):
        array.flags.writeable = False
    return data


def _dequantize(steps: NDArray[np.int8], arm: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return float32 [n, 64, 6] in sensor units, the right arm mirrored."""
    windows = steps.astype(np.float32) / _STEPS_PER_UNIT
    windows[arm == Arm.RIGHT] *= _RIGHT_TO_LEFT
    return windows


def device_shard(person: int, arm: Arm) -> TrainingData:
    """Return what one watch recorded.

    Args:
        person: 1 to 10.
        arm: Left or right.

    Raises:
        DataError: E-DATA-PERSON for another person.
    """
    data = load_spar()
    if person not in (*TRAINING_PERSONS, *HELD_OUT_PERSONS):
        raise DataError("E-DATA-PERSON", "a person from 1 to 10", str(person), "choose another")
    return data.select((data.person == person) & (data.arm == arm.value))


def held_out() -> TrainingData:
    """Return the recordings of the persons that no device trains on."""
    return persons(HELD_OUT_PERSONS)


def persons(chosen: tuple[int, ...]) -> TrainingData:
    """Return the recordings of several persons, both arms.

    Raises:
        DataError: E-DATA-EMPTY when none of them is in the data.
    """
    data = load_spar()
    return data.select(np.isin(data.person, chosen))
