"""Masks cancel in the sum, at every size of the cohort and for every set of dropouts."""

import functools
from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl._native import CHECK_COORDINATES, AgreementKey
from edgefl.errors import RemoteProtocolError
from edgefl.secagg.masking import (
    add_packed,
    mask_and_pack,
    packed_size_bytes,
    remove_masks,
    sum_is_consistent,
    with_check_coordinates,
)
from edgefl.secagg.session import PeerKeys, Session
from tests.round_harness import InsecureEntropy

DIMENSION = 9
SESSION_ID = b"\x0a" * 32


class Cohort:
    """Everybody's secrets, vectors and masked vectors in one session."""

    def __init__(self, n_devices: int, ring_bits: int) -> None:
        entropy = InsecureEntropy(f"cohort {n_devices} {ring_bits}")
        rng = np.random.default_rng(n_devices)
        self.ring_bits = ring_bits
        self.mask_secrets = [AgreementKey.from_seed(entropy.fresh_seed()) for _ in range(n_devices)]
        self.self_seeds = [entropy.fresh_seed() for _ in range(n_devices)]
        self.session = Session(
            session_id=SESSION_ID,
            suite=1,
            round_number=1,
            attempt=1,
            length=DIMENSION + CHECK_COORDINATES,
            ring_bits=ring_bits,
            peers=tuple(
                PeerKeys(
                    share_key=bytes([index]) * 32,
                    mask_key=secret.public_key,
                    advert_sha256=bytes([index]) * 32,
                )
                for index, secret in enumerate(self.mask_secrets)
            ),
        )
        self.vectors = [
            with_check_coordinates(
                rng.integers(0, 1 << ring_bits, DIMENSION, dtype=np.uint32),
                ring_bits,
                SESSION_ID,
            )
            for _ in range(n_devices)
        ]

    def masked(self, own: int, sharers: Collection[int]) -> bytes:
        return mask_and_pack(
            self.session,
            own,
            self.vectors[own].copy(),
            self.mask_secrets[own],
            self.self_seeds[own],
            [other for other in sharers if other != own],
        )

    def unmasked_sum(self, sharers: Collection[int], survivors: Collection[int]) -> np.ndarray:
        total = np.zeros(self.session.length, dtype=np.uint32)
        for position in survivors:
            add_packed(total, self.masked(position, sharers), self.ring_bits)
        remove_masks(
            self.session,
            total,
            {position: self.self_seeds[position] for position in survivors},
            {
                position: self.mask_secrets[position]
                for position in sharers
                if position not in survivors
            },
        )
        return total

    def exact_sum(self, survivors: Collection[int]) -> np.ndarray:
        total = sum((self.vectors[p].astype(np.uint64) for p in survivors), np.uint64(0))
        return (total & np.uint64((1 << self.ring_bits) - 1)).astype(np.uint32)


@functools.cache
def cohort(n_devices: int, ring_bits: int = 20) -> Cohort:
    return Cohort(n_devices, ring_bits)


@pytest.mark.parametrize("n_devices", range(2, 41))
def test_the_sum_is_exact_at_every_size(n_devices: int) -> None:
    everybody = range(n_devices)
    found = cohort(n_devices).unmasked_sum(everybody, everybody)
    np.testing.assert_array_equal(found, cohort(n_devices).exact_sum(everybody))


@pytest.mark.parametrize("n_devices", range(2, 11))
def test_the_sum_is_exact_for_every_number_of_dropouts(n_devices: int) -> None:
    for n_dropped in range(n_devices):
        for first in (0, n_devices - n_dropped):
            survivors = set(range(n_devices)) - set(range(first, first + n_dropped))
            found = cohort(n_devices).unmasked_sum(range(n_devices), survivors)
            np.testing.assert_array_equal(found, cohort(n_devices).exact_sum(survivors))


@settings(max_examples=25)
@given(data=st.data(), n_devices=st.integers(2, 40), ring_bits=st.sampled_from([8, 16, 19, 32]))
def test_the_sum_is_exact_for_any_sharers_and_survivors(
    data: st.DataObject, n_devices: int, ring_bits: int
) -> None:
    positions = st.sets(st.integers(0, n_devices - 1), min_size=1)
    sharers = data.draw(positions, label="sharers")
    survivors = data.draw(st.sets(st.sampled_from(sorted(sharers)), min_size=1), label="survivors")
    group = Cohort(n_devices, ring_bits)
    found = group.unmasked_sum(sorted(sharers), sorted(survivors))
    np.testing.assert_array_equal(found, group.exact_sum(survivors))
    assert sum_is_consistent(found, ring_bits, SESSION_ID)


def test_a_masked_vector_and_sums_without_some_secret_look_like_nothing() -> None:
    group = cohort(5)
    everybody = range(5)
    exact = group.exact_sum(everybody)
    total = np.zeros(group.session.length, dtype=np.uint32)
    for position in everybody:
        add_packed(total, group.masked(position, everybody), 20)
    for known in (range(4), range(1, 5), ()):
        partly = total.copy()
        remove_masks(group.session, partly, {p: group.self_seeds[p] for p in known}, {})
        assert np.count_nonzero(partly == exact) == 0
        assert not sum_is_consistent(partly, 20, SESSION_ID)


@pytest.mark.parametrize("index", range(DIMENSION + CHECK_COORDINATES))
@pytest.mark.parametrize("ring_bits", [8, 20, 32])
def test_a_change_of_one_coordinate_fails_the_sum_check(index: int, ring_bits: int) -> None:
    values = np.arange(1, DIMENSION + 1, dtype=np.uint32)
    total = with_check_coordinates(values, ring_bits, SESSION_ID)
    assert sum_is_consistent(total, ring_bits, SESSION_ID)
    total[index] ^= 1
    assert not sum_is_consistent(total, ring_bits, SESSION_ID)


def test_the_sum_check_is_bound_to_the_session() -> None:
    total = with_check_coordinates(np.arange(9, dtype=np.uint32), 20, SESSION_ID)
    assert not sum_is_consistent(total, 20, b"\x0b" * 32)


@pytest.mark.parametrize("ring_bits", range(8, 33))
def test_packed_sizes(ring_bits: int) -> None:
    group = cohort(2, ring_bits)
    packed = group.masked(0, range(2))
    assert len(packed) == packed_size_bytes(group.session.length, ring_bits)
    assert 8 * len(packed) - group.session.length * ring_bits in range(8)


@pytest.mark.parametrize("change", [lambda p: p[:-1], lambda p: p + b"\0", lambda _: b""])
def test_packed_vectors_of_another_size_leave_the_sum_alone(change) -> None:  # type: ignore[no-untyped-def]
    total = np.zeros(cohort(2).session.length, dtype=np.uint32)
    with pytest.raises(RemoteProtocolError, match="E-VECTOR-SIZE"):
        add_packed(total, change(cohort(2).masked(0, range(2))), 20)
    assert not total.any()


def test_set_padding_bits_leave_the_sum_alone() -> None:
    total = np.zeros(cohort(2).session.length, dtype=np.uint32)
    packed = bytearray(cohort(2).masked(0, range(2)))
    packed[-1] |= 0x80
    with pytest.raises(RemoteProtocolError, match="E-VECTOR-PADDING"):
        add_packed(total, bytes(packed), 20)
    assert not total.any()
