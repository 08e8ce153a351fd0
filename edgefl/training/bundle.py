"""The training bundle: one file with graphs, first parameters and manifest.

It is read on devices and on the gateway.
It needs numpy only. `prepare_bundle` (package `edgefl.training.onnx.compile`) makes it;
`export_model` turns a bundle and parameters back into an ordinary ONNX model.
"""

import hashlib
import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import TrainingError
from edgefl.training.manifest import Manifest, parse_manifest
from edgefl.training.stored_zip import pack_stored, unpack_stored

LARGEST_BUNDLE_BYTES = 512 * 1024 * 1024
TRAIN_GRAPH = "train.onnx"
EVAL_GRAPH = "eval.onnx"
INITIAL_PARAMS = "params.npz"
EXPORT_TEMPLATE = "export.template"
MANIFEST = "manifest.json"
_CONTENT_FILES = (TRAIN_GRAPH, EVAL_GRAPH, INITIAL_PARAMS, EXPORT_TEMPLATE)
_PARAMS_ENTRY = "params.npy"
_ADVICE = "fetch the bundle again or prepare it anew with 'edgefl model prepare'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A verified bundle in memory.

    Attributes:
        manifest: What the graphs expect.
        train_graph: ONNX bytes of one training step.
        eval_graph: ONNX bytes of the model with its parameters as inputs.
        initial_params: float32 [d], read-only, in manifest order.
        export_template: The source model's bytes without the values of its trainable tensors.
        sha256: Hex digest of the whole bundle file: its identity.
    """

    manifest: Manifest
    train_graph: bytes
    eval_graph: bytes
    initial_params: NDArray[np.float32]
    export_template: bytes
    sha256: str


def read_bundle(source: Path | bytes) -> Bundle:
    """Read a bundle and verify every hash in it.

    Args:
        source: The file's path, or its bytes.

    Returns:
        The bundle.

    Raises:
        TrainingError: E-BUNDLE-MISSING, E-BUNDLE-TOO-LARGE, E-BUNDLE-DAMAGED or E-BUNDLE-HASH
            (naming the file).
    """
    bundle_bytes = source if isinstance(source, bytes) else _read_file(source)
    if len(bundle_bytes) > LARGEST_BUNDLE_BYTES:
        raise _too_large(len(bundle_bytes))
    try:
        entries = unpack_stored(bundle_bytes)
        _require_exact_files(entries)
        manifest = parse_manifest(entries[MANIFEST])
    except ValueError as error:
        raise TrainingError("E-BUNDLE-DAMAGED", "a training bundle", str(error), _ADVICE) from error
    for name in _CONTENT_FILES:
        _verify_hash(name, entries[name], manifest)
    _require_splices_inside(manifest, len(entries[EXPORT_TEMPLATE]))
    return Bundle(
        manifest=manifest,
        train_graph=entries[TRAIN_GRAPH],
        eval_graph=entries[EVAL_GRAPH],
        initial_params=_read_params(entries[INITIAL_PARAMS], manifest.dimension),
        export_template=entries[EXPORT_TEMPLATE],
        sha256=hashlib.sha256(bundle_bytes).hexdigest(),
    )


def pack_bundle(
    manifest_without_files: Manifest,
    *,
    train_graph: bytes,
    eval_graph: bytes,
    initial_params: NDArray[np.float32],
    export_template: bytes,
) -> bytes:
    """Put a bundle together; equal parts give equal bytes.

    Args:
        manifest_without_files: The manifest; its `files` are replaced by the hashes of the parts.
        train_graph: ONNX bytes.
        eval_graph: ONNX bytes.
        initial_params: float32 [d].
        export_template: Model bytes without the values of the trainable tensors.

    Returns:
        The bundle file's bytes.
    """
    contents = {
        TRAIN_GRAPH: train_graph,
        EVAL_GRAPH: eval_graph,
        INITIAL_PARAMS: _write_params(initial_params),
        EXPORT_TEMPLATE: export_template,
    }
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    manifest = replace(manifest_without_files, files=hashes)
    return pack_stored({MANIFEST: manifest.to_json(), **contents})


def export_model(bundle: Bundle, flat_params: NDArray[np.float32]) -> bytes:
    """Put parameters into the source model, without the onnx package.

    The template is the model's file with the values of its trainable tensors cut out; they are
    little-endian float32 of a known length, so inserting them gives the file that an ONNX writer
    would have made.

    Args:
        bundle: The bundle the parameters belong to.
        flat_params: float32 [d], finite.

    Returns:
        ONNX model bytes for any ONNX runtime.

    Raises:
        TrainingError: E-PARAMS-SHAPE, E-PARAMS-DTYPE or E-PARAMS-NOT-FINITE.
    """
    checked = check_flat_params(flat_params, bundle.manifest.dimension)
    template = memoryview(bundle.export_template)
    pieces: list[bytes | memoryview] = []
    position = 0
    for slot in bundle.manifest.parameters:
        pieces.append(template[position : slot.splice_offset])
        values = checked[slot.offset : slot.offset + slot.size]
        pieces.append(values.astype("<f4", copy=False).tobytes())
        position = slot.splice_offset
    pieces.append(template[position:])
    return b"".join(pieces)


def check_flat_params(flat: NDArray[np.float32], dimension: int) -> NDArray[np.float32]:
    """Return the vector unchanged if it can be parameters of a model.

    Args:
        flat: float32 [d].
        dimension: d.

    Returns:
        `flat`.

    Raises:
        TrainingError: E-PARAMS-SHAPE, E-PARAMS-DTYPE or E-PARAMS-NOT-FINITE.
    """
    advice = "take the parameters and the bundle of one task"
    if flat.shape != (dimension,):
        raise TrainingError(
            "E-PARAMS-SHAPE", f"parameters of shape [{dimension}]", str(list(flat.shape)), advice
        )
    if flat.dtype != np.float32:
        raise TrainingError("E-PARAMS-DTYPE", "float32 parameters", str(flat.dtype), advice)
    finite = np.isfinite(flat)
    if not finite.all():
        first_bad = int(np.argmin(finite))
        raise TrainingError(
            "E-PARAMS-NOT-FINITE",
            "finite parameters",
            f"{flat[first_bad]} at index {first_bad}",
            "go back to the model of an earlier round",
        )
    return flat


def _read_file(path: Path) -> bytes:
    try:
        size_bytes = path.stat().st_size
        if size_bytes > LARGEST_BUNDLE_BYTES:
            raise _too_large(size_bytes)
        return path.read_bytes()
    except OSError as error:
        raise TrainingError(
            "E-BUNDLE-MISSING",
            f"a readable bundle file at {path}",
            error.strerror or type(error).__name__,
            "check the path, or make the file with 'edgefl model prepare'",
        ) from error


def _too_large(size_bytes: int) -> TrainingError:
    return TrainingError(
        "E-BUNDLE-TOO-LARGE",
        f"at most {LARGEST_BUNDLE_BYTES} bytes",
        f"{size_bytes} bytes",
        "train fewer parameters",
    )


def _require_exact_files(entries: dict[str, bytes]) -> None:
    wanted = {MANIFEST, *_CONTENT_FILES}
    if set(entries) != wanted:
        odd = sorted(set(entries) ^ wanted)
        message = f"an archive whose files are missing or unknown: {', '.join(odd[:5])}"
        raise ValueError(message)


def _verify_hash(name: str, content: bytes, manifest: Manifest) -> None:
    wanted = manifest.files.get(name, "none")
    found = hashlib.sha256(content).hexdigest()
    if found != wanted:
        raise TrainingError(
            "E-BUNDLE-HASH", f"{name} with SHA-256 {wanted[:16]}...", f"{found[:16]}...", _ADVICE
        )


def _require_splices_inside(manifest: Manifest, template_size_bytes: int) -> None:
    last = manifest.parameters[-1]
    if last.splice_offset > template_size_bytes:
        raise TrainingError(
            "E-BUNDLE-DAMAGED",
            f"an export position within {template_size_bytes} bytes",
            f"{last.splice_offset} for '{last.name}'",
            _ADVICE,
        )


def _write_params(flat: NDArray[np.float32]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(flat, dtype="<f4"), version=(1, 0))
    return pack_stored({_PARAMS_ENTRY: buffer.getvalue()})


def _read_params(npz_bytes: bytes, dimension: int) -> NDArray[np.float32]:
    try:
        npy = io.BytesIO(unpack_stored(npz_bytes)[_PARAMS_ENTRY])
        if np.lib.format.read_magic(npy) != (1, 0):
            message = "an unknown npy version"
            raise ValueError(message)
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(npy)
        if shape != (dimension,) or fortran_order or dtype != np.dtype("<f4"):
            message = f"{dtype} of shape {shape} instead of float32 [{dimension}]"
            raise ValueError(message)
        flat = np.frombuffer(npy.read(), dtype="<f4")
    except (ValueError, KeyError) as error:
        raise TrainingError(
            "E-BUNDLE-DAMAGED", f"readable {INITIAL_PARAMS}", str(error), _ADVICE
        ) from error
    return check_flat_params(flat, dimension)
