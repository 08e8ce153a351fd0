"""Mask a ring vector on the device, and remove what remains of the masks from the sum.

Source: Bonawitz et al. 2017, figure 4, rounds 2 and 4.
"""

from collections.abc import Collection, Mapping

import numpy as np

from edgefl._native import (
    CHECK_COORDINATES,
    AgreementKey,
    Mask,
    Seed,
    add_in_ring,
    apply_masks,
    check_coordinates,
    pack,
    unpack,
)
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.secagg.session import Session
from edgefl.types import RingVector

_CHACHA20 = 1
"""The generator that every device has."""


def with_check_coordinates(values: RingVector, ring_bits: int, session_id: bytes) -> RingVector:
    """Append the check coordinates: public random linear combinations of the vector in the ring.

    They are masked and summed like the rest, so the sum's own combinations must agree with them.

    Args:
        values: uint32 [d], each below 2^b.
        ring_bits: b.
        session_id: 32 bytes; the coefficients' seed.

    Returns:
        uint32 [d + 4].
    """
    checks = np.array(check_coordinates(values, ring_bits, session_id), dtype=np.uint32)
    return np.concatenate([values, checks])


def sum_is_consistent(total: RingVector, ring_bits: int, session_id: bytes) -> bool:
    """Tell whether an unmasked sum uint32 [d + 4] agrees with its check coordinates."""
    values = np.ascontiguousarray(total[:-CHECK_COORDINATES])
    expected = check_coordinates(values, ring_bits, session_id)
    return [int(value) for value in total[-CHECK_COORDINATES:]] == list(expected)


def mask_and_pack(
    session: Session,
    own: int,
    vector: RingVector,
    mask_secret: AgreementKey,
    self_seed: Seed,
    neighbours: Collection[int],
    threads: int = 1,
) -> bytes:
    """Add the self mask and the pairwise masks to `vector` in place, and bit-pack it.

    Args:
        session: The session.
        own: Own position.
        vector: uint32 [session.length]; overwritten by the masked vector.
        mask_secret: Own one-time mask key.
        self_seed: Own self-mask seed.
        neighbours: Positions whose shares arrived; the lower end of a pair adds its mask, the
            upper subtracts.
        threads: Worker threads.
    """
    masks = [Mask(session.self_mask_key(self_seed), _CHACHA20, subtract=False)]
    for other in neighbours:
        seed = session.pairwise_seed(mask_secret, own, other)
        masks.append(Mask(seed, _CHACHA20, subtract=own > other))
    apply_masks(vector, session.ring_bits, masks, threads)
    return pack(vector, session.ring_bits)


def packed_size_bytes(length: int, ring_bits: int) -> int:
    """Return the bytes of a packed vector."""
    return (length * ring_bits + 7) // 8


def add_packed(total: RingVector, packed: bytes, ring_bits: int) -> None:
    """Add a packed masked vector to the running sum uint32 [length], in the ring.

    Raises:
        RemoteProtocolError: The packed vector has another size than the plan's, or set padding
            bits.
    """
    if len(packed) != packed_size_bytes(total.size, ring_bits):
        raise RemoteProtocolError(
            "E-VECTOR-SIZE",
            f"{packed_size_bytes(total.size, ring_bits)} bytes",
            f"{len(packed)} bytes",
        )
    values = np.empty(total.size, dtype=np.uint32)
    try:
        unpack(packed, ring_bits, values)
    except WireError as error:
        raise RemoteProtocolError(
            "E-VECTOR-PADDING", "zero bits after the last coordinate", "bits that are set"
        ) from error
    add_in_ring(total, values, ring_bits)


def remove_masks(
    session: Session,
    total: RingVector,
    self_seeds: Mapping[int, Seed],
    mask_secrets: Mapping[int, AgreementKey],
    threads: int = 1,
) -> None:
    """Turn the sum of masked vectors into the sum of vectors, in place.

    Args:
        session: The session.
        total: uint32 [session.length].
        self_seeds: Self-mask seed of each survivor, by position.
        mask_secrets: Mask key of each device that shared keys and then dropped out, by position.
        threads: Worker threads.
    """
    masks = [
        Mask(session.self_mask_key(seed), _CHACHA20, subtract=True) for seed in self_seeds.values()
    ]
    for dropped, secret in mask_secrets.items():
        for survivor in self_seeds:
            seed = session.pairwise_seed(secret, dropped, survivor)
            # What the survivor did with the mask is undone here.
            masks.append(Mask(seed, _CHACHA20, subtract=survivor < dropped))
    apply_masks(total, session.ring_bits, masks, threads)
