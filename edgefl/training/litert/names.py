"""Names of the signatures of a bundle's TFLite files; their tensors are named as in ONNX."""

from typing import Final

TRAIN: Final = "train"
INFER: Final = "infer"
FEATURES: Final = "features"
DEPLOY: Final = "deploy"
"""As `INFER`, for one row: what an export is made from."""
