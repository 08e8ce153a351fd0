"""Training through ONNX graphs: a compiler for the workstation, a runtime for the device."""
