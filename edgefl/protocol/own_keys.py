"""A device's own keys of one open key epoch, as a round uses them."""

from collections.abc import Mapping

from edgefl._native import AgreementKey, Seed, SigningKey
from edgefl.errors import LocalProtocolError, RemoteProtocolError
from edgefl.protocol import wire
from edgefl.protocol.device_epoch_state import IndexUse, OwnKeyEpoch, PinnedRoster
from edgefl.protocol.epoch_messages import EpochInvitation
from edgefl.protocol.key_bundle import KeyBundle, MaskKeyProof, share_secret_of
from edgefl.protocol.key_epoch import OpenEpoch, commit_nonce
from edgefl.protocol.mask_keys import MaskKeyBatch
from edgefl.protocol.peer_proof import MemberProof, PeerProof
from edgefl.protocol.roster_epoch import RosterEpoch


class OwnKeys:
    """The keys of one device in one open key epoch.

    A round keeps the object that it checked in with: the next key epoch may open meanwhile.

    Security: it holds the secrets of the key epoch that were not released.

    Args:
        own: An open key epoch of the device.

    Raises:
        LocalProtocolError: E-EPOCH-NONE, it is not open.
    """

    def __init__(self, own: OwnKeyEpoch) -> None:
        """Find the device's place."""
        if own.open_epoch is None:
            raise LocalProtocolError("E-EPOCH-NONE", "an open key epoch", "none yet")
        position = own.open_epoch.epoch_position_of(own.roster.position)
        if position is None:
            raise LocalProtocolError("E-EPOCH-SELF", "a key epoch of this device", "another one")
        self.open_epoch: OpenEpoch = own.open_epoch
        self.bundle: KeyBundle = own.bundle
        self.roster_epoch: RosterEpoch = own.roster.header
        self.roster_position: int = own.roster.position
        self.epoch_position: int = position
        self._share_seed = own.share_seed
        self._mask_keys = own.mask_keys
        self.pair_secrets: dict[bytes, Seed] = {}
        """What it agreed on with others, once for the key epoch, by the hash of their bundle."""
        self._uses: Mapping[int, IndexUse] = own.uses

    @property
    def fleet(self) -> str:
        """The fleet."""
        return self.open_epoch.record.fleet

    @property
    def share_secret(self) -> AgreementKey:
        """The key that opens shares."""
        return AgreementKey.from_seed(self._share_seed)

    def use_of(self, index: int) -> IndexUse | None:
        """Return what a key index serves; None for one that was never reserved."""
        return self._uses.get(index)

    def mask_secret(self, index: int) -> AgreementKey:
        """Return the one-time key at `index`, which must have been reserved.

        Raises:
            LocalProtocolError: E-KEY-INDEX, it was not; E-MASK-KEY-INDEX, it was released.
        """
        return self._reserved(index).secret(index)

    def has_mask_secret(self, index: int) -> bool:
        """Tell whether the one-time key at `index` is there, or was released."""
        return self._mask_keys.has_secret(index)

    def mask_proof(self, index: int) -> MaskKeyProof:
        """Return the one-time public key at `index` with its path; it must have been reserved.

        Raises:
            LocalProtocolError: E-KEY-INDEX, it was not.
        """
        return self._reserved(index).proof(index)

    def require_peer(self, proof: PeerProof, key_index: int) -> int:
        """Check a peer's keys, and that nobody else carries this device's own.

        Returns:
            The peer's epoch position.

        Raises:
            RemoteProtocolError: E-PEER-SELF, or what `PeerProof.require_sound` raises.
        """
        position = proof.require_sound(self.roster_epoch, self.open_epoch, key_index, self.fleet)
        self._require_own_keys_once(proof.member)
        return position

    def require_member(self, proof: MemberProof) -> int:
        """Check the keys of a member that all sessions use; the rest as `require_peer`."""
        position = proof.require_sound(self.roster_epoch, self.open_epoch, self.fleet)
        self._require_own_keys_once(proof)
        return position

    def _require_own_keys_once(self, proof: MemberProof) -> None:
        if proof.roster_position == self.roster_position:
            is_sound = proof.bundle == self.bundle
        else:
            is_sound = (
                proof.entry.device != self.bundle.device
                and proof.entry.identity_key != self.bundle.identity_key
                and proof.bundle.share_key != self.bundle.share_key
                and proof.bundle.mask_root != self.bundle.mask_root
            )
        if not is_sound:
            raise RemoteProtocolError(
                "E-PEER-SELF", "this device's own keys at its own position alone", "another use"
            )

    def _reserved(self, index: int) -> MaskKeyBatch:
        if index not in self._uses:
            raise LocalProtocolError("E-KEY-INDEX", "a reserved key index", str(index))
        return self._mask_keys


def make_own_keys(
    secret: Seed,
    *,
    device: str,
    signing_key: SigningKey,
    fleet: str,
    prgs: int,
    invitation: EpochInvitation,
    roster: PinnedRoster,
) -> OwnKeyEpoch:
    """Derive the keys of a new key epoch and sign their bundle.

    Args:
        secret: Fresh, and not kept: keys that are destroyed later must not follow from it.
        device: Whose they are.
        signing_key: Its identity.
        fleet: The fleet.
        prgs: Bitmask of the PRGs that the device declares.
        invitation: Number and terms, already checked.
        roster: The pinned roster.
    """
    number, count = invitation.key_epoch, invitation.mask_key_count
    share_key = share_secret_of(secret, fleet=fleet, device=device, key_epoch=number)
    batch = MaskKeyBatch.from_epoch_secret(
        secret, fleet=fleet, device=device, key_epoch=number, count=count
    )
    nonce = nonce_of(secret, fleet, device, number)
    unsigned = KeyBundle(
        device=device,
        identity_key=signing_key.public_key,
        key_epoch=number,
        roster_hash=roster.header.hash,
        share_key=share_key.public_key,
        mask_root=batch.root,
        mask_key_count=count,
        prgs=prgs,
        nonce_commitment=commit_nonce(fleet, number, roster.position, nonce),
        signature=bytes(64),
    )
    bundle = unsigned.signed_by(fleet, signing_key)
    return OwnKeyEpoch(
        share_seed=share_key.export_seed(),
        nonce=nonce,
        mask_keys=batch,
        bundle=bundle,
        roster=roster,
    )


def nonce_of(secret: Seed, fleet: str, device: str, key_epoch: int) -> bytes:
    """Derive a device's part of the beacon. Secret until the record is known."""
    info = wire.encode([fleet, device, key_epoch])
    return secret.derive(b"edgefl/1 nonce", info).export_bytes()
