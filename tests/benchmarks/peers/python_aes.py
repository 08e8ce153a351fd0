"""The honest rival in Python: AES-128-CTR of `cryptography`, added to the vector with NumPy.

Answers `masks`; run by `tests.benchmarks.secagg.goals` in an environment with both packages.
"""

import importlib.metadata
import time

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tests.benchmarks.peers.json_lines import Json, serve

_KEY_BYTES = 16
_LANE_BYTES = 4
_ROOM_BYTES = 15
"""What `update_into` wants beyond the output."""


def expand_and_add(keys: list[bytes], vector: np.ndarray, zeros: bytes, out: bytearray) -> None:
    """Add one mask per key to `vector`, uint32 [d], in place, with no memory but `out`."""
    stream = np.frombuffer(out, dtype=np.uint32, count=vector.size)
    for key in keys:
        encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        encryptor.update_into(zeros, out)
        np.add(vector, stream, out=vector)


def masks(request: Json) -> Json:
    """Time the masks of one vector."""
    coordinates, count = int(str(request["coordinates"])), int(str(request["masks"]))
    keys = [number.to_bytes(_KEY_BYTES, "big") for number in range(1, count + 1)]
    vector = np.zeros(coordinates, dtype=np.uint32)
    zeros = bytes(coordinates * _LANE_BYTES)
    out = bytearray(len(zeros) + _ROOM_BYTES)
    started = time.process_time()
    expand_and_add(keys, vector, zeros, out)
    return {"cpu_s": time.process_time() - started, "sum": int(vector.sum(dtype=np.uint64))}


def versions(request: Json) -> Json:
    """Say what is measured."""
    del request
    return {name: importlib.metadata.version(name) for name in ("cryptography", "numpy")}


if __name__ == "__main__":
    serve({"masks": masks, "versions": versions})
