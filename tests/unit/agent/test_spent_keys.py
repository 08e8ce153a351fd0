"""The agent destroys a one-time mask key with the round that it served, whatever ends the round."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from edgefl.agent.core import AgentCore, AgentSettings
from edgefl.agent.events import AgentEffect, Noticed, RoundEnded
from edgefl.errors import EdgeflError, StorageError
from edgefl.protocol import topics
from edgefl.protocol.answered_records import DAY_S
from edgefl.protocol.device_epoch_state import DeviceEpochState
from edgefl.protocol.envelope import NO_SESSION, Header, open_envelope, seal_envelope
from edgefl.protocol.identity import DeviceIdentity
from edgefl.protocol.messages import AggregatorMessage
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import AbortReason, Phase
from edgefl.protocol.round_messages import Call, CheckIn, Leave, RoundClosed
from edgefl.storage.base import KeyValueStore
from edgefl.storage.memory import MemoryFile, MemoryStore
from edgefl.storage.sqlite import open_sqlite
from edgefl.transport.core_events import Arrived, LinkRestored, Publish
from edgefl.types import DeviceId, FleetName
from tests.device_fixtures import GATEWAY, TODAY
from tests.device_harness import Table
from tests.epoch_harness import FLEET, CountedSeeds, signing_key
from tests.round_boards import POLICY

DEVICE = DeviceId("d00")
HOME = FleetName(FLEET)
CLOSED = RoundClosed(phase=Phase.COMMITTED, reason=AbortReason.NONE, counted=True)


class WeakPower(MemoryStore):
    """A store that survives so many writes, and fails before the next one."""

    def __init__(self, file: MemoryFile, writes: int) -> None:
        super().__init__(file=file)
        self.writes = writes

    def put_many(self, changes: Mapping[str, bytes | None]) -> None:
        if self.writes == 0:
            raise StorageError("E-POWER", "power", "none", "charge the battery")
        self.writes -= 1
        super().put_many(changes)


class Board:
    """The agent of d00 in an open key epoch, with a gateway that is played by hand."""

    def __init__(self, store: KeyValueStore) -> None:
        self.table = Table(6).run_to(Phase.SHARE_KEYS)
        self.store = store
        store.put("gateway-key", GATEWAY.public_key)
        store.put("key-epochs", opened_flash())
        self.seeds = [seed_of(index) for index in range(8)]
        self.start()

    def start(self, store: KeyValueStore | None = None) -> None:
        self.agent = AgentCore(
            settings=AgentSettings(
                fleet=HOME,
                identity=DeviceIdentity(device=DEVICE, signing_key=signing_key(DEVICE)),
                policy=POLICY,
                agent_version="1.0",
                wall_clock_s=lambda: TODAY * DAY_S,
            ),
            store=store or self.store,
            entropy=CountedSeeds(b"agent"),
        )
        self.agent.handle(LinkRestored(), 0.0)

    def hear(
        self, message: AggregatorMessage, *, attempt: int = 1, session_id: bytes = NO_SESSION
    ) -> list[AgentEffect]:
        is_call = isinstance(message, Call)
        topic = topics.calls(HOME) if is_call else topics.downlink(HOME, DEVICE)
        header = Header(session_id=session_id, round_number=1, attempt=attempt, sender="aggregator")
        payload = seal_envelope(GATEWAY, topic, header, message)
        return self.agent.handle(Arrived(topic=topic, payload=payload), 0.0)

    def call(self, *, attempt: int = 1, index: int = 0) -> list[AgentEffect]:
        return self.hear(
            replace(self.table.call, attempt=attempt, key_index=index), attempt=attempt
        )

    def announce(self, plan: SessionPlan | None = None) -> list[AgentEffect]:
        plan = plan or self.table.plan
        message = self.table.announcement(DEVICE, plan)
        return self.hear(message, session_id=plan.session_id)

    def close(self) -> list[AgentEffect]:
        plan = self.table.plan
        return self.hear(CLOSED, session_id=plan.session_id)

    @property
    def left(self) -> list[int]:
        """Indices whose secret is on flash."""
        flash = self.store.get("key-epochs")
        assert flash is not None
        return [index for index, seed in enumerate(self.seeds) if seed in flash]


def opened_flash() -> bytes:
    flash = Table(6).devices[DEVICE].flash.epoch
    assert flash
    return flash


def seed_of(index: int) -> bytes:
    current = DeviceEpochState.from_bytes(opened_flash()).current
    assert current is not None
    return current.mask_keys.secret(index).export_seed().export_bytes()


def said(effects: list[AgentEffect]) -> list[type]:
    """Return the kinds of message that the device publishes."""
    return [
        type(open_envelope(effect.topic, effect.payload).message)
        for effect in effects
        if isinstance(effect, Publish)
    ]


def notices(effects: list[AgentEffect]) -> list[EdgeflError]:
    return [effect.error for effect in effects if isinstance(effect, Noticed)]


ALL = list(range(8))


def test_the_key_is_in_no_byte_of_the_state_file_after_the_round(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "state.db")
    board = Board(store)
    assert said(board.call()) == [CheckIn]
    board.announce()
    on_disk = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert all(seed in on_disk for seed in board.seeds)
    (ended,) = board.close()
    assert isinstance(ended, RoundEnded)
    assert board.left == ALL[1:]
    on_disk = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert board.seeds[0] not in on_disk
    assert board.seeds[1] in on_disk
    store.close()


def test_a_round_keeps_its_key_over_a_restart_in_every_phase() -> None:
    board = Board(MemoryStore())
    for step in (board.call, board.announce):
        step()
        board.start()
        assert board.agent.phase is not None
        assert board.left == ALL
    board.close()
    board.start()
    assert board.agent.phase is None
    assert board.left == ALL[1:]


def test_a_round_that_ends_before_its_plan_frees_its_key() -> None:
    board = Board(MemoryStore())
    board.call()
    board.hear(
        replace(CLOSED, phase=Phase.ABORTED, reason=AbortReason.BELOW_SURVIVOR_FLOOR, counted=False)
    )
    assert board.left == ALL[1:]


def test_a_device_that_leaves_frees_its_key() -> None:
    board = Board(MemoryStore())
    board.call()
    effects = board.announce(board.table.changed(fleet="other"))
    assert Leave in said(effects)
    assert board.left == ALL[1:]


def test_the_next_call_frees_the_key_of_a_round_that_never_ended() -> None:
    board = Board(MemoryStore())
    board.call()
    board.announce()
    assert said(board.call(attempt=2, index=1)) == [CheckIn]
    assert board.left == ALL[1:]
    board.start()
    assert board.left == ALL[1:]


@pytest.mark.parametrize("damage", [None, b"", b"\xa0"])
def test_a_round_whose_record_is_gone_leaves_no_key_behind(damage: bytes | None) -> None:
    board = Board(MemoryStore())
    board.call()
    board.announce()
    board.store.put_many({"round": damage})
    board.start()
    assert board.agent.phase is None
    assert board.left == ALL[1:]
    assert board.store.get("round") is None


@pytest.mark.parametrize("restarts", [False, True])
def test_a_hostile_gateway_cannot_call_for_the_same_index_again(restarts: bool) -> None:
    board = Board(MemoryStore())
    board.call()
    board.announce()
    board.close()
    if restarts:
        board.start()
    effects = board.call(attempt=2, index=0)
    assert [error.code for error in notices(effects)] == ["E-KEY-INDEX-USED"]
    assert CheckIn not in said(effects)
    # The same call again is stale, and what belongs to its session finds no round.
    assert board.call() == []
    assert said(board.announce()) == [Leave]
    assert board.left == ALL[1:]


@pytest.mark.parametrize("writes", range(8))
def test_power_that_fails_at_any_write_takes_a_key_only_with_its_round(writes: int) -> None:
    file = MemoryFile()
    board = Board(MemoryStore(file=file))
    board.start(WeakPower(file, writes))
    try:
        for step in (board.call, board.announce, board.close):
            step()
    except StorageError:
        died = True
    else:
        died = False
    assert died or board.left == ALL[1:]
    has_round = board.store.get("round") is not None
    assert 0 in board.left or not has_round
    board.start()
    # An index that nothing was sent under may stay whole; all others went with their round.
    state = DeviceEpochState.from_bytes(board.store.get("key-epochs") or b"")
    assert state.current is not None
    is_free = 0 not in state.current.uses
    assert (0 in board.left) == (is_free or board.agent.phase is not None)
    assert board.left[-7:] == ALL[1:]


def test_a_start_with_nothing_to_free_writes_nothing() -> None:
    file = MemoryFile()
    board = Board(MemoryStore(file=file))
    board.call()
    before = dict(file.tables["state"])
    board.start(WeakPower(file, 0))
    assert file.tables["state"] == before
