"""Keys of one session: pairwise mask seeds, share keys and self masks, all bound to it.

Source: Bonawitz et al. 2017, figure 4; HKDF as RFC 5869.
"""

import hashlib
from dataclasses import dataclass

import cbor2

from edgefl._native import AgreementKey, Seed

PROTOCOL_LABEL = "edgefl/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerKeys:
    """Public keys of one member of the cohort, and the hash of the advert that carries them."""

    share_key: bytes
    mask_key: bytes
    advert_sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What every key of one session is derived under.

    Attributes:
        session_id: SHA-256 of the plan; the HKDF salt.
        length: Ring coordinates that each mask covers, check coordinates included.
        peers: Keys by position in the plan.
    """

    session_id: bytes
    suite: int
    round_number: int
    attempt: int
    length: int
    ring_bits: int
    peers: tuple[PeerKeys, ...]

    def pairwise_seed(self, mask_secret: AgreementKey, own: int, other: int) -> Seed:
        """Return the seed of the mask between two positions.

        Both ends derive the same, and so does the aggregator with either secret.
        """
        return mask_secret.agree(
            self.peers[other].mask_key,
            self.session_id,
            self._info("pairwise mask", min(own, other), max(own, other)),
        )

    def share_pair_key(self, share_secret: AgreementKey, own: int, other: int) -> Seed:
        """Return the key from which both directions of a pair derive what seals their shares."""
        return share_secret.agree(
            self.peers[other].share_key,
            self.session_id,
            self._info("share seal", min(own, other), max(own, other)),
        )

    def share_seal_key(self, pair_key: Seed, owner: int, holder: int) -> Seed:
        """Return the key that seals what `owner` shares with `holder`; used for one message."""
        return pair_key.derive(self.session_id, self.seal_context(owner, holder))

    def self_mask_key(self, self_seed: Seed) -> Seed:
        """Return the PRG key of a self mask."""
        return self_seed.derive(self.session_id, self._label("self mask"))

    def seal_context(self, owner: int, holder: int) -> bytes:
        """Return the associated data of one sealed share."""
        return cbor2.dumps(
            [PROTOCOL_LABEL, "share", self.session_id, owner, holder], canonical=True
        )

    def _info(self, purpose: str, first: int, second: int) -> bytes:
        return cbor2.dumps(
            [
                PROTOCOL_LABEL,
                purpose,
                self.suite,
                self.round_number,
                self.attempt,
                self.peers[first].advert_sha256,
                self.peers[second].advert_sha256,
                self.length,
                self.ring_bits,
            ],
            canonical=True,
        )

    def _label(self, purpose: str) -> bytes:
        return cbor2.dumps(
            [
                PROTOCOL_LABEL,
                purpose,
                self.suite,
                self.round_number,
                self.attempt,
                self.length,
                self.ring_bits,
            ],
            canonical=True,
        )


def advert_digest(advert: bytes) -> bytes:
    """Return the SHA-256 of an encoded advert."""
    return hashlib.sha256(advert).digest()
