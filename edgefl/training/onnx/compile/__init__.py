"""Makes training bundles from ONNX models; needs the onnx package (extra `prepare`)."""
