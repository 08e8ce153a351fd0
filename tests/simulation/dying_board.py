"""A simulated board with real files that loses its power at chosen writes, as by kill -9."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from unittest import mock

from edgefl.agent.core import STATUS_OFFLINE, AgentCore
from edgefl.agent.events import AgentEvent
from edgefl.agent.spool import FileSpool
from edgefl.errors import WireError
from edgefl.protocol import topics
from edgefl.protocol.envelope import open_envelope
from edgefl.protocol.round_messages import MaskedInput
from edgefl.storage.batch import BatchStore, Changes
from edgefl.storage.sqlite import SqliteStore, open_sqlite
from edgefl.transport.core_events import Arrived, LinkRestored
from edgefl.types import DeviceId
from firmware_sim.device import SimulatedDevice

OUTAGE_S = 0.5
"""Less than the gateway's grace: whoever is back by then has missed nothing."""


class Moment(Enum):
    """When the power goes, in one write."""

    BEFORE = "before"
    MIDWAY = "midway"
    """Among the bytes of a file; a database's commit has no middle that a kill could meet."""
    AFTER = "after"


class PowerCut(BaseException):
    """The board is off; nothing may catch this on its way out."""


class Board:
    """The victim's files, and how often it wrote to them over all its lives."""

    def __init__(self, folder: Path, name: str, cuts: Sequence[tuple[int, Moment]]) -> None:
        self.folder = folder
        self.name = name
        self.writes = 0
        self.deaths = 0
        self.masked: dict[bytes, set[bytes]] = {}
        self._cuts = dict(cuts)
        self._store: SqliteStore | None = None

    # ------------------------------------------------------------ life

    def boot(self, device: SimulatedDevice) -> None:
        """Do what `SimulatedDevice.boot` does, on files."""
        if device._core is not None or device.stopped_by is not None:
            return
        device._life += 1
        device._battery.switch(on=True, now_s=device._clock.now_s)
        self._store = open_sqlite(self.folder / "agent.sqlite", namespace="agent")
        self._batched = BatchStore(self._store, namespace="agent")
        device._core = AgentCore(
            settings=device._settings,
            store=self._batched,
            entropy=device._entropy,
            spool=FileSpool(self.folder / "masked.spool"),
        )
        try:
            self._batched.batch.commit()
        except PowerCut:
            self._die(device)
            return
        fleet = device._settings.fleet
        device._network.connect(
            device.name,
            filters=device._core.topics,
            deliver=lambda topic, payload: device.feed(Arrived(topic=topic, payload=payload)),
            will=(topics.status(fleet, DeviceId(device.name)), STATUS_OFFLINE),
        )
        device.feed(LinkRestored(max_packet_bytes=device._network.told_packet_bytes))

    def feed(self, device: SimulatedDevice, event: AgentEvent) -> None:
        """Do what the agent's shell does with an event, and die where that is due."""
        if device._core is None:
            return
        try:
            effects = device._core.handle(event, device._clock.now_s)
            self._batched.batch.commit()
        except PowerCut:
            self._die(device)
            return
        for effect in effects:
            if device._core is None:
                return
            device._carry_out(effect)
        device._schedule_wakeup()

    def _die(self, device: SimulatedDevice) -> None:
        """Keep the files as they are at this moment; what closing would write does not happen."""
        self.deaths += 1
        kept = self.folder.with_name(f"{self.folder.name}-kept")
        shutil.copytree(self.folder, kept)
        self.close()
        shutil.rmtree(self.folder)
        kept.rename(self.folder)
        device.die(outage_s=OUTAGE_S)

    def close(self) -> None:
        """End the board's last life."""
        if self._store is not None:
            self._store.close()

    # ------------------------------------------------------------ writes

    def commit(self, store: SqliteStore, changes: Changes) -> None:
        """Write to the database."""
        moment = self._take_moment()
        if moment in (Moment.BEFORE, Moment.MIDWAY):
            raise PowerCut
        _COMMIT(store, changes)
        if moment is Moment.AFTER:
            raise PowerCut

    def spool(self, spool: FileSpool, content: bytes) -> None:
        """Write the masked vector."""
        moment = self._take_moment()
        if moment is Moment.MIDWAY:
            spool._draft.write_bytes(content[: len(content) // 2])
        if moment in (Moment.BEFORE, Moment.MIDWAY):
            raise PowerCut
        _SPOOL(spool, content)
        if moment is Moment.AFTER:
            raise PowerCut

    def _take_moment(self) -> Moment | None:
        self.writes += 1
        return self._cuts.get(self.writes)

    # ------------------------------------------------------------ what leaves it

    def note(self, topic: str, payload: bytes) -> None:
        """Remember each masked vector that leaves the board, by its session."""
        try:
            envelope = open_envelope(topic, payload)
        except WireError:
            return
        if isinstance(envelope.message, MaskedInput):
            packed = self.masked.setdefault(envelope.header.session_id, set())
            packed.add(envelope.message.packed)


_COMMIT, _SPOOL = SqliteStore.put_across, FileSpool.put
_BOOT, _FEED, _PUBLISH = SimulatedDevice.boot, SimulatedDevice.feed, SimulatedDevice._publish


@contextmanager
def board_dying_at(folder: Path, name: str, *cuts: tuple[int, Moment]) -> Iterator[Board]:
    """Give a device of the scenario run within real files, and cut its power at these writes."""
    folder.mkdir()
    board = Board(folder, name, cuts)

    def boot(device: SimulatedDevice) -> None:
        board.boot(device) if device.name == name else _BOOT(device)

    def feed(device: SimulatedDevice, event: AgentEvent) -> None:
        board.feed(device, event) if device.name == name else _FEED(device, event)

    def publish(device: SimulatedDevice, effect: object) -> None:
        if device.name == name:
            board.note(effect.topic, effect.payload)
        _PUBLISH(device, effect)

    with (
        mock.patch.object(SimulatedDevice, "boot", boot),
        mock.patch.object(SimulatedDevice, "feed", feed),
        mock.patch.object(SimulatedDevice, "_publish", publish),
        mock.patch.object(SqliteStore, "put_across", lambda *words: board.commit(*words)),
        mock.patch.object(FileSpool, "put", lambda *words: board.spool(*words)),
    ):
        try:
            yield board
        finally:
            board.close()
