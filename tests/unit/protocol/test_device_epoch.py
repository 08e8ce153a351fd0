"""A device against gateways that lie about roster, key epochs and key indices."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from edgefl.errors import LocalProtocolError
from edgefl.protocol.device import DeviceIdentity
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.epoch_events import EpochDeviceSaid
from edgefl.protocol.epoch_messages import (
    EpochInvitation,
    KeyBundleMessage,
    NonceReveal,
    RosterUpdate,
)
from edgefl.protocol.key_bundle import prg_bitmask
from edgefl.protocol.key_epoch import commit_gateway_nonce
from edgefl.protocol.roster import Roster, sign_roster
from edgefl.protocol.wire import encode_bitmap
from tests.epoch_harness import (
    ENROLMENT,
    FLEET,
    CountedSeeds,
    EpochFleet,
    Staged,
    entry_of,
    make_roster,
    new_board,
    refuses,
    signing_key,
)

NAMES = ["d00", "d01", "d02"]
CALL, OTHER_CALL = b"c" * 32, b"o" * 32


def update_of(roster: Roster, device: str = "d00") -> RosterUpdate:
    position = roster.position_of(device)
    assert position is not None
    return RosterUpdate(
        enrolment_key=roster.enrolment_key,
        headers=roster.headers,
        enrolled_day=roster.entries[position].enrolled_day,
        position=position,
        path=roster.path(position),
    )


def invitation_of(roster: Roster, key_epoch: int = 1, mask_keys: int = 4) -> EpochInvitation:
    return EpochInvitation(
        key_epoch=key_epoch,
        roster_number=roster.epoch.number,
        roster_hash=roster.epoch.hash,
        mask_key_count=mask_keys,
    )


# ---------------------------------------------------------------- roster


def test_the_enrolment_key_is_pinned_at_first_use() -> None:
    board = new_board()
    board.say(update_of(make_roster(NAMES)))
    assert board.machine.enrolment_key == ENROLMENT.public_key
    board.restart()
    minted = make_roster(NAMES, key=signing_key("gateway"))
    refuses(board, update_of(minted), "E-ENROLMENT-KEY")
    refuses(
        board, replace(update_of(minted), enrolment_key=ENROLMENT.public_key), "E-ROSTER-SIGNATURE"
    )


def test_a_given_enrolment_key_holds_from_the_first_roster_on() -> None:
    def make(snapshot: bytes | None, key: bytes) -> DeviceEpoch:
        return DeviceEpoch(
            identity=DeviceIdentity(device="d00", signing_key=signing_key("d00")),
            entropy=CountedSeeds(b"x"),
            fleet=FLEET,
            prgs=prg_bitmask(),
            enrolment_key=key,
            snapshot=snapshot,
        )

    board = new_board()
    board.machine = make(None, ENROLMENT.public_key)
    refuses(board, update_of(make_roster(NAMES, key=signing_key("gateway"))), "E-ENROLMENT-KEY")
    board.say(update_of(make_roster(NAMES)))
    assert board.machine.roster_number == 1
    with pytest.raises(LocalProtocolError, match="E-ENROLMENT-KEY"):
        make(board.flash, signing_key("gateway").public_key)


def test_a_fork_a_rollback_and_a_gap_are_refused_after_a_restart() -> None:
    first = make_roster(NAMES[:2])
    second, fork = make_roster(NAMES, first), make_roster(NAMES[:2], first)
    fifth = make_roster(NAMES, make_roster(NAMES, make_roster(NAMES, second)))
    board = new_board()
    board.say(update_of(second))
    board.restart()
    refuses(board, update_of(fork), "E-ROSTER-FORK")
    refuses(board, update_of(first), "E-ROSTER-ROLLBACK")
    refuses(board, replace(update_of(fifth), headers=fifth.headers[3:]), "E-ROSTER-GAP")
    refuses(board, replace(update_of(fifth), headers=()), "E-ROSTER-GAP")
    board.say(update_of(fifth))
    assert board.machine.roster_number == 5


def test_the_same_roster_again_changes_nothing() -> None:
    board = new_board()
    update = update_of(make_roster(NAMES))
    board.say(update)
    assert board.machine.handle(update, 0.0) == ()


def test_a_roster_without_this_device_is_refused() -> None:
    board = new_board()
    others = make_roster(["d01", "d02"])
    refuses(board, replace(update_of(others, "d01"), position=0), "E-ROSTER-PATH")
    replaced = sign_roster(
        None,
        FLEET,
        [replace(entry_of("d00"), identity_key=signing_key("mallory").public_key)],
        ENROLMENT,
    )
    refuses(board, update_of(replaced), "E-ROSTER-PATH")
    assert board.machine.enrolment_key is None


@pytest.mark.parametrize(
    "changes", [{"position": 1}, {"position": 65_535}, {"path": ()}, {"enrolled_day": 3}]
)
def test_another_place_in_the_roster_is_refused(changes: dict[str, object]) -> None:
    refuses(new_board(), replace(update_of(make_roster(NAMES)), **changes), "E-ROSTER-PATH")


def test_a_roster_of_another_fleet_is_refused() -> None:
    roster = sign_roster(None, "other-fleet", [entry_of("d00")], ENROLMENT)
    refuses(new_board(), update_of(roster), "E-ROSTER-FLEET")


# ---------------------------------------------------------------- bundles


def test_no_bundle_before_a_roster_or_for_another_one() -> None:
    board = new_board()
    first = make_roster(NAMES[:2])
    refuses(board, invitation_of(first), "E-EPOCH-ROSTER")
    board.say(update_of(make_roster(NAMES, first)))
    refuses(board, invitation_of(first), "E-EPOCH-ROSTER")


def test_one_bundle_per_number_over_restarts() -> None:
    first, board = make_roster(NAMES[:2]), new_board()
    board.say(update_of(first))
    (sent,) = board.say(invitation_of(first))
    board.restart()
    assert board.say(invitation_of(first)) == [sent]
    refuses(board, invitation_of(first, mask_keys=8), "E-EPOCH-SECOND-BUNDLE")
    second = make_roster(NAMES, first)
    board.say(update_of(second))
    refuses(board, invitation_of(second), "E-EPOCH-SECOND-BUNDLE")
    (following,) = board.say(invitation_of(second, key_epoch=2))
    board.restart()
    assert isinstance(sent, KeyBundleMessage)
    assert isinstance(following, KeyBundleMessage)
    assert sent.bundle.share_key != following.bundle.share_key
    assert sent.bundle.nonce_commitment != following.bundle.nonce_commitment
    refuses(board, invitation_of(second, key_epoch=1), "E-EPOCH-REPLAY")


def test_a_batch_that_would_give_more_graphs_to_pick_from_is_refused() -> None:
    board, roster = new_board(), make_roster(NAMES)
    board.say(update_of(roster))
    refuses(board, invitation_of(roster, mask_keys=128), "E-MASK-KEY-COUNT")


def test_a_number_that_was_opened_is_not_invited_again() -> None:
    fleet = EpochFleet(2)
    fleet.open_epoch()
    assert fleet.roster is not None
    refuses(fleet.boards["d00"], invitation_of(fleet.roster), "E-EPOCH-REPLAY")


# ---------------------------------------------------------------- records


def test_an_honest_record_is_answered_once_and_again_with_the_same_bytes() -> None:
    staged = Staged()
    closed = staged.closed()
    first = staged.board.say(closed)
    staged.board.restart()
    assert staged.board.say(closed) == first
    assert isinstance(first[0], NonceReveal)
    assert len(staged.board.carry_out(staged.board.machine.resume())) == 2


def test_a_second_record_for_one_number_is_refused_over_a_restart() -> None:
    staged = Staged()
    closed = staged.closed()
    staged.board.say(closed)
    staged.board.restart()
    for changes in (
        {"gateway_commitment": bytes(32)},
        {"members": encode_bitmap([True, True, False])},
        {"bundles_hash": bytes(32)},
    ):
        second = replace(closed, record=replace(closed.record, **changes))
        refuses(staged.board, second, "E-EPOCH-SECOND-RECORD")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"members": encode_bitmap([False, True, True])}, "E-EPOCH-SELF"),
        ({"commitments_root": bytes(32)}, "E-EPOCH-COMMITMENT"),
        ({"members": encode_bitmap([True, True, False])}, "E-EPOCH-COMMITMENT"),
        ({"roster_hash": bytes(32)}, "E-EPOCH-ROSTER"),
        ({"roster_number": 2}, "E-EPOCH-ROSTER"),
        ({"roster_size": 4}, "E-EPOCH-ROSTER"),
        ({"fleet": "other"}, "E-EPOCH-ROSTER"),
        ({"key_epoch": 2}, "E-EPOCH-UNKNOWN"),
    ],
)
def test_records_that_this_device_does_not_answer(changes: dict[str, object], code: str) -> None:
    staged = Staged()
    closed = staged.closed()
    refuses(staged.board, replace(closed, record=replace(closed.record, **changes)), code)
    assert len(staged.board.say(closed)) == 1


def test_another_path_to_the_own_commitment_is_refused() -> None:
    staged = Staged()
    closed = staged.closed()
    refuses(staged.board, replace(closed, path=()), "E-EPOCH-COMMITMENT")


def test_a_record_over_a_roster_that_is_no_longer_the_newest_is_refused() -> None:
    staged = Staged()
    closed = staged.closed()
    assert staged.fleet.roster is not None
    staged.board.say(update_of(make_roster(["d00", "d01"], staged.fleet.roster)))
    refuses(staged.board, closed, "E-EPOCH-ROSTER")


def test_no_nonce_without_a_bundle() -> None:
    staged = Staged()
    closed = staged.closed()
    refuses(new_board(), closed, "E-EPOCH-UNKNOWN")


# ---------------------------------------------------------------- opening


def test_all_open_the_same_key_epoch() -> None:
    fleet = EpochFleet(7)
    epoch = fleet.open_epoch()
    assert [board.opened for board in fleet.boards.values()] == [[epoch]] * 7
    positions = [board.machine.keys.epoch_position for board in fleet.boards.values()]
    assert positions == list(range(7))
    assert fleet.boards["d00"].say(fleet.gateway.keys.opened_message) == []
    for board in fleet.boards.values():
        assert not board.refused
        board.restart()
        assert board.machine.open_epoch == epoch
        assert board.machine.resume() == ()


def test_nonces_that_were_changed_after_the_reveal_are_refused() -> None:
    staged = Staged()
    opened = staged.opened()
    own, second, third = opened.nonces
    cases: Sequence[tuple[dict[str, object], str]] = (
        ({"nonces": (bytes(32), second, third)}, "E-EPOCH-NONCES"),
        ({"nonces": (own, bytes(32), third)}, "E-EPOCH-NONCES"),
        ({"nonces": (own, third, second)}, "E-EPOCH-NONCES"),
        ({"nonces": (own, second)}, "E-EPOCH-NONCES"),
        ({"nonces": (own, second, third, third)}, "E-EPOCH-NONCES"),
        ({"gateway_nonce": bytes(32)}, "E-EPOCH-GATEWAY-NONCE"),
        ({"record_hash": bytes(32)}, "E-EPOCH-UNKNOWN"),
    )
    for changes, code in cases:
        refuses(staged.board, replace(opened, **changes), code)
    staged.board.restart()
    staged.board.say(opened)
    assert staged.board.machine.is_ready


def test_a_gateway_that_tells_one_device_of_another_nonce_cannot_pass_one_view_for_both() -> None:
    staged = Staged()
    closed = staged.closed()
    late = b"late" * 8
    record = replace(closed.record, gateway_commitment=commit_gateway_nonce(FLEET, 1, late))
    (reveal,) = staged.board.say(replace(closed, record=record))
    assert isinstance(reveal, NonceReveal)
    assert reveal.record_hash == record.digest != closed.record.digest
    # The gateway now knows all nonces and opens the key epoch for the others.
    honest = replace(reveal, record_hash=closed.record.digest)
    staged.fleet.feed(EpochDeviceSaid(device="d00", message=honest))
    opened = staged.fleet.gateway.keys.opened_message
    staged.fleet.settle()
    assert staged.board.refused == ["E-EPOCH-UNKNOWN"]
    staged.board.refused.clear()
    refuses(staged.board, replace(opened, record_hash=record.digest), "E-EPOCH-GATEWAY-NONCE")
    staged.board.say(replace(opened, record_hash=record.digest, gateway_nonce=late))
    theirs = staged.fleet.boards["d01"].machine.open_epoch
    assert staged.board.machine.open_epoch.beacon != theirs.beacon
    assert staged.board.machine.open_epoch.record.digest != theirs.record.digest


def test_opening_without_a_reveal_is_refused() -> None:
    staged = Staged()
    opened = staged.opened()
    refuses(new_board(), opened, "E-EPOCH-UNKNOWN")
    staged.board.say(opened)
    other = Staged()
    other.closed()
    refuses(other.board, opened, "E-EPOCH-UNKNOWN")


def test_the_last_key_epoch_serves_until_the_next_opens_and_is_then_destroyed() -> None:
    staged = Staged()
    staged.fleet.open_epoch()
    old = staged.board.machine.keys
    secret = staged.board.machine._state.current.share_seed.export_bytes()
    staged.board.carry_out(staged.board.machine.reserve_index(0, CALL))
    opened = staged.opened()
    assert staged.board.machine.open_epoch == old.open_epoch
    assert secret in staged.board.flash
    staged.board.say(opened)
    assert staged.board.machine.open_epoch != old.open_epoch
    assert secret not in staged.board.flash
    # A round that checked in with the old keys goes on with them.
    assert old.mask_secret(0).public_key == old.mask_proof(0).key
    new = staged.board.machine.keys
    staged.board.carry_out(staged.board.machine.reserve_index(0, OTHER_CALL))
    assert new.mask_proof(0).key != old.mask_proof(0).key
    assert new.share_secret.public_key == new.bundle.share_key != old.share_secret.public_key


def test_without_an_open_key_epoch_there_are_no_keys() -> None:
    board = new_board()
    assert not board.machine.is_ready
    assert board.machine.open_epoch is None
    with pytest.raises(LocalProtocolError, match="E-EPOCH-NONE"):
        _ = board.machine.keys
    with pytest.raises(LocalProtocolError, match="E-EPOCH-NONE"):
        board.machine.reserve_index(0, CALL)
