"""Names for identifiers and arrays that cross package borders."""

from typing import NewType

import numpy as np
from numpy.typing import NDArray

DeviceId = NewType("DeviceId", str)
"""One board: the privacy unit unless stated. 1 to 64 characters of `a-z 0-9 . _ -`."""

FleetName = NewType("FleetName", str)
TaskName = NewType("TaskName", str)
SessionId = NewType("SessionId", bytes)
"""SHA-256 of the signed session plan (32 bytes)."""

Seconds = NewType("Seconds", float)
"""A monotonic clock reading or a duration."""

Update = NDArray[np.float32]
"""float32 [d]: trained minus received weights, flat, in manifest order."""

RingVector = NDArray[np.uint32]
"""uint32 [d]: integers modulo 2^b, each below 2^b."""
