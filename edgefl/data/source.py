"""Where an agent's training data come from: `open_source` turns what the user wrote into one."""

from pathlib import Path
from typing import Protocol

from edgefl.data.example_source import NPZ_SUFFIXES, NpzSource, PythonSource
from edgefl.data.folder import has_any
from edgefl.data.inputs import InputData, input_data
from edgefl.data.python_entry import is_entry
from edgefl.data.reading import Reading
from edgefl.data.row_source import CSV_SUFFIXES, RowSource
from edgefl.data.schema import DataSchema
from edgefl.data.settings import BadRows, Kind, SourceSettings
from edgefl.data.settings_file import read_settings
from edgefl.data.spar import EXERCISES, Arm, device_shard
from edgefl.errors import DataError
from edgefl.training.base import TrainingData

SPELLINGS = (
    "a .npz file or a folder of them, with x and y; a .csv file or a folder of them; "
    "FILE.db:TABLE of an SQLite database; FILE.py:FUNCTION or MODULE:FUNCTION that returns x and "
    "y; a .toml file that describes any of these (docs/data.md); or spar:PERSON-ARM for the "
    "shipped recordings, for example spar:1-left"
)
"""For the help of options that take a source."""

_SPAR = "spar:"
_DATABASES = (".db", ".sqlite", ".sqlite3")


class DataSource(Protocol):
    """Something that is read anew before each local training, so that new recordings count.

    Opening one checks what was written, never the data; data may still be missing then.
    """

    @property
    def name(self) -> str:
        """Return how the source is called in messages: one line, no data."""
        ...

    @property
    def awaits_files(self) -> bool:
        """Tell whether files and folders that are not there may still be made by their logger.

        A settings file names them, once and for all. A path in a command line may be misspelt.
        """
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

    def read_inputs(self, schema: DataSchema | None = None) -> InputData:
        """Read the examples as they are now for prediction: labels, or values, are not needed.

        Rows count whether or not they have a label. It blocks as `read` does, within the same
        limits.

        Args:
            schema: As for `read`.

        Raises:
            DataError: As for `read`, but never for what is wrong with labels or values.
        """
        ...

    def examine(self, schema: DataSchema | None = None, *, needs_targets: bool = True) -> Reading:
        """Read as `read` does, and keep account of what was left out; misfits do not raise.

        Args:
            schema: As for `read`; short spellings take the window's length from it.
            needs_targets: False reads as `read_inputs` does.

        Raises:
            DataError: The source cannot be read at all.
        """
        ...


def open_source(text: str) -> DataSource:
    """Return the source that a user named.

    Args:
        text: One of `SPELLINGS`.

    Raises:
        ConfigError: E-DATA-SOURCE: the spelling is none of these; E-DATA-CONFIG: a settings file
            is not usable.
    """
    if text.startswith(_SPAR):
        return _spar(text)
    path = Path(text)
    if path.suffix.lower() == ".toml":
        return _source(read_settings(path), path.name)
    return _source(_short(text, path), path.name or text)


def load_source(text: str) -> TrainingData:
    """Open a source and read it once.

    Raises:
        ConfigError: There is no such source, or its data are not usable.
    """
    return open_source(text).read()


def _source(settings: SourceSettings, name: str) -> DataSource:
    if settings.kind.has_rows:
        return RowSource(settings, name)
    if settings.kind is Kind.PYTHON:
        return PythonSource(settings, name)
    return NpzSource(settings, name)


def _short(text: str, path: Path) -> SourceSettings:
    # An empty text would be the present folder.
    kind = _kind_of_path(path) if text else None
    if kind is Kind.NPZ:
        return SourceSettings(kind=kind, path=path, bad_rows=BadRows.REFUSE)
    if kind is not None:
        return SourceSettings(kind=kind, path=path)
    place, _, table = text.rpartition(":")
    if Path(place).suffix.lower() in _DATABASES and table:
        return SourceSettings(kind=Kind.SQLITE, path=Path(place), table=table)
    if is_entry(text):
        return SourceSettings(kind=Kind.PYTHON, path=Path(), entry=text, bad_rows=BadRows.REFUSE)
    raise DataError("E-DATA-SOURCE", SPELLINGS, repr(text[:200]), "correct the spelling")


def _kind_of_path(path: Path) -> Kind | None:
    if path.is_dir():
        found = [
            kind
            for kind, suffixes in ((Kind.NPZ, NPZ_SUFFIXES), (Kind.CSV, CSV_SUFFIXES))
            if has_any(path, suffixes)
        ]
        if len(found) != 1:
            raise DataError(
                "E-DATA-SOURCE",
                f"either .npz or .csv files in the folder {path}",
                "both" if found else "neither",
                "choose one kind in a settings file (docs/data.md)",
            )
        return found[0]
    if path.suffix.lower() in NPZ_SUFFIXES:
        return Kind.NPZ
    return Kind.CSV if path.suffix.lower() in CSV_SUFFIXES else None


class _Spar:
    """One arm of one person of the shipped recordings."""

    def __init__(self, person: int, arm: Arm) -> None:
        self._person = person
        self._arm = arm

    @property
    def name(self) -> str:
        return f"{_SPAR}{self._person}-{self._arm.name.lower()}"

    @property
    def awaits_files(self) -> bool:
        return False

    def read(self, schema: DataSchema | None = None) -> TrainingData:
        return self.examine(schema).training_data(schema, self.name)

    def read_inputs(self, schema: DataSchema | None = None) -> InputData:
        return input_data(self.examine(schema), schema, self.name)

    def examine(
        self,
        schema: DataSchema | None = None,  # noqa: ARG002 - the protocol's
        *,
        needs_targets: bool = True,  # noqa: ARG002 - they are always there
    ) -> Reading:
        data = device_shard(self._person, self._arm)
        return Reading(
            x=data.x,
            y=data.y,
            channels=("ax", "ay", "az", "wx", "wy", "wz"),
            channel_axis=2,
            class_names=EXERCISES,
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
