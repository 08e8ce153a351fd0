"""Share a device's two secrets with its neighbours, and open what they shared.

Source: Bonawitz et al. 2017, figure 4, round 1.
"""

from collections.abc import Mapping, MutableMapping, Sequence

from edgefl._native import (
    SHARE_BYTES,
    AgreementKey,
    Seed,
    open_many,
    seal_many,
    split_secrets,
)
from edgefl.secagg.session import Session


class ShareChannels:
    """The sealed channels between one device and its neighbours in one session.

    Args:
        session: The session; its peers hold the device itself and its neighbours.
        own: Own position.
        share_secret: Own key of the key epoch that the channels are agreed with.
        pair_secrets: What pairs agreed on before in this key epoch, by the hash of the peer's
            bundle; filled here, so that a pair agrees once for a key epoch.
    """

    def __init__(
        self,
        session: Session,
        own: int,
        share_secret: AgreementKey,
        pair_secrets: MutableMapping[bytes, Seed],
    ) -> None:
        """Agree on nothing yet."""
        self._session = session
        self._own = own
        self._share_secret = share_secret
        self._pair_secrets = pair_secrets

    def share_secrets(
        self,
        mask_secret: AgreementKey,
        self_seed: Seed,
        *,
        threshold: int,
        neighbours: Sequence[int],
        sharing_seed: Seed,
    ) -> dict[int, bytes]:
        """Split both secrets, and seal a pair of shares for each neighbour.

        Args:
            mask_secret: One-time mask key; its seed is shared.
            self_seed: Seed of the self mask.
            threshold: Shares needed to reconstruct.
            neighbours: Positions of the holders; a share's point is 1 + position.
            sharing_seed: Fresh randomness for the polynomials and the nonces.

        Returns:
            One ciphertext by the holder's position.
        """
        session_id = self._session.session_id
        mask_shares, seed_shares = split_secrets(
            [mask_secret.export_seed(), self_seed],
            threshold,
            [1 + position for position in neighbours],
            sharing_seed.derive(session_id, b"polynomials"),
        )
        contexts = [self._session.seal_context(self._own, holder) for holder in neighbours]
        sealed = seal_many(
            self._seal_keys(neighbours, contexts),
            [mask + seed for mask, seed in zip(mask_shares, seed_shares, strict=True)],
            contexts,
            # Each key seals one message, so any nonce is safe; derived ones make a seeded run
            # repeatable.
            sharing_seed.derive_many(session_id, contexts),
        )
        return dict(zip(neighbours, sealed, strict=True))

    def open_all(self, sealed: Mapping[int, bytes]) -> dict[int, tuple[bytes, bytes]]:
        """Open what neighbours shared with this device.

        Args:
            sealed: One ciphertext by its owner's position.

        Returns:
            (share of the owner's mask key, share of its self-mask seed), 40 bytes each, by the
            owner's position. What its owner did not make for this device and session is left out.
        """
        owners = list(sealed)
        contexts = [self._session.seal_context(owner, self._own) for owner in owners]
        plain = open_many(self._seal_keys(owners, contexts), list(sealed.values()), contexts)
        return {
            owner: (shares[:SHARE_BYTES], shares[SHARE_BYTES:])
            for owner, shares in zip(owners, plain, strict=True)
            if shares is not None and len(shares) == 2 * SHARE_BYTES
        }

    def _seal_keys(self, others: Sequence[int], contexts: Sequence[bytes]) -> list[Seed]:
        self._agree_with(others)
        session = self._session
        return [
            self._pair_secrets[session.peers[other].bundle_sha256].derive(
                session.session_id, context
            )
            for other, context in zip(others, contexts, strict=True)
        ]

    def _agree_with(self, others: Sequence[int]) -> None:
        """Agree with those that this device has not met in the key epoch."""
        peers = self._session.peers
        strangers = [
            other for other in others if peers[other].bundle_sha256 not in self._pair_secrets
        ]
        agreed = self._share_secret.agree_many(
            [peers[other].share_key for other in strangers],
            b"",
            [self._session.share_pair_info(self._own, other) for other in strangers],
        )
        for other, secret in zip(strangers, agreed, strict=True):
            self._pair_secrets[peers[other].bundle_sha256] = secret
