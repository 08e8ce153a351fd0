"""A device counts the key epochs that it answers, and gives each key index to one session."""

import inspect
from dataclasses import replace

import pytest

from edgefl.errors import LocalProtocolError, RemoteProtocolError, WireError
from edgefl.protocol import roster as roster_module
from edgefl.protocol.answered_records import DAY_S, MOST_UNOPENED
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.epoch_events import PersistEpoch, RosterSigned
from edgefl.protocol.epoch_messages import (
    EpochClosed,
)
from edgefl.protocol.key_bundle import DEFAULT_MASK_KEYS
from edgefl.protocol.limits import MOST_RECORDS_A_DAY
from edgefl.protocol.roster import sign_roster
from edgefl.protocol.thresholds import GRINDING_BITS
from tests.epoch_harness import (
    ENROLMENT,
    FLEET,
    EpochFleet,
    Staged,
    entry_of,
    refuses,
)

CALL, OTHER_CALL = b"c" * 32, b"o" * 32
SESSION, OTHER_SESSION = b"s" * 32, b"t" * 32


# ---------------------------------------------------------------- grinding


def abort_one(staged: Staged) -> EpochClosed:
    """Let d00 see one more record; it is never opened."""
    fleet = staged.fleet
    closed = staged.closed()
    fleet.pass_time(1000.0)
    assert not fleet.gateway.is_busy
    fleet.join_all()
    fleet.settle()
    return closed


def test_the_fourth_aborted_key_epoch_of_a_day_gets_no_nonce() -> None:
    staged = Staged(limits_grinding=True)
    for number in range(MOST_UNOPENED):
        assert len(staged.board.say(abort_one(staged), 5000.0 + number)) == 1
        staged.board.restart()
    fourth = abort_one(staged)
    refuses(staged.board, fourth, "E-EPOCH-GRINDING", 6000.0)
    # A clock that went backward forgives nothing, nor does one that is a second short of a day.
    refuses(staged.board, fourth, "E-EPOCH-GRINDING", 10.0)
    refuses(staged.board, fourth, "E-EPOCH-GRINDING", 4999.0 + DAY_S)
    assert len(staged.board.say(fourth, 5000.0 + DAY_S)) == 1


def test_time_that_was_seen_before_a_clock_went_backward_still_counts() -> None:
    staged = Staged(limits_grinding=True)
    for number in range(MOST_UNOPENED):
        now_s = 10 * DAY_S if number == 0 else 50.0
        assert len(staged.board.say(abort_one(staged), now_s)) == 1
    refuses(staged.board, abort_one(staged), "E-EPOCH-GRINDING", 5 * DAY_S)


def test_key_epochs_that_opened_do_not_count_as_unopened() -> None:
    fleet = EpochFleet(2, limits_grinding=True)
    for number in range(1, MOST_UNOPENED + 4):
        assert fleet.open_epoch().key_epoch == number
    assert not fleet.boards["d00"].refused


def open_the_most_of_a_day() -> Staged:
    """Let a gateway open as many key epochs as it can, the first at 1000 s."""
    staged = Staged(2, limits_grinding=True)
    for number in range(1, MOST_RECORDS_A_DAY + 1):
        staged.fleet.now_s = 1000.0 if number == 1 else 2000.0
        assert staged.fleet.open_epoch().key_epoch == number
    return staged


def test_no_more_key_epochs_are_answered_in_a_day_even_if_they_all_open() -> None:
    staged = open_the_most_of_a_day()
    board = staged.board
    board.restart()
    one_more = abort_one(staged)
    refuses(board, one_more, "E-EPOCH-GRINDING", 3000.0)
    refuses(board, one_more, "E-EPOCH-GRINDING", 999.0 + DAY_S)
    board.restart()
    # A clock that went backward forgives nothing.
    refuses(board, one_more, "E-EPOCH-GRINDING", 10.0)
    assert board.machine.open_epoch.key_epoch == MOST_RECORDS_A_DAY
    # A day after the first one there is room for one, and for one alone.
    assert len(board.say(one_more, 1000.0 + DAY_S)) == 1
    assert len(board.say(one_more, 1000.0 + DAY_S)) == 1
    refuses(board, abort_one(staged), "E-EPOCH-GRINDING", 1001.0 + DAY_S)


def test_answers_of_a_device_that_sets_no_limit_are_counted_once_it_sets_one() -> None:
    staged = open_the_most_of_a_day()
    board = staged.board
    board.limits_grinding = False
    board.restart()
    for _ in range(2):
        assert len(board.say(abort_one(staged), 2000.0)) == 1
    assert len(board.machine._state.answered) == MOST_RECORDS_A_DAY
    board.limits_grinding = True
    board.restart()
    refuses(board, abort_one(staged), "E-EPOCH-GRINDING", 1999.0 + DAY_S)
    assert len(board.say(abort_one(staged), 2000.0 + DAY_S)) == 1


def test_a_day_of_answers_gives_no_more_graphs_than_the_sizes_allow() -> None:
    assert MOST_RECORDS_A_DAY * DEFAULT_MASK_KEYS == 1 << GRINDING_BITS == 4096
    default = inspect.signature(DeviceEpoch).parameters["most_mask_keys"].default
    assert default == DEFAULT_MASK_KEYS


def test_a_device_that_accepts_a_curious_gateway_does_not_limit_it() -> None:
    staged = Staged()
    for _ in range(20):
        assert len(staged.board.say(abort_one(staged), 5000.0)) == 1
    staged.board.restart()
    assert len(staged.board.machine._state.answered) == 20


# ---------------------------------------------------------------- key indices


def test_an_index_serves_one_call_and_one_session_over_restarts() -> None:
    fleet = EpochFleet(2)
    fleet.open_epoch()
    board = fleet.boards["d00"]
    board.carry_out(board.machine.reserve_index(2, CALL))
    board.restart()
    board.carry_out(board.machine.reserve_index(2, CALL))
    with pytest.raises(RemoteProtocolError, match="E-KEY-INDEX-USED"):
        board.machine.reserve_index(2, OTHER_CALL)
    board.carry_out(board.machine.bind_index(2, SESSION))
    board.restart()
    board.carry_out(board.machine.bind_index(2, SESSION))
    with pytest.raises(RemoteProtocolError, match="E-KEY-INDEX-USED"):
        board.machine.bind_index(2, OTHER_SESSION)
    with pytest.raises(RemoteProtocolError, match="E-KEY-INDEX-USED"):
        board.machine.reserve_index(2, OTHER_CALL)
    board.carry_out(board.machine.reserve_index(3, OTHER_CALL))
    assert board.machine.keys.mask_proof(2).key != board.machine.keys.mask_proof(3).key


def test_a_refused_use_changes_nothing() -> None:
    fleet = EpochFleet(2)
    fleet.open_epoch()
    board = fleet.boards["d00"]
    board.carry_out(board.machine.reserve_index(0, CALL))
    board.carry_out(board.machine.bind_index(0, SESSION))
    before = board.machine.snapshot()
    for use in (
        lambda: board.machine.reserve_index(0, OTHER_CALL),
        lambda: board.machine.bind_index(0, OTHER_SESSION),
        lambda: board.machine.bind_index(1, SESSION),
        lambda: board.machine.reserve_index(4, CALL),
        lambda: board.machine.reserve_index(-1, CALL),
    ):
        with pytest.raises(RemoteProtocolError):
            use()
    assert board.machine.snapshot() == before == board.flash


def test_every_use_is_persisted() -> None:
    fleet = EpochFleet(2)
    fleet.open_epoch()
    machine = fleet.boards["d00"].machine
    for use in (
        lambda: machine.reserve_index(1, CALL),
        lambda: machine.bind_index(1, SESSION),
    ):
        (effect,) = use()
        assert isinstance(effect, PersistEpoch)
        assert effect.snapshot == machine.snapshot()


def test_no_mask_key_without_a_reserved_index() -> None:
    fleet = EpochFleet(2)
    fleet.open_epoch()
    keys = fleet.boards["d00"].machine.keys
    for use in (keys.mask_secret, keys.mask_proof):
        with pytest.raises(LocalProtocolError, match="E-KEY-INDEX"):
            use(0)


# ---------------------------------------------------------------- peers


def test_own_keys_under_another_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # The enrolment key itself signs one identity twice; the device notices in its peers.
    monkeypatch.setattr(roster_module, "_require_distinct", lambda _entries: None)
    fleet = EpochFleet(2)
    twin = fleet.add_board("twin")
    twin.key_label = "d00"
    twin.restart()
    entries = [
        entry_of("d00"),
        entry_of("d01"),
        replace(entry_of("d00"), device="twin"),
    ]
    fleet.roster = sign_roster(fleet.roster, FLEET, entries, ENROLMENT)
    fleet.feed(RosterSigned(roster=fleet.roster))
    epoch = fleet.open_epoch()
    assert epoch.size == 3
    for board in fleet.boards.values():
        board.carry_out(board.machine.reserve_index(0, CALL))
    gateway_keys = fleet.gateway.keys
    assert gateway_keys is not None
    proof = gateway_keys.require_mask_key("twin", twin.machine.keys.mask_proof(0), 0)
    with pytest.raises(RemoteProtocolError, match="E-PEER-SELF"):
        fleet.boards["d00"].machine.keys.require_peer(proof, 0)
    assert fleet.boards["d01"].machine.keys.require_peer(proof, 0) == 2


def test_damaged_snapshots_are_said_aloud() -> None:
    fleet = EpochFleet(2)
    fleet.open_epoch()
    board = fleet.boards["d00"]
    content = board.flash
    assert content is not None
    for damaged in (b"", content[:-1], content + b"\0", b"\xa0"):
        board.flash = damaged
        with pytest.raises(WireError):
            board.restart()


def test_secrets_do_not_show() -> None:
    fleet = EpochFleet(2)
    fleet.open_epoch()
    board = fleet.boards["d00"]
    state = board.machine._state
    assert state.current is not None
    secret = state.current.share_seed.export_bytes()
    shown = repr(state) + repr(state.current) + repr(board.machine.keys)
    shown += repr(board.machine.reserve_index(0, CALL))
    assert secret.hex() not in shown
    assert repr(secret)[2:-1] not in shown
