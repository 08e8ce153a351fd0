"""Data for training: the demo's recordings, and the loader for a device's own file."""

from edgefl.data.npz import load_npz, save_npz
from edgefl.data.spar import (
    HELD_OUT_PERSONS,
    TRAINING_PERSONS,
    Arm,
    SparData,
    device_shard,
    held_out,
    load_spar,
)

__all__ = [
    "HELD_OUT_PERSONS",
    "TRAINING_PERSONS",
    "Arm",
    "SparData",
    "device_shard",
    "held_out",
    "load_npz",
    "load_spar",
    "save_npz",
]
