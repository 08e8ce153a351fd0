"""Stock MQTT clients at the endpoint: 3.1.1 and 5, TCP and WebSocket, with and without TLS."""

import asyncio
import base64
import json
import os
import queue
import ssl
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gmqtt
import paho.mqtt.client as paho
import pytest
from gmqtt.mqtt.constants import MQTTv50, MQTTv311
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.integration.endpoint_lab import FLEET, PATIENCE_S, Lab, context_of, is_tls, lab
from tests.integration.paho_client import Paho

LISTENERS = ("mqtt", "ws", "mqtts", "wss")
VERSIONS = (4, 5)
LARGE_BYTES = 122_885  # the largest chunk packet
JS_HOME = Path(os.environ.get("EDGEFL_MQTT_JS", ""))
JS_CLIENT = Path(__file__).parent / "mqtt_js" / "client.js"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("endpoint")) as running:
        yield running


@pytest.fixture
def name() -> str:
    """A device, and a branch of topics, that no other test uses."""
    return f"t{uuid.uuid4().hex[:8]}"


def own(name: str, leaf: str) -> str:
    return f"efl/1/{FLEET}/d/{name}/{leaf}"


# ------------------------------------------------------------ paho


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("listener", LISTENERS)
def test_paho_talks_to_the_gateway(served: Lab, name: str, listener: str, version: int) -> None:
    client_id = name if is_tls(listener) else f"edgefl-{FLEET}-{name}"
    payload = os.urandom(LARGE_BYTES)
    with Paho(served, client_id, listener=listener, version=version, certificate=name) as client:
        assert client.subscribe(own(name, "c")) == [1]
        assert client.publish(own(name, "q"), payload) == 0
        answer = client.message()
        assert (answer.topic, answer.payload, answer.qos) == (own(name, "c"), payload, 1)
        client.publish(own(name, "q"), b"qos 0", 0)
        assert client.message().payload == b"qos 0"
    event = served.wait_for(
        lambda event: event.kind == "message" and event.topic == own(name, "q"), "the message"
    )
    assert event.identity == name
    ended = served.wait_for(
        lambda event: event.kind == "disconnected" and event.identity == name, "the end"
    )
    assert ended.reason == "normal"


@pytest.mark.parametrize("version", VERSIONS)
def test_retained_messages_reach_late_subscribers(served: Lab, name: str, version: int) -> None:
    with Paho(served, name, version=version) as client:
        client.publish(f"{name}/keep", b"old", retain=True)
        client.publish(f"{name}/keep", b"new", retain=True)
        client.publish(f"{name}/gone", b"x", retain=True)
        client.publish(f"{name}/gone", b"", retain=True)
    with Paho(served, f"{name}-late", version=version) as late:
        late.subscribe(f"{name}/#")
        message = late.message()
        assert (message.payload, message.retain) == (b"new", True)
        assert late.hears_nothing()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_will_of_a_client_that_vanishes_is_published(
    served: Lab, name: str, version: int
) -> None:
    with Paho(served, f"{name}-watch", version=version) as watch:
        watch.subscribe(f"{name}/will")
        polite = Paho(served, name, version=version, will=(f"{name}/will", b"dead"))
        polite.__exit__()
        assert watch.hears_nothing()
        Paho(served, name, version=version, will=(f"{name}/will", b"dead")).vanish()
        assert watch.message().payload == b"dead"


def test_a_delayed_will_is_not_sent_when_the_client_comes_back(served: Lab, name: str) -> None:
    will = {"will": (f"{name}/will", b"dead"), "will_delay_s": 1, "expiry_s": 60, "clean": False}
    with Paho(served, f"{name}-watch") as watch:
        watch.subscribe(f"{name}/will")
        Paho(served, name, **will).vanish()
        back = Paho(served, name, **will)
        assert back.flags.session_present
        assert watch.hears_nothing(1.5)
        back.vanish()
        vanished_s = time.monotonic()
        assert watch.message().payload == b"dead"
        assert time.monotonic() - vanished_s >= 0.9


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_wait_for_a_client_that_sleeps(served: Lab, name: str, version: int) -> None:
    kept = {"version": version, "clean": False, "expiry_s": 60}
    with Paho(served, name, **kept) as sleeper:
        assert not sleeper.flags.session_present
        sleeper.subscribe(f"{name}/c")
    with Paho(served, f"{name}-gw", version=version) as other:
        for number in range(5):
            other.publish(f"{name}/c", bytes([number]))
    with Paho(served, name, **kept) as awake:
        assert awake.flags.session_present
        assert [awake.message().payload[0] for _ in range(5)] == list(range(5))
    clean = {"version": version, "clean": True}
    with Paho(served, name, **clean) as fresh:
        assert not fresh.flags.session_present
        assert fresh.hears_nothing()


def test_an_expired_message_does_not_arrive_and_others_say_how_long_is_left(
    served: Lab, name: str
) -> None:
    kept = {"clean": False, "expiry_s": 60}
    with Paho(served, name, **kept) as sleeper:
        sleeper.subscribe(f"{name}/c")
    with Paho(served, f"{name}-gw") as other:
        other.publish(f"{name}/c", b"short", MessageExpiryInterval=1)
        other.publish(f"{name}/c", b"long", MessageExpiryInterval=100)
    time.sleep(1.3)
    with Paho(served, name, **kept) as awake:
        message = awake.message()
        assert message.payload == b"long"
        assert 90 <= message.properties.MessageExpiryInterval <= 99
        assert awake.hears_nothing()


def test_what_mqtt_5_adds_to_a_message_is_passed_on(served: Lab, name: str) -> None:
    fields = {
        "UserProperty": [("schema", "1"), ("schema", "2")],
        "ResponseTopic": f"{name}/answer",
        "CorrelationData": b"\0\1",
        "ContentType": "application/cbor",
        "PayloadFormatIndicator": 0,
    }
    with Paho(served, name) as client:
        client.subscribe(f"{name}/x")
        client.publish(f"{name}/x", b"1", **fields)
        properties = client.message().properties
        found = {key: getattr(properties, key, None) for key in fields}
    # Absent means 0 (MQTT 5.0, section 3.3.2.3.2).
    assert {**found, "PayloadFormatIndicator": 0} == fields


def test_a_topic_alias_stands_for_its_topic(served: Lab, name: str) -> None:
    with Paho(served, name) as client:
        assert client.properties.TopicAliasMaximum >= 1
        client.subscribe(f"{name}/x")
        client.publish(f"{name}/x", b"1", TopicAlias=1)
        properties = Properties(PacketTypes.PUBLISH)
        properties.TopicAlias = 1
        client.client.publish("", b"2", 1, properties=properties)
        assert [client.message().payload for _ in range(2)] == [b"1", b"2"]


def test_no_more_messages_are_in_flight_than_the_client_takes(served: Lab, name: str) -> None:
    """The client does not acknowledge by itself, and takes two at a time."""
    with Paho(served, name, receive_maximum=2) as client, Paho(served, f"{name}-gw") as other:
        client.client.manual_ack_set(True)
        client.subscribe(f"{name}/x")
        for number in range(5):
            other.publish(f"{name}/x", bytes([number]))
        seen = [client.message() for _ in range(2)]
        assert client.hears_nothing()
        client.client.ack(seen[0].mid, seen[0].qos)
        seen.append(client.message())
        assert client.hears_nothing()
        assert [message.payload[0] for message in seen] == [0, 1, 2]


def test_the_limits_are_announced(served: Lab, name: str) -> None:
    with Paho(served, name) as client:
        announced = client.properties
        assert announced.MaximumQoS == 1
        assert announced.MaximumPacketSize == 262_144
        assert announced.ReceiveMaximum >= 16
        assert announced.SharedSubscriptionAvailable == 0
        assert getattr(announced, "RetainAvailable", 1) == 1


def test_refusals_have_their_reason_codes(served: Lab, name: str) -> None:
    with Paho(served, f"edgefl-{FLEET}-{name}") as device:
        assert device.publish(own("other", "q"), b"x") == 0x87
        assert device.publish(f"efl/1/{FLEET}/agg", b"x") == 0x87
        assert device.subscribe(own("other", "c")) == [0x87]
        assert device.subscribe("#") == [0x87]
        assert device.subscribe(f"$share/g/{own(name, 'c')}") == [0x9E]
        assert device.subscribe("$SYS/#") == [0x87]
        assert device.subscribe(own(name, "c")) == [1]
        assert device.publish(own(name, "q"), b"still here") == 0
    with Paho(served, f"{name}-two") as client:
        client.client.publish(f"{name}/x", b"x", 2)
        assert client.ended.get(timeout=PATIENCE_S) == 0x9B


def test_a_client_of_3_1_1_is_told_what_its_version_can_say(served: Lab, name: str) -> None:
    with Paho(served, f"edgefl-{FLEET}-{name}", version=4) as device:
        assert device.subscribe(own("other", "c")) == [0x80]
        assert device.subscribe(own(name, "c"), qos=2) == [1]
        device.client.publish(own("other", "q"), b"x", 1)
        assert device.ended.get(timeout=PATIENCE_S) != 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_connection_takes_the_session_over(served: Lab, name: str, version: int) -> None:
    first = Paho(served, name, version=version)
    with Paho(served, name, version=version) as second:
        code = first.ended.get(timeout=PATIENCE_S)
        assert code == 0x8E if version == 5 else code != 0
        second.subscribe(f"{name}/x")
        second.publish(f"{name}/x", b"mine")
        assert second.message().payload == b"mine"
    first.client.loop_stop()
    event = served.wait_for(
        lambda event: event.kind == "taken-over" and event.client_id == name, "the take-over"
    )
    assert event.old_address != event.new_address


def test_subscription_options_of_mqtt_5(served: Lab, name: str) -> None:
    with Paho(served, name) as client, Paho(served, f"{name}-gw") as other:
        client.subscribe(f"{name}/own", noLocal=True)
        client.subscribe(f"{name}/flag", retainAsPublished=True)
        other.publish(f"{name}/kept", b"x", retain=True)
        client.subscribe(f"{name}/kept", retainHandling=2)
        client.publish(f"{name}/own", b"from me")
        other.publish(f"{name}/flag", b"flagged", retain=True)
        message = client.message()
        assert (message.payload, message.retain) == (b"flagged", True)
        assert client.hears_nothing()


def test_a_puback_waits_for_the_gateway(served: Lab, name: str) -> None:
    with Paho(served, f"edgefl-{FLEET}-{name}") as device:
        served.is_acknowledging = False
        try:
            device.client.publish(own(name, "kb"), b"keys", 1)
            event = served.wait_for(
                lambda event: event.kind == "message" and event.topic == own(name, "kb"), "it"
            )
            with pytest.raises(queue.Empty):
                device.acks.get(timeout=0.3)
        finally:
            served.is_acknowledging = True
        served.endpoint.acknowledge([event.ticket])
        assert device.acks.get(timeout=PATIENCE_S) == 0


def test_a_device_without_certificate_or_with_anothers_name_is_refused(
    served: Lab, name: str
) -> None:
    bare = ssl.create_default_context(cafile=str(served.certificates.ca_file))
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, name)
    client.tls_set_context(bare)
    # With TLS 1.3 the refusal may come after the client's own handshake has ended.
    with pytest.raises((ssl.SSLError, OSError)):  # noqa: PT012 - either of two calls
        client.connect("127.0.0.1", served.ports["mqtts"])
        while client.loop(1.0) == paho.MQTT_ERR_SUCCESS:
            pass
        raise OSError
    assert not client.is_connected()
    stranger = Paho(served, "somebody-else", listener="mqtts", certificate=name, connects=False)
    assert stranger.code == 0x85
    stranger.client.loop_stop()


# ------------------------------------------------------------ gmqtt


@pytest.mark.parametrize("version", [MQTTv311, MQTTv50], ids=["3.1.1", "5"])
@pytest.mark.parametrize("listener", ["mqtt", "mqtts"])
def test_gmqtt_talks_to_the_gateway(served: Lab, name: str, listener: str, version: int) -> None:
    payload = os.urandom(LARGE_BYTES)

    async def run() -> tuple[str, bytes]:
        client = gmqtt.Client(name if is_tls(listener) else f"edgefl-{FLEET}-{name}")
        arrived: asyncio.Future[tuple[str, bytes]] = asyncio.get_running_loop().create_future()

        def on_message(_client: object, topic: str, body: bytes, _qos: int, _p: object) -> int:
            if not arrived.done():
                arrived.set_result((topic, bytes(body)))
            return 0

        client.on_message = on_message
        context = context_of(served, name) if is_tls(listener) else False
        await client.connect(
            "127.0.0.1", served.ports[listener], ssl=context, version=version, raise_exc=True
        )
        client.subscribe(own(name, "c"), qos=1)
        await asyncio.sleep(0.1)
        client.publish(own(name, "q"), payload, qos=1)
        async with asyncio.timeout(PATIENCE_S):
            message = await arrived
        await client.disconnect()
        return message

    assert asyncio.run(run()) == (own(name, "c"), payload)


# ------------------------------------------------------------ mosquitto_pub and mosquitto_sub


def tool(program: str, served: Lab, listener: str, version: int, name: str) -> list[str]:
    words = [program, "-h", "127.0.0.1", "-p", str(served.ports[listener]), "-q", "1", "-i", name]
    words += ["-V", "mqttv5" if version == 5 else "mqttv311"]
    if is_tls(listener):
        certificate, key = served.certificates.device(name)
        words += ["--cafile", str(served.certificates.ca_file)]
        words += ["--cert", str(certificate), "--key", str(key)]
    return words


@pytest.mark.parametrize("version", VERSIONS)
def test_mosquittos_tools_talk_to_each_other(served: Lab, name: str, version: int) -> None:
    payload = os.urandom(LARGE_BYTES)
    publish = tool("mosquitto_pub", served, "mqtt", version, name)
    # Retained, so that it does not matter who is there first.
    with subprocess.Popen([*publish, "-t", f"{name}/x", "-s", "-r"], stdin=subprocess.PIPE) as pub:
        pub.communicate(payload, timeout=PATIENCE_S)
    assert pub.returncode == 0
    assert heard(tool("mosquitto_sub", served, "mqtt", version, name), f"{name}/x") == payload


@pytest.mark.parametrize("version", VERSIONS)
def test_mosquittos_tools_talk_to_the_gateway_over_tls(
    served: Lab, name: str, version: int
) -> None:
    payload = os.urandom(LARGE_BYTES)
    publish = tool("mosquitto_pub", served, "mqtts", version, name)
    with subprocess.Popen([*publish, "-t", own(name, "q"), "-s"], stdin=subprocess.PIPE) as pub:
        pub.communicate(payload, timeout=PATIENCE_S)
    assert pub.returncode == 0
    event = served.wait_for(
        lambda event: event.kind == "message" and event.topic == own(name, "q"), "the message"
    )
    assert (event.payload, event.identity) == (payload, name)
    served.endpoint.publish(own(name, "c"), payload, 1, True)
    assert heard(tool("mosquitto_sub", served, "mqtts", version, name), own(name, "c")) == payload


def heard(subscribe: list[str], topic: str) -> bytes:
    done = subprocess.run(
        [*subscribe, "-t", topic, "-C", "1", "-N"],
        stdout=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=True,
    )
    return done.stdout


# ------------------------------------------------------------ MQTT.js


def run_js(served: Lab, listener: str, scenario: dict[str, Any], name: str) -> dict[str, Any]:
    assert (JS_HOME / "node_modules" / "mqtt").is_dir(), (
        "expected EDGEFL_MQTT_JS to name a folder with what `npm ci` of tests/integration/mqtt_js "
        "installs (scripts/test makes it)"
    )
    path = "/mqtt" if listener in {"ws", "wss"} else ""
    scenario["url"] = f"{listener}://127.0.0.1:{served.ports[listener]}{path}"
    if is_tls(listener):
        certificate, key = served.certificates.device(name)
        scenario |= {
            "ca": str(served.certificates.ca_file),
            "cert": str(certificate),
            "key": str(key),
        }
    done = subprocess.run(
        ["node", str(JS_CLIENT)],
        input=json.dumps(scenario),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S + 5,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("listener", LISTENERS)
def test_mqtt_js_talks_to_the_gateway(served: Lab, name: str, listener: str, version: int) -> None:
    payload = os.urandom(LARGE_BYTES)
    client_id = name if is_tls(listener) else f"edgefl-{FLEET}-{name}"
    result = run_js(
        served,
        listener,
        {
            "options": {"protocolVersion": version, "clientId": client_id},
            "filter": own(name, "c"),
            "topic": own(name, "q"),
            "payload": base64.b64encode(payload).decode(),
            "qos": 1,
            "retain": False,
            "awaits": True,
        },
        name,
    )
    assert result["granted"] == [1]
    assert result["session"] is False
    assert result["message"]["topic"] == own(name, "c")
    assert base64.b64decode(result["message"]["payload"]) == payload


# ------------------------------------------------------------ many at once


def test_a_hundred_clients_of_two_kinds_at_once(served: Lab, name: str) -> None:
    """Each sends 20 messages to itself; everything arrives once and in order."""
    problems: list[str] = []

    def run(number: int) -> None:
        topic = f"{name}/{number}"
        listener = ("mqtt", "ws")[number % 2]
        with Paho(
            served, f"{name}-{number}", listener=listener, version=(4, 5)[number // 2 % 2]
        ) as client:
            client.subscribe(topic)
            for count in range(20):
                client.client.publish(topic, bytes([count]), 1)
            heard = [client.message().payload[0] for _ in range(20)]
            if heard != list(range(20)):
                problems.append(f"{number}: {heard}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
