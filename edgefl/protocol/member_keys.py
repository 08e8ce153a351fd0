"""The members of one open key epoch, as the aggregator uses them in rounds."""

from collections.abc import Mapping, Sequence

from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.epoch_messages import EpochOpened
from edgefl.protocol.key_bundle import KeyBundle, MaskKeyProof
from edgefl.protocol.key_epoch import NONCE_BYTES, EpochRecord, OpenEpoch
from edgefl.protocol.limits import MAX_COHORT
from edgefl.protocol.merkle import read_concatenated
from edgefl.protocol.peer_proof import MemberProof, PeerProof
from edgefl.protocol.roster import Roster
from edgefl.protocol.wire import WireValue


class MemberKeys:
    """Everybody's keys in one open key epoch.

    A round keeps the object that it was called with: the next key epoch may open meanwhile.

    Args:
        roster: The roster that the key epoch belongs to.
        record: The closed set.
        nonces: 32 bytes per member, in roster order.
        gateway_nonce: 32 bytes.
        bundles: Of every member, by device.

    Raises:
        RemoteProtocolError: The nonces are not those that were committed to, the record is over
            another roster, or the bundles are not those of its members.
    """

    def __init__(
        self,
        *,
        roster: Roster,
        record: EpochRecord,
        nonces: Sequence[bytes],
        gateway_nonce: bytes,
        bundles: Mapping[str, KeyBundle],
    ) -> None:
        """Check the nonces, and draw the beacon."""
        if (roster.epoch.hash, roster.size) != (record.roster_hash, record.roster_size):
            raise RemoteProtocolError(
                "E-EPOCH-ROSTER", f"roster {record.roster_number}", f"roster {roster.epoch.number}"
            )
        devices = tuple(roster.entries[position].device for position in record.positions)
        if set(devices) != set(bundles):
            raise RemoteProtocolError(
                "E-EPOCH-BUNDLES", f"bundles of the {len(devices)} members", f"{len(bundles)}"
            )
        self.devices: tuple[str, ...] = devices
        self.epoch: OpenEpoch = OpenEpoch.from_nonces(record, nonces, gateway_nonce)
        self.roster: Roster = roster
        self._roster_positions = dict(zip(self.devices, self.epoch.members, strict=True))
        self._opened = EpochOpened(
            record_hash=record.digest, nonces=tuple(nonces), gateway_nonce=gateway_nonce
        )
        self._bundles = dict(bundles)

    @property
    def opened_message(self) -> EpochOpened:
        """What tells a member that the key epoch is open."""
        return self._opened

    def epoch_position_of(self, device: str) -> int | None:
        """Return a member's epoch position; None for others."""
        position = self.roster.position_of(device)
        return None if position is None else self.epoch.epoch_position_of(position)

    def bundle_of(self, device: str) -> KeyBundle:
        """Return a member's bundle.

        Raises:
            RemoteProtocolError: E-PEER-MEMBER, it is no member.
        """
        bundle = self._bundles.get(device)
        if bundle is None:
            raise RemoteProtocolError(
                "E-PEER-MEMBER", f"a member of key epoch {self.epoch.key_epoch}", device[:64]
            )
        return bundle

    def member_proof(self, device: str) -> MemberProof:
        """Put together what proves a member's keys, but for its mask keys.

        Raises:
            RemoteProtocolError: E-PEER-MEMBER, it is no member.
        """
        bundle = self.bundle_of(device)
        position = self._roster_positions[device]
        return MemberProof(
            entry=self.roster.entries[position],
            roster_position=position,
            roster_path=self.roster.path(position),
            bundle=bundle,
        )

    def peer_proof(self, device: str, mask_key: MaskKeyProof) -> PeerProof:
        """Put together what proves a member's keys; check a fresh one with `require_sound`.

        Raises:
            RemoteProtocolError: E-PEER-MEMBER, it is no member.
        """
        member = self.member_proof(device)
        return PeerProof(
            entry=member.entry,
            roster_position=member.roster_position,
            roster_path=member.roster_path,
            bundle=member.bundle,
            mask_key=mask_key,
        )

    def require_mask_key(self, device: str, mask_key: MaskKeyProof, key_index: int) -> PeerProof:
        """Return the proof of a member's keys with a mask key that it has just sent, checked.

        Raises:
            RemoteProtocolError: It is no member, or the mask key is not its own at this index.
        """
        proof = self.peer_proof(device, mask_key)
        proof.require_sound(self.roster.epoch, self.epoch, key_index, self.epoch.record.fleet)
        return proof

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array; the roster is stored by its owner."""
        return [
            self.epoch.record.to_list(),
            b"".join(self._opened.nonces),
            self._opened.gateway_nonce,
            [self._bundles[device].to_list() for device in self.devices],
        ]

    @classmethod
    def from_value(cls, value: WireValue, roster: Roster) -> "MemberKeys":
        """Read the CBOR array.

        Raises:
            WireError: It is damaged.
            RemoteProtocolError: It belongs to another roster, or its nonces are wrong.
        """
        parts = wire.as_list(value, 4)
        if len(parts) != 4:
            raise WireError("E-SNAPSHOT", "an array of 4", f"{len(parts)}")
        bundles = [KeyBundle.from_value(item) for item in wire.as_list(parts[3], MAX_COHORT)]
        return cls(
            roster=roster,
            record=EpochRecord.from_value(parts[0]),
            nonces=read_concatenated(parts[1], MAX_COHORT),
            gateway_nonce=wire.as_bytes(parts[2], NONCE_BYTES),
            bundles={bundle.device: bundle for bundle in bundles},
        )
