"""What a device remembers about roster and key epochs, as one value, and its bytes on flash."""

from dataclasses import dataclass, field

from edgefl._native import Seed
from edgefl.errors import WireError
from edgefl.protocol import wire
from edgefl.protocol.key_bundle import MAX_KEY_EPOCH, MAX_MASK_KEYS, KeyBundle
from edgefl.protocol.key_epoch import EpochRecord, OpenEpoch
from edgefl.protocol.merkle import DIGEST_BYTES
from edgefl.protocol.roster_epoch import KEY_BYTES, MAX_ROSTER, RosterEpoch
from edgefl.protocol.wire import WireValue

SNAPSHOT_VERSION = 1
MAX_UNOPENED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedRoster:
    """The newest header that the device has accepted, and its own place under it."""

    header: RosterEpoch
    position: int

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array."""
        return [self.header.to_list(), self.position]

    @classmethod
    def from_value(cls, value: WireValue) -> "PinnedRoster":
        """Read the CBOR array."""
        parts = _parts(value, 2)
        return cls(
            header=RosterEpoch.from_value(parts[0]),
            position=wire.as_int(parts[1], 0, MAX_ROSTER - 1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexUse:
    """What a key index serves: one call, then one session of it."""

    call_id: bytes
    session_id: bytes | None = None


@dataclass(slots=True, kw_only=True, repr=False)
class OwnKeyEpoch:
    """One key epoch on one device.

    Attributes:
        secret: Everything secret of the key epoch is derived from it.
        bundle: The only one ever signed for this number.
        roster: As it was when the bundle was signed.
        record: The only one whose nonce was shown, once there is one.
        open_epoch: Once all nonces are known.
        uses: What each used key index serves.
    """

    secret: Seed
    bundle: KeyBundle
    roster: PinnedRoster
    record: EpochRecord | None = None
    open_epoch: OpenEpoch | None = None
    uses: dict[int, IndexUse] = field(default_factory=dict)

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array."""
        return [
            self.secret.export_bytes(),
            self.bundle.to_list(),
            self.roster.to_list(),
            None if self.record is None else self.record.to_list(),
            None if self.open_epoch is None else self.open_epoch.beacon,
            [[index, use.call_id, use.session_id] for index, use in sorted(self.uses.items())],
        ]

    @classmethod
    def from_value(cls, value: WireValue) -> "OwnKeyEpoch":
        """Read the CBOR array."""
        parts = _parts(value, 6)
        record = None if parts[3] is None else EpochRecord.from_value(parts[3])
        open_epoch = None
        if parts[4] is not None:
            if record is None:
                raise WireError("E-SNAPSHOT", "a record for each beacon", "none")
            beacon = wire.as_bytes(parts[4], DIGEST_BYTES)
            open_epoch = OpenEpoch(record=record, beacon=beacon)
        return cls(
            secret=Seed.from_bytes(wire.as_bytes(parts[0], 32)),
            bundle=KeyBundle.from_value(parts[1]),
            roster=PinnedRoster.from_value(parts[2]),
            record=record,
            open_epoch=open_epoch,
            uses=dict(_read_use(item) for item in wire.as_list(parts[5], MAX_MASK_KEYS)),
        )


@dataclass(slots=True, kw_only=True, repr=False)
class DeviceEpochState:
    """Everything that a device must remember between rounds and over restarts.

    Security: it holds the secrets of at most two key epochs.

    Attributes:
        enrolment_key: Who signs the roster; pinned at first use, or given.
        roster: The newest header.
        newest_key_epoch: Highest number that a bundle was signed for.
        pending: The key epoch that is being set up.
        current: The key epoch that is open.
        unopened: (key epoch, time in seconds) of nonces shown for key epochs that never opened.
        latest_s: Latest time ever seen; a clock that went backward does not lower it.
    """

    enrolment_key: bytes | None = None
    roster: PinnedRoster | None = None
    newest_key_epoch: int = 0
    pending: OwnKeyEpoch | None = None
    current: OwnKeyEpoch | None = None
    unopened: list[tuple[int, float]] = field(default_factory=list)
    latest_s: float = 0.0

    def to_bytes(self) -> bytes:
        """Return the deterministic CBOR."""
        return wire.encode(
            {
                0: SNAPSHOT_VERSION,
                1: self.enrolment_key,
                2: None if self.roster is None else self.roster.to_list(),
                3: self.newest_key_epoch,
                4: None if self.pending is None else self.pending.to_list(),
                5: None if self.current is None else self.current.to_list(),
                6: [[key_epoch, at_s] for key_epoch, at_s in self.unopened],
                7: self.latest_s,
            }
        )

    @classmethod
    def from_bytes(cls, snapshot: bytes) -> "DeviceEpochState":
        """Read a snapshot.

        Raises:
            WireError: It is damaged or of another version.
        """
        body = wire.as_body(wire.decode(snapshot))
        if sorted(body) != list(range(8)):
            raise WireError("E-SNAPSHOT", "a snapshot with fields 0 to 7", f"{len(body)} fields")
        wire.as_int(body[0], SNAPSHOT_VERSION, SNAPSHOT_VERSION)
        current = None if body[5] is None else OwnKeyEpoch.from_value(body[5])
        if current is not None and current.open_epoch is None:
            raise WireError("E-SNAPSHOT", "a beacon for the open key epoch", "none")
        return cls(
            enrolment_key=None if body[1] is None else wire.as_bytes(body[1], KEY_BYTES),
            roster=None if body[2] is None else PinnedRoster.from_value(body[2]),
            newest_key_epoch=wire.as_int(body[3], 0, MAX_KEY_EPOCH),
            pending=None if body[4] is None else OwnKeyEpoch.from_value(body[4]),
            current=current,
            unopened=[_read_unopened(item) for item in wire.as_list(body[6], MAX_UNOPENED)],
            latest_s=wire.as_float(body[7]),
        )


def _read_use(value: WireValue) -> tuple[int, IndexUse]:
    parts = _parts(value, 3)
    session_id = None if parts[2] is None else wire.as_bytes(parts[2], DIGEST_BYTES)
    return (
        wire.as_int(parts[0], 0, MAX_MASK_KEYS - 1),
        IndexUse(call_id=wire.as_bytes(parts[1], DIGEST_BYTES), session_id=session_id),
    )


def _read_unopened(value: WireValue) -> tuple[int, float]:
    parts = _parts(value, 2)
    return wire.as_int(parts[0], 1, MAX_KEY_EPOCH), wire.as_float(parts[1])


def _parts(value: WireValue, count: int) -> list[WireValue]:
    if not isinstance(value, list) or len(value) != count:
        raise WireError("E-SNAPSHOT", f"an array of {count}", type(value).__name__)
    return value
