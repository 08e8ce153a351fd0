"""All that one device does in a round of secure aggregation, without the checks of identities.

The same steps as Flower's client: keys, shares for every neighbour sealed, theirs opened, the
update encoded, masked and packed, and the answer to the unmask request. They are the functions
that `DeviceRound` calls; what it adds (signatures, proofs, writing down) has no counterpart in
Flower and is measured apart.
"""

import hashlib
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefl._native import AgreementKey, Mask, Seed, encode_and_mask
from edgefl.privacy.plan import PrivacyPlan, make_privacy_plan
from edgefl.privacy.rotation import rotation_seed
from edgefl.secagg.session import PeerKeys, Session
from edgefl.secagg.sharing import ShareChannels

OWN = 0


def exact_plan(
    devices: int, coordinates: int, *, ring_bits: int = 20, rotation: bool | None = False
) -> PrivacyPlan:
    """Return a plan in exact mode: no noise."""
    return make_privacy_plan(
        clip_norm=1.0,
        noise_multiplier=0.0,
        n_cohort=devices,
        survivor_floor=devices * 2 // 3 + 1,
        colluders=0,
        dimension=coordinates,
        delta=1e-5,
        epsilon_budget=float("inf"),
        rounds=1,
        ring_bits=ring_bits,
        rotation=rotation,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRound:
    """One round as it reaches the device.

    Attributes:
        sealed: Ciphertext by its owner's position.
    """

    session_id: bytes
    sealed: dict[int, bytes]


class _Neighbour:
    """A neighbour that only exists so far as the device hears of it.

    Args:
        has_aes: Whether it declares AES in hardware.
    """

    def __init__(self, has_aes: bool) -> None:
        self.share_secret = AgreementKey.from_seed(Seed.generate())
        self.mask_secret = AgreementKey.from_seed(Seed.generate())
        self.keys = peer_keys(self.share_secret, self.mask_secret, has_aes)


class ClientWork:
    """One device with k neighbours, which are made up beforehand.

    Args:
        neighbours: k.
        coordinates: d.
        has_aes: Whether all of them have AES in hardware; else masks come from ChaCha20.
        privacy: For k + 1 devices and d coordinates; 20 bits in exact mode if not given.
    """

    def __init__(
        self,
        neighbours: int,
        coordinates: int,
        *,
        has_aes: bool,
        privacy: PrivacyPlan | None = None,
    ) -> None:
        self._has_aes = has_aes
        self._threshold = 2 * (neighbours + 1) // 3
        self._privacy = privacy or exact_plan(neighbours + 1, coordinates)
        self._neighbours = {position: _Neighbour(has_aes) for position in range(1, neighbours + 1)}
        self._update: NDArray[np.float32] = (
            np.random.default_rng(0).normal(size=coordinates).astype(np.float32)
        )
        self._share_seed = Seed.generate()
        self._rounds = 0

    def prepare(self) -> PreparedRound:
        """Make what the neighbours send in one round."""
        self._rounds += 1
        session_id = hashlib.sha256(self._rounds.to_bytes(8, "big")).digest()
        share_secret = AgreementKey.from_seed(self._share_seed)
        session = self._session(session_id, share_secret, share_secret)
        sealed = {}
        for position, neighbour in self._neighbours.items():
            channels = ShareChannels(session, position, neighbour.share_secret, {})
            sealed[position] = channels.share_secrets(
                neighbour.mask_secret,
                Seed.generate(),
                threshold=1,
                neighbours=[OWN],
                sharing_seed=Seed.generate(),
            )[OWN]
        return PreparedRound(session_id=session_id, sealed=sealed)

    def do(self, prepared: PreparedRound, pair_secrets: MutableMapping[bytes, Seed]) -> int:
        """Do the device's work, and return the bytes of the masked input.

        Args:
            prepared: What the neighbours sent.
            pair_secrets: Empty in the first round of a key epoch; filled here.
        """
        share_secret = AgreementKey.from_seed(self._share_seed)
        mask_secret = AgreementKey.from_seed(Seed.generate())
        session = self._session(prepared.session_id, share_secret, mask_secret)
        channels = ShareChannels(session, OWN, share_secret, pair_secrets)
        self_seed = Seed.generate()
        channels.share_secrets(
            mask_secret,
            self_seed,
            threshold=self._threshold,
            neighbours=list(self._neighbours),
            sharing_seed=Seed.generate(),
        )
        self_seed.commitment(session.session_id)
        opened = channels.open_all(prepared.sealed)
        masks = [
            session.self_mask(self_seed, OWN),
            *session.pairwise_masks(mask_secret, OWN, sorted(opened)),
        ]
        packed = self._masked_input(session.session_id, masks, session.own_prg(OWN))
        answer = [(position, shares[1]) for position, shares in sorted(opened.items())]
        if len(answer) != len(self._neighbours):
            raise ArithmeticError(f"{len(answer)} of {len(self._neighbours)} ciphertexts opened")
        return len(packed)

    def _masked_input(self, session_id: bytes, masks: Sequence[Mask], rounding_prg: int) -> bytes:
        privacy = self._privacy
        return encode_and_mask(
            self._update,
            clip_norm=privacy.clip_norm,
            scale=privacy.scale,
            l2_squared_bound=privacy.l2_squared_bound,
            noise_variance=privacy.noise_share_variance,
            ring_bits=privacy.ring_bits,
            rotation_block=privacy.rotation_block,
            rotation_seed=rotation_seed(session_id),
            weight=1,
            weight_bound=privacy.weight_bound,
            session_id=session_id,
            rounding_seed=Seed.generate(),
            noise_seed=Seed.generate(),
            masks=masks,
            rounding_prg=rounding_prg,
        )

    def _session(
        self, session_id: bytes, share_secret: AgreementKey, mask_secret: AgreementKey
    ) -> Session:
        return Session(
            session_id=session_id,
            round_number=1,
            attempt=1,
            length=self._privacy.vector_length,
            ring_bits=self._privacy.ring_bits,
            allows_aes=True,
            peers={
                OWN: peer_keys(share_secret, mask_secret, self._has_aes),
                **{position: peer.keys for position, peer in self._neighbours.items()},
            },
        )


def peer_keys(share_secret: AgreementKey, mask_secret: AgreementKey, has_aes: bool) -> PeerKeys:
    """Return what the others use of a device."""
    return PeerKeys(
        share_key=share_secret.public_key,
        mask_key=mask_secret.public_key,
        bundle_sha256=hashlib.sha256(share_secret.public_key).digest(),
        has_aes=has_aes,
    )
