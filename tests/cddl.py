"""Checks values against the part of CDDL (RFC 8610) that docs/protocol.cddl uses.

Rules, maps with integer keys and a trailing group, arrays with named entries, `*` and `?`, choices,
ranges, numbers, `.size` of byte strings. Anything else in the text is an error here.
"""

import re
from dataclasses import dataclass

TOKEN = re.compile(
    r"\s+|;[^\n]*|(?P<token>\d+\.\.\d+|\d+|[A-Za-z][\w-]*|\.size|=>|[{}\[\]()=,:/*?])", re.ASCII
)
PRELUDE = {"uint": int, "bstr": bytes, "tstr": str}


@dataclass(frozen=True)
class Entry:
    """One place of a map, an array or a group: how often, under which key, of which type."""

    mark: str
    key: object
    type: tuple


class Cddl:
    """The rules of a text."""

    def __init__(self, text: str) -> None:
        self._tokens = list(tokens_of(text))
        self._at = 0
        self.rules: dict[str, tuple] = {}
        while self._at < len(self._tokens):
            name = self._take()
            self._take("=")
            self.rules[name] = self._choice()

    def accepts(self, rule: str, value: object) -> bool:
        return self._fits(self.rules[rule], value)

    # ------------------------------------------------------------ reading

    def _next(self, ahead: int = 0) -> str:
        index = self._at + ahead
        return self._tokens[index] if index < len(self._tokens) else ""

    def _take(self, wanted: str | None = None) -> str:
        token = self._next()
        if not token or (wanted is not None and token != wanted):
            raise ValueError(f"expected {wanted!r}, found {token!r}")
        self._at += 1
        return token

    def _choice(self) -> tuple:
        options = [self._single()]
        while self._next() == "/":
            self._take()
            options.append(self._single())
        return options[0] if len(options) == 1 else ("choice", options)

    def _single(self) -> tuple:
        word = self._take()
        if word in "{[(":
            return ({"{": "map", "[": "array", "(": "group"}[word], self._entries(word))
        if ".." in word:
            low, high = word.split("..")
            return ("range", int(low), int(high))
        if word.isdecimal():
            return ("range", int(word), int(word))
        if self._next() == ".size":
            self._take()
            return ("sized", word, int(self._take()))
        return ("name", word)

    def _entries(self, opening: str) -> list[Entry]:
        closing = {"{": "}", "[": "]", "(": ")"}[opening]
        entries = []
        while self._next() != closing:
            mark = self._take() if self._next() in "*?" else ""
            key: object = None
            if self._next(1) in ("=>", ":"):
                key = self._take()
                self._take()
            entries.append(Entry(mark, key, self._choice()))
            if self._next() == ",":
                self._take()
        self._take(closing)
        return entries

    # ------------------------------------------------------------ checking

    def _fits(self, wanted: tuple, value: object) -> bool:
        kind = wanted[0]
        if kind == "choice":
            return any(self._fits(option, value) for option in wanted[1])
        if kind == "range":
            return type(value) is int and wanted[1] <= value <= wanted[2]
        if kind == "sized":
            return type(value) is PRELUDE[wanted[1]] and len(value) == wanted[2]  # type: ignore[arg-type]
        if kind == "map":
            return isinstance(value, dict) and self._fits_map(wanted[1], value)
        if kind == "array":
            return isinstance(value, list) and self._fits_array(wanted[1], value)
        return self._fits_name(wanted[1], value)

    def _fits_name(self, name: str, value: object) -> bool:
        if name in self.rules:
            return self._fits(self.rules[name], value)
        if name in ("null", "any"):
            return name == "any" or value is None
        is_negative = type(value) is int and value < 0
        return type(value) is PRELUDE[name] and not is_negative

    def _fits_map(self, entries: list[Entry], value: dict) -> bool:
        known = {int(str(entry.key)): entry for entry in entries if entry.key is not None}
        is_open = any(entry.key is None for entry in entries)  # the group of later keys
        if not is_open and set(value) - set(known):
            return False
        return all(
            self._fits(entry.type, value[key]) if key in value else entry.mark == "?"
            for key, entry in known.items()
        )

    def _fits_array(self, entries: list[Entry], value: list) -> bool:
        if len(entries) == 1 and entries[0].mark == "*":
            return all(self._fits(entries[0].type, item) for item in value)
        return len(entries) == len(value) and all(
            self._fits(entry.type, item) for entry, item in zip(entries, value, strict=True)
        )


def tokens_of(text: str):
    """Yield the words and signs of a text."""
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"cannot read {text[at : at + 30]!r}")
        at = match.end()
        if match["token"] is not None:
            yield match["token"]
