"""Our own link at the endpoint: delivery, retained, wills, sleeps, kills and restarts."""

import asyncio
import contextlib
import os
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from edgefl.errors import EnvironmentProblem
from edgefl.transport.base import Inbound, LinkDown, LinkDownReason, LinkUp, TransportEvent, Will
from edgefl.transport.broker_url import plain_broker
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings, MqttVersion
from tests.integration.local_endpoint import local_endpoint

WITHIN_S = 15.0


class Client:
    """A transport whose events are recorded."""

    def __init__(self, port: int, name: str, will: Will | None = None, **settings: object) -> None:
        self.transport = MqttTransport(
            MqttSettings(brokers=(plain_broker(port),), client_id=name, **settings), will
        )
        self.events: list[TransportEvent] = []

    @property
    def inbound(self) -> list[Inbound]:
        return [event for event in self.events if isinstance(event, Inbound)]

    @property
    def down_reasons(self) -> list[LinkDownReason]:
        return [event.reason for event in self.events if isinstance(event, LinkDown)]

    @property
    def ups(self) -> list[LinkUp]:
        return [event for event in self.events if isinstance(event, LinkUp)]

    def payloads(self, topic: str) -> list[bytes]:
        return [event.payload for event in self.inbound if event.topic == topic]

    async def record(self) -> None:
        async for event in self.transport.events():
            self.events.append(event)


@contextlib.asynccontextmanager
async def connected(
    port: int, name: str, *filters: str, will: Will | None = None, **settings: object
) -> AsyncIterator[Client]:
    client = Client(port, name, will, **settings)
    await client.transport.subscribe(*filters)
    await client.transport.start()
    recorder = asyncio.create_task(client.record())
    try:
        yield client
    finally:
        await client.transport.close()
        await recorder


@contextlib.asynccontextmanager
async def running(port: int = 0) -> AsyncIterator[int]:
    with local_endpoint(port) as bound:
        yield bound


async def until(holds: Callable[[], object], within_s: float = WITHIN_S) -> None:
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - a test may poll
            await asyncio.sleep(0.01)


def test_sixteen_clients_and_a_gateway():
    async def run():
        async with contextlib.AsyncExitStack() as stack:
            port = await stack.enter_async_context(running())
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
            running() as port,
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


CHILD_CLIENT = """
import asyncio, sys
from edgefl.transport.base import LinkUp, Will
from edgefl.transport.broker_url import plain_broker
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings

async def main():
    settings = MqttSettings(brokers=(plain_broker(int(sys.argv[1])),), client_id="victim")
    transport = MqttTransport(settings, Will(topic="st/victim", payload=b"offline"))
    await transport.start()
    async for event in transport.events():
        if isinstance(event, LinkUp):
            await transport.publish("st/victim", b"online", retain=True)

asyncio.run(main())
"""


def test_the_will_of_a_killed_process_is_published_and_retained():
    async def run():
        async with (
            running() as port,
            connected(port, "gw", "st/+") as gateway,
        ):
            victim = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CHILD_CLIENT, str(port)
            )
            try:
                await until(lambda: gateway.payloads("st/victim") == [b"online"])
                victim.kill()
                await until(lambda: gateway.payloads("st/victim") == [b"online", b"offline"], 2.0)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    victim.kill()
                await victim.wait()
            async with connected(port, "late", "st/+") as late:
                await until(lambda: late.payloads("st/victim") == [b"offline"])

    asyncio.run(run())


def test_a_polite_close_publishes_everything_and_no_will():
    async def run():
        async with (
            running() as port,
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


def test_all_that_came_before_a_disconnect_is_passed_on():
    """A device that is owed a retained message sends 100 of its own and goes to sleep."""

    async def run():
        async with (
            running() as port,
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


def test_clients_come_back_after_the_broker_returned_empty():
    async def run():
        async with contextlib.AsyncExitStack() as stack:
            first = await stack.enter_async_context(contextlib.AsyncExitStack())
            port = await first.enter_async_context(running())
            devices = [
                await stack.enter_async_context(connected(port, f"dev{k}", "call"))
                for k in range(16)
            ]
            gateway = await stack.enter_async_context(connected(port, "gw", "q/+"))
            everyone = [gateway, *devices]
            await until(lambda: all(client.transport.is_up for client in everyone))
            await gateway.transport.publish("agg", b"old", retain=True)
            await first.aclose()
            await until(lambda: all(client.down_reasons for client in everyone))
            await stack.enter_async_context(running(port))
            await until(lambda: all(client.transport.is_up for client in everyone))
            # it has forgotten, and its clients are told so
            assert [up.session_present for up in gateway.ups] == [False, False]
            await gateway.transport.publish("call", b"again")
            await until(lambda: all(device.payloads("call") == [b"again"] for device in devices))
            for number, device in enumerate(devices):
                await device.transport.publish(f"q/{number}", b"here")
            await until(lambda: all(gateway.payloads(f"q/{number}") for number in range(16)))

    asyncio.run(run())


def test_a_transport_may_start_before_the_broker():
    async def run():
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            port = holder.getsockname()[1]
        async with connected(port, "early", "a") as early:
            await early.transport.publish("a", b"queued")
            await until(lambda: early.down_reasons == [LinkDownReason.UNREACHABLE])
            async with running(port):
                await until(lambda: early.payloads("a") == [b"queued"])

    asyncio.run(run())


def test_messages_wait_for_a_client_that_is_away():
    async def run():
        async with (
            running() as port,
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


def test_two_processes_with_one_id_are_told():
    async def run():
        async with (
            running() as port,
            connected(port, "gw", "st/same") as gateway,
            connected(port, "same", "d/c") as one,
        ):
            await until(lambda: one.transport.is_up)
            async with connected(port, "same", "d/c") as other:
                await until(lambda: LinkDownReason.REFUSED in one.down_reasons + other.down_reasons)
            # the one that is left hears again what is meant for it
            await until(lambda: one.transport.is_up)
            await asyncio.sleep(0.3)
            await gateway.transport.publish("d/c", b"hello")
            await until(lambda: one.payloads("d/c")[-1:] == [b"hello"])

    asyncio.run(run())


def test_a_slow_consumer_loses_nothing_and_holds_the_sender_back():
    async def run():
        async with (
            running() as port,
            connected(port, "sender", max_outbox_messages=8) as sender,
        ):
            slow = Client(port, "slow", max_inbox_messages=4)
            await slow.transport.subscribe("x")
            await slow.transport.start()
            events = slow.transport.events()
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
                await slow.transport.close()

    asyncio.run(run())


def test_a_consumer_that_answers_each_message_with_more_does_not_lock_up():
    async def run():
        async with running() as port:
            settings = {"max_inbox_messages": 2, "max_outbox_messages": 2, "max_in_flight": 2}
            client = Client(port, "echo", **settings)
            await client.transport.subscribe("x")
            await client.transport.start()
            published = 0
            try:
                async with asyncio.timeout(WITHIN_S):
                    async for _ in client.transport.events():
                        for _ in range(3):
                            await client.transport.publish("x", bytes(1000))
                            published += 1
                        if published >= 60:
                            break
            finally:
                await client.transport.close()
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
            running() as port,
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
            async with running(port):
                await until(lambda: len(client.inbound) == 10)
                assert [event.payload[0] for event in client.inbound] == list(range(15, 25))

    asyncio.run(run())


def test_a_silent_link_ends_after_its_keepalive():
    async def run():
        async with (
            running() as port,
            connected(port, "gw", "st/mute") as gateway,
        ):
            await until(lambda: gateway.transport.is_up)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            fields = [b"mute", b"st/mute", b"offline"]
            body = b"\0\4MQTT\4\x0e\0\1"  # clean session, will with QoS 1, keepalive 1 s
            body += b"".join(struct.pack(">H", len(field)) + field for field in fields)
            writer.write(bytes([0x10, len(body)]) + body)
            assert (await reader.readexactly(4))[:2] == b"\x20\2"
            started_at = time.monotonic()
            await until(lambda: gateway.payloads("st/mute") == [b"offline"], 5.0)
            assert time.monotonic() - started_at > 0.9
            writer.close()
            await writer.wait_closed()

    asyncio.run(run())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(64),
        b"\xff" * 64,
        b"\x10\xff\xff\xff\x7f" + bytes(100),  # a CONNECT of 256 MiB
        b"\x10\x0c\0\4MQTT\4\2\0\x3c\0\0" + b"\x30\xff\xff\xff\x7f",
        b"\x10\x0d\0\4MQTT\4\2\0\x3c\0\1x" + b"\x82\3\0\1\xff",
    ],
)
def test_garbage_harms_nobody_else(garbage):
    async def run():
        async with (
            running() as port,
            connected(port, "gw", "x") as gateway,
        ):
            await until(lambda: gateway.transport.is_up)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(garbage)
            writer.write_eof()
            with contextlib.suppress(OSError):
                async with asyncio.timeout(WITHIN_S):
                    await reader.read()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            await gateway.transport.publish("x", b"fine")
            await until(lambda: gateway.payloads("x") == [b"fine"])
            assert LinkDownReason.LOST not in gateway.down_reasons

    asyncio.run(run())


def test_a_port_in_use_is_one_clear_line():
    with local_endpoint() as port:
        with pytest.raises(EnvironmentProblem) as caught, local_endpoint(port):
            pass
        # and the first goes on
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
    assert caught.value.code == "E-PORT-IN-USE"
    assert caught.value.exit_code == 4
    assert str(port) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_closing_frees_the_port_and_every_thread_and_says_nothing_on_the_terminal(capfd):
    def threads():
        comms = [path / "comm" for path in Path("/proc/self/task").iterdir()]
        return [comm for comm in comms if comm.read_text().startswith("edgefl-mqtt")]

    async def run():
        async with (
            running() as port,
            connected(port, "a", "x") as client,
        ):
            await until(lambda: client.transport.is_up)
            assert threads()
        return port

    port = asyncio.run(run())
    with socket.create_server(("127.0.0.1", port)):
        pass
    assert threads() == []
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
