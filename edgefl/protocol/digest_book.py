"""Which device has sent a message of one kind, and whether it sends the same one again."""

from collections.abc import Sequence, Set

from edgefl.errors import RemoteProtocolError


class DigestBook:
    """The hash of one message of each device, by its position in the plan.

    Args:
        names: Device at each position.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Start empty."""
        self._names = names
        self._digests: dict[int, bytes] = {}
        self._devices: set[str] = set()

    def __contains__(self, position: int) -> bool:
        """Tell whether a message of this device was noted."""
        return position in self._digests

    @property
    def positions(self) -> Set[int]:
        """Positions of the devices that have sent theirs."""
        return self._digests.keys()

    @property
    def devices(self) -> Set[str]:
        """Their names; it grows with the book."""
        return self._devices

    def digest_of(self, position: int) -> bytes:
        """Return the hash of the message of a device that has sent its own."""
        return self._digests[position]

    def note(self, position: int, digest: bytes) -> None:
        """Note a device's first message."""
        self._digests[position] = digest
        self._devices.add(self._names[position])

    def require_same(self, position: int, digest: bytes, code: str) -> None:
        """Check that a message is the one that was noted.

        Raises:
            RemoteProtocolError: With `code`, it is another one.
        """
        if self._digests[position] != digest:
            raise RemoteProtocolError(code, "one message of its kind per session", "a second one")
