"""Makes training bundles from ONNX models; needs the onnx package (extra `prepare`)."""

from edgefl.training.onnx.compile.bundle import PreparedBundle, compile_bundle, prepare_bundle

__all__ = ["PreparedBundle", "compile_bundle", "prepare_bundle"]
