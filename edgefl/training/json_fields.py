"""Typed reading of JSON objects from files that nobody vouches for."""

import enum
import math
from collections.abc import Mapping
from typing import TypeVar

_E = TypeVar("_E", bound=enum.Enum)


class Fields:
    """Access to a JSON object, with the field's name in every complaint.

    Args:
        value: A parsed JSON value.
        what: What the object stands for, for messages.

    Raises:
        ValueError: From the constructor, if it is no object; from each method, if the field is
            missing or of the wrong type.
    """

    def __init__(self, value: object, what: str) -> None:
        """Check that the value is an object."""
        if not isinstance(value, dict):
            message = f"{what} is no JSON object"
            raise ValueError(message)
        self._value: dict[object, object] = value
        self._what = what

    def _wrong(self, name: str, wanted: str) -> ValueError:
        return ValueError(f"{self._what} field '{name}' is missing or not {wanted}")

    def text(self, name: str) -> str:
        """Return a string."""
        value = self._value.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "text")
        return value

    def integer(self, name: str) -> int:
        """Return a whole number from 0."""
        value = self._value.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._wrong(name, "a whole number")
        return value

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self._value.get(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def choice(self, name: str, kinds: type[_E]) -> _E:
        """Return the member of an enumeration of texts."""
        try:
            return kinds(self.text(name))
        except ValueError:
            known = ", ".join(str(kind.value) for kind in kinds)
            raise self._wrong(name, f"one of {known}") from None

    def sequence(self, name: str) -> list[object]:
        """Return a list."""
        value = self._value.get(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a list of positive sizes."""
        sizes: list[int] = []
        for size in self.sequence(name):
            if not isinstance(size, int) or isinstance(size, bool) or not 0 < size < 2**31:
                raise self._wrong(name, "a list of positive whole numbers")
            sizes.append(size)
        return tuple(sizes)

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers from 0."""
        numbers: list[int] = []
        for number in self.sequence(name):
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
                raise self._wrong(name, "a list of whole numbers")
            numbers.append(number)
        return tuple(numbers)

    def number(self, name: str) -> float:
        """Return a finite number."""
        value = self._value.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self._wrong(name, "finite")
        return number

    def member(self, name: str) -> object:
        """Return whatever is there, for a reader of its own."""
        return self._value.get(name)

    def texts(self, name: str) -> dict[str, str]:
        """Return an object whose values are strings."""
        texts: dict[str, str] = {}
        for key, text in self._object(name).items():
            if not isinstance(key, str) or not isinstance(text, str):
                raise self._wrong(name, "an object of texts")
            texts[key] = text
        return texts

    def facts(self, name: str) -> dict[str, str | int | float | bool]:
        """Return an object whose values are strings, numbers or truth values."""
        facts: dict[str, str | int | float | bool] = {}
        for key, fact in self._object(name).items():
            if not isinstance(key, str) or not isinstance(fact, str | int | float):
                raise self._wrong(name, "an object of plain facts")
            facts[key] = fact
        return facts

    def _object(self, name: str) -> Mapping[object, object]:
        value = self._value.get(name)
        if not isinstance(value, dict):
            raise self._wrong(name, "an object")
        return value
