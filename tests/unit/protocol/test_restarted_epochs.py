"""A restarted aggregator goes on with the open key epoch, and never gives a number out twice."""

import pytest

from edgefl.errors import WireError
from edgefl.protocol.aggregator_epoch import AggregatorEpoch
from tests.epoch_harness import (
    FLEET,
    CountedSeeds,
    EpochFleet,
    begun,
    make_roster,
)


def test_a_restarted_gateway_goes_on_with_the_open_key_epoch() -> None:
    fleet = EpochFleet(3)
    epoch = fleet.open_epoch()
    before = fleet.gateway.snapshot()
    fleet.restart_gateway()
    assert fleet.gateway.keys is not None
    assert fleet.gateway.keys.epoch == epoch
    assert fleet.gateway.snapshot() == before
    fleet.join_all()
    assert fleet.down == []


@pytest.mark.parametrize("steps", range(1, 14))
def test_a_gateway_that_is_killed_while_setting_up_gives_out_a_new_number(steps: int) -> None:
    fleet = begun(3)
    for _ in range(steps):
        if fleet.down:
            fleet.deliver_down()
        elif fleet.up:
            fleet.deliver_up()
    is_open = bool(fleet.ready)
    fleet.restart_gateway()
    assert fleet.open_epoch().key_epoch == 2
    assert fleet.refused == []
    assert not is_open or steps >= 12


def test_a_roster_that_was_signed_while_the_gateway_was_down_makes_a_key_epoch_due() -> None:
    fleet = EpochFleet(2)
    fleet.open_epoch()
    fleet.roster = make_roster(["d00", "d01", "d02"], fleet.roster)
    fleet.restart_gateway()
    assert fleet.gateway.keys is None
    assert fleet.gateway.is_due
    assert fleet.open_epoch().key_epoch == 2


def test_an_open_round_keeps_the_key_epoch_of_an_older_roster() -> None:
    fleet = EpochFleet(2)
    epoch = fleet.open_epoch()
    older = fleet.gateway.keys
    assert older is not None
    gateway = AggregatorEpoch(
        fleet=FLEET,
        roster=make_roster(["d00", "d01", "d02"], fleet.roster),
        entropy=CountedSeeds(b"x"),
        answer_s=1,
        snapshot=fleet.gateway.snapshot(),
        keys_roster=older.roster.to_bytes(),
    )
    assert gateway.keys is not None
    assert gateway.keys.epoch == epoch
    assert gateway.is_due, "the next round needs a key epoch of the newer roster"


def test_a_key_epoch_is_not_taken_for_one_of_any_other_roster() -> None:
    fleet = EpochFleet(2)
    fleet.open_epoch()
    other = make_roster(["d00", "d01", "d02"], fleet.roster)
    gateway = AggregatorEpoch(
        fleet=FLEET,
        roster=make_roster(["d00", "d03"], other),
        entropy=CountedSeeds(b"x"),
        answer_s=1,
        snapshot=fleet.gateway.snapshot(),
        keys_roster=other.to_bytes(),
    )
    assert gateway.keys is None


def test_damaged_snapshots_are_said_aloud() -> None:
    fleet = EpochFleet(2)
    fleet.open_epoch()
    content = fleet.gateway.snapshot()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        fleet.flash = bytes(changed)
        try:
            fleet.restart_gateway()
        except WireError:
            continue
        # Numbers and signatures decode all the same; a key epoch over another roster is dropped.
        assert fleet.gateway.keys is None or fleet.gateway.snapshot() == bytes(changed)
    fleet.flash = content[:-1]
    with pytest.raises(WireError):
        fleet.restart_gateway()
