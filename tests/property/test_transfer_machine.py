"""Several senders, one receiver with slots, a link that does everything, restarts of both ends.

What must hold whatever happens: the receiver's blob is the sender's; `done` comes only after the
blob was made safe; memory, slots and windows stay within their bounds; what is sent again after a
cut is at most one window; and every run ends.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edgefl._native import UploadStage
from edgefl.transfer.intake import Answer, Intake, IntakeLimits
from edgefl.transfer.manifest import MIN_CHUNK_BYTES, Manifest, chunks_of, describe
from edgefl.transfer.messages import TransferAnswer, TransferProgress
from edgefl.transfer.packets import pack_chunk
from edgefl.transfer.sender import SendChunk, Sender, SenderState

LIMITS = IntakeLimits(
    slots=2, staged_bytes=16 * MIN_CHUNK_BYTES, blob_bytes=14 * MIN_CHUNK_BYTES, window_chunks=4
)
ROOM_BYTES = LIMITS.staged_bytes + 4096
PEERS = ("d0", "d1", "d2", "d3")


@dataclass
class Board:
    """A sender with what its flash holds: the blob, until `done`."""

    name: str
    blob: bytes
    manifest: Manifest
    sender: Sender | None = None
    epoch_heard: int = 0
    was_told_done: bool = False
    sent_by_chunk: dict[int, int] = field(default_factory=dict)

    @property
    def transfer_id(self) -> bytes:
        return self.manifest.transfer_id(self.name.encode())

    def boot(self, now_s: float) -> None:
        if not self.was_told_done:
            self.sender = Sender(self.manifest, now_s, least_epoch=self.epoch_heard)


class TransferMachine(RuleBasedStateMachine):
    @initialize(
        chunk_counts=st.lists(st.integers(1, 13), min_size=4, max_size=4),
        tail_bytes=st.integers(1, MIN_CHUNK_BYTES),
        seed=st.integers(0, 2**32),
    )
    def start(self, chunk_counts: list[int], tail_bytes: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_s = 0.0
        self.epoch = 0
        self.safe: dict[str, bytes] = {}
        self.taken: list[tuple[str, bytes, bytes]] = []
        self.up: list[tuple[str, object]] = []
        self.down: list[tuple[str, TransferAnswer]] = []
        self.boards = {}
        for name, count in zip(PEERS, chunk_counts, strict=True):
            blob = self.rng.randbytes((count - 1) * MIN_CHUNK_BYTES + tail_bytes)
            self.boards[name] = Board(name, blob, describe(blob, MIN_CHUNK_BYTES))
        self.start_gateway()
        for board in self.boards.values():
            board.boot(self.now_s)

    # ------------------------------------------------------------ both ends

    def start_gateway(self) -> None:
        """Begin a new life: what was safe stays, everything else is gone."""
        self.epoch += 1
        self.stage = UploadStage(ROOM_BYTES, 64)
        self.intake = Intake(self.stage, epoch=self.epoch, limits=LIMITS)
        self.taken = []

    def pump(self) -> None:
        """Let the senders send what is due."""
        for board in self.boards.values():
            if board.sender is None:
                continue
            for step in board.sender.due(self.now_s):
                self.up.append((board.name, self.packet_of(board, step)))

    def packet_of(self, board: Board, step: object) -> object:
        if not isinstance(step, SendChunk):
            return board.manifest
        board.sent_by_chunk[step.index] = board.sent_by_chunk.get(step.index, 0) + 1
        chunk = list(chunks_of(board.blob, MIN_CHUNK_BYTES))[step.index]
        return pack_chunk(step.index, chunk)

    def arrive_up(self, name: str, packet: object) -> None:
        transfer_id = self.boards[name].transfer_id
        if isinstance(packet, Manifest):
            if name in self.safe:
                self.say([self.intake.done_before(name, transfer_id, packet)])
            else:
                self.say(self.intake.offer(name, transfer_id, packet, self.now_s))
        elif isinstance(packet, bytes):
            _, answers = self.intake.chunk(name, transfer_id, packet, self.now_s)
            self.say(answers)
        if self.intake.is_whole(name, transfer_id):
            blob = self.intake.take(name, transfer_id)
            assert blob == self.boards[name].blob
            self.taken.append((name, transfer_id, blob))

    def say(self, answers: list[Answer]) -> None:
        self.down += [(answer.peer, answer.message) for answer in answers]

    def arrive_down(self, name: str, message: TransferAnswer) -> None:
        board = self.boards[name]
        if isinstance(message, TransferProgress) and message.is_done:
            assert self.safe.get(name) == board.blob
        if board.sender is None:
            return
        board.sender.on_answer(message, self.now_s)
        if board.sender.state is SenderState.DONE:
            board.was_told_done, board.sender = True, None

    # ------------------------------------------------------------ what happens

    @rule(seconds=st.sampled_from([0.01, 0.5, 1.0, 3.0, 20.0, 130.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.say(self.intake.wake(self.now_s))
        self.pump()

    @rule()
    def senders_send(self) -> None:
        self.pump()

    @precondition(lambda self: self.up)
    @rule(count=st.integers(1, 8))
    def packets_arrive_up(self, count: int) -> None:
        for _ in range(min(count, len(self.up))):
            self.arrive_up(*self.up.pop(0))

    @precondition(lambda self: self.down)
    @rule(count=st.integers(1, 8))
    def packets_arrive_down(self, count: int) -> None:
        for _ in range(min(count, len(self.down))):
            self.arrive_down(*self.down.pop(0))

    @precondition(lambda self: self.up or self.down)
    @rule(what=st.sampled_from(["drop", "double", "shuffle", "corrupt"]), place=st.integers(0, 99))
    def the_link_misbehaves(self, what: str, place: int) -> None:
        queues: list[list[Any]] = [self.up, self.down]
        for queue in queues:
            if not queue:
                continue
            index = place % len(queue)
            if what == "drop":
                del queue[index]
            elif what == "double":
                queue.append(queue[index])
            elif what == "shuffle":
                self.rng.shuffle(queue)
            else:
                self.corrupt(queue, index)

    def corrupt(self, queue: list[Any], index: int) -> None:
        name, packet = queue[index]
        if isinstance(packet, bytes):  # what is signed does not arrive at all when it is damaged
            damaged = bytearray(packet)
            damaged[self.rng.randrange(len(damaged))] ^= 1 << self.rng.randrange(8)
            queue[index] = (name, bytes(damaged))
        else:
            del queue[index]

    @rule()
    def blobs_become_safe(self) -> None:
        for name, transfer_id, blob in self.taken:
            self.safe[name] = blob
            self.say(self.intake.done(name, transfer_id))
        self.taken = []

    @rule(name=st.sampled_from(PEERS))
    def a_board_restarts(self, name: str) -> None:
        self.boards[name].boot(self.now_s)

    @rule(name=st.sampled_from(PEERS))
    def a_link_is_cut(self, name: str) -> None:
        self.up = [item for item in self.up if item[0] != name]
        self.down = [item for item in self.down if item[0] != name]
        sender = self.boards[name].sender
        if sender is not None:
            sender.on_link_up(self.now_s)

    @rule(is_told=st.booleans())
    def the_gateway_restarts(self, is_told: bool) -> None:
        self.start_gateway()
        for board in self.boards.values() if is_told else ():
            board.epoch_heard = self.epoch
            if board.sender is not None:
                board.sender.on_epoch(self.epoch, self.now_s)

    # ------------------------------------------------------------ what holds

    @invariant()
    def bounds_hold(self) -> None:
        if not hasattr(self, "intake"):
            return
        assert self.intake.active_count <= LIMITS.slots
        assert self.intake.staged_bytes <= LIMITS.staged_bytes
        assert self.intake.granted_bytes <= LIMITS.slots * 4 * MIN_CHUNK_BYTES
        assert self.stage.held_bytes <= ROOM_BYTES
        open_names = set(self.stage.keys())
        assert len(open_names) <= len(self.boards)

    def teardown(self) -> None:
        """Let the link be good from now on: every transfer ends, and with the right blob."""
        if not hasattr(self, "boards"):
            return
        for _ in range(2000):
            if all(board.was_told_done for board in self.boards.values()):
                break
            self.now_s += 1.0
            self.say(self.intake.wake(self.now_s))
            self.pump()
            while self.up:
                self.arrive_up(*self.up.pop(0))
            self.blobs_become_safe()
            while self.down:
                self.arrive_down(*self.down.pop(0))
            for board in self.boards.values():
                if board.sender is not None and board.sender.state is SenderState.GAVE_UP:
                    assert board.sender.reason is not None
                    board.boot(self.now_s)
        assert self.safe == {name: board.blob for name, board in self.boards.items()}
        assert all(board.was_told_done for board in self.boards.values())


TransferMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestTransferMachine = TransferMachine.TestCase
