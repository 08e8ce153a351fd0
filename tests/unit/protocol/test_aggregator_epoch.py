"""The aggregator opens key epochs with those who answer, and gets over those who do not."""

from dataclasses import replace

import pytest

from edgefl.errors import LocalProtocolError, RemoteProtocolError
from edgefl.protocol.aggregator_epoch import AggregatorEpoch
from edgefl.protocol.epoch_events import (
    BeginEpoch,
    DeviceJoined,
    DeviceLeft,
    EpochAbortReason,
    EpochDeviceSaid,
    EpochTimerFired,
    RosterSigned,
    SendEpochDown,
    SetEpochTimer,
)
from edgefl.protocol.epoch_messages import (
    EpochClosed,
    EpochInvitation,
    EpochOpened,
    KeyBundleMessage,
    NonceReveal,
    RosterUpdate,
)
from edgefl.protocol.key_bundle import KeyBundle
from edgefl.protocol.peer_proof import PeerProof
from edgefl.protocol.wire import decode, encode
from tests.epoch_harness import (
    ANSWER_S,
    FLEET,
    CountedSeeds,
    EpochFleet,
    begun,
    make_roster,
    signing_key,
)

CALL = b"c" * 32


def bundle_from(fleet: EpochFleet, device: str) -> KeyBundle:
    """Deliver the invitation of one device, and return its bundle undelivered."""
    place = next(
        place
        for place, (name, message) in enumerate(fleet.down)
        if name == device and isinstance(message, EpochInvitation)
    )
    fleet.down.insert(0, fleet.down.pop(place))
    fleet.deliver_down()
    _, message = fleet.up.pop()
    assert isinstance(message, KeyBundleMessage)
    return message.bundle


def tell_bundle(fleet: EpochFleet, device: str, bundle: KeyBundle) -> None:
    fleet.feed(EpochDeviceSaid(device=device, message=KeyBundleMessage(bundle=bundle)))


# ---------------------------------------------------------------- opening


def test_a_fleet_opens_one_key_epoch_after_the_other() -> None:
    fleet = EpochFleet(5)
    epochs = [fleet.open_epoch() for _ in range(3)]
    assert [epoch.key_epoch for epoch in epochs] == [1, 2, 3]
    assert len({epoch.beacon for epoch in epochs}) == 3
    assert fleet.ready == epochs
    assert fleet.refused == []
    assert fleet.aborted == []


def test_every_member_can_check_every_other() -> None:
    fleet = EpochFleet(6)
    epoch = fleet.open_epoch()
    keys = fleet.gateway.keys
    assert keys is not None
    index = fleet.gateway.take_index()
    assert index == 0
    proofs = []
    for name, board in fleet.boards.items():
        board.carry_out(board.machine.reserve_index(index, CALL))
        proof = keys.require_mask_key(name, board.machine.keys.mask_proof(index), index)
        proofs.append(PeerProof.from_value(decode(encode(proof.to_list()))))
    for board in fleet.boards.values():
        positions = [board.machine.keys.require_peer(proof, index) for proof in proofs]
        assert positions == list(range(6))
    assert [keys.epoch_position_of(name) for name in fleet.names] == list(range(6))
    assert keys.epoch_position_of("stranger") is None
    assert keys.devices == tuple(fleet.names)
    assert epoch.size == 6


def test_a_peer_whose_links_do_not_hold_is_refused() -> None:
    fleet = EpochFleet(5)
    fleet.deaf = {"d04"}
    fleet.join_all()
    fleet.settle()
    fleet.feed(BeginEpoch(needed=2))
    fleet.settle()
    fleet.pass_time(ANSWER_S)
    fleet.settle()
    keys = fleet.gateway.keys
    assert keys is not None
    assert keys.devices == ("d00", "d01", "d02", "d03")
    for name in keys.devices:
        board = fleet.boards[name]
        board.carry_out(board.machine.reserve_index(0, CALL))
        board.carry_out(board.machine.reserve_index(1, CALL))
    own = fleet.boards["d00"].machine.keys
    first = keys.peer_proof("d01", fleet.boards["d01"].machine.keys.mask_proof(0))
    second = keys.peer_proof("d02", fleet.boards["d02"].machine.keys.mask_proof(0))
    assert own.require_peer(first, 0) == 1
    forged = replace(first.bundle, share_key=second.bundle.share_key)
    cases = {
        "E-PEER-INDEX": replace(first, mask_key=fleet.boards["d01"].machine.keys.mask_proof(1)),
        "E-MASK-KEY-PATH": replace(first, mask_key=second.mask_key),
        "E-PEER-IDENTITY": replace(first, bundle=second.bundle),
        "E-BUNDLE-SIGNATURE": replace(first, bundle=forged),
        "E-ROSTER-PATH": replace(first, entry=second.entry, bundle=second.bundle),
        "E-PEER-MEMBER": replace(first, roster_position=4),
        "E-PEER-EPOCH": replace(first, bundle=replace(first.bundle, key_epoch=2)),
    }
    for code, proof in cases.items():
        with pytest.raises(RemoteProtocolError, match=code):
            own.require_peer(proof, 0)
    with pytest.raises(RemoteProtocolError, match="E-PEER-EPOCH"):
        first.require_sound(keys.roster.epoch, keys.epoch, 0, "other-fleet")
    newer = make_roster(["d00", "d01"], keys.roster)
    with pytest.raises(RemoteProtocolError, match="E-PEER-EPOCH"):
        first.require_sound(newer.epoch, keys.epoch, 0, FLEET)
    for name in ("d04", "stranger"):
        with pytest.raises(RemoteProtocolError, match="E-PEER-MEMBER"):
            keys.peer_proof(name, first.mask_key)
    with pytest.raises(RemoteProtocolError, match="E-MASK-KEY-PATH"):
        keys.require_mask_key("d01", second.mask_key, 0)


def test_each_index_is_taken_once_and_then_a_new_key_epoch_is_due() -> None:
    fleet = EpochFleet(2)
    assert fleet.gateway.is_due
    assert fleet.gateway.take_index() is None
    fleet.open_epoch()
    assert not fleet.gateway.is_due
    taken = []
    for left in (4, 3, 2, 1):
        assert fleet.gateway.indices_left == left
        taken.append(fleet.gateway.take_index())
        fleet.flash = fleet.gateway.snapshot()
        fleet.restart_gateway()
    assert taken == [0, 1, 2, 3]
    assert fleet.gateway.take_index() is None
    assert fleet.gateway.is_due
    fleet.open_epoch()
    assert fleet.gateway.take_index() == 0


# ---------------------------------------------------------------- who does not answer


def test_it_closes_with_those_who_answered_when_time_is_up() -> None:
    fleet = EpochFleet(4)
    fleet.deaf = {"d03"}
    fleet.join_all()
    fleet.settle()
    fleet.feed(BeginEpoch(needed=3))
    fleet.settle()
    assert fleet.ready == []
    fleet.pass_time(ANSWER_S)
    fleet.settle()
    assert fleet.gateway.keys is not None
    assert fleet.gateway.keys.devices == ("d00", "d01", "d02")
    assert fleet.gateway.outside == ("d03",)


def test_it_does_not_wait_for_those_who_are_gone() -> None:
    fleet = begun(4)
    for name in ("d00", "d01", "d02"):
        tell_bundle(fleet, name, bundle_from(fleet, name))
    assert not any(isinstance(message, EpochClosed) for _, message in fleet.down)
    fleet.feed(DeviceLeft(device="d03"))
    closed = [name for name, message in fleet.down if isinstance(message, EpochClosed)]
    assert closed == ["d00", "d01", "d02"]


def test_who_left_after_its_bundle_is_no_member() -> None:
    fleet = begun(4)
    tell_bundle(fleet, "d03", bundle_from(fleet, "d03"))
    fleet.feed(DeviceLeft(device="d03"))
    fleet.settle()
    assert fleet.gateway.keys is not None
    assert fleet.gateway.keys.devices == ("d00", "d01", "d02")


def test_too_few_bundles_abort_it() -> None:
    fleet = EpochFleet(3)
    fleet.deaf = {"d01", "d02"}
    fleet.join_all()
    fleet.feed(BeginEpoch(needed=2))
    fleet.settle()
    fleet.pass_time(ANSWER_S)
    (aborted,) = fleet.aborted
    assert aborted.reason is EpochAbortReason.TOO_FEW_BUNDLES
    assert aborted.silent == ("d01", "d02")
    assert not fleet.gateway.is_busy


def test_a_missing_nonce_aborts_it_and_the_silent_device_waits_until_it_is_heard() -> None:
    fleet = EpochFleet(3)
    fleet.tamper = lambda device, message: (
        None if device == "d02" and isinstance(message, EpochClosed) else message
    )
    fleet.join_all()
    fleet.settle()
    fleet.feed(BeginEpoch(needed=2))
    fleet.settle()
    fleet.pass_time(ANSWER_S)
    (aborted,) = fleet.aborted
    assert (aborted.key_epoch, aborted.reason) == (1, EpochAbortReason.MISSING_NONCES)
    assert aborted.silent == ("d02",)
    fleet.feed(BeginEpoch(needed=2))
    assert [name for name, _ in fleet.down] == ["d00", "d01"]
    fleet.settle()
    assert fleet.ready[-1].key_epoch == 2
    assert fleet.gateway.outside == ("d02",)
    fleet.tamper = lambda _device, message: message
    assert fleet.open_epoch().size == 3


def test_if_all_kept_silent_all_are_asked_again() -> None:
    fleet = EpochFleet(2)
    fleet.join_all()
    fleet.settle()
    fleet.deaf = {"d00", "d01"}
    fleet.feed(BeginEpoch(needed=2))
    fleet.settle()
    fleet.pass_time(ANSWER_S)
    assert fleet.aborted[-1].silent == ("d00", "d01")
    fleet.deaf = set()
    fleet.feed(BeginEpoch(needed=2))
    fleet.settle()
    assert fleet.ready[-1].key_epoch == 2


def test_too_few_present_devices_use_up_no_number() -> None:
    fleet = EpochFleet(3)
    fleet.feed(fleet.boards["d00"].joined)
    fleet.settle()
    fleet.feed(BeginEpoch(needed=0))
    (aborted,) = fleet.aborted
    assert aborted.reason is EpochAbortReason.TOO_FEW_PRESENT
    assert fleet.down == []
    assert fleet.open_epoch().key_epoch == 1


def test_a_timer_that_fires_early_is_asked_for_again() -> None:
    fleet = begun()
    (effect,) = fleet.gateway.handle(EpochTimerFired(), fleet.now_s + ANSWER_S / 2)
    assert effect == SetEpochTimer(at_s=fleet.now_s + ANSWER_S)
    fleet.settle()
    assert fleet.gateway.handle(EpochTimerFired(), 1e9) == ()


def test_a_device_that_comes_back_is_told_what_it_missed() -> None:
    fleet = begun(3)
    fleet.down = [item for item in fleet.down if item[0] != "d02"]
    fleet.feed(fleet.boards["d02"].joined)
    assert [type(message) for name, message in fleet.down if name == "d02"] == [EpochInvitation]
    fleet.tamper = lambda device, message: (
        None if device == "d02" and isinstance(message, EpochClosed | EpochOpened) else message
    )
    fleet.settle()
    fleet.feed(fleet.boards["d02"].joined)
    assert [type(message) for _, message in fleet.down] == [EpochClosed]
    fleet.tamper = lambda device, message: (
        None if device == "d02" and isinstance(message, EpochOpened) else message
    )
    fleet.settle()
    assert fleet.gateway.keys is not None
    fleet.tamper = lambda _device, message: message
    fleet.feed(fleet.boards["d02"].joined)
    assert [type(message) for _, message in fleet.down] == [EpochOpened]
    fleet.settle()
    assert fleet.boards["d02"].machine.open_epoch == fleet.gateway.keys.epoch
    fleet.feed(fleet.boards["d02"].joined)
    assert fleet.down == []


# ---------------------------------------------------------------- hostile devices


def test_bundles_that_are_not_what_was_asked_for() -> None:
    fleet = begun()
    bundle = bundle_from(fleet, "d00")
    key = signing_key("d00")
    cases = {
        "E-PEER-IDENTITY": replace(bundle, identity_key=signing_key("d01").public_key),
        "E-EPOCH-TERMS": replace(bundle, mask_key_count=8).signed_by(FLEET, key),
        "E-BUNDLE-SIGNATURE": replace(bundle, prgs=3),
        "E-PUBLIC-KEY": replace(bundle, share_key=bytes(32)).signed_by(FLEET, key),
    }
    for code, changed in cases.items():
        tell_bundle(fleet, "d00", changed)
        assert fleet.refused.pop() == ("d00", code)
    tell_bundle(fleet, "d00", replace(bundle, roster_hash=bytes(32)).signed_by(FLEET, key))
    assert fleet.refused.pop() == ("d00", "E-EPOCH-TERMS")
    tell_bundle(fleet, "d01", bundle)
    assert fleet.refused.pop() == ("d01", "E-PEER-IDENTITY")
    tell_bundle(fleet, "stranger", replace(bundle, device="stranger"))
    assert fleet.refused.pop() == ("stranger", "E-EPOCH-MEMBER")
    tell_bundle(fleet, "d00", bundle)
    tell_bundle(fleet, "d00", bundle)
    assert fleet.refused == []
    tell_bundle(fleet, "d00", replace(bundle, nonce_commitment=bytes(32)).signed_by(FLEET, key))
    assert fleet.refused.pop() == ("d00", "E-EPOCH-SECOND-BUNDLE")
    fleet.settle()
    assert fleet.ready[-1].size == 3


def test_old_and_late_bundles_are_passed_over() -> None:
    fleet = EpochFleet(2)
    fleet.open_epoch()
    old = fleet.boards["d00"].machine.keys.bundle
    tell_bundle(fleet, "d00", old)
    fleet.feed(BeginEpoch(needed=2))
    tell_bundle(fleet, "d00", old)
    assert fleet.refused == []
    fleet.settle()
    assert fleet.ready[-1].key_epoch == 2


def test_a_nonce_that_was_not_committed_to_is_refused_and_the_right_one_taken() -> None:
    fleet = begun(2)
    wrong: list[NonceReveal] = []
    while fleet.down or fleet.up:
        if fleet.up and isinstance(fleet.up[0][1], NonceReveal) and not wrong:
            device, message = fleet.up[0]
            assert isinstance(message, NonceReveal)
            wrong.append(replace(message, nonce=bytes(32)))
            fleet.feed(EpochDeviceSaid(device=device, message=wrong[0]))
            assert fleet.refused == [(device, "E-EPOCH-NONCES")]
            # Neither another's, nor one for another record, nor a stranger's.
            for name, reveal in (
                ("d01", message),
                (device, replace(message, record_hash=bytes(32))),
                ("stranger", message),
            ):
                fleet.feed(EpochDeviceSaid(device=name, message=reveal))
            assert fleet.ready == []
        if fleet.down:
            fleet.deliver_down()
        else:
            fleet.deliver_up()
    assert fleet.ready[-1].size == 2


# ---------------------------------------------------------------- rosters and restarts


def test_only_devices_of_the_roster_are_invited() -> None:
    fleet = EpochFleet(2)
    stranger = fleet.add_board("stranger")
    fleet.open_epoch()
    assert not stranger.machine.is_ready
    assert stranger.machine.roster_number == 0
    assert fleet.gateway.outside == ()
    fleet.sign(["d00", "d01", "stranger"])
    assert fleet.gateway.is_due
    assert fleet.open_epoch().size == 3
    assert stranger.machine.is_ready


def test_a_newer_roster_ends_the_set_up_and_keeps_the_open_key_epoch() -> None:
    fleet = EpochFleet(3)
    epoch = fleet.open_epoch()
    fleet.feed(BeginEpoch(needed=2))
    fleet.sign(["d00", "d01"])
    assert fleet.aborted[-1].reason is EpochAbortReason.ROSTER_CHANGED
    fleet.settle()
    assert fleet.boards["d00"].machine.roster_number == 2
    assert fleet.boards["d02"].machine.roster_number == 1
    assert fleet.gateway.keys is not None
    assert fleet.gateway.keys.epoch == epoch
    following = fleet.open_epoch()
    assert (following.size, following.key_epoch) == (2, 3)


def test_only_newer_rosters_of_the_fleet_are_taken() -> None:
    fleet = EpochFleet(2)
    assert fleet.roster is not None
    for roster in (fleet.roster, make_roster(["d00"])):
        with pytest.raises(LocalProtocolError, match="E-ROSTER-ORDER"):
            fleet.gateway.handle(RosterSigned(roster=roster), 0.0)
    with pytest.raises(LocalProtocolError, match="E-ROSTER-ORDER"):
        AggregatorEpoch(fleet="other", roster=fleet.roster, entropy=CountedSeeds(b"x"), answer_s=1)


def test_headers_reach_back_to_what_the_device_has_pinned() -> None:
    fleet = EpochFleet(2)
    for _ in range(4):
        fleet.sign(["d00", "d01"])
    for known, numbers in ((0, [1, 2, 3, 4, 5]), (3, [3, 4, 5]), (9, [5])):
        (effect,) = fleet.gateway.handle(DeviceJoined(device="d00", roster_number=known), 0.0)
        assert isinstance(effect, SendEpochDown)
        assert isinstance(effect.message, RosterUpdate)
        assert [header.number for header in effect.message.headers] == numbers
    assert fleet.gateway.handle(DeviceJoined(device="d00", roster_number=5), 0.0) == ()


def test_a_gateway_without_a_roster_waits_for_one() -> None:
    fleet = EpochFleet(2)
    roster, fleet.roster = fleet.roster, None
    fleet.restart_gateway()
    fleet.join_all()
    fleet.feed(BeginEpoch(needed=2))
    assert fleet.aborted[-1].reason is EpochAbortReason.TOO_FEW_PRESENT
    assert (fleet.down, fleet.gateway.is_due) == ([], False)
    assert roster is not None
    fleet.feed(RosterSigned(roster=roster))
    assert fleet.open_epoch().size == 2
