"""Reads text files of rows, newest bytes first in line, one line at a time.

A line is taken apart on its own, so a stray quote or a torn block spoils that line and not the
rest of the file; a field cannot hold a line break.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgefl.data.account import Account
from edgefl.data.reading import LeftOut
from edgefl.data.rows import Field, RawRows, rows_at_once
from edgefl.data.settings import CsvFormat
from edgefl.data.settings_file import did_you_mean
from edgefl.errors import DataError

_LONGEST_LINE_BYTES = 65_536
_DELIMITERS = (",", ";", "\t", "|")
_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a file's first line says.

    Attributes:
        names: Of the columns.
        delimiter: Between fields.
        size_bytes: Where the first row begins.
        line: The header's bytes, without the line break.
    """

    names: tuple[str, ...]
    delimiter: str
    size_bytes: int
    line: bytes


def read_header(path: Path, form: CsvFormat, wanted: Sequence[str] = ()) -> Header:
    """Read the names of a file's columns.

    Args:
        path: The file.
        form: How it is written.
        wanted: Columns that are needed; they help to find the delimiter.

    Raises:
        DataError: E-DATA-MISSING, E-DATA-UNREADABLE, E-DATA-EMPTY or E-DATA-ENCODING.
    """
    try:
        with path.open("rb") as file:
            line = file.readline(_LONGEST_LINE_BYTES)
    except OSError as error:
        raise unreadable(path, error) from error
    start_bytes = 0
    if line.startswith(_UTF8_BOM):
        start_bytes = len(_UTF8_BOM)
    text = _header_text(path, line[start_bytes:], form)
    if form.names:
        delimiter = form.delimiter or _likely_delimiter(text, len(form.names))
        return Header(names=form.names, delimiter=delimiter, size_bytes=start_bytes, line=b"")
    delimiter = form.delimiter or max(
        _DELIMITERS, key=lambda one: (len(set(wanted) & set(_names(text, one))), text.count(one))
    )
    return Header(
        names=_names(text, delimiter),
        delimiter=delimiter,
        size_bytes=len(line),
        line=line.rstrip(b"\r\n"),
    )


def _header_text(path: Path, line: bytes, form: CsvFormat) -> str:
    is_open = len(line) < _LONGEST_LINE_BYTES and not line.endswith(b"\n")
    if not line.strip() or (is_open and not form.names):
        raise DataError(
            "E-DATA-EMPTY",
            "a first line with column names, and rows below it",
            f"none in {path.name}",
            "log some rows",
        )
    if line.startswith(_UTF16_BOMS) or b"\0" in line:
        raise DataError(
            "E-DATA-ENCODING",
            f"text in {form.encoding} in {path.name}",
            "UTF-16 or bytes that are no text",
            "save it as CSV in UTF-8",
        )
    try:
        return line.decode(form.encoding).rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(
            "E-DATA-ENCODING",
            f"text in {form.encoding} in the first line of {path.name}",
            "other bytes",
            "save it in UTF-8, or set encoding = 'cp1252' in [csv]",
        ) from error


def _names(text: str, delimiter: str) -> tuple[str, ...]:
    try:
        fields = _fields(text, delimiter)
    except csv.Error:
        # Stray quotes; the names that are missing then are named.
        fields = text.split(delimiter)
    return tuple(name.strip() for name in fields)


def _likely_delimiter(text: str, fields: int) -> str:
    return min(_DELIMITERS, key=lambda one: abs(text.count(one) + 1 - fields))


def unreadable(path: Path, error: OSError) -> DataError:
    """Return the error for a file that the system does not give."""
    is_missing = isinstance(error, FileNotFoundError)
    return DataError(
        "E-DATA-MISSING" if is_missing else "E-DATA-UNREADABLE",
        f"a readable file or folder at {path}",
        error.strerror or type(error).__name__,
        "check the path and its permissions",
    )


def column_places(
    header: Header, wanted: Sequence[str], optional: Sequence[str], name: str
) -> tuple[int, ...]:
    """Return where the wanted columns stand; one that is absent, behind the last one.

    Args:
        header: The file's columns.
        wanted: Names.
        optional: Those of them that may be absent.
        name: How the file is called in messages.

    Raises:
        DataError: E-DATA-COLUMN, with the names that are near.
    """
    places = {column: place for place, column in reversed([*enumerate(header.names)])}
    require_columns(header.names, [one for one in wanted if one not in optional], name)
    return tuple(places.get(column, len(header.names)) for column in wanted)


def require_columns(found: Sequence[str], wanted: Sequence[str], name: str) -> None:
    """Refuse a file or table that lacks columns.

    Raises:
        DataError: E-DATA-COLUMN, naming all that are missing and those that are near the first.
    """
    missing = [column for column in wanted if column not in found]
    if missing:
        shown = ", ".join(repr(column) for column in found[:20])
        raise DataError(
            "E-DATA-COLUMN",
            f"columns {', '.join(repr(column) for column in missing)} in {name}",
            shown[:300],
            did_you_mean(missing[0], tuple(found)) or "correct [columns]",
        )


class CsvFile:
    """One text file, opened for one pass over its newest rows."""

    def __init__(
        self,
        path: Path,
        form: CsvFormat,
        header: Header,
        wanted: Sequence[str],
        account: Account,
        optional: Sequence[str] = (),
    ) -> None:
        """Prepare.

        Args:
            path: The file.
            form: How it is written.
            header: What its first line says.
            wanted: Columns to return, in this order.
            account: Counts what is left out.
            optional: Columns that may be absent; their fields are None then.

        Raises:
            DataError: E-DATA-COLUMN.
        """
        self._path = path
        self._form = form
        self._header = header
        self._places = column_places(header, wanted, optional, path.name)
        self._account = account
        self._name = path.name

    def batches(self, most_bytes: int) -> Iterator[RawRows]:
        """Yield the newest rows, in the file's order.

        Args:
            most_bytes: How many bytes from the end are looked at.

        Raises:
            DataError: E-DATA-MISSING: the file cannot be read any more.
        """
        try:
            with self._path.open("rb") as file:
                yield from self._read(file, most_bytes)
        except OSError as error:
            raise unreadable(self._path, error) from error

    def _read(self, file: io.BufferedReader, most_bytes: int) -> Iterator[RawRows]:
        end_bytes = file.seek(0, io.SEEK_END)
        position_bytes = max(self._header.size_bytes, end_bytes - most_bytes)
        file.seek(position_bytes)
        line_number = 0 if self._form.names else 1
        is_tail = position_bytes > self._header.size_bytes
        if is_tail:
            self._account.skipped_bytes += position_bytes - self._header.size_bytes
            # The first line found there is most likely cut.
            position_bytes += _skip_line(file)
        batch = _Batch(self._name, has_numbers=not is_tail)
        most_rows = rows_at_once(len(self._places))
        # What is written while we read belongs to the next pass.
        while position_bytes < end_bytes:
            line = file.readline(_LONGEST_LINE_BYTES)
            position_bytes += len(line)
            line_number += 1
            if not line:
                break  # The file was cut meanwhile.
            if not line.endswith(b"\n"):
                position_bytes += self._meet_open_line(file, line, batch)
                continue
            self._take(line, line_number, batch)
            if len(batch.rows) == most_rows:
                yield batch.raw()
                batch = _Batch(self._name, has_numbers=not is_tail)
        yield batch.raw()

    def _meet_open_line(self, file: io.BufferedReader, line: bytes, batch: "_Batch") -> int:
        """Count a line without an end; return how many more bytes it had."""
        batch.gap_before_next = True
        if len(line) < _LONGEST_LINE_BYTES:
            self._account.leave_out(LeftOut.UNFINISHED, self._name)
            return 0
        self._account.rows += 1
        self._account.leave_out(LeftOut.GARBLED, self._name)
        return _skip_line(file)

    def _take(self, line: bytes, line_number: int, batch: "_Batch") -> None:
        content = line.rstrip(b"\r\n")
        fields = self._split(content)
        if fields is not None and len(fields) == len(self._header.names):
            if content == self._header.line:
                # A logger that was started again has written its header once more.
                batch.gap_before_next = True
                return
            found: list[Field] = [*fields, None]
            batch.add([found[column] for column in self._places], line_number)
        elif content.strip():
            self._account.rows += 1
            reason = LeftOut.GARBLED if fields is None else LeftOut.WIDTH
            self._account.leave_out(reason, batch.place(line_number))
            batch.gap_before_next = True

    def _split(self, content: bytes) -> list[str] | None:
        if b"\0" in content:
            return None
        try:
            return _fields(content.decode(self._form.encoding), self._header.delimiter)
        except (UnicodeDecodeError, csv.Error):
            return None


class _Batch:
    """Rows that are being collected."""

    def __init__(self, name: str, *, has_numbers: bool) -> None:
        self.rows: list[Sequence[Field]] = []
        self.gap_before_next = False
        self._name = name
        self._has_numbers = has_numbers
        self._numbers: list[int] = []
        self._is_after_gap: list[bool] = []

    def add(self, fields: Sequence[Field], line_number: int) -> None:
        self.rows.append(fields)
        self._numbers.append(line_number)
        self._is_after_gap.append(self.gap_before_next)
        self.gap_before_next = False

    def place(self, line_number: int) -> str:
        return f"{self._name} line {line_number}" if self._has_numbers else self._name

    def raw(self) -> RawRows:
        return RawRows(
            rows=self.rows,
            where=f"{self._name} line" if self._has_numbers else self._name,
            numbers=self._numbers if self._has_numbers else [],
            is_after_gap=self._is_after_gap,
        )


def _skip_line(file: io.BufferedReader) -> int:
    """Read up to the end of a line; return how many bytes that were."""
    size_bytes = 0
    while piece := file.readline(_LONGEST_LINE_BYTES):
        size_bytes += len(piece)
        if piece.endswith(b"\n"):
            break
    return size_bytes


def _fields(line: str, delimiter: str) -> list[str]:
    # The csv module costs more than all else for one line, and most lines hold no quote.
    if '"' not in line:
        return line.split(delimiter)
    return next(iter(csv.reader([line], delimiter=delimiter, strict=True)), [])
