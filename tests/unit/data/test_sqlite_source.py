"""SQLite tables: read beside a writer, never written, and every defect gives one line."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from edgefl.data.account import Account
from edgefl.data.reading import LeftOut
from edgefl.data.row_source import RowSource
from edgefl.data.schema import DataSchema
from edgefl.data.settings import Columns, Kind, Labels, Retention, SourceSettings, Windowing
from edgefl.data.source import open_source
from edgefl.data.sqlite_rows import SqliteTable
from tests.unit.data.recordings import COLUMNS, refusal, write_table

SINGLE = Windowing(length=1, stride=1)
ROWS = [(float(i), i + 0.5, -i, i % 2) for i in range(6)]


def source(path, table="log", **changes):
    settings = {"columns": COLUMNS, "windowing": SINGLE} | changes
    return RowSource(
        SourceSettings(kind=Kind.SQLITE, path=path, table=table, **settings), path.name
    )


def firsts(reading):
    return reading.x[:, 0, 0].tolist()


def test_rows_become_windows(tmp_path):
    path = write_table(tmp_path / "log.db", ROWS)
    reading = source(path, windowing=Windowing(length=2, stride=2)).examine()
    assert reading.x[1].tolist() == [[2.5, -2], [3.5, -3]]
    assert reading.y.tolist() == [1, 1, 1]
    assert (reading.rows, reading.first_time_s, reading.last_time_s) == (6, 0, 5)


def test_fields_of_other_types(tmp_path):
    path = write_table(
        tmp_path / "log.db",
        [
            ("0.5", "1.5", 2, "walk"),
            (1, None, 2, "walk"),
            (2, b"\xff\xfe", 2, "rest"),
            (3, "x", 2, "rest"),
            (None, 1, 2, "rest"),
            (5, 1, 2, None),
            (6, 2**62, 2, "rest"),
            (7, 1, 2, 3),
            (8, 1, 2, b"rest"),
        ],
        sql="CREATE TABLE log (t, a, b, k)",
    )
    reading = source(path, labels=Labels(classes=("rest", "walk"))).examine()
    assert firsts(reading) == [1.5, 2.0**62]
    assert reading.y.tolist() == [1, 0]
    assert reading.left_out == {
        LeftOut.MISSING_VALUE: 1,
        LeftOut.NOT_A_NUMBER: 2,
        LeftOut.BAD_TIME: 1,
        LeftOut.UNLABELLED: 1,
        LeftOut.UNKNOWN_LABEL: 2,
    }
    assert reading.first_places[LeftOut.NOT_A_NUMBER] == "row 3"


def test_text_that_is_not_utf8_spoils_its_row_only(tmp_path):
    path = write_table(tmp_path / "log.db", ROWS[:2])
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO log VALUES (9, 1, 2, CAST(x'ff41' AS TEXT))")
        database.commit()
    reading = source(path).examine()
    assert len(reading.x) == 2
    assert reading.left_out == {LeftOut.UNKNOWN_LABEL: 1}


def test_a_writer_in_wal_mode_is_neither_seen_half_nor_held_up(tmp_path):
    path = write_table(tmp_path / "log.db", ROWS, wal=True)
    before = path.read_bytes()
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO log VALUES (6, 6.5, 0, 0)")
        assert len(source(path).examine().x) == 6
        writer.execute("COMMIT")
        assert len(source(path).examine().x) == 7
    assert before[:16] == path.read_bytes()[:16]


def test_a_writer_without_wal_need_not_wait_until_all_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("edgefl.data.rows._MOST_ROWS_AT_ONCE", 2)
    path = write_table(tmp_path / "log.db", ROWS)
    table = SqliteTable(path, "log")
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as writer:
        seen = []
        for raw in table.batches(COLUMNS.names, "t", 10_000, Account()):
            seen += [row[0] for row in raw.rows]
            writer.execute("INSERT INTO log VALUES (99, 0, 0, 0)")
    # What is added meanwhile belongs to the next pass.
    assert seen == [0, 1, 2, 3, 4, 5]


def test_an_empty_table_is_no_data_yet(tmp_path):
    path = write_table(tmp_path / "log.db", [])
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE VIEW seen AS SELECT * FROM log")
        database.commit()
    for table in ("log", "seen"):
        assert refusal(source(path, table).read).code == "E-DATA-EMPTY"


def test_nothing_is_written(tmp_path):
    path = write_table(tmp_path / "log.db", ROWS)
    before = path.read_bytes()
    source(path).examine()
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["log.db"]


def test_a_wal_database_whose_writer_is_gone_is_read_where_nothing_can_be_created(
    tmp_path, monkeypatch
):
    path = write_table(tmp_path / "log.db", ROWS, wal=True)
    connect = sqlite3.connect

    def on_a_read_only_medium(address, **options):
        if "immutable" in address:
            return connect(address, **options)
        # What SQLite says there (tried by hand; a test that runs as root cannot bring it about).
        error = sqlite3.OperationalError("attempt to write a readonly database")
        error.sqlite_errorcode = sqlite3.SQLITE_READONLY_DIRECTORY
        raise error

    monkeypatch.setattr(sqlite3, "connect", on_a_read_only_medium)
    assert len(source(path).examine().x) == 6
    # With a -wal file somebody may be writing, and reading on could give torn rows.
    (tmp_path / "log.db-wal").write_bytes(b"frames")
    assert refusal(source(path).examine).code == "E-DATA-SQLITE"


def test_a_locked_database_is_given_up_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr("edgefl.data.sqlite_rows._WAIT_S", 0.05)
    path = write_table(tmp_path / "log.db", ROWS)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        error = refusal(source(path).examine)
        assert error.code == "E-DATA-LOCKED"
        assert "WAL" in error.advice
        writer.execute("COMMIT")
    assert len(source(path).examine().x) == 6


def test_the_newest_rows_are_read_in_the_order_of_insertion(tmp_path):
    path = write_table(tmp_path / "log.db", [(100.0 - i, float(i), 0, 0) for i in range(50)])
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM log WHERE rowid % 2 = 0")
        database.commit()
    retention = Retention(most_read_bytes=10 * 16 * 4)
    reading = source(path, retention=retention).examine()
    assert firsts(reading) == [float(i) for i in range(30, 50, 2)]
    assert reading.rows == 10
    # An estimate by rowids: counting the older rows would read them.
    assert reading.skipped_bytes == 30 * 16 * 4


def test_views_and_tables_without_rowid_are_ordered_by_time(tmp_path):
    path = write_table(tmp_path / "log.db", [(9.0 - i, float(i), 0, 0) for i in range(4)])
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE VIEW seen AS SELECT * FROM log")
        database.execute("CREATE TABLE flat (t PRIMARY KEY, a, b, k) WITHOUT ROWID")
        database.execute("INSERT INTO flat SELECT * FROM log")
        database.commit()
    for table in ("seen", "flat"):
        reading = source(path, table).examine()
        assert firsts(reading) == [3, 2, 1, 0]
        assert reading.clock_steps == 0
        timeless = Columns(channels=("a", "b"), label="k")
        error = refusal(lambda t=table, c=timeless: source(path, t, columns=c).examine())
        assert error.code == "E-DATA-TABLE"


def test_names_that_are_missing_are_shown_with_those_that_are_near(tmp_path):
    path = write_table(tmp_path / "log.db", ROWS)
    error = refusal(source(path, "logg").examine)
    assert error.code == "E-DATA-TABLE"
    assert "did you mean log?" in str(error)
    columns = Columns(time="t", channels=("a", "bb"), label="k")
    error = refusal(source(path, columns=columns).examine)
    assert error.code == "E-DATA-COLUMN"
    assert "'bb'" in error.expected
    assert "'b'" in error.found


def test_names_cannot_carry_sql(tmp_path):
    trick = 'x"; DROP TABLE log; --'
    quoted = trick.replace('"', '""')
    path = write_table(
        tmp_path / "log.db",
        ROWS[:2],
        sql=f'CREATE TABLE log (t, a, "{quoted}", k)',
    )
    columns = Columns(time="t", channels=("a", trick), label="k")
    assert len(source(path, columns=columns).examine().x) == 2
    assert refusal(source(path, trick).examine).code == "E-DATA-TABLE"
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM log").fetchone() == (2,)


def test_missing_damaged_and_foreign_files(tmp_path):
    assert refusal(source(tmp_path / "none.db").examine).code == "E-DATA-MISSING"
    assert not (tmp_path / "none.db").exists()
    assert refusal(source(tmp_path).examine).code == "E-DATA-UNREADABLE"
    foreign = tmp_path / "text.db"
    foreign.write_text("no database, but long enough to be looked at" * 100)
    assert refusal(source(foreign).examine).code == "E-DATA-DAMAGED"
    empty = tmp_path / "empty.db"
    empty.write_bytes(b"")
    assert refusal(source(empty).examine).code == "E-DATA-EMPTY"


@pytest.mark.parametrize("seed", range(8))
def test_damage_within_a_database_gives_one_line_or_rows(tmp_path, seed):
    path = write_table(tmp_path / "log.db", [(float(i), i, i, 0) for i in range(3000)])
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(seed)
    for page in rng.integers(1, len(content) // 4096, 8).tolist():
        start = page * 4096 + int(rng.integers(0, 3000))
        content[start : start + 500] = rng.bytes(500)
    path.write_bytes(content[: len(content) - 4096 * int(rng.integers(0, 3))])
    try:
        reading = source(path).examine()
    except Exception as error:  # noqa: BLE001 - its type is what is tested
        assert type(error).__name__ == "DataError"  # noqa: PT017 - one of two good outcomes
        assert error.code in {"E-DATA-DAMAGED", "E-DATA-SQLITE", "E-DATA-TABLE"}  # noqa: PT017
        return
    assert np.isfinite(reading.x).all()


def test_a_short_spelling_goes_by_names(tmp_path):
    path = write_table(tmp_path / "log.db", ROWS, sql="CREATE TABLE log (time_s, ax, ay, label)")
    data = open_source(f"{path}:log").read(DataSchema(input_shape=(2, 3), classes=2))
    assert data.x.shape == (2, 2, 3)
    assert data.x[0].tolist() == [[0.5, 1.5, 2.5], [0, -1, -2]]
