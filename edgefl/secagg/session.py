"""Keys of one session: pairwise mask seeds, seal keys and self masks, all bound to it.

Source: Bonawitz et al. 2017, figure 4; Bell et al. 2020 for the sparse graph; HKDF as RFC 5869.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cbor2

from edgefl._native import AgreementKey, Mask, Seed

PROTOCOL_LABEL = "edgefl/1"
CHACHA20 = 1
AES_128_CTR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerKeys:
    """What the others use of one member of the cohort.

    Attributes:
        share_key: Key epoch's X25519 key that seals shares.
        mask_key: One-time X25519 key that pairwise masks are agreed with.
        bundle_sha256: Hash of the signed bundle that carries or commits to both.
        has_aes: The member declares AES hardware.
    """

    share_key: bytes
    mask_key: bytes
    bundle_sha256: bytes
    has_aes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What every key of one session is derived under.

    Attributes:
        session_id: SHA-256 of the plan; the HKDF salt.
        length: Ring coordinates that each mask covers, weight slot and check coordinates included.
        allows_aes: The plan lets pairs that can use AES-128-CTR.
        peers: Keys by position in the plan; a device needs its own and its neighbours' only.
    """

    session_id: bytes
    round_number: int
    attempt: int
    length: int
    ring_bits: int
    allows_aes: bool
    peers: Mapping[int, PeerKeys]

    def pairwise_masks(
        self, mask_secret: AgreementKey, own: int, others: Sequence[int], *, threads: int = 1
    ) -> list[Mask]:
        """Return the masks that `own` puts on its vector, one for each of `others`.

        The lower position of a pair adds the mask, the upper takes it off.
        """
        seeds = self.pairwise_seeds(mask_secret, own, others, threads=threads)
        return [
            self.pairwise_mask(seed, own, other) for seed, other in zip(seeds, others, strict=True)
        ]

    def pairwise_seeds(
        self, mask_secret: AgreementKey, own: int, others: Sequence[int], *, threads: int = 1
    ) -> list[Seed]:
        """Return the seeds of the masks between `own` and each of `others`.

        Both ends of a pair derive the same, and so does the aggregator with either secret.
        """
        return mask_secret.agree_many(
            [self.peers[other].mask_key for other in others],
            self.session_id,
            [self._pair_info("pairwise mask", own, other) for other in others],
            threads,
        )

    def pairwise_mask(self, seed: Seed, own: int, other: int) -> Mask:
        """Return what `own` does with the mask that it has in common with `other`."""
        return Mask(seed, self.pair_prg(own, other), own > other)

    def self_mask(self, self_seed: Seed, own: int, *, removing: bool = False) -> Mask:
        """Return the self mask that `own` adds, or that the aggregator takes off again."""
        prg = self.own_prg(own)
        seed = self_seed.derive(self.session_id, self._info("self mask", prg))
        return Mask(seed, prg, removing)

    def pair_prg(self, one: int, other: int) -> int:
        """Return the PRG of a pair: AES-128-CTR where both ends have it in hardware."""
        return self._prg(self.peers[one].has_aes and self.peers[other].has_aes)

    def own_prg(self, own: int) -> int:
        """Return the PRG of what a device expands for itself alone, chosen likewise."""
        return self._prg(self.peers[own].has_aes)

    def share_pair_info(self, one: int, other: int) -> bytes:
        """Return the HKDF info of the secret that a pair agrees on once for a key epoch."""
        low, high = sorted((one, other))
        return cbor2.dumps(
            [
                PROTOCOL_LABEL,
                "share pair",
                self.peers[low].bundle_sha256,
                self.peers[high].bundle_sha256,
            ],
            canonical=True,
        )

    def seal_context(self, owner: int, holder: int) -> bytes:
        """Return what a sealed share is bound to: associated data, and info of its key.

        The key of `owner`'s ciphertext for `holder` is the pair's secret, derived with the session
        id as salt and this as info; it is used for one message.
        """
        return cbor2.dumps(
            [
                PROTOCOL_LABEL,
                "share",
                self.session_id,
                self.round_number,
                self.attempt,
                owner,
                holder,
            ],
            canonical=True,
        )

    def _prg(self, has_aes: bool) -> int:
        return AES_128_CTR if has_aes and self.allows_aes else CHACHA20

    def _pair_info(self, purpose: str, one: int, other: int) -> bytes:
        low, high = sorted((one, other))
        return self._info(
            purpose,
            self.pair_prg(one, other),
            self.peers[low].bundle_sha256,
            self.peers[high].bundle_sha256,
        )

    def _info(self, purpose: str, prg: int, *bundles: bytes) -> bytes:
        """Return the full context of a mask seed: its use, the session, the shape of the mask."""
        return cbor2.dumps(
            [
                PROTOCOL_LABEL,
                purpose,
                prg,
                self.round_number,
                self.attempt,
                *bundles,
                self.length,
                self.ring_bits,
                16 if self.ring_bits <= 16 else 32,
            ],
            canonical=True,
        )
