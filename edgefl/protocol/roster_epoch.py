"""Signed headers of the roster, and the pin by which a device follows them.

The roster lists the identities of the fleet, in epochs of which each names the one before. It is
signed by the enrolment key, which is not the gateway's: a gateway alone cannot add members.
Not guaranteed: that the holder of the enrolment key enrols only real boards.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from edgefl._native import verify
from edgefl.errors import ConfigError, RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.merkle import DIGEST_BYTES, MAX_LEAVES, is_leaf
from edgefl.protocol.topics import parse_device_id
from edgefl.protocol.wire import WireValue, as_bytes, as_int, as_list, as_text

KEY_BYTES = 32
SIGNATURE_BYTES = 64
MAX_ROSTER = MAX_LEAVES
MAX_ROSTER_NUMBER = 2**32 - 1
MAX_HEADERS = 1024
"""Headers that a roster keeps and a device takes at once; who is further behind enrols again."""
MAX_ENROLMENT_DAYS = 400
"""Different days in a header. The oldest are merged when there are more."""
MAX_DAY = 2**32 - 1
NO_HASH = bytes(DIGEST_BYTES)

_DAY_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterEntry:
    """One device.

    Attributes:
        identity_key: Ed25519 public key.
        enrolled_day: Days since 1970-01-01 when it was enrolled, by the clock of whoever signed.
    """

    device: str
    identity_key: bytes
    enrolled_day: int

    def __post_init__(self) -> None:
        """Check name, key and day."""
        try:
            parse_device_id(self.device)
        except ConfigError as error:
            raise WireError("E-ROSTER-ENTRY", error.expected, error.found) from None
        as_bytes(self.identity_key, KEY_BYTES)
        as_int(self.enrolled_day, 0, MAX_DAY)

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array."""
        return [self.device, self.identity_key, self.enrolled_day]

    @classmethod
    def from_value(cls, value: WireValue) -> "RosterEntry":
        """Read the CBOR array."""
        parts = _parts(value, 3, "E-ROSTER-ENTRY")
        return cls(
            device=as_text(parts[0], 64),
            identity_key=as_bytes(parts[1], KEY_BYTES),
            enrolled_day=as_int(parts[2], 0, MAX_DAY),
        )

    def leaf(self) -> bytes:
        """Return the bytes that the roster's tree holds."""
        return wire.encode(self.to_list())


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterEpoch:
    """The signed header of one epoch of the roster.

    Attributes:
        number: From 1.
        root: Merkle root over the entries, ascending by device id.
        size: Number of entries.
        enrolled_by_day: (day, devices enrolled on it), ascending by day.
        previous_hash: Hash of the epoch before; zeros in epoch 1.
    """

    fleet: str
    number: int
    root: bytes
    size: int
    enrolled_by_day: tuple[tuple[int, int], ...]
    previous_hash: bytes
    signature: bytes
    _hash: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check that the parts agree with each other."""
        days = [day for day, _ in self.enrolled_by_day]
        if (
            days != sorted(set(days))
            or len(days) > MAX_ENROLMENT_DAYS
            or any(count < 1 for _, count in self.enrolled_by_day)
            or sum(count for _, count in self.enrolled_by_day) != self.size
        ):
            raise WireError(
                "E-ROSTER-DAYS",
                f"counts by ascending day that sum to {self.size}",
                f"{len(days)} days with another sum or order",
            )
        if (self.number == 1) != (self.previous_hash == NO_HASH):
            raise WireError(
                "E-ROSTER-PREVIOUS",
                "an epoch before, except for number 1",
                f"number {self.number}",
            )
        object.__setattr__(self, "_hash", wire.digest(self.to_list()))

    @property
    def hash(self) -> bytes:
        """SHA-256 of the deterministic encoding, signature included."""
        return self._hash

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array."""
        return [*self._signed_fields(), self.signature]

    @classmethod
    def from_value(cls, value: WireValue) -> "RosterEpoch":
        """Read the CBOR array."""
        parts = _parts(value, 7, "E-ROSTER-HEADER")
        return cls(
            fleet=as_text(parts[0], 64),
            number=as_int(parts[1], 1, MAX_ROSTER_NUMBER),
            root=as_bytes(parts[2], DIGEST_BYTES),
            size=as_int(parts[3], 1, MAX_ROSTER),
            enrolled_by_day=_unpack_days(parts[4]),
            previous_hash=as_bytes(parts[5], DIGEST_BYTES),
            signature=as_bytes(parts[6], SIGNATURE_BYTES),
        )

    def signed_bytes(self) -> bytes:
        """Return what the enrolment key signs."""
        return wire.encode(["edgefl/1 roster", *self._signed_fields()])

    def require_signed(self, enrolment_key: bytes) -> None:
        """Check the signature.

        Raises:
            RemoteProtocolError: E-ROSTER-SIGNATURE, another key signed.
        """
        if not verify(enrolment_key, self.signed_bytes(), self.signature):
            raise RemoteProtocolError(
                "E-ROSTER-SIGNATURE",
                "a roster signed by the pinned enrolment key",
                "another signature",
                "if the enrolment key was changed on purpose, enrol the device again",
            )

    def require_entry(self, entry: RosterEntry, position: int, path: Sequence[bytes]) -> None:
        """Check that an entry stands at a position.

        Raises:
            RemoteProtocolError: E-ROSTER-PATH, it does not.
        """
        if not is_leaf(entry.leaf(), position, path, size=self.size, root=self.root):
            raise RemoteProtocolError(
                "E-ROSTER-PATH",
                f"an entry of roster {self.number} at its position",
                f"another entry or position ({position} of {self.size})",
            )

    def enrolled_since(self, day: int) -> int:
        """Return how many devices were enrolled on `day` or later.

        Days that were merged count as the youngest of them: the result may be too high, never too
        low.
        """
        return sum(count for enrolled, count in self.enrolled_by_day if enrolled >= day)

    def _signed_fields(self) -> list[WireValue]:
        return [
            self.fleet,
            self.number,
            self.root,
            self.size,
            b"".join(
                day.to_bytes(4, "big") + count.to_bytes(4, "big")
                for day, count in self.enrolled_by_day
            ),
            self.previous_hash,
        ]


def young_share(epoch: RosterEpoch, *, since_day: int, among: int | None = None) -> float:
    """Return the largest share that young identities can have.

    Security: whoever picks `among` devices out of the roster can pick all the young ones, so the
    share among a cohort is bounded by that, not by the share in the roster.

    Args:
        epoch: The roster.
        since_day: Identities enrolled on this day or later are young.
        among: How many devices are picked from the roster; all of them by default.

    Returns:
        0 to 1.
    """
    size = epoch.size if among is None else min(among, epoch.size)
    return min(epoch.enrolled_since(since_day), size) / size if size > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterPin:
    """The newest header that a device has accepted; number 0 before the first."""

    number: int = 0
    hash: bytes = NO_HASH

    def advance(self, headers: Sequence[RosterEpoch], enrolment_key: bytes) -> "RosterPin":
        """Check a chain of headers against the pin, and return the pin of its last one.

        The chain may begin before the pinned header. The first chain may begin anywhere: nothing
        older is known that it could contradict.

        Raises:
            RemoteProtocolError: E-ROSTER-SIGNATURE, -GAP, -FORK or -ROLLBACK.
        """
        if not headers or (self.number and headers[0].number > self.number + 1):
            raise RemoteProtocolError(
                "E-ROSTER-GAP",
                f"headers from number {self.number + 1} on",
                f"the first is number {headers[0].number}" if headers else "none",
            )
        for header in headers:
            # What lies before the pinned header is bound by its hash.
            if header.number >= self.number:
                header.require_signed(enrolment_key)
        for before, after in pairwise(headers):
            if after.number != before.number + 1 or after.fleet != before.fleet:
                raise RemoteProtocolError(
                    "E-ROSTER-GAP",
                    f"number {before.number + 1} of fleet {before.fleet}",
                    f"number {after.number} of fleet {after.fleet}",
                )
            _require_same_hash(before.number, before.hash, after.previous_hash)
        self._require_extended(headers)
        return RosterPin(number=headers[-1].number, hash=headers[-1].hash)

    def _require_extended(self, headers: Sequence[RosterEpoch]) -> None:
        newest = headers[-1]
        if newest.number < self.number:
            raise RemoteProtocolError(
                "E-ROSTER-ROLLBACK", f"roster {self.number} or newer", f"roster {newest.number}"
            )
        if not self.number:
            return
        pinned_index = self.number - headers[0].number
        claimed = headers[0].previous_hash if pinned_index < 0 else headers[pinned_index].hash
        _require_same_hash(self.number, self.hash, claimed)


def read_headers(value: WireValue) -> tuple[RosterEpoch, ...]:
    """Read a chain of headers from a peer; `RosterPin.advance` checks it."""
    return tuple(RosterEpoch.from_value(item) for item in as_list(value, MAX_HEADERS))


def fingerprint(public_key: bytes) -> str:
    """Return a short name of a key for people to compare: 80 bits in groups of four digits."""
    digits = hashlib.sha256(public_key).hexdigest()[:20]
    return "-".join(digits[start : start + 4] for start in range(0, len(digits), 4))


def _require_same_hash(number: int, expected: bytes, found: bytes) -> None:
    if expected != found:
        raise RemoteProtocolError(
            "E-ROSTER-FORK", f"one roster {number} ({expected.hex()[:16]})", found.hex()[:16]
        )


def _unpack_days(value: WireValue) -> tuple[tuple[int, int], ...]:
    packed = as_bytes(value, max_bytes=MAX_ENROLMENT_DAYS * _DAY_BYTES)
    if len(packed) % _DAY_BYTES:
        raise WireError("E-ROSTER-DAYS", f"rows of {_DAY_BYTES} bytes", f"{len(packed)} bytes")
    return tuple(
        (
            int.from_bytes(packed[start : start + 4], "big"),
            int.from_bytes(packed[start + 4 : start + 8], "big"),
        )
        for start in range(0, len(packed), _DAY_BYTES)
    )


def _parts(value: WireValue, count: int, code: str) -> Sequence[WireValue]:
    if not isinstance(value, list) or len(value) != count:
        raise WireError(code, f"an array of {count}", type(value).__name__)
    return value
