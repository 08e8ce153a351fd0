"""What a preparation is asked for in the way of integers."""

from dataclasses import dataclass, field
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from edgefl.errors import DataError, TrainingError
from edgefl.training.base import Inputs
from edgefl.training.kinds import QuantizationMode


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationRequest:
    """Choices of the user.

    Attributes:
        mode: Where integers are used.
        calibration: Example inputs for the ranges of activations, float32 or int64 [n, ...],
            nobody's private data; None if there are none. With the mode NONE they make an int8
            export possible.
    """

    mode: QuantizationMode = QuantizationMode.NONE
    calibration: Inputs | None = field(default=None, repr=False, compare=False)


def parse_quantization(text: str, calibration_path: Path | None = None) -> QuantizationRequest:
    """Read `none`, `static`, `qat` or `grid`, perhaps with `:CALIBRATION.npz`.

    Args:
        text: What the user wrote.
        calibration_path: The calibration file where the text names none.

    Raises:
        TrainingError: E-MODEL-QUANTIZE.
        DataError: E-CALIBRATION-ROWS for a file that cannot be read.
    """
    name, _, file_name = text.partition(":")
    known = [mode.value for mode in QuantizationMode]
    if name not in known:
        raise TrainingError(
            "E-MODEL-QUANTIZE",
            f"one of {', '.join(known)}, perhaps with ':CALIBRATION.npz'",
            repr(text),
            "see 'edgefl model prepare --help'",
        )
    path = Path(file_name) if file_name else calibration_path
    rows = None if path is None else load_calibration(path)
    return QuantizationRequest(mode=QuantizationMode(name), calibration=rows)


def load_calibration(path: Path) -> Inputs:
    """Read the array `x` of an npz file, or the only array of an npy file.

    Raises:
        DataError: E-CALIBRATION-ROWS.
    """
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            found = loaded if isinstance(loaded, np.ndarray) else loaded["x"]
    except OSError as error:
        raise _unreadable(path, error.strerror or "a file that cannot be read") from error
    except KeyError as error:
        raise _unreadable(path, "no array x") from error
    except (ValueError, BadZipFile, EOFError) as error:
        raise _unreadable(path, "no readable npz or npy file, or one of Python objects") from error
    if found.dtype == np.float64:
        found = found.astype(np.float32)
    if found.dtype not in (np.float32, np.int64):
        raise _unreadable(path, f"x of {found.dtype}")
    rows: Inputs = found
    return rows


def _unreadable(path: Path, found: str) -> DataError:
    return DataError(
        "E-CALIBRATION-ROWS",
        f"example inputs as an array x of float32 or int64 in {path}",
        found,
        "save them with numpy.savez(path, x=rows); they must be nobody's private data",
    )
