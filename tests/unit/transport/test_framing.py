"""Large messages: split into packets, and put together again whatever the network does."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.errors import WireError
from edgefl.protocol import wire
from edgefl.transport.base import Inbound, LinkUp
from edgefl.transport.framing import FramedTransport, Reassembler, frames_of
from edgefl.transport.memory import MemoryBroker, MemoryTransport

CHUNK_BYTES = 4096


def blob(size_bytes: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size_bytes)


def feed(reassembler: Reassembler, packets: list[bytes], topic: str = "t") -> list[bytes]:
    return [whole for packet in packets if (whole := reassembler.accept(topic, packet)) is not None]


def test_a_small_message_travels_as_it_is() -> None:
    message = wire.encode([1, 2, 3, 4])
    assert frames_of(message, CHUNK_BYTES) == [message]
    assert feed(Reassembler(), [message]) == [message]


def test_a_small_message_that_looks_like_a_frame_is_wrapped() -> None:
    message = wire.encode([1, b"x" * 32, {0: 1}])
    packets = frames_of(message, CHUNK_BYTES)
    assert len(packets) == 2
    assert feed(Reassembler(), packets) == [message]


@given(st.integers(CHUNK_BYTES + 1, 5 * CHUNK_BYTES), st.randoms(use_true_random=False))
def test_any_order_and_duplicates_give_the_message_once(size: int, rng: random.Random) -> None:
    message = blob(size)
    head, *chunks = frames_of(message, CHUNK_BYTES)
    shuffled = [*chunks, rng.choice(chunks)]
    rng.shuffle(shuffled)
    assert feed(Reassembler(), [head, head, *shuffled])[0] == message


def test_a_message_sent_again_keeps_the_chunks_that_arrived() -> None:
    message = blob(5 * CHUNK_BYTES)
    packets = frames_of(message, CHUNK_BYTES)
    reassembler = Reassembler()
    assert feed(reassembler, packets[:3]) == []
    assert feed(reassembler, [packets[0], *packets[3:]]) == [message]


def test_a_wrong_chunk_is_not_taken() -> None:
    message = blob(3 * CHUNK_BYTES)
    head, first, *rest = frames_of(message, CHUNK_BYTES)
    damaged = bytearray(first)
    damaged[-1] ^= 1
    reassembler = Reassembler()
    assert feed(reassembler, [head, bytes(damaged), *rest]) == []
    assert feed(reassembler, [first]) == [message]


def test_topics_do_not_mix() -> None:
    one, other = blob(2 * CHUNK_BYTES, 1), blob(2 * CHUNK_BYTES, 2)
    reassembler = Reassembler()
    for packet in frames_of(one, CHUNK_BYTES)[:-1]:
        assert reassembler.accept("a", packet) is None
    assert feed(reassembler, frames_of(other, CHUNK_BYTES), "b") == [other]
    assert reassembler.accept("a", frames_of(one, CHUNK_BYTES)[-1]) == one


def test_unfinished_messages_are_bounded() -> None:
    reassembler = Reassembler(largest_total_bytes=3 * CHUNK_BYTES)
    first, second = blob(2 * CHUNK_BYTES, 1), blob(2 * CHUNK_BYTES, 2)
    reassembler.accept("a", frames_of(first, CHUNK_BYTES)[0])
    reassembler.accept("b", frames_of(second, CHUNK_BYTES)[0])
    assert feed(reassembler, frames_of(first, CHUNK_BYTES)[1:], "a") == []
    assert feed(reassembler, frames_of(second, CHUNK_BYTES)[1:], "b") == [second]


@given(st.binary(max_size=200))
def test_hostile_frames_raise_nothing_else(tail: bytes) -> None:
    try:
        Reassembler().accept("t", b"\x83" + tail)
    except WireError:
        return


@pytest.mark.parametrize("size", [10, 3 * 65_536 + 7])
def test_a_framed_transport_carries_any_size(size: int) -> None:
    message = b"\x88" + blob(size)

    async def exchange() -> bytes:
        broker = MemoryBroker()
        sender = FramedTransport(MemoryTransport(broker, "sender"))
        receiver = FramedTransport(MemoryTransport(broker, "receiver"))
        await receiver.start()
        await receiver.subscribe("topic")
        await sender.start()
        await sender.publish("topic", message)
        async for event in receiver.events():
            if isinstance(event, Inbound):
                await sender.close()
                await receiver.close()
                return event.payload
            assert isinstance(event, LinkUp)
        raise AssertionError("no message")

    assert asyncio.run(exchange()) == message
