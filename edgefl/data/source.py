"""Where an agent's training data come from, as written on the command line."""

from pathlib import Path

from edgefl.data.npz import load_npz
from edgefl.data.spar import Arm, device_shard
from edgefl.errors import DataError
from edgefl.training.base import TrainingData

_SPAR = "spar:"


def load_source(source: str) -> TrainingData:
    """Load a `.npz` file, or `spar:PERSON-ARM` of the shipped recordings.

    Raises:
        DataError: There is no such source, or its data are not usable.
    """
    if not source.startswith(_SPAR):
        return load_npz(Path(source))
    person, _, arm = source.removeprefix(_SPAR).partition("-")
    if not person.isdecimal() or arm.upper() not in Arm.__members__:
        raise DataError(
            "E-DATA-SOURCE",
            "spar:PERSON-ARM, as spar:1-left",
            repr(source),
            "choose person and arm",
        )
    return device_shard(int(person), Arm[arm.upper()])
