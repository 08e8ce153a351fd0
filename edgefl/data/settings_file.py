"""Reads a source's TOML file (docs/data.md); what it does not know it refuses, by name."""

import difflib
import enum
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from edgefl.data.settings import (
    BadRows,
    Columns,
    CsvFormat,
    Kind,
    Labels,
    Layout,
    Retention,
    SourceSettings,
    TargetRule,
    TimeUnit,
    Windowing,
    invalid,
)
from edgefl.errors import ConfigError
from edgefl.storage.files import read_file

_LARGEST_FILE_BYTES = 1024 * 1024
_TABLES = ("source", "columns", "window", "labels", "keep", "csv")
_Choice = TypeVar("_Choice", bound=enum.Enum)


def read_settings(path: Path) -> SourceSettings:
    """Return what a settings file says.

    Args:
        path: The TOML file; paths in it are relative to its folder.

    Raises:
        ConfigError: E-DATA-CONFIG: it cannot be read, or an entry is unknown or not usable.
    """
    document = _load(path)
    _require_known(document, _TABLES, "tables", path.name)
    tables = {name: _Table(name, document.get(name, {}), path.name) for name in _TABLES}
    kind = tables["source"].choice("kind", Kind, None)
    for name in ("columns", "window"):
        if kind.has_rows is not (name in document):
            needs = "a" if kind.has_rows else "no"
            found = "none" if kind.has_rows else "one"
            raise invalid(f"{needs} table [{name}] for kind = '{kind.value}' in {path.name}", found)
    try:
        settings = _settings(kind, tables, path.parent)
    except ConfigError as error:
        if path.name in error.expected:
            raise
        raise invalid(f"{error.expected} in {path.name}", error.found) from error
    for table in tables.values():
        table.finish()
    return settings


def _settings(kind: Kind, tables: Mapping[str, "_Table"], folder: Path) -> SourceSettings:
    source = tables["source"]
    path = folder / ("" if kind is Kind.PYTHON else source.text("path"))
    table = source.text("table") if kind is Kind.SQLITE else ""
    columns = _columns(tables["columns"]) if kind.has_rows else None
    default = BadRows.DROP if kind.has_rows else BadRows.REFUSE
    return SourceSettings(
        kind=kind,
        path=path,
        table=table,
        entry=source.text("entry") if kind is Kind.PYTHON else "",
        bad_rows=source.choice("bad_rows", BadRows, default),
        is_described=True,
        columns=columns,
        windowing=None if columns is None else _windowing(tables["window"], columns),
        labels=Labels(
            classes=tables["labels"].texts("classes"),
            unlabelled=tables["labels"].texts("unlabelled"),
        ),
        retention=_retention(tables["keep"]),
        csv=_csv(tables["csv"]) if kind is Kind.CSV else CsvFormat(),
    )


def _columns(table: "_Table") -> Columns:
    channels = table.texts("channels")
    return Columns(
        time=table.optional_text("time"),
        time_unit=table.choice("time_unit", TimeUnit, TimeUnit.S),
        channels=channels,
        label=table.optional_text("label"),
        targets=table.texts("targets"),
        scale=table.constants("scale", len(channels)),
        offset=table.constants("offset", len(channels)),
    )


def _windowing(table: "_Table", columns: Columns) -> Windowing:
    length = table.integer("length", None)
    rule = TargetRule.MAJORITY if columns.label is not None else TargetRule.LAST
    return Windowing(
        length=length,
        stride=table.integer("stride", length),
        layout=table.choice("layout", Layout, Layout.TIME_FIRST),
        shape=table.integers("shape"),
        max_gap_s=table.optional_number("max_gap_s"),
        target_rule=table.choice("label_rule", TargetRule, rule),
        is_tokens=table.choice("values", _Values, _Values.FLOAT32) is _Values.INT64,
    )


class _Values(enum.Enum):
    FLOAT32 = "float32"
    INT64 = "int64"


def _retention(table: "_Table") -> Retention:
    default = Retention()
    return Retention(
        most_windows=table.integer("most_windows", default.most_windows),
        most_bytes=table.integer("most_bytes", default.most_bytes),
        most_age_days=table.optional_number("most_age_days"),
        most_read_bytes=table.integer("most_read_bytes", default.most_read_bytes),
    )


def _csv(table: "_Table") -> CsvFormat:
    default = CsvFormat()
    return CsvFormat(
        delimiter=table.optional_text("delimiter"),
        decimal=table.optional_text("decimal") or default.decimal,
        encoding=table.optional_text("encoding") or default.encoding,
        names=table.texts("names"),
    )


def _load(path: Path) -> dict[str, object]:
    try:
        if path.stat().st_size > _LARGEST_FILE_BYTES:
            raise invalid(f"a settings file of at most {_LARGEST_FILE_BYTES} bytes", path.name)
        return tomllib.loads(read_file(path, _LARGEST_FILE_BYTES).decode("utf-8-sig"))
    except OSError as error:
        raise invalid(
            f"a readable settings file {path}", error.strerror or str(error), "check the path"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"TOML in {path}", str(error).replace("\n", " ")[:200]) from error


def _require_known(
    found: Mapping[str, object], known: tuple[str, ...], what: str, where: str
) -> None:
    for name in sorted(found.keys() - set(known)):
        raise invalid(
            f"only the {what} {', '.join(known)} in {where}", name[:80], did_you_mean(name, known)
        )


def did_you_mean(name: str, known: tuple[str, ...]) -> str:
    """Return a hint that names the known words most like one; empty if none is near."""
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else ""


class _Table:
    """Typed access to one TOML table; remembers what was asked for, to refuse the rest."""

    def __init__(self, name: str, content: object, where: str) -> None:
        if not isinstance(content, dict):
            raise invalid(f"a table [{name}] in {where}", type(content).__name__)
        self._name = name
        self._content: dict[str, object] = content
        self._where = where
        self._known: list[str] = []

    def finish(self) -> None:
        """Refuse entries that nothing asked for."""
        if not self._content:
            return
        if not self._known:
            raise invalid(f"no table [{self._name}] for this kind in {self._where}", "one")
        what = f"entries of [{self._name}]"
        _require_known(self._content, tuple(self._known), what, self._where)

    def _take(self, key: str) -> object:
        self._known.append(key)
        return self._content.get(key)

    def _wrong(self, key: str, wanted: str, found: object) -> ConfigError:
        shown = "nothing" if found is None else repr(found)[:80]
        return invalid(f"{key} = {wanted} in [{self._name}] of {self._where}", shown)

    def optional_text(self, key: str) -> str | None:
        value = self._take(key)
        if value is not None and (not isinstance(value, str) or not value or "\0" in value):
            raise self._wrong(key, "a text", value)
        return value

    def text(self, key: str) -> str:
        value = self.optional_text(key)
        if value is None:
            raise self._wrong(key, "a text", value)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._take(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise self._wrong(key, "a list of texts", value)
        return tuple(str(one) for one in value)

    def integer(self, key: str, default: int | None) -> int:
        value = self._take(key)
        if value is None:
            value = default
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(key, "a whole number", value)
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        value = self._take(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(type(one) is int and one > 0 for one in value):
            raise self._wrong(key, "a list of whole numbers above 0", value)
        return tuple(int(one) for one in value)

    def optional_number(self, key: str) -> float | None:
        value = self._take(key)
        if value is None:
            return None
        return self._number(key, value)

    def constants(self, key: str, channels: int) -> tuple[float, ...]:
        value = self._take(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            return (self._number(key, value),) * channels
        return tuple(self._number(key, one) for one in value)

    def _number(self, key: str, value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(key, "a number", value)
        return float(value)

    def choice(self, key: str, choices: type[_Choice], default: _Choice | None) -> _Choice:
        value = self._take(key)
        if value is None and default is not None:
            return default
        for choice in choices:
            if choice.value == value:
                return choice
        raise self._wrong(key, " or ".join(repr(choice.value) for choice in choices), value)
