"""Sealed shares between a device and the committee of a key index, in the one-upload mode.

A ciphertext is bound to fleet, key epoch record, key index, owner, holder and kind; that of a self
seed to the session too, that of a mask key not, because it is deposited before the session exists.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from edgefl._native import Seed, open_many, seal_many, split_secret
from edgefl.protocol.limits import SHARE_BYTES
from edgefl.protocol.one_upload_sizes import Committee
from edgefl.protocol.own_keys import OwnKeys
from edgefl.protocol.peer_proof import MemberProof
from edgefl.protocol.wire import encode

_LABEL = "edgefl/1"


class ShareKind(IntEnum):
    """Which of its owner's two secrets a share belongs to; a holder reveals one kind of each owner.

    - MASK_KEY: the one-time mask key of the index, deposited ahead; revealed of a dropped device.
    - SELF_SEED: the seed of the self mask, sent with the masked input; revealed of a survivor.
    """

    MASK_KEY = 1
    SELF_SEED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SealingKey:
    """What is used of another member of the key epoch to seal for it, or to open what it sealed.

    Attributes:
        share_key: Its X25519 key of the key epoch.
        bundle_sha256: Hash of the signed bundle that carries it.
    """

    share_key: bytes
    bundle_sha256: bytes

    @classmethod
    def of(cls, proof: MemberProof) -> "SealingKey":
        """Return what is used of a member whose proof was checked."""
        return cls(share_key=proof.bundle.share_key, bundle_sha256=proof.bundle.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareContext:
    """What all ciphertexts of one kind, index and session have in common.

    Attributes:
        session_id: Of the session; empty for a deposit, which comes before it.
    """

    key_index: int
    kind: ShareKind
    session_id: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedShare:
    """A ciphertext that a holder was brought, with what it should open under."""

    owner_key: SealingKey
    context: ShareContext
    sealed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSecret:
    """One secret, shared with a committee.

    Attributes:
        sealed: One ciphertext for each member of the committee but the owner, ascending.
        own_share: The owner's own share, where it is a member.
    """

    sealed: tuple[bytes, ...]
    own_share: bytes | None

    def __repr__(self) -> str:
        """Hide the share."""
        return f"SealedSecret(<{len(self.sealed)} ciphertexts>)"


class CommitteeChannels:
    """The sealed channels between one device and others of its key epoch.

    Args:
        keys: Own keys.
    """

    def __init__(self, keys: OwnKeys) -> None:
        """Agree on nothing yet."""
        self._keys = keys

    def share(
        self,
        secret: Seed,
        committee: Committee,
        holders: Mapping[int, SealingKey],
        context: ShareContext,
        sharing_seed: Seed,
    ) -> SealedSecret:
        """Split a secret among a committee and seal each share for its holder.

        Args:
            secret: Own secret.
            committee: Who gets a share.
            holders: Sealing keys, proved down from the roster, by epoch position; of all members
                but the device itself.
            context: What the ciphertexts are bound to.
            sharing_seed: Fresh randomness for the polynomial and the nonces.
        """
        own = self._keys.epoch_position
        split = split_secret(
            secret,
            committee.threshold,
            committee.points(),
            sharing_seed.derive(b"", b"polynomials"),
        )
        shares = dict(zip(committee.members, split, strict=True))
        others = committee.others(own)
        contexts = [self._context(context, own, holder) for holder in others]
        pairs = self._agreed_with([(holder, holders[holder]) for holder in others])
        sealed = seal_many(
            self._seal_keys(pairs, contexts),
            [shares[holder] for holder in others],
            contexts,
            sharing_seed.derive_many(b"nonces", contexts),
        )
        return SealedSecret(sealed=tuple(sealed), own_share=shares.get(own))

    def open_all(self, sealed: Mapping[int, SealedShare]) -> dict[int, bytes]:
        """Open what owners sealed for this device.

        Security: the owners' keys come from the gateway without proof. One that it made up opens
        what it sealed itself and nothing else, since the context names owner and holder; it must
        not be remembered as the key of the owner, to whom this device seals shares of its own.

        Args:
            sealed: By the owner's epoch position.

        Returns:
            40 bytes by owner; what its owner did not make for this device and context is left out.

        Raises:
            RemoteProtocolError: E-PUBLIC-KEY, a key of small order.
        """
        own, owners = self._keys.epoch_position, tuple(sealed)
        contexts = [self._context(sealed[owner].context, owner, own) for owner in owners]
        pairs = self._agree([(owner, sealed[owner].owner_key) for owner in owners])
        plain = open_many(
            self._seal_keys(pairs, contexts), [sealed[owner].sealed for owner in owners], contexts
        )
        return {
            owner: share
            for owner, share in zip(owners, plain, strict=True)
            if share is not None and len(share) == SHARE_BYTES
        }

    def _context(self, context: ShareContext, owner: int, holder: int) -> bytes:
        return encode(
            [
                _LABEL,
                "one-upload share",
                self._keys.fleet,
                self._keys.open_epoch.record.digest,
                context.key_index,
                owner,
                holder,
                int(context.kind),
                context.session_id,
            ]
        )

    def _seal_keys(self, pairs: Sequence[Seed], contexts: Sequence[bytes]) -> list[Seed]:
        record = self._keys.open_epoch.record.digest
        return [pair.derive(record, context) for pair, context in zip(pairs, contexts, strict=True)]

    def _agreed_with(self, others: Sequence[tuple[int, SealingKey]]) -> list[Seed]:
        """Agree with those that this device has not met in the key epoch, in either mode."""
        known = self._keys.pair_secrets
        strangers = [other for other in others if other[1].bundle_sha256 not in known]
        for (_, key), secret in zip(strangers, self._agree(strangers), strict=True):
            known[key.bundle_sha256] = secret
        return [known[key.bundle_sha256] for _, key in others]

    def _agree(self, others: Sequence[tuple[int, SealingKey]]) -> list[Seed]:
        return self._keys.share_secret.agree_many(
            [key.share_key for _, key in others],
            b"",
            [self._pair_info(other, key) for other, key in others],
        )

    def _pair_info(self, other: int, key: SealingKey) -> bytes:
        """Return the info of `Session.share_pair_info`; positions in plans ascend with these."""
        bundles = [self._keys.bundle.digest, key.bundle_sha256]
        low_first = bundles if self._keys.epoch_position < other else bundles[::-1]
        return encode([_LABEL, "share pair", *low_first])
