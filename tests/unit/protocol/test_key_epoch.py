"""The record of a key epoch and its beacon: every nonce counts, and only committed ones pass."""

from dataclasses import replace

import pytest

from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol.key_epoch import (
    EpochRecord,
    OpenEpoch,
    commit_gateway_nonce,
    commit_nonce,
    commitments_root,
)
from edgefl.protocol.wire import encode_bitmap

FLEET = "fleet"
POSITIONS = (1, 2, 5, 9)
NONCES = [bytes([position]) * 32 for position in POSITIONS]
GATEWAY_NONCE = b"g" * 32


def record_of(nonces: list[bytes], gateway_nonce: bytes = GATEWAY_NONCE) -> EpochRecord:
    return EpochRecord(
        fleet=FLEET,
        key_epoch=3,
        roster_number=2,
        roster_hash=b"r" * 32,
        roster_size=11,
        members=encode_bitmap([position in POSITIONS for position in range(11)]),
        commitments_root=commitments_root(
            [
                commit_nonce(FLEET, 3, position, nonce)
                for position, nonce in zip(POSITIONS, nonces, strict=True)
            ]
        ),
        bundles_hash=b"b" * 32,
        gateway_commitment=commit_gateway_nonce(FLEET, 3, gateway_nonce),
    )


RECORD = record_of(NONCES)
OPEN = OpenEpoch.from_nonces(RECORD, NONCES, GATEWAY_NONCE)


def test_members_are_numbered_by_rank() -> None:
    assert OPEN.members == POSITIONS
    assert OPEN.size == 4
    ranks = [OPEN.epoch_position_of(position) for position in range(-1, 12)]
    assert ranks == [None, None, 0, 1, None, None, 2, None, None, None, 3, None, None]


def test_a_record_comes_back_as_it_was() -> None:
    assert EpochRecord.from_value(RECORD.to_list()) == RECORD
    assert EpochRecord.from_value(RECORD.to_list()).digest == RECORD.digest


@pytest.mark.parametrize(
    "members", [b"\x02\x00", b"\x00\x00", b"\xff", b"\xff\xff", b"\x06\x00\x00"]
)
def test_bitmaps_of_too_few_or_of_another_size_are_refused(members: bytes) -> None:
    with pytest.raises(WireError, match=r"E-EPOCH-SIZE|E-WIRE-BITMAP"):
        replace(RECORD, members=members)


@pytest.mark.parametrize(
    "nonces",
    [
        [],
        NONCES[:3],
        [*NONCES, bytes(32)],
        [NONCES[1], NONCES[0], *NONCES[2:]],
        [*NONCES[:3], bytes(32)],
    ],
)
def test_other_nonces_do_not_open_it(nonces: list[bytes]) -> None:
    with pytest.raises(RemoteProtocolError, match="E-EPOCH-NONCES"):
        OpenEpoch.from_nonces(RECORD, nonces, GATEWAY_NONCE)


def test_a_gateway_nonce_that_was_not_committed_to_does_not_open_it() -> None:
    with pytest.raises(RemoteProtocolError, match="E-EPOCH-GATEWAY-NONCE"):
        OpenEpoch.from_nonces(RECORD, NONCES, bytes(32))


def test_a_commitment_is_of_one_fleet_epoch_and_position() -> None:
    commitments = {
        commit_nonce("fleet", 3, 1, NONCES[0]),
        commit_nonce("other", 3, 1, NONCES[0]),
        commit_nonce("fleet", 4, 1, NONCES[0]),
        commit_nonce("fleet", 3, 2, NONCES[0]),
        commit_gateway_nonce("fleet", 3, NONCES[0]),
    }
    assert len(commitments) == 5


def test_every_nonce_decides_the_beacon() -> None:
    beacons = {OPEN.beacon}
    for place in range(4):
        nonces = [*NONCES]
        nonces[place] = bytes(32)
        beacons.add(OpenEpoch.from_nonces(record_of(nonces), nonces, GATEWAY_NONCE).beacon)
    other = b"h" * 32
    beacons.add(OpenEpoch.from_nonces(record_of(NONCES, other), NONCES, other).beacon)
    beacons.add(
        OpenEpoch.from_nonces(replace(RECORD, bundles_hash=bytes(32)), NONCES, GATEWAY_NONCE).beacon
    )
    assert len(beacons) == 7


def test_each_session_and_purpose_has_a_seed_of_its_own() -> None:
    seeds = {OPEN.graph_seed(index) for index in range(64)}
    seeds |= {OPEN.committee_seed(index) for index in range(64)}
    seeds |= {replace(OPEN, beacon=bytes(32)).graph_seed(index) for index in range(64)}
    assert len(seeds) == 192
    assert all(len(seed) == 32 for seed in seeds)
