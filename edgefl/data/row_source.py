"""Sources of rows (text files, database tables): read, parse, cut, keep the newest."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from edgefl.data.account import Account
from edgefl.data.csv_rows import CsvFile, Header, read_header
from edgefl.data.folder import list_recordings
from edgefl.data.implied import implied_columns, implied_windowing
from edgefl.data.inputs import InputData, input_data
from edgefl.data.reading import LeftOut, Reading
from edgefl.data.rows import RowParser
from edgefl.data.schema import DataSchema
from edgefl.data.settings import Columns, Kind, Layout, SourceSettings, Windowing, require_rule
from edgefl.data.windows import Windower
from edgefl.errors import DataError
from edgefl.training.base import TrainingData

_LOGGER = logging.getLogger(__name__)
CSV_SUFFIXES = (".csv", ".tsv")


class RowSource:
    """Rows that are cut into windows."""

    def __init__(
        self, settings: SourceSettings, name: str, now: Callable[[], float] = time.time
    ) -> None:
        """Prepare; nothing is opened.

        Args:
            settings: Of kind CSV or SQLITE.
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
        reading = self.examine(schema)
        left_out = reading.left_out_text()
        if left_out:
            _LOGGER.info("%s: %s examples; left out: %s", self._name, len(reading.x), left_out)
        return reading.training_data(schema, self._name)

    def read_inputs(self, schema: DataSchema | None = None) -> InputData:
        """Read without need for labels; see `DataSource.read_inputs`."""
        return input_data(self.examine(schema, needs_targets=False), schema, self._name)

    def examine(self, schema: DataSchema | None = None, *, needs_targets: bool = True) -> Reading:
        """Read, and keep account of what was left out; see `DataSource.examine`."""
        one_pass = _Pass(self._settings, schema, self._now(), needs_targets=needs_targets)
        if self._settings.kind is Kind.SQLITE:
            _read_table(one_pass)
        else:
            _read_files(one_pass)
        one_pass.account.require_sound(self._settings.bad_rows, self._name)
        return one_pass.reading()


class _Pass:
    """One pass over a source: settled meaning of columns, counters, windows so far."""

    def __init__(
        self,
        settings: SourceSettings,
        schema: DataSchema | None,
        now_s: float,
        *,
        needs_targets: bool,
    ) -> None:
        self._needs_targets = needs_targets
        self.settings = settings
        self.account = Account()
        self._schema = schema
        self._now_s = now_s
        self._columns = settings.columns
        self._begun: tuple[Columns, Windowing, RowParser, Windower] | None = None

    @property
    def wanted(self) -> tuple[str, ...]:
        """Return the columns to read; empty as long as they go by their names."""
        return () if self._columns is None else self._columns.names

    @property
    def optional(self) -> tuple[str, ...]:
        """Return those of the wanted columns that may be absent."""
        if self._columns is None or self._needs_targets:
            return ()
        return self._columns.target_names

    @property
    def time(self) -> str | None:
        """Return the time column."""
        return None if self._columns is None else self._columns.time

    def begin(self, names: tuple[str, ...], where: str) -> tuple[RowParser, Windower]:
        """Settle the meaning of columns at the first file, for all files."""
        if self._begun is None:
            columns = self._columns or implied_columns(
                names, where, needs_targets=self._needs_targets
            )
            windowing = self.settings.windowing
            if windowing is None:
                windowing = implied_windowing(columns, self._schema, where)
                if self._schema is None:
                    self.account.note("without a model each row is looked at by itself")
            require_rule(columns, windowing)
            parser = RowParser(
                columns,
                self.settings.labels,
                self.account,
                is_tokens=windowing.is_tokens,
                decimal=self.settings.csv.decimal,
                needs_targets=self._needs_targets,
            )
            windower = Windower(
                columns,
                windowing,
                self.settings.retention,
                self.account,
                self._now_s,
                needs_targets=self._needs_targets,
            )
            self._columns = columns
            self._begun = (columns, windowing, parser, windower)
        return self._begun[2], self._begun[3]

    def reading(self) -> Reading:
        """Return the outcome; `begin` was called."""
        if self._begun is None:
            raise DataError("E-DATA-EMPTY", "at least one file of rows", "none that can be used")
        columns, windowing, _, windower = self._begun
        windower.end_run()
        x, y, spans_s = windower.store.finish()
        has_times = columns.time is not None and len(x) > 0
        account = self.account
        return Reading(
            x=x,
            y=y,
            rows=account.rows,
            files=account.files,
            left_out=dict(account.left_out),
            first_places=dict(account.first_places),
            clock_steps=account.clock_steps,
            skipped_bytes=account.skipped_bytes,
            first_time_s=float(spans_s[:, 0].min()) if has_times else None,
            last_time_s=float(spans_s[:, 1].max()) if has_times else None,
            spans_s=spans_s if has_times else None,
            channels=columns.channels,
            class_names=self.settings.labels.classes,
            channel_axis=_channel_axis(windowing),
            faulty_values=dict(account.faulty_values),
            unknown_labels=dict(account.unknown_labels),
            notes=tuple(account.notes),
        )


def _channel_axis(windowing: Windowing) -> int | None:
    if windowing.shape:
        return None
    if windowing.layout is Layout.FLAT:
        return 1 if windowing.length == 1 else None
    return 2 if windowing.layout is Layout.TIME_FIRST else 1


def _read_table(one_pass: _Pass) -> None:
    # A board that logs to text files need not have SQLite.
    from edgefl.data.sqlite_rows import SqliteTable

    settings = one_pass.settings
    table = SqliteTable(settings.path, settings.table)
    parser, windower = one_pass.begin(table.column_names(), table.name)
    one_pass.account.files += 1
    most_bytes = settings.retention.most_read_bytes
    for raw in table.batches(
        one_pass.wanted, one_pass.time, most_bytes, one_pass.account, one_pass.optional
    ):
        windower.add(parser.parse(raw))


def _read_files(one_pass: _Pass) -> None:
    settings = one_pass.settings
    room_bytes = settings.retention.most_read_bytes
    listing = list_recordings(settings.path, CSV_SUFFIXES, room_bytes)
    account = one_pass.account
    account.skipped_bytes += listing.skipped_bytes
    first_error: DataError | None = None
    empty: DataError | None = None
    # All of the newest files fit; only the oldest of them may have to be cut.
    newer_bytes = [_size_bytes(path) for path in listing.paths]
    for position, path in enumerate(listing.paths):
        most_bytes = max(1, room_bytes - sum(newer_bytes[position + 1 :]))
        try:
            _read_file(one_pass, path, most_bytes)
            account.files += 1
        except DataError as error:
            if not listing.is_folder:
                raise
            if error.code == "E-DATA-EMPTY":
                empty = error
                account.leave_out(LeftOut.UNFINISHED, path.name)
                continue
            first_error = first_error or error
            account.leave_out(LeftOut.BAD_FILE, path.name)
            account.note(f"{path.name}: {error}")
    unusable = first_error or empty
    if account.files == 0 and unusable is not None:
        raise unusable


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # Taken away meanwhile; opening it gives the reason.


def _read_file(one_pass: _Pass, path: Path, most_bytes: int) -> None:
    form = one_pass.settings.csv
    header: Header = read_header(path, form, one_pass.wanted)
    parser, windower = one_pass.begin(header.names, path.name)
    file = CsvFile(path, form, header, one_pass.wanted, one_pass.account, one_pass.optional)
    windower.end_run()
    for raw in file.batches(most_bytes):
        windower.add(parser.parse(raw))
