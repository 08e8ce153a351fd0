"""Makes TFLite training files from ONNX training graphs; needs the onnx package."""
