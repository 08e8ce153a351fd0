"""Our own link at the endpoint delivers: in order, retained, to sleepers, to slow readers."""

import asyncio
import contextlib
import os
import socket

import pytest

from edgefl.transport.base import Inbound, LinkDownReason, LinkUp, Will
from edgefl.transport.settings import MqttVersion
from tests.integration.brokers import until
from tests.integration.local_endpoint import counting_endpoint
from tests.integration.mqtt_lab import connected, endpoint_at, link_to

WITHIN_S = 15.0


def test_sixteen_clients_and_a_gateway():
    async def run():
        async with contextlib.AsyncExitStack() as stack:
            port = await stack.enter_async_context(endpoint_at())
            gateway = await stack.enter_async_context(connected(port, "gw", "d/+/#"))
            devices = [
                await stack.enter_async_context(connected(port, f"dev{k}", f"d/{k}/c"))
                for k in range(16)
            ]
            await until(lambda: all(client.transport.is_up for client in [gateway, *devices]))
            chunk = os.urandom(65_536)
            for number, device in enumerate(devices):
                for part in range(4):
                    await device.transport.publish(f"d/{number}/up", bytes([part]) + chunk)
            for number in range(16):
                await gateway.transport.publish(f"d/{number}/c", str(number).encode())
            await until(lambda: all(device.inbound for device in devices))
            await until(lambda: all(len(gateway.payloads(f"d/{k}/up")) == 4 for k in range(16)))
            for number, device in enumerate(devices):
                # nobody hears what is meant for others
                assert [(e.topic, e.payload) for e in device.inbound] == [
                    (f"d/{number}/c", str(number).encode())
                ]
                parts = gateway.payloads(f"d/{number}/up")
                assert [part[0] for part in parts] == [0, 1, 2, 3]  # in order
                assert all(part[1:] == chunk for part in parts)

    asyncio.run(run())


def test_retained_messages_reach_late_subscribers_and_nobody_else():
    async def run():
        async with (
            endpoint_at() as port,
            connected(port, "gw", "st/+") as gateway,
        ):
            await gateway.transport.publish("agg", b"epoch 1", retain=True)
            await gateway.transport.publish("agg", b"epoch 2", retain=True)
            await gateway.transport.publish("st/1", b"on", retain=True)
            await until(lambda: gateway.payloads("st/1"))
            async with connected(port, "late", "agg") as late:
                await until(lambda: late.inbound)
                await asyncio.sleep(0.2)
                assert [(e.topic, e.payload, e.retained) for e in late.inbound] == [
                    ("agg", b"epoch 2", True)
                ]

    asyncio.run(run())


def test_a_polite_close_publishes_everything_and_no_will():
    async def run():
        async with (
            endpoint_at() as port,
            connected(port, "gw", "st/+", "q") as gateway,
        ):
            will = Will(topic="st/a", payload=b"offline")
            for visit in range(10):
                async with connected(port, "a", will=will) as device:
                    await until(lambda device=device: device.transport.is_up)
                    for number in range(20):
                        await device.transport.publish("q", f"{visit}/{number}".encode())
            wanted = [f"{visit}/{number}".encode() for visit in range(10) for number in range(20)]
            await until(lambda: len(gateway.payloads("q")) >= len(wanted))
            assert gateway.payloads("q") == wanted
            assert gateway.payloads("st/a") == []

    asyncio.run(run())


def test_a_client_that_comes_back_at_once_does_not_meet_itself():
    async def run(port: int):
        for _ in range(200):  # without the wait at the end, one in a hundred does
            async with connected(port, "a") as device:
                await until(lambda device=device: device.transport.is_up)

    with counting_endpoint() as (endpoint, port):
        asyncio.run(run(port))
        assert endpoint.stats()["takeovers"] == 0


def test_all_that_came_before_a_disconnect_is_passed_on():
    """A device that is owed a retained message sends 100 of its own and goes to sleep."""

    async def run():
        async with (
            endpoint_at() as port,
            connected(port, "gw", "q", "keep") as gateway,
        ):
            await gateway.transport.publish("keep", b"x", retain=True)
            await until(lambda: gateway.payloads("keep"))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"\x10\x0d\0\4MQTT\4\0\0\x3c\0\1s")
            assert await reader.readexactly(4) == b"\x20\2\0\0"
            subscribe = b"\x82\x09\0\1\0\4keep\1"
            burst = [b"\x32\x06\0\1q\0" + bytes([k + 1, k]) for k in range(100)]
            writer.write(subscribe + b"".join(burst) + b"\xe0\0")
            await writer.drain()
            answers = b""
            while answers.count(b"\x40\2") < 100:  # PUBACKs: the broker has taken all
                answers += await reader.read(4096)
            writer.close()
            await writer.wait_closed()
            await until(lambda: len(gateway.payloads("q")) == 100)
            assert [payload[0] for payload in gateway.payloads("q")] == list(range(100))

    asyncio.run(run())


def test_messages_wait_for_a_client_that_is_away():
    async def run():
        async with (
            endpoint_at() as port,
            connected(port, "gw") as gateway,
        ):
            async with connected(port, "sleeper", "d/c") as sleeper:
                await until(lambda: sleeper.transport.is_up)
            for number in range(3):
                await gateway.transport.publish("d/c", bytes([number]))
            await asyncio.sleep(0.2)
            async with connected(port, "sleeper", "d/c") as awake:
                await until(lambda: len(awake.inbound) == 3)
                assert [(e.payload, e.retained) for e in awake.inbound] == [
                    (bytes([number]), False) for number in range(3)
                ]
                assert [up.session_present for up in awake.ups] == [True]

    asyncio.run(run())


def test_a_slow_consumer_loses_nothing_and_holds_the_sender_back():
    async def run():
        async with (
            endpoint_at() as port,
            connected(port, "sender", max_outbox_messages=8) as sender,
        ):
            slow = link_to(port, "slow", max_inbox_messages=4)
            await slow.subscribe("x")
            await slow.start()
            events = slow.events()
            try:
                assert isinstance(await anext(events), LinkUp)
                await until(lambda: sender.transport.is_up)
                for number in range(300):
                    await sender.transport.publish("x", number.to_bytes(2) + bytes(2000))
                await asyncio.sleep(0.3)
                seen = []
                async with asyncio.timeout(WITHIN_S):
                    while len(seen) < 300:
                        event = await anext(events)
                        assert isinstance(event, Inbound)
                        seen.append(int.from_bytes(event.payload[:2]))
                assert seen == list(range(300))
                assert sender.transport.dropped_count == 0
            finally:
                await slow.close()

    asyncio.run(run())


def test_a_consumer_that_answers_each_message_with_more_does_not_lock_up():
    async def run():
        async with endpoint_at() as port:
            settings = {"max_inbox_messages": 2, "max_outbox_messages": 2, "max_in_flight": 2}
            echo = link_to(port, "echo", **settings)
            await echo.subscribe("x")
            await echo.start()
            published = 0
            try:
                async with asyncio.timeout(WITHIN_S):
                    async for _ in echo.events():
                        for _ in range(3):
                            await echo.publish("x", bytes(1000))
                            published += 1
                        if published >= 60:
                            break
            finally:
                await echo.close()
            assert published >= 60

    asyncio.run(run())


@pytest.mark.parametrize(
    ("version", "reasons"),
    # MQTT 5 announces the limit; at 3.1.1 the link breaks, and the message is suspected.
    [(MqttVersion.V5, set()), (MqttVersion.V311, {LinkDownReason.MESSAGE_REFUSED})],
)
def test_a_message_that_is_too_large_is_set_aside(version, reasons):
    async def run():
        async with (
            endpoint_at() as port,
            connected(port, "a", "ok", version=version) as client,
        ):
            await until(lambda: client.transport.is_up)
            await client.transport.publish("ok", bytes(300_000))
            await client.transport.publish("ok", b"after")
            await until(lambda: client.payloads("ok") == [b"after"])
            assert set(client.down_reasons) - {LinkDownReason.LOST} == reasons

    asyncio.run(run())


def test_offline_messages_are_bounded_and_the_newest_arrive():
    async def run():
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            port = holder.getsockname()[1]
        async with connected(port, "a", "x", max_outbox_messages=10) as client:
            for number in range(25):
                await client.transport.publish("x", bytes([number]))
            assert client.transport.dropped_count == 15
            async with endpoint_at(port):
                await until(lambda: len(client.inbound) == 10)
                assert [event.payload[0] for event in client.inbound] == list(range(15, 25))

    asyncio.run(run())
