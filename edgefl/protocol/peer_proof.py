"""What proves a peer's keys, from the roster's signature down to the mask key of one session."""

from dataclasses import dataclass

from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol.key_bundle import KeyBundle, MaskKeyProof
from edgefl.protocol.key_epoch import OpenEpoch
from edgefl.protocol.merkle import read_path
from edgefl.protocol.roster_epoch import MAX_ROSTER, RosterEntry, RosterEpoch
from edgefl.protocol.wire import WireValue, as_int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProof:
    """One member of a key epoch, with the keys that all its sessions have in common.

    Attributes: as of `PeerProof`.
    """

    entry: RosterEntry
    roster_position: int
    roster_path: tuple[bytes, ...]
    bundle: KeyBundle

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array."""
        return [
            self.entry.to_list(),
            self.roster_position,
            list(self.roster_path),
            self.bundle.to_list(),
        ]

    @classmethod
    def from_value(cls, value: WireValue) -> "MemberProof":
        """Read the CBOR array."""
        if not isinstance(value, list) or len(value) != 4:
            raise WireError("E-WIRE-PEER", "an array of 4", type(value).__name__)
        return cls(
            entry=RosterEntry.from_value(value[0]),
            roster_position=as_int(value[1], 0, MAX_ROSTER - 1),
            roster_path=read_path(value[2]),
            bundle=KeyBundle.from_value(value[3]),
        )

    def require_sound(self, roster_epoch: RosterEpoch, epoch: OpenEpoch, fleet: str) -> int:
        """Check every link; arguments, result and errors as of `PeerProof.require_sound`."""
        record = epoch.record
        if (fleet, roster_epoch.hash) != (record.fleet, record.roster_hash):
            raise RemoteProtocolError(
                "E-PEER-EPOCH", "a key epoch of this fleet and roster", "another one's"
            )
        epoch_position = epoch.epoch_position_of(self.roster_position)
        if epoch_position is None:
            raise RemoteProtocolError(
                "E-PEER-MEMBER",
                f"a member of key epoch {record.key_epoch}",
                f"roster position {self.roster_position}",
            )
        roster_epoch.require_entry(self.entry, self.roster_position, self.roster_path)
        named = (self.bundle.device, self.bundle.identity_key)
        if named != (self.entry.device, self.entry.identity_key):
            raise RemoteProtocolError(
                "E-PEER-IDENTITY", f"a bundle of {self.entry.device}", "another identity's"
            )
        if (self.bundle.key_epoch, self.bundle.roster_hash) != (
            record.key_epoch,
            record.roster_hash,
        ):
            raise RemoteProtocolError(
                "E-PEER-EPOCH",
                f"a bundle for key epoch {record.key_epoch} and its roster",
                f"one for key epoch {self.bundle.key_epoch}",
            )
        self.bundle.require_signed(fleet)
        return epoch_position


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerProof:
    """One member of a cohort.

    Attributes:
        entry: Its entry in the roster.
        roster_position: Its place there.
        roster_path: Merkle path of the entry.
        bundle: Its signed keys of the key epoch.
        mask_key: Its one-time key of the session.
    """

    entry: RosterEntry
    roster_position: int
    roster_path: tuple[bytes, ...]
    bundle: KeyBundle
    mask_key: MaskKeyProof

    @property
    def member(self) -> MemberProof:
        """All but the mask key."""
        return MemberProof(
            entry=self.entry,
            roster_position=self.roster_position,
            roster_path=self.roster_path,
            bundle=self.bundle,
        )

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array."""
        return [
            self.entry.to_list(),
            self.roster_position,
            list(self.roster_path),
            self.bundle.to_list(),
            self.mask_key.to_list(),
        ]

    @classmethod
    def from_value(cls, value: WireValue) -> "PeerProof":
        """Read the CBOR array."""
        if not isinstance(value, list) or len(value) != 5:
            raise WireError("E-WIRE-PEER", "an array of 5", type(value).__name__)
        return cls(
            entry=RosterEntry.from_value(value[0]),
            roster_position=as_int(value[1], 0, MAX_ROSTER - 1),
            roster_path=read_path(value[2]),
            bundle=KeyBundle.from_value(value[3]),
            mask_key=MaskKeyProof.from_value(value[4]),
        )

    def require_sound(
        self, roster_epoch: RosterEpoch, epoch: OpenEpoch, key_index: int, fleet: str
    ) -> int:
        """Check every link.

        Args:
            roster_epoch: Header of the roster that the key epoch belongs to, already pinned.
            epoch: The open key epoch.
            key_index: Of the session.
            fleet: The checker's own fleet.

        Returns:
            The peer's epoch position.

        Raises:
            RemoteProtocolError: E-PEER-EPOCH, E-PEER-MEMBER, E-PEER-IDENTITY, E-PEER-INDEX, or one
                of E-ROSTER-PATH, E-BUNDLE-SIGNATURE, E-MASK-KEY-PATH and E-PUBLIC-KEY.
        """
        epoch_position = self.member.require_sound(roster_epoch, epoch, fleet)
        if self.mask_key.index != key_index:
            raise RemoteProtocolError(
                "E-PEER-INDEX", f"mask key {key_index}", f"mask key {self.mask_key.index}"
            )
        self.mask_key.require_in(self.bundle)
        return epoch_position
