"""Where an agent's training data come from: `open_source` turns what the user wrote into one."""

from pathlib import Path
from typing import Protocol

from edgefl.data.npz import load_npz
from edgefl.data.reading import Reading
from edgefl.data.schema import DataSchema
from edgefl.data.spar import Arm, device_shard
from edgefl.errors import DataError
from edgefl.training.base import TrainingData

_SPAR = "spar:"


class DataSource(Protocol):
    """Something that is read anew before each local training, so that new recordings count.

    Opening one checks what was written, never the data; data may still be missing then.
    """

    @property
    def name(self) -> str:
        """Return how the source is called in messages: one line, no data."""
        ...

    def read(self, schema: DataSchema | None = None) -> TrainingData:
        """Read the examples as they are now.

        It blocks and may take seconds: call it in a thread. It may be called again at any time.

        Args:
            schema: What the model takes (`schema_of(manifest)`); None checks only that the data
                are sound.

        Raises:
            DataError: E-DATA-...: nothing there, not readable, or it does not fit. Another
                attempt, some rounds later, may succeed.
        """
        ...

    def examine(self, schema: DataSchema | None = None) -> Reading:
        """Read as `read` does, and keep account of what was left out; misfits do not raise.

        Args:
            schema: As for `read`; short spellings take the window's length from it.

        Raises:
            DataError: The source cannot be read at all.
        """
        ...


def open_source(text: str) -> DataSource:
    """Return the source that a user named.

    Args:
        text: A `.npz` file, or `spar:PERSON-ARM` of the shipped recordings.

    Raises:
        DataError: E-DATA-SOURCE: the spelling is none of these.
    """
    if text.startswith(_SPAR):
        return _spar(text)
    return _NpzFile(Path(text))


def load_source(text: str) -> TrainingData:
    """Open a source and read it once.

    Raises:
        DataError: There is no such source, or its data are not usable.
    """
    return open_source(text).read()


class _NpzFile:
    """One `.npz` with x and y."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def name(self) -> str:
        return self._path.name

    def read(self, schema: DataSchema | None = None) -> TrainingData:
        return self.examine(schema).training_data(schema, self.name)

    def examine(self, schema: DataSchema | None = None) -> Reading:  # noqa: ARG002 - the protocol's
        data = load_npz(self._path)
        return Reading(x=data.x, y=data.y, files=1)


class _Spar:
    """One arm of one person of the shipped recordings."""

    def __init__(self, person: int, arm: Arm) -> None:
        self._person = person
        self._arm = arm

    @property
    def name(self) -> str:
        return f"{_SPAR}{self._person}-{self._arm.name.lower()}"

    def read(self, schema: DataSchema | None = None) -> TrainingData:
        return self.examine(schema).training_data(schema, self.name)

    def examine(self, schema: DataSchema | None = None) -> Reading:  # noqa: ARG002 - the protocol's
        data = device_shard(self._person, self._arm)
        return Reading(
            x=data.x, y=data.y, channels=("ax", "ay", "az", "wx", "wy", "wz"), channel_axis=2
        )


def _spar(text: str) -> DataSource:
    person, _, arm = text.removeprefix(_SPAR).partition("-")
    if not person.isdecimal() or arm.upper() not in Arm.__members__:
        raise DataError(
            "E-DATA-SOURCE",
            "spar:PERSON-ARM, as spar:1-left",
            repr(text),
            "choose person and arm",
        )
    return _Spar(int(person), Arm[arm.upper()])
