"""Key epochs under loss, delay, duplicates, reordering, flipped bits, crashes, and new rosters.

Whatever happens: all that open a key epoch open the same one; a device signs one bundle and shows
its nonce to one record per number; a key index serves one call and session; and once the trouble
is over, the next key epoch opens.
"""

import contextlib
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import epoch_events as events
from edgefl.protocol.answered_records import DAY_S
from edgefl.protocol.epoch_messages import (
    EPOCH_AGGREGATOR_MESSAGES,
    EPOCH_DEVICE_MESSAGES,
    EpochAggregatorMessage,
    EpochClosed,
    EpochDeviceMessage,
    KeyBundleMessage,
    NonceReveal,
)
from edgefl.protocol.wire import as_body, decode, encode
from tests.epoch_harness import ANSWER_S, Board, EpochFleet

FATES = ("deliver", "deliver", "deliver", "lose", "repeat", "flip", "delay")


class EpochMachine(RuleBasedStateMachine):
    """Up to six devices and a gateway; hypothesis decides what happens to each message."""

    @initialize(
        count=st.integers(2, 6), limits_grinding=st.booleans(), mask_keys=st.sampled_from([1, 2, 4])
    )
    def start(self, count: int, limits_grinding: bool, mask_keys: int) -> None:
        self.fleet = EpochFleet(count, limits_grinding=limits_grinding, mask_keys=mask_keys)
        self.present: set[str] = set()
        self.bundles: dict[tuple[str, int], set[bytes]] = {}
        self.records: dict[tuple[str, int], set[bytes]] = {}
        self.epochs: dict[int, set[bytes]] = {}
        self.closed: dict[tuple[str, bytes], EpochClosed] = {}
        self.roster_numbers: dict[str, int] = {}
        self.calls: dict[tuple[str, bytes], set[bytes]] = {}
        self.released: set[tuple[str, bytes]] = set()
        self.sessions: dict[tuple[str, bytes], set[bytes]] = {}

    # ------------------------------------------------------------ what happens

    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        name = self._pick(data)
        self.present.add(name)
        self.fleet.feed(self.fleet.boards[name].joined)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = self._pick(data)
        self.present.discard(name)
        self.fleet.feed(events.DeviceLeft(device=name))

    @rule()
    def all_join(self) -> None:
        self.present = set(self.fleet.names)
        self.fleet.join_all()

    @rule(needed=st.integers(0, 4))
    def begin(self, needed: int) -> None:
        self.fleet.feed(events.BeginEpoch(needed=needed))

    @precondition(lambda self: self.fleet.down)
    @rule(data=st.data(), fate=st.sampled_from(FATES), crashes=st.booleans())
    def move_down(self, data: st.DataObject, fate: str, crashes: bool) -> None:
        place = 0 if fate == "deliver" else data.draw(st.integers(0, len(self.fleet.down) - 1))
        device, message = self.fleet.down.pop(place)
        if fate == "repeat":
            self.fleet.down.append((device, message))
        if fate == "delay":
            self.fleet.down.append((device, message))
        elif fate == "flip":
            changed = self._flip(data, message)
            if isinstance(changed, EPOCH_AGGREGATOR_MESSAGES):
                self._hand_down(self.fleet.boards[device], changed, crashes=crashes)
        elif fate != "lose":
            self._hand_down(self.fleet.boards[device], message, crashes=crashes)

    @precondition(lambda self: self.fleet.up)
    @rule(data=st.data(), fate=st.sampled_from(FATES))
    def move_up(self, data: st.DataObject, fate: str) -> None:
        place = 0 if fate == "deliver" else data.draw(st.integers(0, len(self.fleet.up) - 1))
        device, message = self.fleet.up.pop(place)
        if fate in ("repeat", "delay"):
            self.fleet.up.append((device, message))
        if fate == "flip":
            changed = self._flip(data, message)
            if isinstance(changed, EPOCH_DEVICE_MESSAGES):
                self.fleet.feed(events.EpochDeviceSaid(device=device, message=changed))
        elif fate not in ("lose", "delay"):
            self.fleet.feed(events.EpochDeviceSaid(device=device, message=message))

    @rule()
    def open_without_trouble(self) -> None:
        self.all_join()
        self.begin(0)
        self.move_everything()

    @rule()
    def close_without_trouble(self) -> None:
        """Go on until the first nonces are under way."""
        self.all_join()
        self.begin(0)
        while (self.fleet.down or self.fleet.up) and not self._half_open():
            self._move_one()

    @rule()
    def move_everything(self) -> None:
        while self.fleet.down or self.fleet.up:
            self._move_one()

    @rule(seconds=st.sampled_from([1.0, ANSWER_S, DAY_S / 2]))
    def pass_time(self, seconds: float) -> None:
        self.fleet.pass_time(seconds)

    @rule(data=st.data())
    def restart_device(self, data: st.DataObject) -> None:
        board = self.fleet.boards[self._pick(data)]
        board.restart()
        self._note(board.name, board.carry_out(board.machine.resume()))

    @rule()
    def restart_gateway(self) -> None:
        self.fleet.restart_gateway()
        for name in sorted(self.present):
            self.fleet.feed(self.fleet.boards[name].joined)

    @rule(data=st.data())
    def sign_roster(self, data: st.DataObject) -> None:
        names = st.lists(st.sampled_from(self.fleet.names), min_size=2, unique=True)
        self.fleet.sign(data.draw(names))

    @precondition(lambda self: self._half_open())
    @rule(data=st.data())
    def ask_for_a_second_nonce(self, data: st.DataObject) -> None:
        """A gateway that disliked what it saw asks again, with another nonce of its own."""
        board = self.fleet.boards[data.draw(st.sampled_from(self._half_open()))]
        pending = board.machine._state.pending
        assert pending is not None
        assert pending.record is not None
        asked = self.closed[board.name, pending.record.digest]
        other = replace(asked.record, gateway_commitment=b"other" + bytes(27))
        self._hand_down(board, replace(asked, record=other), crashes=False)

    @precondition(lambda self: self._ready())
    @rule(data=st.data(), index=st.integers(-1, 2), call=st.sampled_from([b"c" * 32, b"d" * 32]))
    def reserve(self, data: st.DataObject, index: int, call: bytes) -> None:
        board = self.fleet.boards[data.draw(st.sampled_from(self._ready()))]
        with contextlib.suppress(RemoteProtocolError):
            board.carry_out(board.machine.reserve_index(index, call))
            key = board.name, board.machine.keys.mask_proof(index).key
            self.calls.setdefault(key, set()).add(call)

    @precondition(lambda self: self._ready())
    @rule(data=st.data(), index=st.integers(0, 1), session=st.sampled_from([b"s" * 32, b"t" * 32]))
    def bind(self, data: st.DataObject, index: int, session: bytes) -> None:
        board = self.fleet.boards[data.draw(st.sampled_from(self._ready()))]
        with contextlib.suppress(RemoteProtocolError):
            board.carry_out(board.machine.bind_index(index, session))
            key = board.name, board.machine.keys.mask_proof(index).key
            self.sessions.setdefault(key, set()).add(session)

    @precondition(lambda self: self._ready())
    @rule(data=st.data(), index=st.integers(0, 1))
    def release(self, data: st.DataObject, index: int) -> None:
        board = self.fleet.boards[data.draw(st.sampled_from(self._ready()))]
        keys = board.machine.keys
        if keys.use_of(index) is None or not keys.has_mask_secret(index):
            return
        self.released.add((board.name, keys.mask_secret(index).export_seed().export_bytes()))
        board.carry_out(board.machine.release_index(index, key_epoch=keys.bundle.key_epoch))

    @precondition(lambda self: self._ready())
    @rule(data=st.data())
    def free_what_is_over(self, data: st.DataObject) -> None:
        """Start without any open round."""
        board = self.fleet.boards[data.draw(st.sampled_from(self._ready()))]
        keys = board.machine.keys
        for index in range(keys.bundle.mask_key_count):
            if keys.use_of(index) is not None and keys.has_mask_secret(index):
                seed = keys.mask_secret(index).export_seed().export_bytes()
                self.released.add((board.name, seed))
        board.carry_out(board.machine.release_all_but(()))

    # ------------------------------------------------------------ what must hold

    @invariant()
    def no_released_key_comes_back(self) -> None:
        for name, seed in self.released:
            assert seed not in (self.fleet.boards[name].flash or b"")
            assert seed not in self.fleet.boards[name].machine.snapshot()

    @invariant()
    def one_bundle_record_and_beacon_per_number(self) -> None:
        for seen in (self.bundles, self.records, self.epochs, self.calls, self.sessions):
            assert all(len(values) == 1 for values in seen.values()), seen

    @invariant()
    def all_that_opened_one_opened_the_same(self) -> None:
        for board in self.fleet.boards.values():
            epoch = board.machine.open_epoch
            if epoch is not None:
                self.epochs.setdefault(epoch.key_epoch, set()).add(epoch.beacon)
                assert epoch in self.fleet.ready
                assert board.machine.keys.epoch_position < epoch.size

    @invariant()
    def no_roster_is_rolled_back(self) -> None:
        for name, board in self.fleet.boards.items():
            assert board.machine.roster_number >= self.roster_numbers.get(name, 0)
            self.roster_numbers[name] = board.machine.roster_number

    @invariant()
    def no_number_is_opened_twice(self) -> None:
        numbers = [epoch.key_epoch for epoch in self.fleet.ready]
        assert numbers == sorted(set(numbers))

    def teardown(self) -> None:
        """End the trouble: the next key epoch opens with all of the roster."""
        if not hasattr(self, "fleet"):
            return
        fleet = self.fleet
        fleet.down, fleet.up = [], []
        fleet.pass_time(2 * DAY_S)
        fleet.restart_gateway()
        epoch = fleet.open_epoch()
        assert fleet.roster is not None
        assert epoch.size == fleet.roster.size
        for entry in fleet.roster.entries:
            assert fleet.boards[entry.device].machine.open_epoch == epoch

    # ------------------------------------------------------------ helpers

    def _pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.fleet.names))

    def _move_one(self) -> None:
        if self.fleet.up:
            self.fleet.deliver_up()
        else:
            device, message = self.fleet.down.pop(0)
            self._hand_down(self.fleet.boards[device], message, crashes=False)

    def _ready(self) -> list[str]:
        return [board.name for board in self._boards() if board.machine.is_ready]

    def _half_open(self) -> list[str]:
        """Return who has shown a nonce for a key epoch that is not open."""
        return [
            board.name
            for board in self._boards()
            if board.machine._state.pending is not None
            and board.machine._state.pending.record is not None
        ]

    def _boards(self) -> list[Board]:
        return list(self.fleet.boards.values()) if hasattr(self, "fleet") else []

    def _hand_down(self, board: Board, message: EpochAggregatorMessage, *, crashes: bool) -> None:
        if isinstance(message, EpochClosed):
            self.closed[board.name, message.record.digest] = message
        answers = board.say(message, self.fleet.now_s)
        if crashes:
            # Killed after the write, before the first byte left.
            board.restart()
            answers = board.carry_out(board.machine.resume())
        self._note(board.name, answers)

    def _note(self, device: str, answers: list[EpochDeviceMessage]) -> None:
        for answer in answers:
            if isinstance(answer, KeyBundleMessage):
                key = device, answer.bundle.key_epoch
                self.bundles.setdefault(key, set()).add(answer.bundle.digest)
            elif isinstance(answer, NonceReveal):
                pending = self.fleet.boards[device].machine._state.pending
                assert pending is not None
                key = device, pending.bundle.key_epoch
                self.records.setdefault(key, set()).add(answer.record_hash)
            self.fleet.up.append((device, answer))

    def _flip(
        self, data: st.DataObject, message: EpochAggregatorMessage | EpochDeviceMessage
    ) -> object:
        """Return what a flipped bit decodes to, or None.

        The envelope's signature would refuse it: it stands for a gateway or a device that lies.
        """
        payload = bytearray(encode(message.to_body()))
        bit = data.draw(st.integers(0, 8 * len(payload) - 1))
        payload[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(WireError):
            return type(message).from_body(as_body(decode(bytes(payload))))
        return None


TestEpochMachine = EpochMachine.TestCase
