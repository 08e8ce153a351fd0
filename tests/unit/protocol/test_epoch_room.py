"""A key epoch has no more members than a plan can name, whoever asks for more."""

from dataclasses import replace

import pytest

from edgefl.errors import WireError
from edgefl.protocol.epoch_events import BeginEpoch, EpochDeviceSaid, EpochFull
from edgefl.protocol.epoch_messages import EpochInvitation, EpochOpened, KeyBundleMessage
from edgefl.protocol.key_epoch import EpochRecord
from edgefl.protocol.limits import MAX_COHORT
from edgefl.protocol.wire import as_body, decode, encode, encode_bitmap
from tests.epoch_harness import EpochFleet


def record_of(members: int) -> EpochRecord:
    return EpochRecord(
        fleet="f",
        key_epoch=1,
        roster_number=1,
        roster_hash=bytes(32),
        roster_size=members + 1,
        members=encode_bitmap([True] * members + [False]),
        commitments_root=bytes(32),
        bundles_hash=bytes(32),
        gateway_commitment=bytes(32),
    )


def opened_members(fleet: EpochFleet) -> frozenset[str]:
    fleet.feed(BeginEpoch(needed=2))
    fleet.settle()
    return fleet.gateway.members


def test_a_device_refuses_a_record_that_no_plan_could_serve() -> None:
    largest = record_of(MAX_COHORT)
    assert len(EpochRecord.from_value(largest.to_list()).positions) == MAX_COHORT
    with pytest.raises(WireError, match="E-EPOCH-SIZE"):
        record_of(MAX_COHORT + 1)
    wider = largest.to_list()
    wider[5] = encode_bitmap([True] * (MAX_COHORT + 1))
    with pytest.raises(WireError, match="E-EPOCH-SIZE"):
        EpochRecord.from_value(wider)


def test_more_nonces_than_members_can_be_are_refused_unread() -> None:
    opened = EpochOpened(
        record_hash=bytes(32), nonces=(bytes(32),) * (MAX_COHORT + 1), gateway_nonce=bytes(32)
    )
    with pytest.raises(WireError):
        EpochOpened.from_body(as_body(decode(encode(opened.to_body()))))


def test_no_more_devices_are_invited_than_there_is_room_for() -> None:
    fleet = EpochFleet(6, most_members=4)
    fleet.join_all()
    fleet.settle()
    members = opened_members(fleet)
    assert len(members) == 4
    assert fleet.full == [EpochFull(key_epoch=1, left_out=2)]
    assert fleet.refused == []


def test_those_without_room_ask_for_no_key_epoch_and_are_drawn_for_later_ones() -> None:
    fleet = EpochFleet(6, most_members=4)
    fleet.join_all()
    fleet.settle()
    served: set[str] = set()
    for _ in range(12):
        served |= opened_members(fleet)
        assert len(fleet.gateway.outside) == 2
        assert fleet.gateway.newcomers == ()
    assert served == set(fleet.names)
    fleet.gateway.lose(min(fleet.gateway.members))
    assert len(fleet.gateway.newcomers) == 1


def test_a_latecomer_to_a_full_key_epoch_is_refused_by_name() -> None:
    fleet = EpochFleet(5, most_members=4)
    late = fleet.names[2]
    for name in fleet.names:
        if name != late:
            fleet.feed(fleet.boards[name].joined)
    fleet.settle()
    fleet.feed(BeginEpoch(needed=2))
    fleet.feed(fleet.boards[late].joined)
    assert fleet.refused == [(late, "E-EPOCH-FULL")]
    fleet.feed(fleet.boards["d00"].joined)
    fleet.settle()
    assert fleet.refused == [(late, "E-EPOCH-FULL")]
    assert fleet.gateway.members == set(fleet.names) - {late}


def test_a_bundle_of_a_device_that_was_not_invited_makes_no_member() -> None:
    fleet = EpochFleet(5, most_members=4)
    fleet.join_all()
    fleet.settle()
    fleet.feed(BeginEpoch(needed=2))
    invited = {name for name, message in fleet.down if isinstance(message, EpochInvitation)}
    invitation = next(message for _, message in fleet.down if isinstance(message, EpochInvitation))
    (outsider,) = set(fleet.names) - invited
    (answer,) = fleet.boards[outsider].say(replace(invitation))
    assert isinstance(answer, KeyBundleMessage)
    fleet.feed(EpochDeviceSaid(device=outsider, message=answer))
    assert fleet.refused == [(outsider, "E-EPOCH-UNINVITED")]
    fleet.settle()
    assert fleet.gateway.members == invited
