"""Adds the TFLite form of the training step to a bundle that has the ONNX form."""

from dataclasses import dataclass, replace

import onnx

from edgefl.training.bundle import EVAL_ONNX, FEATURES_ONNX, TRAIN_ONNX, pack_bundle, read_bundle
from edgefl.training.kinds import Runtime
from edgefl.training.litert.compile.lower import DEFAULT_BATCH_ROWS, lower
from edgefl.training.litert.compile.proof import require_learning
from edgefl.training.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class WithLitert:
    """A bundle with the TFLite form.

    Attributes:
        bundle_bytes: The bundle file.
        manifest: Its manifest.
        warnings: What the user should know, one line each.
    """

    bundle_bytes: bytes
    manifest: Manifest
    warnings: tuple[str, ...]


def add_litert(bundle_bytes: bytes, *, batch_rows: int = DEFAULT_BATCH_ROWS) -> WithLitert:
    """Make a bundle that both runtimes can train, over the same flat vector, and try it.

    Args:
        bundle_bytes: A bundle with an ONNX program.
        batch_rows: Rows of every call of the TFLite form; tasks may use fewer per step.

    Returns:
        The bundle with one more program; one that it had already is replaced.

    Raises:
        TrainingError: E-LITERT-OPERATORS, E-LITERT-SHAPE, E-LITERT-BATCH or
            E-LITERT-LEARNS-NOTHING; E-BUNDLE-PART for a bundle without an ONNX program.
    """
    with_both = with_litert(bundle_bytes, batch_rows=batch_rows)
    bundle = read_bundle(with_both)
    untried = require_learning(bundle)
    return WithLitert(
        bundle_bytes=with_both,
        manifest=bundle.manifest,
        warnings=() if untried is None else (untried,),
    )


def with_litert(bundle_bytes: bytes, *, batch_rows: int = DEFAULT_BATCH_ROWS) -> bytes:
    """Do the same without trying it; see `add_litert`."""
    bundle = read_bundle(bundle_bytes)
    front = bundle.contents.get(FEATURES_ONNX)
    files, program = lower(
        onnx.load_from_string(bundle.content(TRAIN_ONNX)),
        onnx.load_from_string(bundle.content(EVAL_ONNX)),
        None if front is None else onnx.load_from_string(front),
        bundle.manifest,
        batch_rows=batch_rows,
    )
    others = [one for one in bundle.manifest.programs if one.runtime is not Runtime.LITERT]
    return pack_bundle(
        replace(bundle.manifest, programs=(*others, program)),
        {**bundle.contents, **files},
        initial_params=bundle.initial_params,
        initial_local=bundle.initial_local,
    )
