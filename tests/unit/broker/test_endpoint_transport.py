"""The gateway's transport over the endpoint, against paho in the same process."""

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.properties import Properties

import edgefl._native as native
from broker import endpoint_transport as module
from broker.endpoint_transport import EndpointTransport, require_endpoint
from broker.events import SendChunks, StopChunks
from edgefl._native import EndpointEvent, MqttEndpoint
from edgefl.errors import ConfigError, EnvironmentProblem, TransportError
from edgefl.transfer.packets import pack_chunk_down
from edgefl.transport.base import Inbound, LinkDown, LinkUp, TransportEvent

FLEET = "f"
UPLINK = "efl/1/f/d/dev/q"
DOWNLINK = "efl/1/f/d/dev/c"
WITHIN_S = 10.0


class Gateway:
    """A transport whose events are recorded."""

    def __init__(self, endpoint: MqttEndpoint) -> None:
        self.notices: list[EndpointEvent] = []
        self.events: list[TransportEvent] = []
        self.transport = EndpointTransport(endpoint, self.notices.append)

    async def record(self) -> None:
        async for event in self.transport.events():
            self.events.append(event)

    @property
    def messages(self) -> list[Inbound]:
        return [event for event in self.events if isinstance(event, Inbound)]


@pytest.fixture
def endpoint() -> Iterator[tuple[MqttEndpoint, int]]:
    made = MqttEndpoint(FLEET, mqtt="127.0.0.1:0", worker_threads=1)
    port = made.start()["mqtt"]
    yield made, port
    made.close()


@contextlib.asynccontextmanager
async def running(endpoint: MqttEndpoint) -> AsyncIterator[Gateway]:
    gateway = Gateway(endpoint)
    await gateway.transport.start()
    recorder = asyncio.create_task(gateway.record())
    try:
        yield gateway
    finally:
        await gateway.transport.close()
        await recorder


@contextlib.contextmanager
def device(
    port: int, version: MQTTProtocolVersion = MQTTProtocolVersion.MQTTv5
) -> Iterator[paho.Client]:
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="edgefl-f-dev", protocol=version)
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.connect("127.0.0.1", port)
    client.loop_start()
    assert connected.wait(WITHIN_S)
    try:
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def has_messages(gateway: Gateway, count: int) -> bool:
    return len(gateway.messages) >= count


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110 - the other side is a thread
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("version", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])
def test_a_puback_waits_for_the_acknowledgement(
    endpoint: tuple[MqttEndpoint, int], version: MQTTProtocolVersion
) -> None:
    async def scenario() -> None:
        made, port = endpoint
        async with running(made) as gateway:
            await gateway.transport.subscribe("efl/1/f/d/+/q")
            with device(port, version) as client:
                sent = client.publish(UPLINK, b"hello", 1)
                await until(lambda: len(gateway.messages) == 1)
                message = gateway.messages[0]
                assert (message.topic, message.payload) == (UPLINK, b"hello")
                assert (message.sender, message.retained) == ("dev", False)
                await asyncio.sleep(0.05)
                assert not sent.is_published()
                assert message.ticket is not None
                gateway.transport.acknowledge([message.ticket])
                await until(sent.is_published)

    asyncio.run(scenario())


def test_messages_reach_a_device_and_retained_ones_wait_for_it(
    endpoint: tuple[MqttEndpoint, int],
) -> None:
    async def scenario() -> None:
        made, port = endpoint
        async with running(made) as gateway:
            await gateway.transport.publish("efl/1/f/agg", b"online", retain=True)
            arrived: list[tuple[str, bytes, bool]] = []
            with device(port) as client:
                client.on_message = lambda _c, _u, m: arrived.append(
                    (m.topic, bytes(m.payload), m.retain)
                )
                client.subscribe([(DOWNLINK, 1), ("efl/1/f/agg", 1)])
                await until(lambda: len(arrived) == 1)
                await gateway.transport.publish(DOWNLINK, b"command", expiry_s=0.2)
                await until(lambda: len(arrived) == 2)
            assert arrived == [("efl/1/f/agg", b"online", True), (DOWNLINK, b"command", False)]

    asyncio.run(scenario())


def test_chunks_are_cut_for_a_device_and_can_be_stopped(
    endpoint: tuple[MqttEndpoint, int],
) -> None:
    async def scenario() -> None:
        made, port = endpoint
        blob = bytes(range(256)) * 100
        wish = SendChunks(
            topic=DOWNLINK,
            transfer_id=b"transfer",
            blob=blob,
            chunk_bytes=4096,
            indices=(6, 0, 3),
            expiry_s=60.0,
        )
        async with running(made) as gateway:
            await gateway.transport.publish("efl/1/f/agg", b"online", retain=True)
            arrived: list[bytes] = []
            with device(port) as client:
                client.on_message = lambda _c, _u, m: arrived.append(bytes(m.payload))
                client.subscribe([(DOWNLINK, 1), ("efl/1/f/agg", 1)])
                await until(lambda: arrived == [b"online"])
                gateway.transport.send_chunks(wish)
                gateway.transport.stop_chunks(StopChunks(topic=DOWNLINK, transfer_id=b"another."))
                await until(lambda: len(arrived) == 4)
            assert arrived[1:] == [
                pack_chunk_down(b"transfer", index, blob[4096 * index : 4096 * (index + 1)])
                for index in wish.indices
            ]

    asyncio.run(scenario())


def test_events_begin_with_an_empty_link_and_end_with_close(
    endpoint: tuple[MqttEndpoint, int],
) -> None:
    async def scenario() -> None:
        made, port = endpoint
        async with running(made) as gateway:
            with device(port):
                pass
            await until(lambda: len(gateway.notices) == 2)
        assert gateway.events[0] == LinkUp(session_present=False)
        assert isinstance(gateway.events[-1], LinkDown)
        assert [notice.kind for notice in gateway.notices] == ["connected", "disconnected"]
        with pytest.raises(TransportError, match="E-TRANSPORT-CLOSED"):
            await gateway.transport.publish(DOWNLINK, b"late")

    asyncio.run(scenario())


def test_a_busy_gateway_holds_back_its_senders() -> None:
    async def scenario() -> None:
        made = MqttEndpoint(
            FLEET,
            mqtt="127.0.0.1:0",
            max_packet_bytes=20_000,
            max_gateway_bytes=40_000,
            worker_threads=1,
        )
        port = made.start()["mqtt"]
        made.subscribe(["efl/1/f/d/+/q"])
        with device(port) as client:
            for _ in range(20):
                client.publish(UPLINK, bytes(10_000), 1)
            await until(lambda: made.stats()["gateway_bytes"] > 30_000)
            await asyncio.sleep(0.05)
            assert made.stats()["gateway_bytes"] <= 40_000
            async with running(made) as gateway:
                for count in range(1, 21):
                    await until(functools.partial(has_messages, gateway, count))
                    ticket = gateway.messages[count - 1].ticket
                    assert ticket is not None
                    gateway.transport.acknowledge([ticket])
        assert made.stats()["gateway_bytes"] == 0
        made.close()

    asyncio.run(scenario())


def test_what_is_malformed_is_refused(endpoint: tuple[MqttEndpoint, int]) -> None:
    async def scenario() -> None:
        transport = Gateway(endpoint[0]).transport
        with pytest.raises(ConfigError, match="E-TOPIC"):
            await transport.publish("a/#", b"")
        with pytest.raises(ConfigError, match="E-TOPIC"):
            await transport.subscribe("a#")
        await transport.start()
        with pytest.raises(TransportError, match="E-TRANSPORT-STARTED"):
            await transport.start()

    asyncio.run(scenario())


def test_a_device_build_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    require_endpoint()
    monkeypatch.delattr(native, "MqttEndpoint")
    with pytest.raises(EnvironmentProblem, match="E-NO-ENDPOINT"):
        require_endpoint()


def test_settings_are_checked_and_named() -> None:
    with pytest.raises(ConfigError, match="E-PLAINTEXT-REMOTE"):
        MqttEndpoint(FLEET, mqtt="0.0.0.0:0")
    with pytest.raises(ConfigError, match="E-TLS-SETTINGS"):
        MqttEndpoint(FLEET, mqtts="127.0.0.1:0")
    with pytest.raises(ConfigError, match="E-TLS-MATERIAL") as caught:
        MqttEndpoint(
            FLEET, client_authorities=b"x", certificate_chain=b"x", private_key=b"secret words"
        )
    assert "secret words" not in str(caught.value)
    with pytest.raises(ConfigError, match="E-LISTEN-ADDRESS"):
        MqttEndpoint(FLEET, mqtt="nonsense")
    with pytest.raises(ConfigError, match="E-ENDPOINT-SETTING"):
        MqttEndpoint(FLEET, max_connection=1)
    with pytest.raises(ConfigError, match="E-ENDPOINT-SETTING"):
        MqttEndpoint(FLEET, connect_time_s=-1.0)
    with pytest.raises(ConfigError, match="E-ENDPOINT-SETTING"):
        MqttEndpoint("a/b", mqtt="127.0.0.1:0")


def test_a_port_in_use_is_named(endpoint: tuple[MqttEndpoint, int]) -> None:
    second = MqttEndpoint(FLEET, mqtt=f"127.0.0.1:{endpoint[1]}")
    with pytest.raises(EnvironmentProblem, match="E-PORT-IN-USE"):
        second.start()
    with pytest.raises(TransportError, match="E-ENDPOINT-STATE"):
        endpoint[0].start()


def test_the_announced_packet_size_is_the_endpoints(
    endpoint: tuple[MqttEndpoint, int],
) -> None:
    transport = Gateway(endpoint[0]).transport
    assert transport.max_packet_bytes == module.MAX_PACKET_BYTES
    announced: list[int] = []
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)

    def on_connect(
        _client: paho.Client, _data: object, _flags: object, _code: object, found: Properties | None
    ) -> None:
        announced.append(getattr(found, "MaximumPacketSize", 0))

    client.on_connect = on_connect
    client.connect("127.0.0.1", endpoint[1])
    while not announced:
        assert client.loop(1.0) == MQTTErrorCode.MQTT_ERR_SUCCESS
    client.disconnect()
    assert announced == [module.MAX_PACKET_BYTES]
