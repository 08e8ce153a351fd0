"""The aggregator's book of deposits for one key index: who may be in its round, and the shares."""

from collections.abc import Mapping

from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.limits import DIGEST_BYTES, MAX_COHORT
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.one_upload_messages import Deposit, DepositCall
from edgefl.protocol.one_upload_sizes import DepositTerms, committee_of, deposit_id_of
from edgefl.protocol.peer_proof import MemberProof, PeerProof
from edgefl.protocol.wire import WireValue

SNAPSHOT_VERSION = 1


class DepositBook:
    """Deposits for one key index under one set of terms, as they arrive.

    Args:
        keys: The open key epoch.
        key_index: The index.
        terms: What devices are told before they deposit.

    Raises:
        ConfigError: E-PLAN-CORRUPT, no committee withstands the terms.
    """

    def __init__(self, keys: MemberKeys, key_index: int, terms: DepositTerms) -> None:
        """Draw the committee; start with no deposit."""
        self.keys = keys
        self.key_index = key_index
        self.terms = terms
        self.committee = committee_of(terms, keys.epoch, key_index)
        self.deposit_id = deposit_id_of(keys.epoch, key_index, terms)
        self._deposits: dict[str, Deposit] = {}
        self._proofs: dict[str, PeerProof] = {}
        self._owners: dict[bytes, str] = {}

    @property
    def devices(self) -> frozenset[str]:
        """Devices that have deposited: the cohort of the index's round."""
        return frozenset(self._deposits)

    @property
    def proofs(self) -> Mapping[str, PeerProof]:
        """What proves each one's keys."""
        return self._proofs

    def take(self, device: str, message: Deposit) -> None:
        """Take a deposit. The first one of a device counts: any other has the same secret.

        Raises:
            RemoteProtocolError: It is for another index, not one ciphertext per holder, or the mask
                key is not the device's own at this index.
        """
        expected = len(self._others(device))
        if (message.key_index, len(message.sealed)) != (self.key_index, expected):
            raise RemoteProtocolError(
                "E-DEPOSIT",
                f"{expected} ciphertexts for index {self.key_index}",
                f"{len(message.sealed)} for index {message.key_index}",
            )
        proof = self.keys.require_mask_key(device, message.mask_key, self.key_index)
        if self._owners.setdefault(message.mask_key.key, device) != device:
            raise RemoteProtocolError("E-CHECK-IN-KEYS", "a key of its own", "one that is in use")
        self._deposits.setdefault(device, message)
        self._proofs.setdefault(device, proof)

    def call_to(self, device: str) -> DepositCall:
        """Return what asks a device for a deposit outside of a round.

        Raises:
            RemoteProtocolError: E-PEER-MEMBER, it is no member of the key epoch.
        """
        return DepositCall(
            key_epoch=self.keys.epoch.key_epoch,
            key_index=self.key_index,
            terms=self.terms,
            holders=holders_for(device, self),
        )

    def sealed_for(self, owner: str) -> dict[int, bytes]:
        """Return an owner's ciphertexts by the holder's epoch position."""
        return dict(zip(self._others(owner), self._deposits[owner].sealed, strict=True))

    def to_bytes(self) -> bytes:
        """Return the deposits, for a gateway that restarts."""
        deposits: list[WireValue] = [
            [name, self._deposits[name].to_body()] for name in sorted(self._deposits)
        ]
        return wire.encode([SNAPSHOT_VERSION, self.deposit_id, deposits])

    def restore(self, snapshot: bytes) -> None:
        """Take the deposits of a stored book of the same index and terms.

        Raises:
            WireError: The snapshot is damaged, or of another key epoch, index or terms.
        """
        parts = wire.as_list(wire.decode(snapshot), 3)
        if len(parts) != 3:
            raise WireError("E-SNAPSHOT", "an array of 3", f"{len(parts)} parts")
        wire.as_int(parts[0], SNAPSHOT_VERSION, SNAPSHOT_VERSION)
        if wire.as_bytes(parts[1], DIGEST_BYTES) != self.deposit_id:
            raise WireError("E-SNAPSHOT", "deposits for this index and terms", "others")
        for item in wire.as_list(parts[2], MAX_COHORT):
            pair = wire.as_list(item, 2)
            if len(pair) != 2:
                raise WireError("E-SNAPSHOT", "pairs of device and deposit", f"{len(pair)} parts")
            try:
                self.take(wire.as_text(pair[0], 64), Deposit.from_body(wire.as_body(pair[1])))
            except RemoteProtocolError as error:
                raise WireError("E-SNAPSHOT", error.expected, error.found) from error

    def _others(self, device: str) -> tuple[int, ...]:
        position = self.keys.epoch_position_of(device)
        if position is None:
            raise RemoteProtocolError(
                "E-PEER-MEMBER", f"a member of key epoch {self.keys.epoch.key_epoch}", device[:64]
            )
        return self.committee.others(position)


def holders_for(device: str, *books: DepositBook) -> tuple[MemberProof, ...]:
    """Return the proofs of the committees of some books but for the device itself, ascending.

    Raises:
        RemoteProtocolError: E-PEER-MEMBER, the device is no member of the key epoch.
    """
    keys = books[0].keys
    own = keys.epoch_position_of(device)
    if own is None:
        raise RemoteProtocolError(
            "E-PEER-MEMBER", f"a member of key epoch {keys.epoch.key_epoch}", device[:64]
        )
    members = {member for book in books for member in book.committee.others(own)}
    return tuple(keys.member_proof(keys.devices[member]) for member in sorted(members))
