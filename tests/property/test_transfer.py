"""One transfer: cuts at every chunk boundary, damage, silence, stale answers, strangers' bytes."""

import itertools
import random
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl._native import UploadStage
from edgefl.errors import ConfigError, WireError
from edgefl.protocol import wire
from edgefl.transfer.bitmap import pack_missing, unpack_missing
from edgefl.transfer.intake import Answer, Intake, IntakeLimits
from edgefl.transfer.manifest import (
    MAX_BLOB_BYTES,
    MAX_CHUNK_BYTES,
    MIN_CHUNK_BYTES,
    chunks_of,
    describe,
)
from edgefl.transfer.messages import (
    RefusalReason,
    TransferGrant,
    TransferOffer,
    TransferProgress,
    TransferRefusal,
)
from edgefl.transfer.packets import DOWN_HEAD_BYTES, pack_chunk, pack_chunk_down, read_down
from edgefl.transfer.sender import GiveUpReason, Heard, SendChunk, Sender, SenderState, SendOffer
from edgefl.transfer.stage import ChunkVerdict

CHUNK_BYTES = 65_536
WINDOW_BYTES = 4 * CHUNK_BYTES
ID = b"transfer"
MESSAGES = (TransferOffer, TransferGrant, TransferProgress, TransferRefusal)


def make_blob(size_bytes: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size_bytes)


@dataclass
class Link:
    """A sender and a receiver, and how many bytes of chunks went up between them."""

    blob: bytes
    chunk_bytes: int = CHUNK_BYTES
    limits: IntakeLimits = field(default_factory=IntakeLimits)
    epoch: int = 1
    now_s: float = 0.0
    chunk_bytes_sent: int = 0
    chunks_sent: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.manifest = describe(self.blob, self.chunk_bytes)
        self.sender = Sender(self.manifest, self.now_s)
        self.start_receiver()

    def start_receiver(self) -> None:
        stage = UploadStage(self.limits.staged_bytes + (1 << 20), 128)
        self.intake = Intake(stage, epoch=self.epoch, limits=self.limits)

    def tell(self, answers: list[Answer]) -> None:
        for answer in answers:
            self.sender.on_answer(answer.message, self.now_s)

    def offer(self) -> list[Answer]:
        return self.intake.offer("d", ID, self.manifest, self.now_s)

    def send_chunk(self, index: int) -> None:
        data = list(chunks_of(self.blob, self.chunk_bytes))[index]
        self.chunk_bytes_sent += len(data)
        self.chunks_sent.append(index)
        self.tell(self.intake.chunk("d", ID, pack_chunk(index, data), self.now_s)[1])

    def run(self, *, until_chunks: int | None = None) -> None:
        """Go on until the whole is there, or until so many chunks were sent in all."""
        for _ in range(10_000):
            steps = self.sender.due(self.now_s)
            for step in steps:
                if isinstance(step, SendChunk):
                    if until_chunks is not None and len(self.chunks_sent) >= until_chunks:
                        return
                    self.send_chunk(step.index)
                else:
                    self.tell(self.offer())
            if self.intake.is_whole("d", ID):
                return
            if not steps:
                self.now_s += 0.5
                self.tell(self.intake.wake(self.now_s))
        raise AssertionError("no end")

    def finish(self) -> bytes:
        self.run()
        blob = self.intake.take("d", ID)
        assert self.sender.state is not SenderState.DONE
        self.tell(self.intake.done("d", ID))
        return blob


# ------------------------------------------------------------ cuts


@pytest.mark.parametrize("cut_after", range(11))
def test_a_cut_at_any_chunk_boundary_sends_at_most_one_window_again(cut_after: int) -> None:
    blob = make_blob(10 * CHUNK_BYTES + 123)
    link = Link(blob)
    link.run(until_chunks=cut_after)
    lost_bytes = link.chunk_bytes_sent  # all that was under way when the link broke
    link.sender.on_link_up(link.now_s)
    assert link.finish() == blob
    assert link.sender.state is SenderState.DONE
    assert link.chunk_bytes_sent - len(blob) <= min(WINDOW_BYTES, lost_bytes)


def test_chunks_that_were_lost_in_the_cut_are_all_that_is_sent_again() -> None:
    blob = make_blob(10 * CHUNK_BYTES)
    link = Link(blob)
    lost: list[int] = []
    send_chunk = link.send_chunk

    def lose_second_window(index: int) -> None:
        if index < 4:
            send_chunk(index)
            return
        link.chunks_sent.append(index)
        link.chunk_bytes_sent += link.manifest.size_of_chunk(index)
        lost.append(index)

    link.send_chunk = lose_second_window  # type: ignore[method-assign]
    link.run(until_chunks=8)
    assert lost == [4, 5, 6, 7]
    link.send_chunk = send_chunk  # type: ignore[method-assign]
    link.sender.on_link_up(link.now_s)
    assert link.finish() == blob
    assert link.chunk_bytes_sent - len(blob) == len(lost) * CHUNK_BYTES <= WINDOW_BYTES


def test_ten_cuts_at_half_end_with_the_right_blob() -> None:
    blob = make_blob(20 * CHUNK_BYTES)
    link = Link(blob)
    link.run(until_chunks=10)
    for _ in range(10):
        link.sender.on_link_up(link.now_s)
        link.run(until_chunks=len(link.chunks_sent) + 1)
    assert link.finish() == blob
    assert link.chunk_bytes_sent - len(blob) <= 10 * WINDOW_BYTES
    assert link.sender.reason is None


def test_cuts_that_lose_every_window_are_no_sign_of_a_broker_that_swallows_chunks() -> None:
    blob = make_blob(6 * CHUNK_BYTES)
    link = Link(blob)
    for _ in range(10):
        for step in (*link.sender.due(link.now_s), *link.sender.due(link.now_s)):
            if isinstance(step, SendOffer):
                link.tell(link.offer())
        assert len(link.sender.due(link.now_s)) == 4
        link.sender.on_link_up(link.now_s)
    assert link.finish() == blob


def test_receipts_within_the_window_let_nobody_wait() -> None:
    blob = make_blob(40 * CHUNK_BYTES)
    link = Link(blob, limits=IntakeLimits(window_chunks=8, receipt_chunks=4))
    assert link.finish() == blob
    assert link.now_s == 0.0
    assert link.chunk_bytes_sent == len(blob)
    with pytest.raises(ConfigError, match="E-INTAKE-LIMITS"):
        IntakeLimits(window_chunks=4, receipt_chunks=5)


def test_chunks_that_were_told_of_late_get_their_receipt_at_once() -> None:
    """A sender asks after three seconds of silence, and the endpoint tells of chunks after one."""
    link = Link(make_blob(3 * CHUNK_BYTES), limits=IntakeLimits(window_chunks=64))
    link.tell(link.offer())
    link.now_s = 1.2
    link.send_chunk(0)
    assert link.intake.wakes_at_s == 1.2
    (answer,) = link.intake.wake(link.now_s)
    assert answer.message.missing == pack_missing((1, 2), 3)
    link.now_s = 1.3
    link.send_chunk(1)  # so soon afterwards it waits
    assert link.intake.wakes_at_s == 2.2
    assert link.intake.wake(link.now_s) == []


def test_a_restarted_sender_is_told_what_is_missing() -> None:
    blob = make_blob(10 * CHUNK_BYTES)
    link = Link(blob)
    link.run(until_chunks=7)
    link.sender = Sender(link.manifest, link.now_s)
    assert link.finish() == blob
    assert link.chunk_bytes_sent - len(blob) <= WINDOW_BYTES


def test_a_restarted_receiver_gets_all_of_it_again_and_says_nothing_false() -> None:
    blob = make_blob(10 * CHUNK_BYTES)
    link = Link(blob)
    link.run(until_chunks=7)
    link.epoch = 2
    link.start_receiver()
    link.sender.on_epoch(2, link.now_s)
    assert link.finish() == blob
    assert link.sender.state is SenderState.DONE


# ------------------------------------------------------------ damage and silence


def test_a_flipped_byte_is_refused_counted_and_asked_for_again() -> None:
    blob = make_blob(6 * CHUNK_BYTES)
    link = Link(blob)
    link.run(until_chunks=2)
    damaged = bytearray(pack_chunk(2, blob[2 * CHUNK_BYTES : 3 * CHUNK_BYTES]))
    damaged[-1] ^= 1
    verdict, _ = link.intake.chunk("d", ID, bytes(damaged), link.now_s)
    assert verdict is ChunkVerdict.WRONG_HASH
    assert link.intake.refused_chunks == {ChunkVerdict.WRONG_HASH: 1}
    assert link.finish() == blob


def test_a_chunk_that_a_broker_swallows_is_sent_again_after_silence() -> None:
    blob = make_blob(3 * CHUNK_BYTES)
    link = Link(blob)
    send_chunk = link.send_chunk
    swallowed: list[int] = []

    def swallow_first(index: int) -> None:
        if not swallowed:
            swallowed.append(index)
            return
        send_chunk(index)

    link.send_chunk = swallow_first  # type: ignore[method-assign]
    assert link.finish() == blob
    assert sorted(link.chunks_sent) == [0, 1, 2]


def test_a_sender_whose_chunks_all_vanish_gives_up_and_says_why() -> None:
    link = Link(make_blob(9 * CHUNK_BYTES))
    link.send_chunk = lambda index: link.chunks_sent.append(index)  # type: ignore[method-assign]
    with suppress(AssertionError):
        link.run()
    assert link.sender.state is SenderState.GAVE_UP
    assert link.sender.reason is GiveUpReason.CHUNKS_LOST
    assert len(link.chunks_sent) <= 5 * 4


def test_an_unanswered_offer_is_repeated_ever_more_seldom_and_for_ever() -> None:
    sender = Sender(describe(make_blob(10), MIN_CHUNK_BYTES), 0.0)
    times = [now_s for now_s in range(600) if sender.due(float(now_s)) == [SendOffer()]]
    assert times[:4] == [0, 3, 9, 21]
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) == 30
    assert sender.state is SenderState.OFFERING


def test_a_refusal_names_size_and_limit() -> None:
    link = Link(make_blob(3 * CHUNK_BYTES), limits=IntakeLimits(blob_bytes=2 * CHUNK_BYTES))
    link.sender.due(0.0)
    link.tell(link.offer())
    assert link.sender.state is SenderState.GAVE_UP
    assert link.sender.reason is GiveUpReason.TOO_LARGE
    assert (link.manifest.size_bytes, link.sender.limit_bytes) == (3 * CHUNK_BYTES, 2 * CHUNK_BYTES)


def test_a_peer_that_offers_too_much_is_refused() -> None:
    link = Link(make_blob(10), limits=IntakeLimits(offers_per_peer=2))
    for name in (b"one-----", b"two-----"):
        (answer,) = link.intake.offer("d", name, link.manifest, 0.0)
        assert isinstance(answer.message, TransferGrant)
    (answer,) = link.intake.offer("d", b"three---", link.manifest, 0.0)
    assert isinstance(answer.message, TransferRefusal)
    assert answer.message.reason is RefusalReason.TOO_MANY
    (answer,) = link.intake.offer("e", b"three---", link.manifest, 0.0)
    assert isinstance(answer.message, TransferGrant)


# ------------------------------------------------------------ slots


def test_slots_go_to_those_who_wait_when_others_end_or_fall_silent() -> None:
    blob = make_blob(2 * MIN_CHUNK_BYTES)
    manifest = describe(blob, MIN_CHUNK_BYTES)
    intake = Intake(UploadStage(1 << 20, 16), epoch=1, limits=IntakeLimits(slots=1))

    def windows(answers: list[Answer]) -> list[tuple[str, int]]:
        return [
            (answer.peer, answer.message.window_bytes)
            for answer in answers
            if isinstance(answer.message, TransferGrant)
        ]

    assert windows(intake.offer("a", ID, manifest, 0.0)) == [("a", 2 * MIN_CHUNK_BYTES)]
    assert windows(intake.offer("b", ID, manifest, 0.0)) == [("b", 0)]
    assert windows(intake.offer("c", ID, manifest, 0.0)) == [("c", 0)]
    for index, data in enumerate(chunks_of(blob, MIN_CHUNK_BYTES)):
        intake.chunk("a", ID, pack_chunk(index, data), 0.1)
    assert intake.take("a", ID) == blob
    assert windows(intake.wake(0.2)) == [("b", 2 * MIN_CHUNK_BYTES)]
    assert windows(intake.wake(10.0)) == []
    assert windows(intake.wake(16.0)) == [("c", 2 * MIN_CHUNK_BYTES)]  # b said nothing for 15 s
    assert windows(intake.offer("b", ID, manifest, 17.0)) == [("b", 0)]  # back, and waits


def test_what_silent_senders_left_makes_room_for_others() -> None:
    blob = make_blob(4 * MIN_CHUNK_BYTES)
    manifest = describe(blob, MIN_CHUNK_BYTES)
    limits = IntakeLimits(slots=4, staged_bytes=4 * MIN_CHUNK_BYTES, blob_bytes=4 * MIN_CHUNK_BYTES)
    intake = Intake(UploadStage(1 << 20, 16), epoch=1, limits=limits)
    intake.offer("a", ID, manifest, 0.0)
    intake.chunk("a", ID, pack_chunk(0, blob[:MIN_CHUNK_BYTES]), 0.0)
    (answer,) = intake.offer("b", ID, manifest, 1.0)
    assert isinstance(answer.message, TransferGrant)
    assert answer.message.window_bytes == 0
    *_, answer = intake.wake(16.0)
    assert (answer.peer, intake.staged_bytes) == ("b", len(blob))
    assert not intake.knows("a", ID)


def test_a_slow_sender_whose_slot_was_taken_goes_on_by_its_next_chunk() -> None:
    blob = make_blob(2 * MIN_CHUNK_BYTES)
    manifest = describe(blob, MIN_CHUNK_BYTES)
    intake = Intake(UploadStage(1 << 20, 16), epoch=1, limits=IntakeLimits())
    intake.offer("a", ID, manifest, 0.0)
    intake.wake(20.0)
    assert intake.active_count == 0
    verdict, answers = intake.chunk("a", ID, pack_chunk(0, blob[:MIN_CHUNK_BYTES]), 21.0)
    assert verdict is ChunkVerdict.STORED
    assert [answer.message.window_bytes for answer in answers] == [2 * MIN_CHUNK_BYTES]  # type: ignore[union-attr]


def test_what_was_taken_and_is_not_safe_yet_is_neither_asked_for_nor_called_done() -> None:
    blob = make_blob(2 * CHUNK_BYTES)
    link = Link(blob)
    link.run()
    assert link.intake.take("d", ID) == blob
    (answer,) = link.offer()
    assert isinstance(answer.message, TransferProgress)
    assert (answer.message.missing, answer.message.is_done) == (b"\x00", False)
    assert link.intake.active_count == link.intake.waiting_count == 0
    (answer,) = link.intake.done("d", ID)
    assert isinstance(answer.message, TransferProgress)
    assert answer.message.is_done


# ------------------------------------------------------------ stale answers are values


def grant(epoch: int, number: int, missing: bytes = b"\x0f") -> TransferGrant:
    return TransferGrant(
        transfer_id=ID,
        epoch=epoch,
        number=number,
        window_bytes=WINDOW_BYTES,
        deadline_ms=60_000,
        missing=missing,
    )


def progress(epoch: int, number: int, missing: bytes, *, is_done: bool = False) -> TransferProgress:
    return TransferProgress(
        transfer_id=ID, epoch=epoch, number=number, missing=missing, is_done=is_done
    )


def test_what_the_sender_makes_of_each_answer() -> None:
    sender = Sender(describe(make_blob(4 * CHUNK_BYTES)), 0.0, least_epoch=5)
    assert sender.on_answer(grant(4, 9), 0.0) is Heard.STALE_EPOCH
    assert sender.on_answer(grant(5, 2, b"\xff"), 0.0) is Heard.MALFORMED
    assert sender.on_answer(grant(5, 2), 0.0) is Heard.TAKEN
    assert sender.on_answer(grant(5, 2), 0.0) is Heard.STALE_GRANT
    assert sender.on_answer(grant(5, 1), 0.0) is Heard.STALE_GRANT
    assert sender.on_answer(progress(5, 1, b"\x0e"), 0.0) is Heard.STALE_GRANT
    assert sender.on_answer(progress(4, 2, b"\x0e"), 0.0) is Heard.STALE_EPOCH
    assert sender.on_answer(progress(5, 2, b"\x0e\x00"), 0.0) is Heard.MALFORMED
    assert sender.on_answer(progress(5, 2, b"\x0c"), 0.0) is Heard.TAKEN
    # An older receipt that was overtaken takes nothing back.
    assert sender.on_answer(progress(5, 2, b"\x0e"), 0.0) is Heard.TAKEN
    assert [step.index for step in sender.due(0.0)] == [2, 3]  # type: ignore[union-attr]
    assert sender.on_answer(progress(4, 1, b"\x00", is_done=True), 0.0) is Heard.TAKEN
    assert sender.state is SenderState.DONE
    assert sender.on_answer(grant(6, 1), 0.0) is Heard.OVER


def test_a_receiver_that_has_started_anew_is_offered_to_at_once() -> None:
    sender = Sender(describe(make_blob(4 * CHUNK_BYTES)), 0.0)
    assert sender.due(0.0) == [SendOffer()]
    sender.on_answer(grant(1, 1), 0.0)
    assert len(sender.due(0.0)) == 4
    sender.on_epoch(2, 0.5)
    assert sender.due(0.5) == [SendOffer()]
    assert sender.on_answer(grant(1, 2), 0.5) is Heard.STALE_EPOCH
    assert sender.on_answer(grant(2, 1), 0.5) is Heard.TAKEN
    assert len(sender.due(0.5)) == 4
    sender.on_epoch(2, 0.6)  # heard again: nothing is new
    assert sender.due(0.6) == []


# ------------------------------------------------------------ sizes and identities


@given(size=st.integers(1, 5 * MIN_CHUNK_BYTES), chunk=st.integers(MIN_CHUNK_BYTES, 20_000))
def test_any_size_arrives(size: int, chunk: int) -> None:
    blob = make_blob(size)
    link = Link(blob, chunk_bytes=chunk)
    assert link.finish() == blob
    assert link.chunk_bytes_sent == size


def test_the_id_names_context_content_and_cut() -> None:
    blob = make_blob(3 * MIN_CHUNK_BYTES)
    one = describe(blob, MIN_CHUNK_BYTES)
    ids = {
        one.transfer_id(b"a"),
        one.transfer_id(b"b"),
        describe(blob, MIN_CHUNK_BYTES + 1).transfer_id(b"a"),
        describe(blob[:-1], MIN_CHUNK_BYTES).transfer_id(b"a"),
    }
    assert len(ids) == 4
    assert one.transfer_id(b"a") == describe(blob, MIN_CHUNK_BYTES).transfer_id(b"a")


@pytest.mark.parametrize("chunk_bytes", [0, MIN_CHUNK_BYTES - 1, MAX_CHUNK_BYTES + 1])
def test_chunk_sizes_outside_of_the_range_are_refused(chunk_bytes: int) -> None:
    with pytest.raises(ConfigError, match="E-CHUNK-SIZE"):
        describe(b"x", chunk_bytes)


def test_a_large_offer_is_still_small() -> None:
    manifest = describe(bytes(1 << 20), CHUNK_BYTES)
    hashes = MAX_BLOB_BYTES // CHUNK_BYTES * 32
    assert len(manifest.chunk_hashes) == 16 * 32
    assert hashes < CHUNK_BYTES


# ------------------------------------------------------------ strangers' bytes


@given(missing=st.frozensets(st.integers(0, 99)), count=st.integers(100, 140))
def test_bitmaps_round_trip(missing: frozenset[int], count: int) -> None:
    assert unpack_missing(pack_missing(missing, count), count) == missing


@given(bitmap=st.binary(max_size=20), count=st.integers(1, 120))
def test_any_bitmap_is_read_or_refused(bitmap: bytes, count: int) -> None:
    missing = unpack_missing(bitmap, count)
    assert missing is None or pack_missing(missing, count) == bitmap


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64 - 1),
    st.binary(max_size=80),
    st.text(max_size=8),
    st.lists(st.integers(0, 9), max_size=3),
)


@given(kind=st.sampled_from(MESSAGES), body=st.dictionaries(st.integers(0, 6), values, max_size=7))
def test_any_body_is_read_or_refused_by_name(
    kind: type[TransferOffer], body: dict[int, wire.WireValue]
) -> None:
    with suppress(WireError):
        message = kind.from_body(body)
        assert kind.from_body(message.to_body()) == message


def test_an_offer_that_contradicts_itself_is_refused() -> None:
    manifest = describe(make_blob(3 * MIN_CHUNK_BYTES), MIN_CHUNK_BYTES)
    offer = TransferOffer(message_kind=4, head=b"\xa0", bulk_key=0, manifest=manifest)
    assert TransferOffer.from_body(wire.as_body(wire.decode(wire.encode(offer.to_body())))) == offer
    for key, wrong in ((3, 1), (3, 10**9), (4, 10), (5, b"short"), (4, 2**60)):
        with pytest.raises(WireError):
            TransferOffer.from_body({**offer.to_body(), key: wrong})


@given(payload=st.binary(max_size=40))
def test_any_down_packet_is_read_or_none(payload: bytes) -> None:
    packet = read_down(payload)
    assert (packet is not None) == (len(payload) >= DOWN_HEAD_BYTES and payload[0] == 2)


def test_a_down_packet_carries_an_up_packet() -> None:
    packet = read_down(pack_chunk_down(ID, 7, b"data"))
    assert packet is not None
    assert (packet.transfer_id, bytes(packet.packet)) == (ID, pack_chunk(7, b"data"))


@given(packet=st.binary(max_size=60))
def test_any_chunk_packet_gets_a_verdict(packet: bytes) -> None:
    link = Link(make_blob(MIN_CHUNK_BYTES), chunk_bytes=MIN_CHUNK_BYTES)
    assert link.intake.chunk("d", ID, packet, 0.0)[0] is ChunkVerdict.NO_SUCH_TRANSFER
    link.offer()
    assert not link.intake.chunk("d", ID, packet, 0.0)[0].is_taken
