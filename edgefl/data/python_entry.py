"""Calls a function of the user's that returns examples; its errors become one line.

Security: the function runs with all rights of the agent. It is named by the device's owner, on
the device; nothing that comes from the gateway can name one.
"""

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import DataError
from edgefl.training.base import TrainingData

_LONGEST_TEXT = 200
_STANDARD_LIBRARY = str(Path(os.__file__).parent)


def is_entry(text: str) -> bool:
    """Tell whether a text is spelled `file.py:function` or `package.module:function`."""
    place, colon, function = text.rpartition(":")
    if not colon or not function.isidentifier():
        return False
    return place.endswith(".py") or all(part.isidentifier() for part in place.split("."))


class PythonEntry:
    """One function, found at the first call and called anew each time."""

    def __init__(self, text: str, folder: Path) -> None:
        """Check the spelling; no code is loaded.

        Args:
            text: `file.py:function` or `package.module:function`.
            folder: What a file is relative to.

        Raises:
            DataError: E-DATA-SOURCE.
        """
        if not is_entry(text):
            raise DataError(
                "E-DATA-SOURCE",
                "file.py:function or package.module:function",
                repr(text[:80]),
                "name the function that returns x and y",
            )
        self._text = text
        self._place, _, self._function_name = text.rpartition(":")
        self._folder = folder
        self._function: Callable[[], object] | None = None

    def call(self) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """Call the function for examples with targets.

        Returns:
            x [n, ...] and y [n] or [n, k], of any type of number; not yet checked further.

        Raises:
            DataError: E-DATA-PYTHON: it cannot be found, fails (with file and line in its code),
                or returns something else.
        """
        x, y = self.call_for_inputs()
        if y is None:
            raise self._wrong(f"{self._text} to return x and y", "x alone")
        if x.shape[:1] != y.shape[:1]:
            raise self._wrong(
                f"{self._text} to return one label, or one row of values, for each example",
                f"x of shape {list(x.shape)} and y of shape {list(y.shape)}",
            )
        return x, y

    def call_for_inputs(self) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
        """Call the function; it may return x, an array, alone.

        Returns:
            x [n, ...] and y, of any type; not yet checked further, nor against each other. Without
            y, None.

        Raises:
            DataError: E-DATA-PYTHON, as for `call`.
        """
        if self._function is None:
            self._function = self._find()
        try:
            result = self._function()
        # Whatever the user's code does wrong, the agent goes on and says where it happened.
        except (Exception, SystemExit) as error:
            raise self._failure("to return examples", error) from error
        return self._arrays(result)

    def _find(self) -> Callable[[], object]:
        try:
            module = self._module()
        except DataError:
            raise
        except (Exception, SystemExit) as error:
            raise self._failure("to load", error) from error
        function = getattr(module, self._function_name, None)
        if not callable(function):
            raise self._wrong(
                f"a function {self._function_name!r} in {self._place}",
                "none" if function is None else type(function).__name__,
            )
        found: Callable[[], object] = function
        return found

    def _module(self) -> ModuleType:
        if not self._place.endswith(".py"):
            return importlib.import_module(self._place)
        path = self._folder / self._place
        spec = importlib.util.spec_from_file_location(f"edgefl_data_{path.stem}", path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise self._wrong(f"a Python file at {path}", "no such file")
        module = importlib.util.module_from_spec(spec)
        # Dataclasses and pickles of the user's look their module up by its name.
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module

    def _failure(self, wanted: str, error: BaseException) -> DataError:
        text = " ".join(str(error).split())[:_LONGEST_TEXT]
        found = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return self._wrong(f"{self._text} {wanted}", f"{found} ({_place_of(error)})")

    def _wrong(self, expected: str, found: str) -> DataError:
        return DataError(
            "E-DATA-PYTHON", expected, found, "correct it; --debug shows the whole traceback"
        )

    def _arrays(self, result: object) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
        if isinstance(result, TrainingData):
            return result.x, result.y
        if isinstance(result, np.ndarray):
            result = (result, None)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise self._wrong(f"{self._text} to return x and y", type(result).__name__)
        try:
            x = np.asarray(result[0])
            y = None if result[1] is None else np.asarray(result[1])
        except ValueError as error:
            raise self._wrong(
                f"{self._text} to return arrays", "rows of different lengths"
            ) from error
        if x.ndim == 0 or (y is not None and y.ndim == 0):
            raise self._wrong(
                f"{self._text} to return one row for each example",
                f"x of shape {list(x.shape)}" if x.ndim == 0 else "y of shape []",
            )
        return x, y


def _place_of(error: BaseException) -> str:
    """Return file and line of the innermost frame that is the user's own code.

    Frames of libraries below it, such as numpy, say less about what to correct.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and Path(frame.filename) != Path(__file__)
    ]
    own = [frame for frame in frames if not _is_library(frame.filename)]
    if not frames:
        return "before its first line"
    # Where the user's code is itself installed as a library, it is the outermost frame.
    place = own[-1] if own else frames[0]
    return f"{place.filename}:{place.lineno}"


def _is_library(filename: str) -> bool:
    return "site-packages" in filename or filename.startswith(_STANDARD_LIBRARY)
