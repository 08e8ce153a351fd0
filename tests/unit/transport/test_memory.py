"""The in-process broker does what the layers above rely on."""

import asyncio

import pytest

from edgefl.errors import ConfigError, TransportError
from edgefl.transport.base import Inbound, LinkDown, LinkDownReason, LinkUp, TransportEvent, Will
from edgefl.transport.memory import MemoryBroker, MemoryTransport


async def drain(transport: MemoryTransport) -> list[TransportEvent]:
    """Close and return everything that was seen."""
    await transport.close()
    return [event async for event in transport.events()]


def payloads(events: list[TransportEvent]) -> list[tuple[str, bytes, bool]]:
    return [(e.topic, e.payload, e.retained) for e in events if isinstance(e, Inbound)]


def test_messages_reach_matching_subscribers_once():
    async def run():
        broker = MemoryBroker()
        one, other = MemoryTransport(broker, "one"), MemoryTransport(broker, "other")
        await one.start()
        await other.start()
        await one.subscribe("a/+", "a/#")
        await other.publish("a/b", b"1")
        await other.publish("b", b"2")
        return payloads(await drain(one)), payloads(await drain(other))

    assert asyncio.run(run()) == ([("a/b", b"1", False)], [])


def test_retained_messages_are_replayed_and_can_be_cleared():
    async def run():
        broker = MemoryBroker()
        one, late = MemoryTransport(broker, "one"), MemoryTransport(broker, "late")
        await one.start()
        await one.publish("keep", b"1", retain=True)
        await one.publish("gone", b"1", retain=True)
        await one.publish("gone", b"", retain=True)
        await late.subscribe("#")
        await late.start()
        return payloads(await drain(late))

    assert asyncio.run(run()) == [("keep", b"1", True)]


def test_a_cut_link_publishes_the_will_and_a_close_does_not():
    async def run():
        broker = MemoryBroker()
        watcher = MemoryTransport(broker, "watcher")
        await watcher.subscribe("st/#")
        await watcher.start()
        for name in ("cut", "polite"):
            client = MemoryTransport(broker, name, Will(topic=f"st/{name}", payload=b"off"))
            await client.start()
            if name == "cut":
                broker.cut(name)
            else:
                await client.close()
        return payloads(await drain(watcher)), dict(broker.retained)

    assert asyncio.run(run()) == ([("st/cut", b"off", False)], {"st/cut": b"off"})


def test_a_second_client_with_the_id_takes_over():
    async def run():
        broker = MemoryBroker()
        first, second = MemoryTransport(broker, "same"), MemoryTransport(broker, "same")
        await first.start()
        await second.start()
        return await drain(first)

    downs = [event for event in asyncio.run(run()) if isinstance(event, LinkDown)]
    assert downs[0].reason is LinkDownReason.TAKEN_OVER


def test_a_crash_forgets_everything_and_subscriptions_come_back_with_the_client():
    async def run():
        broker = MemoryBroker()
        one = MemoryTransport(broker, "one")
        await one.subscribe("a")
        await one.start()
        await one.publish("kept", b"x", retain=True)
        broker.crash()
        await one.publish("a", b"lost")
        one.reconnect()
        broker.restart()
        one.reconnect()
        await one.publish("a", b"2")
        return await drain(one), one.dropped_count, dict(broker.retained)

    events, dropped_count, retained = asyncio.run(run())
    assert [type(event) for event in events] == [
        LinkUp,
        LinkDown,
        LinkDown,
        LinkUp,
        Inbound,
        LinkDown,
    ]
    assert [e.session_present for e in events if isinstance(e, LinkUp)] == [False, False]
    assert dropped_count == 1
    assert retained == {}


def test_misuse_is_refused():
    async def run():
        broker = MemoryBroker()
        transport = MemoryTransport(broker, "one")
        await transport.start()
        with pytest.raises(ConfigError, match="E-TOPIC"):
            await transport.publish("a/#", b"")
        with pytest.raises(ConfigError, match="E-TOPIC"):
            await transport.subscribe("a#")
        await transport.close()
        await transport.close()
        with pytest.raises(TransportError, match="E-TRANSPORT-CLOSED"):
            await transport.publish("a", b"")

    asyncio.run(run())
