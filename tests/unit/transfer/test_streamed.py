"""Downloads over the gateway's own endpoint: one large window, chunks cut by the link."""

import pytest

from broker.downloads import EXPIRY_S, DownEffect, Downloads
from broker.events import SendChunks, StopChunks
from edgefl._native import Seed, SigningKey, UploadStage
from edgefl.agent.downloads import LIMITS, STAGE_BYTES
from edgefl.agent.downloads import Downloads as DeviceDownloads
from edgefl.agent.pen import Pen
from edgefl.agent.settings import AgentSettings
from edgefl.protocol.bulk import split_bulky, transfer_id_of
from edgefl.protocol.envelope import Header, open_envelope
from edgefl.protocol.identity import DeviceIdentity
from edgefl.protocol.messages import AggregatorMessage
from edgefl.protocol.service_messages import Blob
from edgefl.transfer.intake import Intake, IntakeLimits
from edgefl.transfer.manifest import DEFAULT_CHUNK_BYTES, describe
from edgefl.transfer.messages import (
    MAX_WINDOW_BYTES,
    TRANSFER_ANSWERS,
    RefusalReason,
    TransferAnswer,
    TransferGrant,
    TransferOffer,
    TransferProgress,
    TransferRefusal,
)
from edgefl.transfer.packets import DOWN_HEAD_BYTES, pack_chunk_down, read_down
from edgefl.transport.core_events import Publish
from edgefl.types import DeviceId, FleetName
from tests.round_boards import POLICY

FLEET, DEVICE = FleetName("home"), DeviceId("d1")
GATEWAY, BOARD = (SigningKey.from_seed(Seed.from_bytes(bytes([n]) * 32)) for n in (1, 2))
CHUNKS = 20
BLOB = Blob(content=bytes(range(256)) * (CHUNKS * DEFAULT_CHUNK_BYTES // 256))


def downloads(*, streams_chunks: bool = True) -> Downloads:
    return Downloads(FLEET, GATEWAY, count=lambda *_: None, streams_chunks=streams_chunks)


def offer_of(gateway: Downloads, message: AggregatorMessage = BLOB) -> Publish:
    return gateway.offer(DEVICE, message, Header(sender="aggregator"), 0.0)


class Board:
    """A device, and the link that brings it what the gateway wishes."""

    def __init__(self) -> None:
        identity = DeviceIdentity(device=DEVICE, signing_key=BOARD)
        settings = AgentSettings(fleet=FLEET, identity=identity, policy=POLICY, agent_version="1")
        stage = UploadStage(STAGE_BYTES, LIMITS.offers_per_peer)
        self.downloads = DeviceDownloads(stage=stage, pen=Pen(settings))
        self.answers: list[TransferAnswer] = []
        self.contents: list[bytes] = []

    def hear(self, effects: list[DownEffect]) -> list[TransferAnswer]:
        """Take what effects bring, and return what the board says to it."""
        before = len(self.answers)
        for effect in effects:
            if isinstance(effect, SendChunks):
                for index in effect.indices:
                    start = index * effect.chunk_bytes
                    data = effect.blob[start : start + effect.chunk_bytes]
                    self._take(effect.topic, pack_chunk_down(effect.transfer_id, index, data))
            elif isinstance(effect, Publish):
                self._take(effect.topic, effect.payload)
        return self.answers[before:]

    def _take(self, topic: str, payload: bytes) -> None:
        packet = read_down(payload)
        if packet is not None:
            whole, said = self.downloads.on_chunk(packet, 0.0)
        else:
            envelope = open_envelope(topic, payload)
            assert isinstance(envelope.message, TransferOffer)
            whole, said = self.downloads.on_offer(envelope.header, envelope.message, 0.0)
        if whole is not None and isinstance(whole.message, Blob):
            self.contents.append(whole.message.content)
        for effect in said:
            assert isinstance(effect, Publish)
            message = open_envelope(effect.topic, effect.payload).message
            assert isinstance(message, TRANSFER_ANSWERS)
            self.answers.append(message)


def test_a_board_says_two_words_however_many_chunks_there_are() -> None:
    gateway, board = downloads(), Board()
    (grant,) = board.hear([offer_of(gateway)])
    (chunks,) = gateway.on_answer(DEVICE, grant, 0.0)
    assert isinstance(chunks, SendChunks)
    assert chunks.blob is BLOB.content
    assert (chunks.indices, chunks.expiry_s) == (tuple(range(CHUNKS)), EXPIRY_S)
    (done,) = board.hear([chunks])
    assert isinstance(done, TransferProgress)
    assert done.is_done
    stop = StopChunks(topic=chunks.topic, transfer_id=chunks.transfer_id)
    assert gateway.on_answer(DEVICE, done, 0.0) == [stop]
    assert board.contents == [BLOB.content]
    assert gateway.wakeup_s is None


def test_a_broker_of_others_gets_packets_a_few_at_a_time() -> None:
    gateway, board = downloads(streams_chunks=False), Board()
    waiting: list[DownEffect] = [offer_of(gateway)]
    while waiting:
        assert len(waiting) <= 4
        assert all(isinstance(effect, Publish) for effect in waiting)
        answers, waiting = board.hear(waiting), []
        for answer in answers:
            waiting += gateway.on_answer(DEVICE, answer, 0.0)
    assert board.contents == [BLOB.content]
    assert len(board.answers) == 1 + CHUNKS // 4


def test_a_board_that_knows_no_such_wish_is_sent_four_chunks_at_a_time() -> None:
    gateway = downloads()
    envelope = open_envelope((offer := offer_of(gateway)).topic, offer.payload)
    assert isinstance(envelope.message, TransferOffer)
    assert envelope.message.window_bytes == MAX_WINDOW_BYTES
    grant = TransferGrant(
        transfer_id=transfer_id_of(envelope.message, envelope.header),
        epoch=0,
        number=1,
        window_bytes=4 * DEFAULT_CHUNK_BYTES,
        deadline_ms=60_000,
        missing=b"\xff\xff\x0f",
    )
    (chunks,) = gateway.on_answer(DEVICE, grant, 0.0)
    assert isinstance(chunks, SendChunks)
    assert chunks.indices == (0, 1, 2, 3)
    receipt = TransferProgress(
        transfer_id=grant.transfer_id, epoch=0, number=1, missing=b"\xf0\xff\x0f", is_done=False
    )
    (chunks,) = gateway.on_answer(DEVICE, receipt, 0.1)
    assert isinstance(chunks, SendChunks)
    assert chunks.indices == (4, 5, 6, 7)


def test_an_offer_ends_what_an_older_grant_let_go() -> None:
    gateway, board = downloads(), Board()
    (grant,) = board.hear([offer_of(gateway)])
    gateway.on_answer(DEVICE, grant, 0.0)
    for effects in (gateway.wake(10.0), gateway.on_hello(DEVICE, 11.0)):
        assert isinstance(effects[-1], Publish)
        assert [type(effect) for effect in effects[:-1]] in ([StopChunks], [])
    # The board has heard half of it by now, and is sent the other half only.
    fresh = downloads()
    (grant,) = Board().hear([offer_of(fresh)])
    (chunks,) = fresh.on_answer(DEVICE, grant, 0.0)
    assert isinstance(chunks, SendChunks)
    stop, offer = fresh.wake(10.0)
    assert stop == StopChunks(topic=chunks.topic, transfer_id=chunks.transfer_id)
    half = Board()
    half.hear([offer])
    start = [pack_chunk_down(chunks.transfer_id, n, BLOB.content[:65_536]) for n in range(10)]
    half.hear([Publish(topic=chunks.topic, payload=payload) for payload in start])
    (grant,) = half.hear([offer])
    (rest,) = fresh.on_answer(DEVICE, grant, 10.0)
    assert isinstance(rest, SendChunks)
    assert rest.indices == tuple(range(10, CHUNKS))
    half.hear([rest])
    assert half.contents == [BLOB.content]


@pytest.mark.parametrize("streams_chunks", [True, False])
def test_a_chunk_of_a_stream_is_counted_once_however_often_it_is_cut(streams_chunks: bool) -> None:
    counted: list[int] = []
    gateway = Downloads(
        FLEET, GATEWAY, count=lambda _, size: counted.append(size), streams_chunks=streams_chunks
    )
    offer = offer_of(gateway)
    for now_s in (0.0, 10.0, 20.0):
        (grant,) = Board().hear([offer])
        gateway.on_answer(DEVICE, grant, now_s)
        gateway.on_hello(DEVICE, now_s + 5)
    total = sum(counted) - 4 * len(offer.payload)
    a_chunk = 65_536 + DOWN_HEAD_BYTES
    once = len(BLOB.content) + CHUNKS * DOWN_HEAD_BYTES
    # Packets for a broker of others have gone out each time: four, as the device's window says.
    assert total == (once if streams_chunks else 3 * 4 * a_chunk)


def test_a_refusal_stops_the_chunks() -> None:
    gateway, board = downloads(), Board()
    (grant,) = board.hear([offer_of(gateway)])
    (chunks,) = gateway.on_answer(DEVICE, grant, 0.0)
    assert isinstance(chunks, SendChunks)
    refusal = TransferRefusal(
        transfer_id=chunks.transfer_id, reason=RefusalReason.NOT_WANTED, limit_bytes=0
    )
    stop = StopChunks(topic=chunks.topic, transfer_id=chunks.transfer_id)
    assert gateway.on_answer(DEVICE, refusal, 0.0) == [stop]


def test_a_receiver_gives_no_larger_window_than_it_allows() -> None:
    manifest = describe(BLOB.content, DEFAULT_CHUNK_BYTES)
    for allowed, chunks in ((0, 4), (6 * DEFAULT_CHUNK_BYTES, 6), (4 << 20, CHUNKS)):
        limits = IntakeLimits(asked_window_bytes=allowed)
        intake = Intake(UploadStage(STAGE_BYTES, 8), epoch=0, limits=limits)
        (answer,) = intake.offer("d1", bytes(8), manifest, 0.0, asked_window_bytes=MAX_WINDOW_BYTES)
        assert isinstance(answer.message, TransferGrant)
        assert answer.message.window_bytes == chunks * DEFAULT_CHUNK_BYTES


def test_a_transfer_is_the_same_whatever_window_is_asked_for() -> None:
    header = Header(sender="aggregator")
    plain = split_bulky(BLOB, DEFAULT_CHUNK_BYTES).offer
    gateway = downloads()
    offer = offer_of(gateway)
    asking = open_envelope(offer.topic, offer.payload).message
    assert isinstance(asking, TransferOffer)
    assert transfer_id_of(asking, header) == transfer_id_of(plain, header)


def test_who_waited_long_for_a_slot_is_sent_chunks_at_once() -> None:
    gateway = Downloads(FLEET, GATEWAY, count=lambda *_: None, slots=1, streams_chunks=True)
    boards = {name: Board() for name in ("d1", "d2")}
    waits: list[DownEffect] = []
    done: list[TransferAnswer] = []
    for name, board in boards.items():
        offer = gateway.offer(name, BLOB, Header(sender="aggregator"), 0.0)
        (grant,) = board.hear([offer])
        chunks = gateway.on_answer(name, grant, 0.0)
        assert bool(chunks) == (name == "d1")
        done += board.hear(chunks)
    assert gateway.wakeup_s == 3.0
    (last,) = done
    waits = gateway.on_answer("d1", last, 50.0)
    stop, chunks_of_second = waits
    assert isinstance(stop, StopChunks)
    assert isinstance(chunks_of_second, SendChunks)
    assert chunks_of_second.indices == tuple(range(CHUNKS))
    assert gateway.wakeup_s == 53.0
    boards["d2"].hear(waits)
    assert boards["d2"].contents == [BLOB.content]
