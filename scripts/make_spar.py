"""Makes edgefl/data/spar.npz from the watch data in the seglearn 1.2.5 wheel.

    pip download --no-deps seglearn==1.2.5 -d build/
    python scripts/make_spar.py build/seglearn-1.2.5-py3-none-any.whl edgefl/data/spar.npz

The source is an object array, that is, a pickle, and a pickle from a registry is a program. It is
read by an unpickler that knows the four names which occur in it and refuses every other.

Persons 9 and 10 are for evaluation only (`HELD_OUT_PERSONS` in edgefl/data/spar.py); nothing here
depends on any person's statistics: the integer grid is fixed by the sensor's units.
"""

import argparse
import hashlib
import io
import pickle
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WHEEL_MEMBER = "seglearn/data/watch_dataset.npy"
SOURCE_SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
CHANNELS = ["ax", "ay", "az", "wx", "wy", "wz"]
EXERCISES = ["PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW"]

WINDOW_SAMPLES = 128
"""2.56 s at 50 Hz; windows do not overlap, so no sample is in two of them."""
DECIMATION = 2
"""Neighbouring samples averaged: 50 Hz becomes 25 Hz."""
STEP_BY_CHANNEL = np.array([1 / 32, 1 / 32, 1 / 32, 3 / 32, 3 / 32, 3 / 32])
"""One integer step: 1/32 g (full scale 4 g) and 3/32 rad/s (full scale 12 rad/s)."""

_FIXED_DATE = (1980, 1, 1, 0, 0, 0)


class UnsafePickleError(Exception):
    """The pickle names something that is not needed to rebuild plain arrays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One set of repetitions of one exercise.

    Attributes:
        samples: float64 [t, 6] at 50 Hz: acceleration in g, rotation in rad/s.
        label: Index into `EXERCISES`.
        person: 1 to 10.
        side: 0 left arm, 1 right arm.
    """

    samples: NDArray[np.float64]
    label: int
    person: int
    side: int


def main(arguments: list[str]) -> int:
    """Convert the file named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="the seglearn 1.2.5 wheel")
    parser.add_argument("target", type=Path, help="the .npz to write")
    options = parser.parse_args(arguments)
    try:
        recordings = read_recordings(source_bytes(options.source), SOURCE_SHA256)
    except (ValueError, OSError, UnsafePickleError, pickle.UnpicklingError) as error:
        sys.stderr.write(f"make_spar: {error}\n")
        return 2
    arrays = cut_windows(recordings)
    options.target.write_bytes(pack_arrays(arrays))
    digest = hashlib.sha256(options.target.read_bytes()).hexdigest()
    sys.stdout.write(
        f"{len(arrays['window'])} windows, {options.target.stat().st_size} bytes, "
        f"file SHA-256 {digest}, content SHA-256 {content_sha256(arrays)}\n"
    )
    return 0


def source_bytes(path: Path) -> bytes:
    """Return the `.npy` inside the wheel, or the file itself when it is none.

    Raises:
        ValueError: The archive holds no watch data.
    """
    if not zipfile.is_zipfile(path):
        return path.read_bytes()
    with zipfile.ZipFile(path) as wheel:
        if WHEEL_MEMBER not in wheel.namelist():
            message = f"{path} holds no {WHEEL_MEMBER}; the seglearn 1.2.5 wheel does"
            raise ValueError(message)
        return wheel.read(WHEEL_MEMBER)


def read_recordings(npy_bytes: bytes, wanted_sha256: str) -> list[Recording]:
    """Check the hash, read the pickle safely and give the recordings a type.

    Args:
        npy_bytes: An object array file that holds one dictionary.
        wanted_sha256: Hex digest that `npy_bytes` must have.

    Returns:
        Recordings in file order.

    Raises:
        ValueError: Another hash, another layout, or values out of range.
        UnsafePickleError: The pickle asks for a name outside the list.
    """
    found_sha256 = hashlib.sha256(npy_bytes).hexdigest()
    if found_sha256 != wanted_sha256:
        message = f"expected data with SHA-256 {wanted_sha256}, found {found_sha256}"
        raise ValueError(message)
    document = unpickle_object_npy(npy_bytes)
    if not isinstance(document, dict) or document.get("X_labels") != CHANNELS:
        message = f"expected a dictionary with the channels {CHANNELS}"
        raise ValueError(message)
    if document.get("y_labels") != EXERCISES:
        message = f"expected the exercises {EXERCISES}"
        raise ValueError(message)
    columns = (document["X"], document["y"], document["subject"], document["side"])
    return [
        _recording(samples, int(label), int(person), int(side))
        for samples, label, person, side in zip(*columns, strict=True)
    ]


def unpickle_object_npy(npy_bytes: bytes) -> object:
    """Read the single object of a zero-dimensional object array.

    Raises:
        ValueError: Not such an array.
        UnsafePickleError: The pickle asks for a name outside the list.
    """
    stream = io.BytesIO(npy_bytes)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        message = f"expected npy version (1, 0), found {version}"
        raise ValueError(message)
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if shape != () or dtype != np.dtype(object):
        message = f"expected one object, found {dtype} of shape {shape}"
        raise ValueError(message)
    array = _ArrayUnpickler(stream).load()
    if not isinstance(array, np.ndarray) or array.shape != ():
        message = f"expected an array of one object, found {type(array).__name__}"
        raise ValueError(message)
    return array.item()


def cut_windows(recordings: list[Recording]) -> dict[str, NDArray[np.generic]]:
    """Cut, decimate and quantize.

    Args:
        recordings: In any order.

    Returns:
        `window` int8 [n, 64, 6], and `label`, `person`, `side` uint8 [n]; sorted by person and
        side, then in file order.
    """
    ordered = sorted(recordings, key=lambda recording: (recording.person, recording.side))
    windows: list[NDArray[np.int8]] = []
    columns: list[tuple[int, int, int]] = []
    for recording in ordered:
        for start in range(0, len(recording.samples) - WINDOW_SAMPLES + 1, WINDOW_SAMPLES):
            windows.append(quantize(recording.samples[start : start + WINDOW_SAMPLES]))
            columns.append((recording.label, recording.person, recording.side))
    label, person, side = np.array(columns, np.uint8).reshape(-1, 3).T
    return {
        "window": np.array(windows, np.int8),
        "label": np.ascontiguousarray(label),
        "person": np.ascontiguousarray(person),
        "side": np.ascontiguousarray(side),
    }


def quantize(samples: NDArray[np.float64]) -> NDArray[np.int8]:
    """Average neighbours and round to the integer grid; values beyond full scale saturate.

    Args:
        samples: float64 [128, 6] in g and rad/s.

    Returns:
        int8 [64, 6].
    """
    decimated = samples.reshape(-1, DECIMATION, samples.shape[1]).mean(axis=1)
    steps: NDArray[np.int8] = np.clip(np.rint(decimated / STEP_BY_CHANNEL), -127, 127).astype(
        np.int8
    )
    return steps


def pack_arrays(arrays: dict[str, NDArray[np.generic]]) -> bytes:
    """Write an `.npz` without dates: equal arrays and zlib give equal bytes."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in arrays.items():
            npy = io.BytesIO()
            np.lib.format.write_array(npy, array, version=(1, 0), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", date_time=_FIXED_DATE)
            info.create_system = 3
            info.external_attr = 0o100644 << 16
            archive.writestr(info, npy.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=9)
    return target.getvalue()


def content_sha256(arrays: dict[str, NDArray[np.generic]]) -> str:
    """Hash names, shapes and values: the same on every machine, whatever its zlib."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _recording(samples: object, label: int, person: int, side: int) -> Recording:
    if not isinstance(samples, np.ndarray) or samples.dtype != np.float64:
        message = "a recording is no array of float64"
        raise ValueError(message)
    if samples.ndim != 2 or samples.shape[1] != len(CHANNELS) or not np.isfinite(samples).all():
        message = f"a recording of shape {samples.shape} is not [t, 6] of finite numbers"
        raise ValueError(message)
    in_range = 0 <= label < len(EXERCISES) and 1 <= person <= 10 and side in {0, 1}
    if not in_range:
        message = f"label {label}, person {person} or side {side} is out of range"
        raise ValueError(message)
    return Recording(samples=samples, label=label, person=person, side=side)


def _rebuild_array(kind: object, shape: object, dtype: object) -> NDArray[np.generic]:
    """Do what numpy's own `_reconstruct` does, for plain arrays only; contents follow by BUILD."""
    if kind is not np.ndarray or shape != (0,) or dtype != b"b":
        message = f"unexpected array rebuild of {kind!r}, shape {shape!r}, dtype {dtype!r}"
        raise UnsafePickleError(message)
    return np.ndarray((0,), np.int8)


def _encode_latin1(text: object, encoding: object) -> bytes:
    """Stand in for `_codecs.encode`, by which old pickles carry bytes; other codecs are refused."""
    if not isinstance(text, str) or encoding != "latin1":
        message = f"unexpected codec {encoding!r}"
        raise UnsafePickleError(message)
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy.core.multiarray", "_reconstruct"): _rebuild_array,
    ("numpy._core.multiarray", "_reconstruct"): _rebuild_array,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode_latin1,
}


class _ArrayUnpickler(pickle.Unpickler):
    """Knows the names that a pickle of plain arrays needs, and no other."""

    def find_class(self, module_name: str, global_name: str, /) -> object:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            message = f"the pickle asks for {module_name}.{global_name}, not needed for plain data"
            raise UnsafePickleError(message) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
