"""Adds the TFLite form of the training step to a bundle that has the ONNX form."""

from dataclasses import replace

import onnx

from edgefl.training.bundle import EVAL_ONNX, FEATURES_ONNX, TRAIN_ONNX, pack_bundle, read_bundle
from edgefl.training.kinds import Runtime
from edgefl.training.litert.compile.lower import DEFAULT_BATCH_ROWS, lower


def with_litert(bundle_bytes: bytes, *, batch_rows: int = DEFAULT_BATCH_ROWS) -> bytes:
    """Return a bundle that both runtimes can train, over the same flat vector.

    Args:
        bundle_bytes: A bundle with an ONNX program.
        batch_rows: Rows of every call of the TFLite form; tasks may use fewer per step.

    Returns:
        The bundle with one more program; one that it had already is replaced.

    Raises:
        TrainingError: E-LITERT-OPERATORS, E-LITERT-SHAPE or E-LITERT-BATCH; E-BUNDLE-PART for a
            bundle without an ONNX program.
    """
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
