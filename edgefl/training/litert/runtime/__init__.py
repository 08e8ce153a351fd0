"""Runs TFLite training files on the device; needs numpy and an interpreter."""
