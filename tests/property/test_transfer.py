"""Transfers end with the right blob over any lossy link; strangers' bytes raise WireError."""

import hashlib
import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import ConfigError, LocalProtocolError, RemoteProtocolError, WireError
from edgefl.transfer.bitmap import pack_missing, unpack_missing
from edgefl.transfer.manifest import MIN_CHUNK_BYTES, Manifest, describe, split
from edgefl.transfer.messages import Chunk, Receipt
from edgefl.transfer.receiver import ChunkVerdict, Receiver
from edgefl.transfer.sender import Sender, SenderState
from edgefl.types import Seconds

LIMIT_BYTES = 1 << 20


def make_blob(size_bytes: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size_bytes)


BLOB_SIZES = st.sampled_from(
    [1, MIN_CHUNK_BYTES - 1, MIN_CHUNK_BYTES, MIN_CHUNK_BYTES + 1, 5 * MIN_CHUNK_BYTES, 61_234]
)


class LossyLink:
    """Drops, doubles, delays, reorders and corrupts; each fate is drawn by hypothesis."""

    def __init__(self, rng: random.Random, rates: dict[str, float]) -> None:
        self._rng = rng
        self._rates = rates
        self._queue: list[object] = []

    def send(self, item: object) -> None:
        if self._rng.random() < self._rates["drop"]:
            return
        if isinstance(item, Chunk) and self._rng.random() < self._rates["corrupt"]:
            item = self._corrupted(item)
        self._queue.append(item)
        if self._rng.random() < self._rates["duplicate"]:
            self._queue.append(item)

    def receive(self) -> list[object]:
        kept = [item for item in self._queue if self._rng.random() < self._rates["delay"]]
        arrived = [item for item in self._queue if not any(item is other for other in kept)]
        self._queue = kept
        if self._rng.random() < self._rates["reorder"]:
            self._rng.shuffle(arrived)
        return arrived

    def _corrupted(self, chunk: Chunk) -> Chunk:
        data = bytearray(chunk.data)
        data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        index = chunk.index if self._rng.random() < 0.5 else chunk.index + 1
        return Chunk(index=index, data=bytes(data))


RATES = st.fixed_dictionaries(
    {
        "drop": st.floats(0, 0.6),
        "duplicate": st.floats(0, 0.5),
        "delay": st.floats(0, 0.5),
        "reorder": st.floats(0, 1),
        "corrupt": st.floats(0, 0.3),
    }
)


@settings(max_examples=60, deadline=None)
@given(size_bytes=BLOB_SIZES, rates=RATES, seed=st.integers(0, 2**32), restarts=st.integers(0, 2))
def test_the_blob_arrives_over_any_link_that_lets_some_through(size_bytes, rates, seed, restarts):
    rng = random.Random(seed)
    blob = make_blob(size_bytes, seed)
    manifest = Manifest.from_wire(
        describe(blob, MIN_CHUNK_BYTES).to_wire(), max_blob_bytes=LIMIT_BYTES
    )
    sender = Sender(blob, manifest, resend_s=Seconds(3.0), max_silent_resends=10_000)
    receiver = Receiver(manifest)
    up, down = LossyLink(rng, rates), LossyLink(rng, {**rates, "corrupt": 0.0})
    now = 0.0
    restart_at = sorted(rng.randrange(5, 60) for _ in range(restarts))
    for step in range(5000):
        now += 1.0
        if restart_at and step >= restart_at[0]:
            restart_at.pop(0)
            if not receiver.is_whole:  # a receiver that lost its memory before it stored anything
                receiver = Receiver(manifest)
                sender.on_link_up()
        chunks = sender.due(Seconds(now))
        assert len(chunks) <= 4
        for chunk in chunks:
            up.send(chunk)
        for arrived in up.receive():
            assert isinstance(arrived, Chunk)
            verdict = receiver.accept(arrived)
            if receiver.is_whole:
                assert receiver.blob() == blob
                receiver.note_stored()
            if verdict in {ChunkVerdict.STORED, ChunkVerdict.DUPLICATE}:
                down.send(receiver.receipt())
        for receipt in down.receive():
            assert isinstance(receipt, Receipt)
            sender.on_receipt(Receipt.from_wire(receipt.to_wire()), Seconds(now))
        if sender.state is SenderState.DONE:
            break
    assert sender.state is SenderState.DONE
    assert receiver.blob() == blob


def test_a_clean_link_carries_each_chunk_once_within_the_window():
    blob = make_blob(10 * MIN_CHUNK_BYTES)
    manifest, _ = split(blob, MIN_CHUNK_BYTES)
    sender, receiver = Sender(blob, manifest), Receiver(manifest)
    now = Seconds(0.0)
    first = sender.due(now)
    assert [chunk.index for chunk in first] == [0, 1, 2, 3]
    assert sender.due(now) == ()
    assert sender.wakes_at() == 3.0
    for chunk in first:
        assert receiver.accept(chunk) is ChunkVerdict.STORED
    sender.on_receipt(receiver.receipt(), now)
    while chunks := sender.due(now):
        for chunk in chunks:
            receiver.accept(chunk)
        sender.on_receipt(receiver.receipt(), now)
    assert sender.state is SenderState.WAITING_FOR_DONE
    assert sender.sent_chunk_count == 10
    receiver.note_stored()
    sender.on_receipt(receiver.receipt(), now)
    assert sender.state is SenderState.DONE


def test_resume_by_bitmap_sends_only_what_is_missing():
    blob = make_blob(8 * MIN_CHUNK_BYTES)
    manifest, _ = split(blob, MIN_CHUNK_BYTES)
    sender = Sender(blob, manifest, window=8)
    sender.on_receipt(Receipt(missing=pack_missing({2, 5}, 8), is_done=False), Seconds(0.0))
    assert [chunk.index for chunk in sender.due(Seconds(0.0))] == [2, 5]


def test_without_done_the_sender_keeps_asking_and_forgets_nothing():
    blob = make_blob(MIN_CHUNK_BYTES)
    manifest, _ = split(blob, MIN_CHUNK_BYTES)
    sender, receiver = Sender(blob, manifest), Receiver(manifest)
    receiver.accept(sender.due(Seconds(0.0))[0])
    sender.on_receipt(receiver.receipt(), Seconds(0.0))
    assert sender.state is SenderState.WAITING_FOR_DONE
    assert sender.due(Seconds(1.0)) == ()
    (again,) = sender.due(Seconds(3.0))
    assert receiver.accept(again) is ChunkVerdict.DUPLICATE
    # a receiver that was restarted without its chunks asks for them again
    sender.on_receipt(Receiver(manifest).receipt(), Seconds(4.0))
    assert sender.state is SenderState.SENDING
    assert [chunk.index for chunk in sender.due(Seconds(7.0))] == [0]


def test_silence_ends_in_giving_up_and_resume_goes_on():
    blob = make_blob(MIN_CHUNK_BYTES)
    manifest, _ = split(blob, MIN_CHUNK_BYTES)
    sender = Sender(blob, manifest, max_silent_resends=2)
    sent = [len(sender.due(Seconds(3.0 * step))) for step in range(5)]
    assert sent == [1, 1, 1, 0, 0]
    assert sender.state is SenderState.GAVE_UP
    assert sender.wakes_at() is None
    sender.resume(Seconds(100.0))
    assert len(sender.due(Seconds(100.0))) == 1
    with pytest.raises(LocalProtocolError):
        sender.resume(Seconds(100.0))


@given(count=st.integers(1, 70), data=st.data())
def test_bitmaps_come_back(count, data):
    missing = data.draw(st.frozensets(st.integers(0, count - 1)))
    assert unpack_missing(pack_missing(missing, count), count) == missing


@given(count=st.integers(1, 70), bitmap=st.binary(max_size=12))
def test_foreign_bitmaps_raise_wire_error_or_mark_real_chunks(count, bitmap):
    try:
        missing = unpack_missing(bitmap, count)
    except WireError:
        return
    assert pack_missing(missing, count) == bitmap


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=70) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.integers(0, 6) | st.text(max_size=2), inner, max_size=6)
    ),
    max_leaves=12,
)


@given(data=JUNK)
def test_junk_raises_only_wire_error(data):
    for read in (
        lambda: Manifest.from_wire(data, max_blob_bytes=LIMIT_BYTES),
        lambda: Chunk.from_wire(data),
        lambda: Receipt.from_wire(data),
    ):
        with suppress(WireError):
            read()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (1, b"short"),
        (1, "text"),
        (2, 0),
        (2, -1),
        (2, True),
        (2, LIMIT_BYTES + 1),
        (2, 2 * MIN_CHUNK_BYTES + 1),
        (2, 1 << 70),
        (3, 1),
        (3, 1 << 20),
        (3, MIN_CHUNK_BYTES + 1),
        (4, b""),
        (4, bytes(63)),
        (4, bytes(96)),
        (4, None),
    ],
)
def test_a_manifest_with_one_wrong_field_is_refused(key, value):
    blob = make_blob(MIN_CHUNK_BYTES + 1)
    good = describe(blob, MIN_CHUNK_BYTES).to_wire()
    assert Manifest.from_wire({**good, 99: "newer"}, max_blob_bytes=LIMIT_BYTES).chunk_count == 2
    with pytest.raises(WireError):
        Manifest.from_wire({**good, key: value}, max_blob_bytes=LIMIT_BYTES)


def test_wrong_chunks_change_nothing():
    blob = make_blob(2 * MIN_CHUNK_BYTES + 10)
    manifest, chunks = split(blob, MIN_CHUNK_BYTES)
    receiver = Receiver(manifest)
    wrong = [
        (Chunk(index=0, data=chunks[1]), ChunkVerdict.WRONG_HASH),
        (Chunk(index=2, data=chunks[0]), ChunkVerdict.WRONG_SIZE),
        (Chunk(index=0, data=chunks[0][:-1]), ChunkVerdict.WRONG_SIZE),
        (Chunk(index=3, data=chunks[0]), ChunkVerdict.NO_SUCH_CHUNK),
        (Chunk(index=1 << 62, data=chunks[0]), ChunkVerdict.NO_SUCH_CHUNK),
    ]
    assert [receiver.accept(chunk) for chunk, _ in wrong] == [verdict for _, verdict in wrong]
    assert (receiver.missing_count, receiver.refused_count) == (3, 5)
    with pytest.raises(LocalProtocolError):
        receiver.blob()
    with pytest.raises(LocalProtocolError):
        receiver.note_stored()


def test_a_manifest_whose_whole_contradicts_its_chunks_is_found():
    blob = make_blob(2 * MIN_CHUNK_BYTES)
    good, chunks = split(blob, MIN_CHUNK_BYTES)
    lying = Manifest(
        sha256=hashlib.sha256(b"another").digest(),
        size_bytes=good.size_bytes,
        chunk_bytes=good.chunk_bytes,
        chunk_sha256s=good.chunk_sha256s,
    )
    receiver = Receiver(lying)
    for index, data in enumerate(chunks):
        receiver.accept(Chunk(index=index, data=data))
    with pytest.raises(RemoteProtocolError, match="E-BLOB-HASH"):
        receiver.blob()


def test_misuse_is_refused():
    with pytest.raises(ConfigError):
        describe(b"")
    with pytest.raises(ConfigError):
        describe(b"x", 10)
    with pytest.raises(ConfigError):
        Sender(b"x", describe(b"xy"))
    with pytest.raises(ConfigError):
        Sender(b"x", describe(b"x"), window=0)
