"""Fresh secrets of a device: the operating system's randomness, hedged with a secret of its own.

A board whose randomness is weak at its first boot, or whose flash was cloned, must not draw what
another one drew. Each seed is therefore HKDF(operating system's bytes; salt = device secret, info =
boot and counter): it is as good as the better of the two sources, and different as long as either
differs.

Source: RFC 5869, section 3.1 (a secret salt); secagg.md's rule for weak early randomness.
"""

import cbor2

from edgefl._native import Seed
from edgefl.storage.base import KeyValueStore

_BOOTS = "boots"
_LABEL = "edgefl/1 entropy"


class HedgedEntropy:
    """Fresh seeds; two calls never use the same context.

    Args:
        store: A durable namespace of its own; it counts the boots.
        device_secret: A secret that no other device has, such as the identity's seed.
    """

    def __init__(self, store: KeyValueStore, device_secret: Seed) -> None:
        """Count this boot, durably."""
        self._boot = int.from_bytes(store.get(_BOOTS) or b"", "big") + 1
        store.put(_BOOTS, self._boot.to_bytes(8, "big"))
        # A salt must be bytes: derived, so that the identity's seed itself never leaves Rust.
        self._salt = device_secret.derive(b"", _LABEL.encode()).export_bytes()
        self._count = 0

    def fresh_seed(self) -> Seed:
        """Return 32 new bytes; waits until the operating system has gathered randomness."""
        self._count += 1
        return Seed.generate().derive(self._salt, cbor2.dumps([_LABEL, self._boot, self._count]))
