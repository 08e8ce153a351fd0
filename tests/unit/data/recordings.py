"""Makes small recordings for tests: text files, tables, settings."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from edgefl.data.settings import Columns, Kind, SourceSettings, Windowing
from edgefl.errors import ConfigError

COLUMNS = Columns(time="t", channels=("a", "b"), label="k")
WINDOWING = Windowing(length=2, stride=2)


def write_csv(path: Path, *rows: str, header: str = "t,a,b,k", end: str = "\n") -> Path:
    path.write_bytes("".join(f"{row}{end}" for row in (header, *rows)).encode())
    return path


def rows(count: int, label: str = "1", start: int = 0) -> list[str]:
    return [f"{start + i},{start + i}.5,-{start + i},{label}" for i in range(count)]


def csv_settings(path: Path, **changes: object) -> SourceSettings:
    settings = {"columns": COLUMNS, "windowing": WINDOWING} | changes
    return SourceSettings(kind=Kind.CSV, path=path, **settings)


def write_table(path: Path, rows: list[tuple], *, wal: bool = False, sql: str = "") -> Path:
    with closing(sqlite3.connect(path)) as database:
        if wal:
            database.execute("PRAGMA journal_mode = WAL")
        database.execute(sql or "CREATE TABLE log (t REAL, a REAL, b REAL, k)")
        database.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", rows)
        database.commit()
    return path


def refusal(attempt) -> ConfigError:
    """Return the error of an attempt; it is one line, and the user's to mend."""
    with pytest.raises(ConfigError) as caught:
        attempt()
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return caught.value
