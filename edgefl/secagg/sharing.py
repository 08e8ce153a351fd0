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


def share_secrets(
    session: Session,
    own: int,
    share_secret: AgreementKey,
    mask_secret: AgreementKey,
    self_seed: Seed,
    threshold: int,
    coefficient_seed: Seed,
) -> list[bytes]:
    """Split the mask secret and the self-mask seed, and seal one pair of shares for each neighbour.

    Args:
        session: The session.
        own: Own position.
        share_secret: Own key that share keys are agreed with.
        mask_secret: One-time mask key; its seed is shared.
        self_seed: Seed of the self mask.
        threshold: Shares needed to reconstruct.
        coefficient_seed: Fresh randomness for the two polynomials.

    Returns:
        One ciphertext per position; empty at the own one.
    """
    points = [1 + position for position in range(len(session.peers))]
    mask_shares = split_secret(
        mask_secret.export_seed(),
        threshold,
        points,
        coefficient_seed.derive(session.session_id, b"mask key"),
    )
    seed_shares = split_secret(
        self_seed, threshold, points, coefficient_seed.derive(session.session_id, b"self seed")
    )
    return [
        b""
        if position == own
        else seal(
            session.share_seal_key(share_secret, own, position, owner=own),
            mask_shares[position] + seed_shares[position],
            session.seal_context(own, position),
        )
        for position in range(len(session.peers))
    ]


def open_shares(
    session: Session, own: int, share_secret: AgreementKey, owner: int, sealed: bytes
) -> tuple[bytes, bytes]:
    """Open what `owner` shared with this device.

    Returns:
        (share of the owner's mask key, share of the owner's self-mask seed), 40 bytes each.

    Raises:
        RemoteProtocolError: The ciphertext was not made by the owner for this device and session.
    """
    plain = open_sealed(
        session.share_seal_key(share_secret, own, owner, owner=owner),
        sealed,
        session.seal_context(owner, own),
    )
    if len(plain) != 2 * SHARE_BYTES:
        raise RemoteProtocolError(
            "E-SHARE-SIZE", f"{2 * SHARE_BYTES} bytes of shares", f"{len(plain)} bytes"
        )
    return plain[:SHARE_BYTES], plain[SHARE_BYTES:]


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
