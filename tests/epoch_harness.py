"""A fleet's key epochs in memory: devices, an aggregator, and the messages between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgefl._native import Seed, SigningKey
from edgefl.protocol import epoch_events as events
from edgefl.protocol.aggregator_epoch import AggregatorEpoch
from edgefl.protocol.device import DeviceIdentity
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.epoch_messages import (
    EPOCH_AGGREGATOR_MESSAGES,
    EPOCH_DEVICE_MESSAGES,
    EpochAggregatorMessage,
    EpochClosed,
    EpochDeviceMessage,
    EpochOpened,
)
from edgefl.protocol.key_bundle import prg_bitmask
from edgefl.protocol.key_epoch import OpenEpoch
from edgefl.protocol.limits import MAX_COHORT
from edgefl.protocol.roster import Roster, sign_roster
from edgefl.protocol.roster_epoch import RosterEntry
from edgefl.protocol.wire import WireValue, as_body, decode, encode

FLEET = "test-fleet"
DAY = 20_000
ANSWER_S = 30.0


class CountedSeeds:
    """Seeds that are different from each other and the same in each run."""

    def __init__(self, label: bytes) -> None:
        self._root = Seed.from_bytes(label.ljust(32, b"\0")[:32])
        self.count = 0

    def fresh_seed(self) -> Seed:
        self.count += 1
        return self._root.derive(b"test", self.count.to_bytes(4, "big"))


def signing_key(label: str) -> SigningKey:
    return SigningKey.from_seed(CountedSeeds(b"id " + label.encode()).fresh_seed())


ENROLMENT = signing_key("enrolment")


def entry_of(device: str, day: int = DAY) -> RosterEntry:
    return RosterEntry(device=device, identity_key=signing_key(device).public_key, enrolled_day=day)


def make_roster(
    devices: Sequence[str], previous: Roster | None = None, key: SigningKey = ENROLMENT
) -> Roster:
    return sign_roster(previous, FLEET, [entry_of(device) for device in devices], key)


def over_the_wire(message: EpochAggregatorMessage | EpochDeviceMessage) -> object:
    """Return what the other end decodes."""
    body = as_body(decode(encode(message.to_body())))
    kinds = (*EPOCH_DEVICE_MESSAGES, *EPOCH_AGGREGATOR_MESSAGES)
    return next(kind for kind in kinds if kind.kind == message.kind).from_body(body)


@dataclass
class Board:
    """A device: its machine, its flash, and what it has sent."""

    name: str
    seeds: CountedSeeds
    limits_grinding: bool = False
    key_label: str = ""
    flash: bytes | None = None
    machine: DeviceEpoch = field(init=False)
    refused: list[str] = field(default_factory=list)
    opened: list[OpenEpoch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Lose everything but the flash."""
        self.machine = DeviceEpoch(
            identity=DeviceIdentity(
                device=self.name, signing_key=signing_key(self.key_label or self.name)
            ),
            entropy=self.seeds,
            fleet=FLEET,
            prgs=prg_bitmask(2) if self.name.endswith("1") else prg_bitmask(),
            limits_grinding=self.limits_grinding,
            snapshot=self.flash,
        )

    def carry_out(self, effects: Sequence[events.DeviceEpochEffect]) -> list[EpochDeviceMessage]:
        """Persist, and return what is sent."""
        sent: list[EpochDeviceMessage] = []
        for effect in effects:
            match effect:
                case events.PersistEpoch(snapshot=snapshot):
                    self.flash = snapshot
                case events.PublishBundle(message=message) | events.SendEpochUp(message=message):
                    # What leaves the device must already be on its flash.
                    assert self.flash is not None
                    assert but_the_time(self.flash) == remembered(self)
                    sent.append(message)
                case events.EpochRefused(error=error):
                    self.refused.append(error.code)
                case events.EpochReady(epoch=epoch):
                    self.opened.append(epoch)
        return sent

    def say(self, message: EpochAggregatorMessage, now_s: float = 0.0) -> list[EpochDeviceMessage]:
        """Hand over one message, and return the answers."""
        received = over_the_wire(message)
        assert isinstance(received, EPOCH_AGGREGATOR_MESSAGES)
        return self.carry_out(self.machine.handle(received, now_s))

    @property
    def joined(self) -> events.DeviceJoined:
        epoch = self.machine.open_epoch
        return events.DeviceJoined(
            device=self.name,
            roster_number=self.machine.roster_number,
            key_epoch=0 if epoch is None else epoch.key_epoch,
        )


Tamper = Callable[[str, EpochAggregatorMessage], EpochAggregatorMessage | None]


class EpochFleet:
    """Boards and an aggregator; messages wait in queues until they are delivered."""

    def __init__(
        self,
        count: int,
        *,
        limits_grinding: bool = False,
        mask_keys: int = 4,
        most_members: int = MAX_COHORT,
    ) -> None:
        self.names = [f"d{index:02}" for index in range(count)]
        self.limits_grinding = limits_grinding
        self.mask_keys = mask_keys
        self.most_members = most_members
        self.boards = {name: self._board(name) for name in self.names}
        self.seeds = CountedSeeds(b"gateway")
        self.flash: bytes | None = None
        self.down: list[tuple[str, EpochAggregatorMessage]] = []
        self.up: list[tuple[str, EpochDeviceMessage]] = []
        self.now_s = 1000.0
        self.timer_s: float | None = None
        self.ready: list[OpenEpoch] = []
        self.aborted: list[events.EpochAborted] = []
        self.full: list[events.EpochFull] = []
        self.refused: list[tuple[str, str]] = []
        self.deaf: set[str] = set()
        self.tamper: Tamper = lambda _device, message: message
        self.roster: Roster | None = make_roster(self.names)
        self.restart_gateway()

    def _board(self, name: str) -> Board:
        return Board(
            name=name,
            seeds=CountedSeeds(b"board " + name.encode()),
            limits_grinding=self.limits_grinding,
        )

    def add_board(self, name: str) -> Board:
        self.boards[name] = self._board(name)
        return self.boards[name]

    def restart_gateway(self) -> None:
        self.gateway = AggregatorEpoch(
            fleet=FLEET,
            roster=self.roster,
            entropy=self.seeds,
            answer_s=ANSWER_S,
            mask_key_count=self.mask_keys,
            most_members=self.most_members,
            snapshot=self.flash,
        )
        self.timer_s = None

    def feed(self, event: events.AggregatorEpochEvent) -> None:
        """Hand an event to the aggregator, and carry out what it asks for."""
        for effect in self.gateway.handle(event, self.now_s):
            match effect:
                case events.PersistEpoch(snapshot=snapshot):
                    self.flash = snapshot
                case events.SendEpochDown(device=device, message=message):
                    self.down.append((device, message))
                case events.SetEpochTimer(at_s=at_s):
                    self.timer_s = at_s
                case events.EpochReady(epoch=epoch):
                    self.ready.append(epoch)
                case events.EpochAborted():
                    self.aborted.append(effect)
                case events.EpochFull():
                    self.full.append(effect)
                case events.DeviceRefused(device=device, error=error):
                    self.refused.append((device, error.code))

    def join_all(self) -> None:
        for board in self.boards.values():
            self.feed(board.joined)

    def sign(self, names: Sequence[str]) -> None:
        """Sign and hand out a newer roster."""
        self.roster = make_roster(names, self.roster)
        self.feed(events.RosterSigned(roster=self.roster))

    def deliver_down(self) -> None:
        device, message = self.down.pop(0)
        changed = self.tamper(device, message)
        if changed is None or device in self.deaf:
            return
        for answer in self.boards[device].say(changed, self.now_s):
            self.up.append((device, answer))

    def deliver_up(self) -> None:
        device, message = self.up.pop(0)
        received = over_the_wire(message)
        assert isinstance(received, EPOCH_DEVICE_MESSAGES)
        self.feed(events.EpochDeviceSaid(device=device, message=received))

    def settle(self) -> None:
        """Deliver until nothing is under way."""
        while self.down or self.up:
            if self.down:
                self.deliver_down()
            else:
                self.deliver_up()

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        if self.timer_s is not None and self.timer_s <= self.now_s:
            self.timer_s = None
            self.feed(events.EpochTimerFired())

    def open_epoch(self, needed: int = 2) -> OpenEpoch:
        """Join, set up one key epoch, and return it."""
        self.join_all()
        self.settle()
        self.feed(events.BeginEpoch(needed=needed))
        self.settle()
        return self.ready[-1]


def new_board(*, limits_grinding: bool = False) -> Board:
    return Board(name="d00", seeds=CountedSeeds(b"board"), limits_grinding=limits_grinding)


def refuses(board: Board, message: EpochAggregatorMessage, code: str, now_s: float = 0.0) -> None:
    """Check that a message is refused by name, answered by nothing, and changes nothing."""
    before = board.flash, remembered(board), len(board.opened)
    assert board.say(message, now_s) == []
    assert board.refused.pop() == code
    assert (board.flash, remembered(board), len(board.opened)) == before
    assert board.refused == []


def remembered(board: Board) -> dict[int, WireValue]:
    """Return all that a device remembers but the latest time that it has seen."""
    return but_the_time(board.machine.snapshot())


def but_the_time(snapshot: bytes) -> dict[int, WireValue]:
    """Return what a snapshot holds but the latest time; that alone is not worth a write."""
    body = dict(as_body(decode(snapshot)))
    del body[7]
    return body


def begun(count: int = 3, *, needed: int = 2) -> EpochFleet:
    """Return a fleet whose devices are asked for bundles."""
    fleet = EpochFleet(count)
    fleet.join_all()
    fleet.settle()
    fleet.feed(events.BeginEpoch(needed=needed))
    return fleet


class Staged:
    """A fleet that stops at a step, with what the gateway has sent to d00."""

    def __init__(self, count: int = 3, *, limits_grinding: bool = False) -> None:
        self.fleet = EpochFleet(count, limits_grinding=limits_grinding)
        self.board = self.fleet.boards["d00"]
        self.held: list[EpochAggregatorMessage] = []
        self.hold: tuple[type, ...] = ()
        self.fleet.tamper = self._tamper
        self.fleet.join_all()
        self.fleet.settle()

    def _tamper(
        self, device: str, message: EpochAggregatorMessage
    ) -> EpochAggregatorMessage | None:
        if device == "d00" and isinstance(message, self.hold):
            self.held.append(message)
            return None
        return message

    def closed(self) -> EpochClosed:
        """Run until d00 is asked for its nonce, and return that message undelivered."""
        self.hold = (EpochClosed,)
        return self._run(EpochClosed)

    def opened(self) -> EpochOpened:
        """Run until d00 is told all nonces, and return that message undelivered."""
        self.hold = (EpochOpened,)
        return self._run(EpochOpened)

    def _run(self, kind: type) -> EpochAggregatorMessage:
        # All are needed: the gateway would leave out who withheld a nonce before.
        self.fleet.feed(events.BeginEpoch(needed=len(self.fleet.names)))
        self.fleet.settle()
        self.hold = ()
        (message,) = self.held
        assert isinstance(message, kind)
        self.held = []
        return message
