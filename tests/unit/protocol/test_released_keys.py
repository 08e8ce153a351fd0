"""A one-time mask key whose call is over is gone: from flash, from memory, and for good."""

from dataclasses import replace

import pytest

from edgefl._native import AgreementKey, Seed
from edgefl.errors import LocalProtocolError, RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.device_epoch_state import DeviceEpochState
from edgefl.protocol.epoch_events import PersistEpoch
from edgefl.protocol.own_keys import OwnKeys
from edgefl.protocol.reasons import Phase
from edgefl.protocol.round_messages import CheckIn
from tests.epoch_harness import FLEET, Board, EpochFleet
from tests.hostile_gateway import VICTIM, small, small_in
from tests.one_upload_harness import OneUploadHarness
from tests.played_device import Device

CALL, OTHER_CALL = b"c" * 32, b"o" * 32
SESSION = b"s" * 32


def opened_board() -> Board:
    """Return d00 of two in key epoch 1, with its index 2 given to a session."""
    fleet = EpochFleet(2)
    fleet.open_epoch()
    board = fleet.boards["d00"]
    board.carry_out(board.machine.reserve_index(2, CALL))
    board.carry_out(board.machine.bind_index(2, SESSION))
    return board


def seed_of(keys: OwnKeys, index: int) -> bytes:
    return keys.mask_secret(index).export_seed().export_bytes()


def key_can_be_found(content: bytes, board: Board, index: int) -> bool:
    """Tell whether any 32 bytes on flash make a mask key, or derive it like the device does."""
    wanted = board.machine.keys.mask_proof(index).key
    info = wire.encode([FLEET, "d00", board.machine.keys.bundle.key_epoch, index])
    for start in range(len(content) - 31):
        found = Seed.from_bytes(content[start : start + 32])
        candidates = (found, found.derive(b"edgefl/1 mask key", info))
        if any(AgreementKey.from_seed(seed).public_key == wanted for seed in candidates):
            return True
    return False


# ---------------------------------------------------------------- what is on flash


def test_a_released_key_follows_from_nothing_on_flash_and_the_others_stay() -> None:
    board = opened_board()
    board.carry_out(board.machine.reserve_index(3, OTHER_CALL))
    seed, other = (seed_of(board.machine.keys, index) for index in (2, 3))
    assert board.flash is not None
    assert seed in board.flash
    assert key_can_be_found(board.flash, board, 2)
    board.carry_out(board.machine.release_index(2, key_epoch=1))
    assert seed not in board.flash
    assert other in board.flash
    assert not key_can_be_found(board.flash, board, 2)
    assert key_can_be_found(board.flash, board, 3)


def test_what_all_keys_were_drawn_from_is_never_on_flash() -> None:
    fleet = EpochFleet(2)
    board = fleet.boards["d00"]
    drawn: list[bytes] = []
    fresh_seed = board.seeds.fresh_seed

    def noted() -> Seed:
        seed = fresh_seed()
        drawn.append(seed.export_bytes())
        return seed

    board.seeds.fresh_seed = noted  # type: ignore[method-assign]
    fleet.open_epoch()
    (secret,) = drawn
    assert board.flash is not None
    assert secret not in board.flash
    assert board.machine.keys.share_secret.export_seed().export_bytes() in board.flash


def test_a_release_is_persisted_and_comes_once() -> None:
    board = opened_board()
    (effect,) = board.machine.release_index(2, key_epoch=1)
    assert isinstance(effect, PersistEpoch)
    assert effect.snapshot == board.machine.snapshot()
    board.carry_out([effect])
    assert board.machine.release_index(2, key_epoch=1) == ()
    board.restart()
    assert board.machine.release_index(2, key_epoch=1) == ()
    assert board.machine.snapshot() == board.flash


def test_power_that_fails_before_the_release_is_written_leaves_it_to_the_next_start() -> None:
    board = opened_board()
    seed = seed_of(board.machine.keys, 2)
    board.machine.release_index(2, key_epoch=1)
    board.restart()
    assert seed_of(board.machine.keys, 2) == seed
    assert board.machine.release_all_but({2}) == ()
    board.carry_out(board.machine.release_all_but(()))
    assert board.flash is not None
    assert seed not in board.flash
    assert board.machine.release_all_but(()) == ()


def test_a_start_keeps_what_open_rounds_and_deposits_need() -> None:
    board = opened_board()
    board.carry_out(board.machine.reserve_index(3, OTHER_CALL))
    board.restart()
    board.carry_out(board.machine.release_all_but({3}))
    board.restart()
    keys = board.machine.keys
    assert [keys.has_mask_secret(index) for index in range(4)] == [True, True, False, True]
    assert keys.mask_secret(3).public_key == keys.mask_proof(3).key


# ---------------------------------------------------------------- what is left of the key


@pytest.mark.parametrize("restarts", [False, True])
def test_a_released_index_serves_nobody_again_and_its_proof_stands(restarts: bool) -> None:
    board = opened_board()
    proof, bundle = board.machine.keys.mask_proof(2), board.machine.keys.bundle
    board.carry_out(board.machine.release_index(2, key_epoch=1))
    if restarts:
        board.restart()
    before = board.machine.snapshot()
    for use in (
        lambda: board.machine.reserve_index(2, CALL),
        lambda: board.machine.reserve_index(2, OTHER_CALL),
        lambda: board.machine.bind_index(2, SESSION),
    ):
        with pytest.raises(RemoteProtocolError, match="E-KEY-INDEX-USED"):
            use()
    with pytest.raises(LocalProtocolError, match="E-MASK-KEY-INDEX"):
        board.machine.keys.mask_secret(2)
    assert board.machine.keys.bundle == bundle
    assert board.machine.keys.mask_proof(2) == proof
    proof.require_in(bundle)
    assert board.machine.snapshot() == before


def test_only_a_reserved_index_can_be_released() -> None:
    board = opened_board()
    for index in (-1, 1, 4):
        with pytest.raises(LocalProtocolError, match="E-KEY-INDEX"):
            board.machine.release_index(index, key_epoch=1)
    assert board.machine.snapshot() == board.flash


def test_a_round_that_ends_after_its_key_epoch_takes_no_key_of_the_next_one() -> None:
    fleet = EpochFleet(2)
    fleet.open_epoch()
    board = fleet.boards["d00"]
    board.carry_out(board.machine.reserve_index(0, CALL))
    fleet.open_epoch()
    board.carry_out(board.machine.reserve_index(0, OTHER_CALL))
    assert board.machine.release_index(0, key_epoch=1) == ()
    assert board.machine.keys.has_mask_secret(0)
    assert len(board.machine.release_index(0, key_epoch=2)) == 1


def test_a_device_without_a_key_epoch_has_nothing_to_release() -> None:
    board = EpochFleet(2).boards["d00"]
    assert board.machine.release_index(0, key_epoch=1) == ()
    assert board.machine.release_all_but(()) == ()


# ---------------------------------------------------------------- rounds


def released(device: Device, index: int = 0) -> None:
    device.carry_out(device.epoch.release_index(index, key_epoch=1))


def test_a_hostile_gateway_cannot_have_a_released_index_used_again() -> None:
    table = small()
    table.run_to(Phase.UNMASKING)
    device = table.devices[VICTIM]
    round_flash = device.flash.round
    device.say(table.request())
    assert device.machine is not None
    device.machine, device.flash.round = None, None
    released(device)
    sent = len(device.sent)
    for restarts in (False, True):
        if restarts:
            device.restart()
        for call in (table.call, replace(table.call, attempt=2), replace(table.call, task="x")):
            device.answer(call)
            assert device.codes[-1] == "E-KEY-INDEX-USED"
            assert device.machine is None
    assert len(device.sent) == sent
    # Nor does a record of the round bring the key back.
    device.flash.round = round_flash
    with pytest.raises(WireError, match="E-SNAPSHOT"):
        device.restart()


def test_the_next_index_serves_as_before() -> None:
    table = small_in(Phase.SHARE_KEYS)
    device = table.devices[VICTIM]
    released(device)
    device.machine, device.flash.round = None, None
    device.answer(replace(table.call, attempt=2, key_index=1))
    check_in = device.sent_of(CheckIn)[-1]
    assert check_in.mask_key.index == 1
    check_in.mask_key.require_in(device.epoch.keys.bundle)


def test_one_upload_keeps_the_deposited_index_when_the_present_one_is_released() -> None:
    harness = OneUploadHarness(4)
    for index in range(3):
        harness.run_to_end()
        assert harness.outcome is not None
        assert harness.outcome.total is not None
        for device in harness.devices.values():
            for effect in device.epoch.release_index(index, key_epoch=1):
                assert isinstance(effect, PersistEpoch)
                device.persist_epoch(effect.snapshot)
            keys = device.epoch.keys
            assert not keys.has_mask_secret(index)
            assert keys.use_of(index + 1) is not None
            assert keys.has_mask_secret(index + 1)
        harness.start_attempt()


# ---------------------------------------------------------------- damage


def test_mask_keys_that_are_not_the_bundles_are_damage() -> None:
    board = opened_board()
    state = DeviceEpochState.from_bytes(board.machine.snapshot())
    assert state.current is not None
    public_keys, seeds = state.current.mask_keys.to_list()
    assert isinstance(public_keys, bytes)
    assert isinstance(seeds, list)
    for damaged in (
        [bytes(32) + public_keys[32:], seeds],
        [public_keys[:-32], seeds[:-1]],
        [public_keys, seeds[:-1]],
        [public_keys, [*seeds, None]],
        [public_keys, [b"short", *seeds[1:]]],
        [public_keys],
    ):
        body = dict(wire.as_body(wire.decode(board.machine.snapshot())))
        current = body[5]
        assert isinstance(current, list)
        body[5] = [*current[:2], damaged, *current[3:]]
        with pytest.raises(WireError):
            DeviceEpochState.from_bytes(wire.encode(body))


def test_a_snapshot_of_the_version_before_is_refused() -> None:
    body = dict(wire.as_body(wire.decode(opened_board().machine.snapshot())))
    body[0] = 1
    with pytest.raises(WireError):
        DeviceEpochState.from_bytes(wire.encode(body))


def test_a_full_batch_costs_few_bytes_of_flash() -> None:
    fleet = EpochFleet(2, mask_keys=64)
    fleet.open_epoch()
    machine: DeviceEpoch = fleet.boards["d00"].machine
    full = len(machine.snapshot())
    assert 64 * 64 < full < 6000
    for index in range(64):
        machine.reserve_index(index, CALL)
        machine.bind_index(index, SESSION)
    machine.release_all_but(())
    assert len(machine.snapshot()) < full + 64 * 48
