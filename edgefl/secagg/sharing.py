"""Share a device's two secrets with its neighbours, and open what they shared.

Source: Bonawitz et al. 2017, figure 4, round 1.
"""

from collections.abc import Iterable, Mapping

from edgefl._native import (
    SHARE_BYTES,
    AgreementKey,
    Seed,
    combine_shares,
    open_sealed,
    seal,
    split_secret,
)
from edgefl.errors import RemoteProtocolError, ShareError
from edgefl.secagg.session import Session


class ShareChannels:
    """The sealed channels between one device and its neighbours in one session.

    One key agreement serves both directions of a pair; the results are kept while the object lives.

    Args:
        session: The session.
        own: Own position.
        share_secret: Own key that the channels are agreed with.
    """

    def __init__(self, session: Session, own: int, share_secret: AgreementKey) -> None:
        """Agree on nothing yet."""
        self._session = session
        self._own = own
        self._share_secret = share_secret
        self._pair_keys: dict[int, Seed] = {}

    def share_secrets(
        self, mask_secret: AgreementKey, self_seed: Seed, threshold: int, sharing_seed: Seed
    ) -> list[bytes]:
        """Split both secrets, and seal a pair of shares for each neighbour.

        Args:
            mask_secret: One-time mask key; its seed is shared.
            self_seed: Seed of the self mask.
            threshold: Shares needed to reconstruct.
            sharing_seed: Fresh randomness for the two polynomials and the nonces.

        Returns:
            One ciphertext per position; empty at the own one.
        """
        session_id = self._session.session_id
        positions = range(len(self._session.peers))
        points = [1 + position for position in positions]
        mask_shares = split_secret(
            mask_secret.export_seed(),
            threshold,
            points,
            sharing_seed.derive(session_id, b"mask key"),
        )
        seed_shares = split_secret(
            self_seed, threshold, points, sharing_seed.derive(session_id, b"self seed")
        )
        return [
            b""
            if position == self._own
            else self._seal(position, mask_shares[position] + seed_shares[position], sharing_seed)
            for position in positions
        ]

    def open_shares(self, owner: int, sealed: bytes) -> tuple[bytes, bytes]:
        """Open what `owner` shared with this device.

        Returns:
            (share of the owner's mask key, share of its self-mask seed), 40 bytes each.

        Raises:
            RemoteProtocolError: It was not made by the owner for this device and session.
        """
        key = self._session.share_seal_key(self._pair_key(owner), owner, self._own)
        plain = open_sealed(key, sealed, self._session.seal_context(owner, self._own))
        if len(plain) != 2 * SHARE_BYTES:
            raise RemoteProtocolError(
                "E-SHARE-SIZE", f"{2 * SHARE_BYTES} bytes of shares", f"{len(plain)} bytes"
            )
        return plain[:SHARE_BYTES], plain[SHARE_BYTES:]

    def _seal(self, holder: int, plain: bytes, sharing_seed: Seed) -> bytes:
        context = self._session.seal_context(self._own, holder)
        key = self._session.share_seal_key(self._pair_key(holder), self._own, holder)
        # The key is used once, so any nonce is safe; derived, it makes a seeded run repeatable.
        nonce_seed = sharing_seed.derive(self._session.session_id, context)
        return seal(key, plain, context, nonce_seed)

    def _pair_key(self, other: int) -> Seed:
        if other not in self._pair_keys:
            self._pair_keys[other] = self._session.share_pair_key(
                self._share_secret, self._own, other
            )
        return self._pair_keys[other]


def reconstruct_mask_key(
    shares: Mapping[int, bytes], threshold: int, public_key: bytes
) -> AgreementKey:
    """Reconstruct a dropped device's one-time mask key and check it against the published key.

    Args:
        shares: Share by the holder's position.
        threshold: Shares needed.
        public_key: What the plan says.

    Raises:
        ShareError: No choice of shares gives the published key.
    """
    for secret in _candidates(shares, threshold):
        key = AgreementKey.from_seed(secret)
        if key.public_key == public_key:
            return key
    raise ShareError(
        "E-SHARE-WRONG", "shares of the published mask key", "shares of something else"
    )


def reconstruct_self_seed(
    shares: Mapping[int, bytes], threshold: int, commitment: bytes, context: bytes
) -> Seed:
    """Reconstruct a survivor's self-mask seed and check it against its commitment.

    Raises:
        ShareError: No choice of shares gives the committed seed.
    """
    for secret in _candidates(shares, threshold):
        if secret.commitment(context) == commitment:
            return secret
    raise ShareError(
        "E-SHARE-WRONG", "shares of the committed self-mask seed", "shares of something else"
    )


def _candidates(shares: Mapping[int, bytes], threshold: int) -> Iterable[Seed]:
    """Yield the secret from the first shares, then with one holder left out at a time.

    One lying holder is survived whenever threshold + 1 holders answered.
    """
    holders = sorted(shares)
    left_out: list[int | None] = [None, *(holders if len(holders) > threshold else ())]
    for skipped in left_out:
        chosen = [holder for holder in holders if holder != skipped][:threshold]
        if skipped is not None and skipped not in holders[:threshold]:
            continue
        try:
            yield combine_shares([(1 + holder, shares[holder]) for holder in chosen], threshold)
        except ShareError:
            continue
