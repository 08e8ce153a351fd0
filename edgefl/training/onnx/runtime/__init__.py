"""Runs training bundles on the device; needs numpy and onnxruntime only."""
