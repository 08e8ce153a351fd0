"""The training bundle: one file with graphs, first parameters and manifest.

It is read on devices and on the gateway, with numpy alone. `compile_with` (package
`edgefl.training.onnx.compile`) makes it; `export_model` turns a bundle and parameters back into an
ordinary ONNX model.
"""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import TrainingError
from edgefl.training.kinds import QuantizationMode, Runtime
from edgefl.training.manifest import Manifest, Merge, ParameterSlot, parse_manifest
from edgefl.training.shared_blocks import SharedFiles, share, unshare
from edgefl.training.stored_zip import pack_stored, unpack_stored

LARGEST_BUNDLE_BYTES = 512 * 1024 * 1024
MANIFEST = "manifest.json"
PARAMS = "params.npz"
TRAIN_ONNX = "train.onnx"
EVAL_ONNX = "eval.onnx"
FEATURES_ONNX = "features.onnx"
MODEL_TFLITE = "model.tflite"
FEATURES_TFLITE = "features.tflite"
EXPORT_TEMPLATE = "export.template"
INT8_TEMPLATE = "int8.template"
INT8_SLOTS = "int8.json"
_NEEDED = {
    Runtime.ONNX: (TRAIN_ONNX, EVAL_ONNX),
    Runtime.LITERT: (MODEL_TFLITE,),
}
_FEATURES = {Runtime.ONNX: FEATURES_ONNX, Runtime.LITERT: FEATURES_TFLITE}
_PARAMS_ENTRY = "params.npy"
_LOCAL_ENTRY = "local.npy"
_ADVICE = "fetch the bundle again or prepare it anew with 'edgefl model prepare'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A verified bundle in memory.

    Attributes:
        manifest: What the graphs expect.
        contents: Verified files by name: for ONNX Runtime `train.onnx` (one training step),
            `eval.onnx` (the model with its parameters as inputs) and, where the manifest lists
            features, `features.onnx` (the frozen front part); for LiteRT `model.tflite` (signatures
            `train` and `infer`) and `features.tflite`; `export.template` (the source model's bytes
            without the values of its trained tensors); `int8.template` with `int8.json` (the same
            for an int8 model, see `int8_export`).
        initial_params: float32 [d], read-only, in manifest order.
        initial_local: float32 [local d], read-only: first values of what stays on the device.
        sha256: Hex digest of the whole bundle file: its identity.
    """

    manifest: Manifest
    contents: Mapping[str, bytes]
    initial_params: NDArray[np.float32]
    initial_local: NDArray[np.float32]
    sha256: str

    def content(self, name: str) -> bytes:
        """Return a file of the bundle.

        Raises:
            TrainingError: E-BUNDLE-PART: this bundle has none.
        """
        if name not in self.contents:
            runtimes = ", ".join(program.runtime.value for program in self.manifest.programs)
            raise TrainingError(
                "E-BUNDLE-PART",
                f"a bundle with {name}",
                f"one for {runtimes} with {', '.join(sorted(self.contents))}",
                "prepare it with the part that is missing: 'edgefl model prepare --help'",
            )
        return self.contents[name]


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
        manifest = _take_manifest(entries)
        files = unshare(entries, largest_bytes=LARGEST_BUNDLE_BYTES)
        _require_exact_files(files, manifest)
    except ValueError as error:
        raise TrainingError("E-BUNDLE-DAMAGED", "a training bundle", str(error), _ADVICE) from error
    for name in files:
        _verify_hash(name, files.sha256(name), manifest)
    _require_splices_inside(manifest, files)
    arrays = _read_params(files[PARAMS], manifest)
    entries.pop(PARAMS)
    return Bundle(
        manifest=manifest,
        contents=files,
        initial_params=arrays[_PARAMS_ENTRY],
        initial_local=arrays[_LOCAL_ENTRY],
        sha256=hashlib.sha256(bundle_bytes).hexdigest(),
    )


def pack_bundle(
    manifest_without_files: Manifest,
    contents: Mapping[str, bytes],
    *,
    initial_params: NDArray[np.float32],
    initial_local: NDArray[np.float32] | None = None,
) -> bytes:
    """Put a bundle together; equal parts give equal bytes.

    Args:
        manifest_without_files: The manifest; its `files` are replaced by the hashes of the parts.
        contents: The files of `Bundle.contents`.
        initial_params: float32 [d].
        initial_local: float32 [local d]; None if there are no local tensors.

    Returns:
        The bundle file's bytes.
    """
    local = np.zeros(0, np.float32) if initial_local is None else initial_local
    files = {**contents, PARAMS: _write_params(initial_params, local)}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    manifest = replace(manifest_without_files, files=hashes)
    return pack_stored({MANIFEST: manifest.to_json(), **share(contents), PARAMS: files[PARAMS]})


def pack_for_devices(bundle: Bundle) -> bytes:
    """Return a bundle without what only an export needs: every device downloads it.

    Args:
        bundle: The bundle that a task was submitted with.

    Returns:
        A bundle that trains and predicts the same, over the same flat vector, but cannot be
        exported; equal bundles give equal bytes.
    """
    only_exports = {EXPORT_TEMPLATE, INT8_TEMPLATE}
    # Weights on a grid are watched by its ends, which the slots tell.
    if bundle.manifest.quantization.mode is not QuantizationMode.GRID:
        only_exports.add(INT8_SLOTS)
    kept = {name: bundle.contents[name] for name in bundle.contents if name not in only_exports}
    return pack_bundle(
        replace(bundle.manifest, splice_offsets=(), merges=()),
        kept,
        initial_params=bundle.initial_params,
        initial_local=bundle.initial_local,
    )


def export_model(
    bundle: Bundle,
    flat_params: NDArray[np.float32],
    local_params: NDArray[np.float32] | None = None,
) -> bytes:
    """Put parameters into the source model, without the onnx package.

    The template is the model's file with the values of its trained tensors cut out; they are
    little-endian float32 of a known length, so inserting them gives the file that an ONNX writer
    would have made.

    Args:
        bundle: The bundle the parameters belong to.
        flat_params: float32 [d], finite.
        local_params: float32 [local d], finite; None takes the first ones.

    Returns:
        ONNX model bytes for any ONNX runtime.

    Raises:
        TrainingError: E-BUNDLE-PART, E-PARAMS-SHAPE, E-PARAMS-DTYPE or E-PARAMS-NOT-FINITE.
    """
    manifest = bundle.manifest
    tensors = exported_tensors(bundle, flat_params, local_params)
    template = memoryview(bundle.content(EXPORT_TEMPLATE))
    # Position, length in bytes of what is replaced there, and what takes its place.
    changes = [
        (offset, 0, tensors[slot.name])
        for offset, slot in zip(manifest.splice_offsets, manifest.spliced, strict=True)
    ]
    changes += [(merge.offset, 4 * merge.size, tensors[merge.target]) for merge in manifest.merges]
    pieces: list[bytes | memoryview] = []
    position = 0
    for offset, replaced_bytes, values in sorted(changes, key=lambda change: change[0]):
        pieces.append(template[position:offset])
        pieces.append(values.astype("<f4", copy=False).tobytes())
        position = offset + replaced_bytes
    pieces.append(template[position:])
    return b"".join(pieces)


def exported_tensors(
    bundle: Bundle,
    flat_params: NDArray[np.float32],
    local_params: NDArray[np.float32] | None = None,
) -> dict[str, NDArray[np.float32]]:
    """Return every tensor of an exported model that training changes, targets of merges included.

    Args:
        bundle: The bundle the parameters belong to.
        flat_params: float32 [d], finite.
        local_params: float32 [local d], finite; None takes the first ones.

    Returns:
        float32 [values] by the tensor's name; factors of merges are among them too.

    Raises:
        TrainingError: E-BUNDLE-PART, E-PARAMS-SHAPE, E-PARAMS-DTYPE or E-PARAMS-NOT-FINITE.
    """
    manifest = bundle.manifest
    local = bundle.initial_local if local_params is None else local_params
    tensors = {
        **_cut(check_flat_params(flat_params, manifest.dimension), manifest.parameters),
        **_cut(check_flat_params(local, manifest.local_dimension), manifest.local),
    }
    if manifest.merges:
        template = memoryview(bundle.content(EXPORT_TEMPLATE))
        tensors |= {merge.target: _merged(template, merge, tensors) for merge in manifest.merges}
    return tensors


def _cut(
    flat: NDArray[np.float32], slots: tuple[ParameterSlot, ...]
) -> dict[str, NDArray[np.float32]]:
    return {slot.name: flat[slot.offset : slot.offset + slot.size] for slot in slots}


def _merged(
    template: memoryview, merge: Merge, tensors: Mapping[str, NDArray[np.float32]]
) -> NDArray[np.float32]:
    base = np.frombuffer(template, "<f4", count=merge.size, offset=merge.offset)
    rows = merge.shape[0]
    product = tensors[merge.left].reshape(rows, -1) @ tensors[merge.right].reshape(
        -1, merge.size // rows
    )
    merged: NDArray[np.float32] = base + np.float32(merge.scale) * product.reshape(-1)
    return merged


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


def _take_manifest(entries: dict[str, bytes]) -> Manifest:
    if MANIFEST not in entries:
        message = f"an archive without {MANIFEST}"
        raise ValueError(message)
    return parse_manifest(entries.pop(MANIFEST))


def _require_exact_files(entries: Mapping[str, bytes], manifest: Manifest) -> None:
    wanted = {PARAMS}
    for program in manifest.programs:
        wanted.update(_NEEDED[program.runtime])
        if manifest.features:
            wanted.add(_FEATURES[program.runtime])
    if manifest.has_template:
        wanted.add(EXPORT_TEMPLATE)
    if INT8_TEMPLATE in manifest.files:
        wanted.add(INT8_TEMPLATE)
    if INT8_TEMPLATE in manifest.files or INT8_SLOTS in manifest.files:
        wanted.add(INT8_SLOTS)
    if set(entries) != wanted:
        odd = sorted(set(entries) ^ wanted)
        message = f"an archive whose files are missing or unknown: {', '.join(odd[:5])}"
        raise ValueError(message)


def _verify_hash(name: str, found: str, manifest: Manifest) -> None:
    wanted = manifest.files.get(name, "none")
    if found != wanted:
        raise TrainingError(
            "E-BUNDLE-HASH", f"{name} with SHA-256 {wanted[:16]}...", f"{found[:16]}...", _ADVICE
        )


def _require_splices_inside(manifest: Manifest, files: SharedFiles) -> None:
    """Refuse export positions outside the template, or within values that a merge replaces."""
    size_bytes = files.size_bytes(EXPORT_TEMPLATE) if EXPORT_TEMPLATE in files else 0
    spans = [(offset, offset) for offset in manifest.splice_offsets]
    spans += [(merge.offset, merge.offset + 4 * merge.size) for merge in manifest.merges]
    end = 0
    for start, next_end in [*sorted(spans), (size_bytes, size_bytes)]:
        if start < end:
            raise TrainingError(
                "E-BUNDLE-DAMAGED",
                f"export positions one after another within {size_bytes} bytes",
                f"{start} after {end}",
                _ADVICE,
            )
        end = next_end


def _write_params(flat: NDArray[np.float32], local: NDArray[np.float32]) -> bytes:
    return pack_stored({_PARAMS_ENTRY: _to_npy(flat), _LOCAL_ENTRY: _to_npy(local)})


def _to_npy(flat: NDArray[np.float32]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(flat, dtype="<f4"), version=(1, 0))
    return buffer.getvalue()


def _read_params(npz_bytes: bytes, manifest: Manifest) -> dict[str, NDArray[np.float32]]:
    sizes = {_PARAMS_ENTRY: manifest.dimension, _LOCAL_ENTRY: manifest.local_dimension}
    try:
        entries = unpack_stored(npz_bytes)
        arrays = {name: _from_npy(entries[name], size) for name, size in sizes.items()}
    except (ValueError, KeyError) as error:
        raise TrainingError(
            "E-BUNDLE-DAMAGED", f"readable {PARAMS}", str(error), _ADVICE
        ) from error
    return {name: check_flat_params(arrays[name], size) for name, size in sizes.items()}


def _from_npy(npy_bytes: bytes, dimension: int) -> NDArray[np.float32]:
    npy = io.BytesIO(npy_bytes)
    if np.lib.format.read_magic(npy) != (1, 0):
        message = "an unknown npy version"
        raise ValueError(message)
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(npy)
    if shape != (dimension,) or fortran_order or dtype != np.dtype("<f4"):
        message = f"{dtype} of shape {shape} instead of float32 [{dimension}]"
        raise ValueError(message)
    return np.frombuffer(npy.read(), dtype="<f4")
