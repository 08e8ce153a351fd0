"""What a device remembers about roster and key epochs, as one value, and its bytes on flash."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from edgefl._native import Seed
from edgefl.errors import LocalProtocolError, RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.answered_records import AnsweredRecords
from edgefl.protocol.key_bundle import MAX_KEY_EPOCH, MAX_MASK_KEYS, KeyBundle
from edgefl.protocol.key_epoch import EpochRecord, OpenEpoch
from edgefl.protocol.mask_keys import MaskKeyBatch
from edgefl.protocol.merkle import DIGEST_BYTES
from edgefl.protocol.roster_epoch import KEY_BYTES, MAX_ROSTER, RosterEpoch
from edgefl.protocol.wire import WireValue

SNAPSHOT_VERSION = 2
_SECRET_BYTES = 32


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
        share_seed: Makes the share key.
        nonce: Secret until there is a record.
        mask_keys: Their secrets go one by one, as soon as each has served (`release`).
        bundle: The only one ever signed for this number.
        roster: As it was when the bundle was signed.
        record: The only one whose nonce was shown, once there is one.
        open_epoch: Once all nonces are known.
        uses: What each used key index serves.
    """

    share_seed: Seed
    nonce: bytes
    mask_keys: MaskKeyBatch
    bundle: KeyBundle
    roster: PinnedRoster
    record: EpochRecord | None = None
    open_epoch: OpenEpoch | None = None
    uses: dict[int, IndexUse] = field(default_factory=dict)

    def reserve(self, index: int, call_id: bytes) -> None:
        """Give an index to a call.

        Raises:
            RemoteProtocolError: E-KEY-INDEX-RANGE, or E-KEY-INDEX-USED by another call, or it was
                released.
        """
        if not 0 <= index < self.bundle.mask_key_count:
            raise RemoteProtocolError(
                "E-KEY-INDEX-RANGE",
                f"a key index below {self.bundle.mask_key_count}",
                str(index)[:40],
            )
        self._require_secret(index)
        use = self.uses.setdefault(index, IndexUse(call_id=call_id))
        if use.call_id != call_id:
            raise RemoteProtocolError(
                "E-KEY-INDEX-USED", "a key index that no other call has used", str(index)
            )

    def bind(self, index: int, session_id: bytes) -> None:
        """Give a reserved index to a session.

        Raises:
            RemoteProtocolError: E-KEY-INDEX-USED by another session, never reserved, or released.
        """
        use = self.uses.get(index)
        if use is None or use.session_id not in (None, session_id):
            raise RemoteProtocolError(
                "E-KEY-INDEX-USED",
                "a key index reserved for the call of this session, and no other session's",
                "one never reserved" if use is None else "another session's",
            )
        self._require_secret(index)
        self.uses[index] = replace(use, session_id=session_id)

    def release(self, index: int) -> bool:
        """Destroy the secret of an index whose call is over; its use stays known.

        Returns:
            Whether it was there.

        Raises:
            LocalProtocolError: E-KEY-INDEX, it was never reserved.
        """
        if index not in self.uses:
            raise LocalProtocolError("E-KEY-INDEX", "a reserved key index", str(index))
        return self.mask_keys.destroy(index)

    def release_all_but(self, kept: Collection[int]) -> bool:
        """Destroy the secrets of all indices in use but `kept`; tell whether there were any."""
        released = [self.release(index) for index in self.uses if index not in kept]
        return any(released)

    def _require_secret(self, index: int) -> None:
        if not self.mask_keys.has_secret(index):
            raise RemoteProtocolError(
                "E-KEY-INDEX-USED", "a key index whose call is not over", str(index)
            )

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array."""
        return [
            self.share_seed.export_bytes(),
            self.nonce,
            self.mask_keys.to_list(),
            self.bundle.to_list(),
            self.roster.to_list(),
            None if self.record is None else self.record.to_list(),
            None if self.open_epoch is None else self.open_epoch.beacon,
            [[index, use.call_id, use.session_id] for index, use in sorted(self.uses.items())],
        ]

    @classmethod
    def from_value(cls, value: WireValue) -> "OwnKeyEpoch":
        """Read the CBOR array."""
        parts = _parts(value, 8)
        record = None if parts[5] is None else EpochRecord.from_value(parts[5])
        open_epoch = None
        if parts[6] is not None:
            if record is None:
                raise WireError("E-SNAPSHOT", "a record for each beacon", "none")
            beacon = wire.as_bytes(parts[6], DIGEST_BYTES)
            open_epoch = OpenEpoch(record=record, beacon=beacon)
        bundle, mask_keys = KeyBundle.from_value(parts[3]), MaskKeyBatch.from_value(parts[2])
        if (mask_keys.root, mask_keys.count) != (bundle.mask_root, bundle.mask_key_count):
            raise WireError("E-SNAPSHOT", "the mask keys of the bundle", "others")
        return cls(
            share_seed=Seed.from_bytes(wire.as_bytes(parts[0], _SECRET_BYTES)),
            nonce=wire.as_bytes(parts[1], _SECRET_BYTES),
            mask_keys=mask_keys,
            bundle=bundle,
            roster=PinnedRoster.from_value(parts[4]),
            record=record,
            open_epoch=open_epoch,
            uses=dict(_read_use(item) for item in wire.as_list(parts[7], MAX_MASK_KEYS)),
        )


@dataclass(slots=True, kw_only=True, repr=False)
class DeviceEpochState:
    """Everything that a device must remember between rounds and over restarts.

    Security: it holds the secrets of at most two key epochs, of which no released one follows.

    Attributes:
        enrolment_key: Who signs the roster; pinned at first use, or given.
        roster: The newest header.
        newest_key_epoch: Highest number that a bundle was signed for.
        pending: The key epoch that is being set up.
        current: The key epoch that is open.
        answered: The newest records that a nonce was shown for.
        latest_s: Latest time ever seen; a clock that went backward does not lower it.
    """

    enrolment_key: bytes | None = None
    roster: PinnedRoster | None = None
    newest_key_epoch: int = 0
    pending: OwnKeyEpoch | None = None
    current: OwnKeyEpoch | None = None
    answered: AnsweredRecords = field(default_factory=AnsweredRecords)
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
                6: self.answered.to_list(),
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
            answered=AnsweredRecords.from_value(body[6]),
            latest_s=wire.as_float(body[7]),
        )


def _read_use(value: WireValue) -> tuple[int, IndexUse]:
    parts = _parts(value, 3)
    session_id = None if parts[2] is None else wire.as_bytes(parts[2], DIGEST_BYTES)
    return (
        wire.as_int(parts[0], 0, MAX_MASK_KEYS - 1),
        IndexUse(call_id=wire.as_bytes(parts[1], DIGEST_BYTES), session_id=session_id),
    )


def _parts(value: WireValue, count: int) -> list[WireValue]:
    if not isinstance(value, list) or len(value) != count:
        raise WireError("E-SNAPSHOT", f"an array of {count}", type(value).__name__)
    return value
