"""Sources of ready examples: `.npz` files, and a function of the user's."""

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from edgefl.data.account import Account
from edgefl.data.folder import list_recordings
from edgefl.data.inputs import InputData, input_data
from edgefl.data.npz import NpzExamples, as_examples, as_inputs, read_npz
from edgefl.data.python_entry import PythonEntry
from edgefl.data.reading import LeftOut, Reading
from edgefl.data.schema import DataSchema
from edgefl.data.settings import BadRows, Retention, SourceSettings
from edgefl.errors import DataError
from edgefl.training.base import Inputs, Targets, TrainingData

_LOGGER = logging.getLogger(__name__)
_STILL_WRITTEN_S = 60.0
_SECONDS_PER_DAY = 86_400.0
NPZ_SUFFIXES = (".npz",)


class NpzSource:
    """One `.npz`, or the newest ones of a folder."""

    def __init__(
        self, settings: SourceSettings, name: str, now: Callable[[], float] = time.time
    ) -> None:
        """Prepare; nothing is opened.

        Args:
            settings: Of kind NPZ.
            name: How the source is called in messages.
            now: Seconds since 1970.
        """
        self._settings = settings
        self._name = name
        self._now = now

    @property
    def name(self) -> str:
        """Return how the source is called in messages."""
        return self._name

    @property
    def awaits_files(self) -> bool:
        """Tell whether a path may be made later; see `DataSource.awaits_files`."""
        return self._settings.is_described

    def read(self, schema: DataSchema | None = None) -> TrainingData:
        """Read the examples as they are now; see `DataSource.read`."""
        return self.examine(schema).training_data(schema, self._name)

    def read_inputs(self, schema: DataSchema | None = None) -> InputData:
        """Read without need for labels; see `DataSource.read_inputs`."""
        return input_data(self.examine(schema, needs_targets=False), schema, self._name)

    def examine(self, schema: DataSchema | None = None, *, needs_targets: bool = True) -> Reading:
        """Read, and keep account of what was left out; see `DataSource.examine`."""
        account = Account()
        read = partial(
            read_npz, schema=schema, retention=self._settings.retention, needs_targets=needs_targets
        )
        retention = self._settings.retention
        listing = list_recordings(self._settings.path, NPZ_SUFFIXES, retention.most_read_bytes)
        account.skipped_bytes = listing.skipped_bytes
        if not listing.is_folder:
            account.files = 1
            found = read(self._settings.path)
            return _examined(
                [found], self._settings, account, self._name, needs_targets=needs_targets
            )
        newest_first: list[NpzExamples] = []
        defects: list[DataError] = []
        for path in reversed(listing.paths):
            if _is_full(newest_first, retention):
                break
            examples = self._one_of_many(path, read, account, defects)
            if examples is not None and _joins(examples, newest_first, path, account):
                newest_first.append(examples)
                account.files += 1
        if not newest_first and defects:
            raise defects[0]
        if not newest_first:
            raise DataError(
                "E-DATA-EMPTY",
                f"at least one usable file in {self._name}",
                "; ".join(account.notes) or "none",
                "'edgefl data check' shows what is found",
            )
        return _examined(
            newest_first[::-1], self._settings, account, self._name, needs_targets=needs_targets
        )

    def _one_of_many(
        self,
        path: Path,
        read: Callable[[Path], NpzExamples],
        account: Account,
        defects: list[DataError],
    ) -> NpzExamples | None:
        try:
            age_s = self._now() - path.stat().st_mtime
            most_age_days = self._settings.retention.most_age_days
            if most_age_days is not None and age_s > most_age_days * _SECONDS_PER_DAY:
                account.note("files changed longer ago than most_age_days were passed over")
                return None
            return read(path)
        except OSError:
            account.leave_out(LeftOut.BAD_FILE, path.name)
        except DataError as error:
            if error.code == "E-DATA-DAMAGED" and abs(age_s) < _STILL_WRITTEN_S:
                account.leave_out(LeftOut.UNFINISHED, path.name)
                return None
            defects.append(error)
            account.leave_out(LeftOut.BAD_FILE, path.name)
            account.note(f"{path.name}: {error}")
        return None


def _is_full(found: list[NpzExamples], retention: Retention) -> bool:
    if not found:
        return False
    example_bytes = found[0].x[:1].nbytes
    return sum(len(one.x) for one in found) >= retention.capacity(example_bytes)


def _joins(examples: NpzExamples, found: list[NpzExamples], path: Path, account: Account) -> bool:
    """Tell whether a file's examples are shaped as the newest file's."""
    if not found or (
        examples.x.shape[1:] == found[0].x.shape[1:]
        and examples.y.shape[1:] == found[0].y.shape[1:]
        and examples.y.dtype == found[0].y.dtype
    ):
        return True
    account.leave_out(LeftOut.BAD_FILE, path.name)
    account.note(
        f"{path.name} holds examples of shape {list(examples.x.shape[1:])}, newer files of "
        f"{list(found[0].x.shape[1:])}"
    )
    return False


def _examined(
    found: list[NpzExamples],
    settings: SourceSettings,
    account: Account,
    name: str,
    *,
    needs_targets: bool,
) -> Reading:
    """Join examples, oldest file first, and apply the user's choices to them."""
    passed_over = sum(one.passed_over for one in found)
    x = np.concatenate([one.x for one in found]) if len(found) > 1 else found[0].x
    y = np.concatenate([one.y for one in found]) if len(found) > 1 else found[0].y
    if len(x):
        capacity = settings.retention.capacity(x[:1].nbytes)
        passed_over += max(0, len(x) - capacity)
        x, y = x[-capacity:], y[-capacity:]
    if passed_over:
        account.leave_out(LeftOut.TOO_MANY, count=passed_over)
    for one in found:
        if one.note:
            account.note(one.note)
    if settings.bad_rows is BadRows.DROP and len(x):
        x, y = _without_bad(x, y, account, needs_targets=needs_targets)
    account.require_sound(settings.bad_rows, name)
    return Reading(
        x=x,
        y=y,
        files=account.files,
        left_out=dict(account.left_out),
        first_places=dict(account.first_places),
        skipped_bytes=account.skipped_bytes,
        notes=tuple(account.notes),
    )


def _without_bad(
    x: Inputs, y: Targets, account: Account, *, needs_targets: bool
) -> tuple[Inputs, Targets]:
    """Leave out examples that are not finite; where they are refused, training names the first."""
    is_good = np.isfinite(x.reshape(len(x), -1)).all(axis=1)
    if needs_targets:
        is_good &= np.isfinite(y.reshape(len(y), -1)).all(axis=1)
    bad = int(len(x) - is_good.sum())
    if bad == 0:
        return x, y
    account.leave_out(LeftOut.BAD_EXAMPLE, count=bad)
    return x[is_good], y[is_good]


class PythonSource:
    """A function of the user's that returns examples."""

    def __init__(self, settings: SourceSettings, name: str) -> None:
        """Prepare; the user's code is not touched yet.

        Args:
            settings: Of kind PYTHON.
            name: How the source is called in messages.
        """
        self._settings = settings
        self._name = name
        self._entry = PythonEntry(settings.entry, settings.path)

    @property
    def name(self) -> str:
        """Return how the source is called in messages."""
        return self._name

    @property
    def awaits_files(self) -> bool:
        """Tell that what is missing is an error: code is not made while an agent runs."""
        return False

    def read(self, schema: DataSchema | None = None) -> TrainingData:
        """Call the function; see `DataSource.read`."""
        return self.examine(schema).training_data(schema, self._name)

    def read_inputs(self, schema: DataSchema | None = None) -> InputData:
        """Call the function without need for labels; see `DataSource.read_inputs`."""
        return input_data(self.examine(schema, needs_targets=False), schema, self._name)

    def examine(self, schema: DataSchema | None = None, *, needs_targets: bool = True) -> Reading:
        """Call the function, and keep account of what was left out; see `DataSource.examine`."""
        if needs_targets:
            examples = as_examples(*self._entry.call(), schema)
        else:
            examples = as_inputs(*self._entry.call_for_inputs(), schema)
        return _examined(
            [examples], self._settings, Account(), self._name, needs_targets=needs_targets
        )
