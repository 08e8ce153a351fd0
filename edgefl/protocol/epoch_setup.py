"""A key epoch that the aggregator is setting up: who was invited, what came back."""

from dataclasses import dataclass, field

from edgefl.errors import RemoteProtocolError
from edgefl.protocol import wire
from edgefl.protocol.epoch_messages import EpochClosed, EpochInvitation, NonceReveal
from edgefl.protocol.key_bundle import KeyBundle
from edgefl.protocol.key_epoch import (
    EpochRecord,
    commit_gateway_nonce,
    commit_nonce,
    hash_bundles,
)
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.merkle import MerkleTree
from edgefl.protocol.roster import Roster


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedSet:
    """The members and the record that they answer.

    Attributes:
        paths: Merkle path of each member's commitment, by device.
        gateway_nonce: The gateway's own part of the beacon.
        nonces: What the members have shown so far, by device.
    """

    record: EpochRecord
    paths: dict[str, tuple[bytes, ...]]
    gateway_nonce: bytes = field(repr=False)
    nonces: dict[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def missing(self) -> tuple[str, ...]:
        """Members whose nonce has not come."""
        return tuple(device for device in self.paths if device not in self.nonces)

    def message_for(self, device: str) -> EpochClosed:
        """Return what asks a member for its nonce."""
        return EpochClosed(record=self.record, path=self.paths[device])


@dataclass(slots=True, kw_only=True)
class EpochSetup:
    """One key epoch until it opens or is given up.

    Attributes:
        needed: Least members.
        invited: Devices that were asked for a bundle.
        deadline_s: When the open step is over.
        bundles: What came, by device.
        closed: The second step, once it has begun.
    """

    key_epoch: int
    roster: Roster
    mask_key_count: int
    needed: int
    invited: set[str]
    deadline_s: float
    bundles: dict[str, KeyBundle] = field(default_factory=dict)
    closed: ClosedSet | None = None

    @property
    def invitation(self) -> EpochInvitation:
        """What asks a device for its bundle."""
        return EpochInvitation(
            key_epoch=self.key_epoch,
            roster_number=self.roster.epoch.number,
            roster_hash=self.roster.epoch.hash,
            mask_key_count=self.mask_key_count,
        )

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Invited devices whose bundle has not come."""
        return tuple(sorted(self.invited - set(self.bundles)))

    def has_room_for(self, device: str, most: int) -> bool:
        """Tell whether a device can be invited, or is, where `most` can be members."""
        return device in self.invited or len(self.invited) < most

    def take_bundle(self, device: str, bundle: KeyBundle) -> None:
        """Check and keep a bundle. The same one again changes nothing.

        Raises:
            RemoteProtocolError: It is not what was asked for, or the second of this device.
        """
        fleet, position = self.roster.epoch.fleet, self.roster.position_of(device)
        if position is None:
            raise RemoteProtocolError("E-EPOCH-MEMBER", "a device of the roster", device[:64])
        if device not in self.invited:
            # Anybody of the roster can make one: number and roster are no secret.
            raise RemoteProtocolError(
                "E-EPOCH-UNINVITED", "a bundle of a device that was invited", f"one of {device}"
            )
        entry = self.roster.entries[position]
        if (bundle.device, bundle.identity_key) != (device, entry.identity_key):
            raise RemoteProtocolError(
                "E-PEER-IDENTITY", f"a bundle of {device}", f"one of {bundle.device}"
            )
        terms = (self.roster.epoch.hash, self.mask_key_count)
        if (bundle.roster_hash, bundle.mask_key_count) != terms:
            raise RemoteProtocolError(
                "E-EPOCH-TERMS",
                f"roster {self.roster.epoch.number} and {self.mask_key_count} mask keys",
                f"another roster or {bundle.mask_key_count} mask keys",
            )
        bundle.require_signed(fleet)
        if self.bundles.setdefault(device, bundle) != bundle:
            raise RemoteProtocolError(
                "E-EPOCH-SECOND-BUNDLE", "one bundle per key epoch", f"a second one of {device}"
            )

    def close(self, members: set[str], gateway_nonce: bytes) -> ClosedSet:
        """Close the set over `members`, all of whom have sent a bundle."""
        roster, fleet = self.roster, self.roster.epoch.fleet
        is_member = [entry.device in members for entry in roster.entries]
        devices = [entry.device for entry in roster.entries if entry.device in members]
        bundles = [self.bundles[device] for device in devices]
        tree = MerkleTree([bundle.nonce_commitment for bundle in bundles])
        record = EpochRecord(
            fleet=fleet,
            key_epoch=self.key_epoch,
            roster_number=roster.epoch.number,
            roster_hash=roster.epoch.hash,
            roster_size=roster.size,
            members=wire.encode_bitmap(is_member),
            commitments_root=tree.root,
            bundles_hash=hash_bundles(bundles),
            gateway_commitment=commit_gateway_nonce(fleet, self.key_epoch, gateway_nonce),
        )
        self.closed = ClosedSet(
            record=record,
            paths={device: tree.path(index) for index, device in enumerate(devices)},
            gateway_nonce=gateway_nonce,
        )
        return self.closed

    def take_nonce(self, device: str, reveal: NonceReveal) -> bool:
        """Check and keep a nonce.

        Returns:
            True if it is new and the last one that was missing.

        Raises:
            RemoteProtocolError: E-EPOCH-NONCES, it is not what the device committed to.
        """
        closed, position = self.closed, self.roster.position_of(device)
        if (
            closed is None
            or position is None
            or device not in closed.missing
            or reveal.record_hash != closed.record.digest
        ):
            # Late, early, or once more: nothing that could be wrong with it matters.
            return False
        committed = commit_nonce(self.roster.epoch.fleet, self.key_epoch, position, reveal.nonce)
        if committed != self.bundles[device].nonce_commitment:
            raise RemoteProtocolError(
                "E-EPOCH-NONCES", f"the nonce that {device} committed to", "another one"
            )
        closed.nonces[device] = reveal.nonce
        return not closed.missing

    def open(self, closed: ClosedSet) -> MemberKeys:
        """Open the key epoch; every nonce has come."""
        return MemberKeys(
            roster=self.roster,
            record=closed.record,
            nonces=[closed.nonces[device] for device in closed.paths],
            gateway_nonce=closed.gateway_nonce,
            bundles={device: self.bundles[device] for device in closed.paths},
        )
