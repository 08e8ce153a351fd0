"""Our own link at the endpoint where something ends: kills, restarts, silence, garbage, ports."""

import asyncio
import contextlib
import socket
import struct
import sys
import time
from pathlib import Path

import pytest

from edgefl.errors import EnvironmentProblem
from edgefl.transport.base import LinkDownReason
from tests.integration.brokers import until
from tests.integration.local_endpoint import local_endpoint
from tests.integration.mqtt_lab import connected, endpoint_at

WITHIN_S = 15.0


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
            endpoint_at() as port,
            connected(port, "gw", "st/+") as gateway,
        ):
            victim = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CHILD_CLIENT, str(port)
            )
            try:
                await until(lambda: gateway.payloads("st/victim") == [b"online"])
                victim.kill()
                await until(
                    lambda: gateway.payloads("st/victim") == [b"online", b"offline"], within_s=2.0
                )
            finally:
                with contextlib.suppress(ProcessLookupError):
                    victim.kill()
                await victim.wait()
            async with connected(port, "late", "st/+") as late:
                await until(lambda: late.payloads("st/victim") == [b"offline"])

    asyncio.run(run())


def test_clients_come_back_after_the_broker_returned_empty():
    async def run():
        async with contextlib.AsyncExitStack() as stack:
            first = await stack.enter_async_context(contextlib.AsyncExitStack())
            port = await first.enter_async_context(endpoint_at())
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
            await stack.enter_async_context(endpoint_at(port))
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
            async with endpoint_at(port):
                await until(lambda: early.payloads("a") == [b"queued"])

    asyncio.run(run())


def test_two_processes_with_one_id_are_told():
    async def run():
        async with (
            endpoint_at() as port,
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


def test_a_silent_link_ends_after_its_keepalive():
    async def run():
        async with (
            endpoint_at() as port,
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
            await until(lambda: gateway.payloads("st/mute") == [b"offline"], within_s=5.0)
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
            endpoint_at() as port,
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
            endpoint_at() as port,
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
