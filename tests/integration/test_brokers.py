"""One suite over every broker that a fleet may use: what the transport promises holds on each."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from broker.broker_check import check_broker
from broker.endpoint_transport import EndpointTransport
from edgefl.transport.base import LinkDown, Transport
from edgefl.transport.broker_url import BrokerAddress
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings
from tests.integration.brokers import STARTERS, Brokers, mosquitto, stock_mosquitto, until
from tests.integration.mqtt_lab import Client, recorded

# What these show the others show too; and amqtt stays silent at MQTT 5, each time for seconds.
SELDOM = {"mosquitto-ws", "nats-1", "amqtt"}
ALL = [pytest.param(name, marks=[pytest.mark.long] * (name in SELDOM)) for name in STARTERS]
OF_OTHERS = ALL[1:]
KEEPS_SESSIONS = ALL[:-1]


@contextlib.asynccontextmanager
async def using(transport: Transport, *filters: str) -> AsyncIterator[Client]:
    async with recorded(transport, *filters) as client:
        await until(lambda: client.ups, "the connection")
        yield client


def connected(
    addresses: tuple[BrokerAddress, ...], name: str, *filters: str, **changed: object
) -> contextlib.AbstractAsyncContextManager[Client]:
    """Connect to a broker."""
    settings = MqttSettings(brokers=addresses, client_id=name, keepalive_s=20, **changed)
    return using(MqttTransport(settings), *filters)


def gateway_at(
    brokers: Brokers, name: str, *filters: str, **changed: object
) -> contextlib.AbstractAsyncContextManager[Client]:
    """Take the gateway's side: behind its own endpoint, or as a client of a broker."""
    if brokers.endpoint is not None:
        return using(EndpointTransport(brokers.endpoint, lambda _event: None), *filters)
    return connected(brokers.addresses, name, *filters, **changed)


async def settled(gateway: Client) -> None:
    """Wait until the broker has everything; the endpoint has it when `publish` returns."""
    if isinstance(gateway.transport, MqttTransport):
        await gateway.transport.drain()


@pytest.fixture(scope="module", params=ALL)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Brokers]]:
    """Run each broker once for the tests of this file."""
    folder = tmp_path_factory.mktemp(request.param)
    with STARTERS[request.param](folder) as all_:
        yield request.param, all_


def test_chunks_go_both_ways_in_order(broker: tuple[str, Brokers]) -> None:
    name, brokers = broker
    # mosquitto 2.0 writes 4 KiB into a WebSocket, then waits for 100 ms.
    chunk_bytes = 4 << 10 if name == "mosquitto-ws" else 64 << 10

    async def run() -> None:
        at = brokers.addresses
        async with (
            gateway_at(brokers, "gw1", "efl/1/test/d/+/q", "efl/1/test/d/+/up/#") as gateway,
            connected(at[::-1], "edgefl-test-dev.1", "efl/1/test/d/dev.1/c") as device,
        ):
            chunk = os.urandom(chunk_bytes)
            for number in range(8):
                await device.transport.publish("efl/1/test/d/dev.1/up/x", bytes([number]) + chunk)
            await gateway.transport.publish("efl/1/test/d/dev.1/c", b"grant", expiry_s=60.0)
            await until(lambda: len(gateway.inbound) >= 8 and device.inbound, "delivery")
            received = gateway.payloads("efl/1/test/d/dev.1/up/x")
            assert [payload[0] for payload in received] == list(range(8))
            assert all(payload[1:] == chunk for payload in received)
            assert device.payloads("efl/1/test/d/dev.1/c") == [b"grant"]

    asyncio.run(run())


def test_a_latecomer_gets_what_is_retained(broker: tuple[str, Brokers]) -> None:
    _, brokers = broker

    async def run() -> None:
        topic = "efl/1/test/agg"
        async with gateway_at(brokers, "gw2") as gateway:
            await gateway.transport.publish(topic, b"here", retain=True)
            await settled(gateway)
            async with connected(brokers.addresses, "late", topic, clean_start=True) as late:
                await until(lambda: late.inbound, "the retained message")
                assert (late.inbound[0].payload, late.inbound[0].retained) == (b"here", True)
            await gateway.transport.publish(topic, b"", retain=True)
            await settled(gateway)
            async with connected(brokers.addresses, "later", topic, clean_start=True) as later:
                await asyncio.sleep(0.3)
                assert not later.inbound

    asyncio.run(run())


@pytest.mark.parametrize("broker", KEEPS_SESSIONS, indirect=True)
def test_a_sleeper_gets_what_came_meanwhile(broker: tuple[str, Brokers]) -> None:
    _, brokers = broker

    async def run() -> None:
        topic = "efl/1/test/d/sleeper/c"
        at = brokers.addresses
        async with connected(at, "edgefl-test-sleeper", topic):
            pass
        async with gateway_at(brokers, "gw3") as gateway:
            for number in range(20):
                await gateway.transport.publish(topic, bytes([number]))
            await settled(gateway)
        async with connected(at, "edgefl-test-sleeper", topic) as sleeper:
            assert sleeper.ups[0].session_present
            await until(lambda: len(sleeper.inbound) >= 20, "the messages of the night")
            assert sorted(payload[0] for payload in sleeper.payloads(topic)) == list(range(20))

    asyncio.run(run())


@pytest.mark.parametrize("broker", KEEPS_SESSIONS[1:], indirect=True)
def test_what_was_not_acknowledged_comes_again(broker: tuple[str, Brokers]) -> None:
    _, brokers = broker

    async def run() -> None:
        topic = "efl/1/test/d/d7/q"
        at = brokers.addresses
        async with connected(at, "gw4", topic, acknowledges_late=True) as gateway:
            async with connected(at, "d7") as device:
                for number in range(3):
                    await device.transport.publish(topic, bytes([number]))
                await until(lambda: len(gateway.inbound) == 3, "delivery")
            first = gateway.inbound[0]
            assert first.ticket is not None
            gateway.transport.acknowledge([first.ticket])
            await asyncio.sleep(0.3)
        async with connected(at, "gw4", topic, acknowledges_late=True) as restarted:
            await until(lambda: len(restarted.inbound) >= 2, "delivery after the restart")
            assert {event.payload for event in restarted.inbound} == {b"\1", b"\2"}

    asyncio.run(run())


@pytest.mark.parametrize("broker", OF_OTHERS, indirect=True)
def test_the_check_finds_what_is_unsafe_and_nothing_else(broker: tuple[str, Brokers]) -> None:
    name, brokers = broker
    settings = MqttSettings(brokers=brokers.addresses, client_id="edgefl-test-aggregator")
    findings = asyncio.run(check_broker(settings, "test"))
    codes = {finding.code for finding in findings}
    assert "E-BROKER-PLAINTEXT" in codes
    expected = {"E-BROKER-SESSION"} if name == "amqtt" else set()
    assert codes - {"E-BROKER-PLAINTEXT"} == expected
    assert not any(finding.is_fatal for finding in findings)


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ("", "E-BROKER-QUEUE"),
        ("max_queued_messages 0\nretain_available false", "E-BROKER-RETAIN"),
        ("max_queued_messages 0\nmax_packet_size 5000", "E-BROKER-PACKET-SIZE"),
    ],
)
def test_mosquitto_with_unsafe_settings_is_named(tmp_path: Path, extra: str, code: str) -> None:
    with stock_mosquitto(tmp_path, extra) as brokers:
        settings = MqttSettings(brokers=brokers.addresses, client_id="edgefl-test-aggregator")
        findings = asyncio.run(check_broker(settings, "test"))
    fatal = [finding for finding in findings if finding.is_fatal]
    assert [finding.code for finding in fatal] == [code]


def test_a_broker_that_comes_back_empty_is_told_everything_again(tmp_path: Path) -> None:
    async def run(brokers: Brokers) -> None:
        (node,) = brokers.nodes
        async with (
            connected(brokers.addresses, "gw", "a/#") as gateway,
            connected(brokers.addresses, "dev") as device,
        ):
            await device.transport.publish("a/1", b"before")
            await until(lambda: gateway.payloads("a/1"), "delivery")
            node.kill()
            for file in (tmp_path / "data").iterdir():
                file.unlink()
            node.start()
            await until(lambda: len(gateway.ups) == len(device.ups) == 2, "the links come back")
            assert not gateway.ups[1].session_present
            await device.transport.publish("a/2", b"after")
            await until(lambda: gateway.payloads("a/2"), "a message, by the same subscription")

    with mosquitto(tmp_path) as brokers:
        asyncio.run(run(brokers))


def test_a_message_that_no_packet_can_hold_is_set_aside_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(brokers: Brokers) -> None:
        async with (
            connected(brokers.addresses, "gw", "a/#") as gateway,
            connected(brokers.addresses, "dev") as device,
        ):
            assert device.transport.max_packet_bytes == 5000
            await device.transport.publish("a/large", bytes(5001))
            await device.transport.publish("a/small", b"x")
            await until(lambda: gateway.payloads("a/small"), "delivery")
            assert device.transport.refused_count == 1
            assert not any(isinstance(event, LinkDown) for event in device.events)

    with stock_mosquitto(tmp_path, "max_packet_size 5000") as brokers:
        asyncio.run(run(brokers))
    assert "size_bytes=5001" in caplog.text
    assert "above 5000 bytes" in caplog.text
