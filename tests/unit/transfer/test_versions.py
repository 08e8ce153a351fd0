"""The older end is named, and told what to run; a command that a broker kept is ignored."""

from dataclasses import replace

import pytest

from broker.core import GatewayCore
from broker.events import GatewayEffect
from broker.open_gateway import GatewayEntropy
from broker.settings import GatewaySettings
from edgefl._native import Seed, SigningKey
from edgefl.agent.core import AgentCore
from edgefl.agent.events import AgentEffect, Noticed, Stop
from edgefl.agent.settings import AgentSettings
from edgefl.protocol import topics
from edgefl.protocol.envelope import Header, open_envelope, seal_envelope
from edgefl.protocol.identity import DeviceIdentity
from edgefl.protocol.reasons import RoundMode
from edgefl.protocol.round_messages import Call
from edgefl.protocol.service_messages import AggregatorStatus, Hello, Receipt, Rejection
from edgefl.protocol.versions import LEAST_AGENT_MINOR, LEAST_GATEWAY_MINOR, parse_version
from edgefl.protocol.wire import Body
from edgefl.storage.memory import MemoryStore
from edgefl.transport.core_events import Arrived, LinkRestored, Publish
from edgefl.types import DeviceId, FleetName
from firmware_sim.gateway import MemoryLedger
from tests.round_boards import POLICY

FLEET, DEVICE = FleetName("home"), DeviceId("d1")
UPLINK, STATUS = topics.uplink(FLEET, DEVICE), topics.aggregator(FLEET)
GATEWAY, BOARD = (SigningKey.from_seed(Seed.from_bytes(bytes([n]) * 32)) for n in (1, 2))
HELLO = Hello(identity_key=BOARD.public_key, agent_version="0.4.0")


def gateway_answers(hello: Hello, least: str = "0.4") -> list[GatewayEffect]:
    core = GatewayCore(
        settings=GatewaySettings(fleet=FLEET, signing_key=GATEWAY, least_agent_version=least),
        store=MemoryStore(),
        ledger=MemoryLedger(),
        entropy=GatewayEntropy(),
    )
    core.handle(LinkRestored(), 0.0)
    payload = seal_envelope(BOARD, UPLINK, Header(sender=DEVICE), hello)
    return core.handle(Arrived(topic=UPLINK, payload=payload), 1.0)


def first_message(effects: list[GatewayEffect]) -> object:
    publish = next(effect for effect in effects if isinstance(effect, Publish))
    return open_envelope(publish.topic, publish.payload).message


def agent() -> AgentCore:
    core = AgentCore(
        settings=AgentSettings(
            fleet=FLEET,
            identity=DeviceIdentity(device=DEVICE, signing_key=BOARD),
            policy=POLICY,
            agent_version="0.4.0",
        ),
        store=MemoryStore(),
        entropy=GatewayEntropy(),
    )
    core.handle(LinkRestored(), 0.0)
    return core


def status(**changed: object) -> Arrived:
    message = AggregatorStatus(
        identity_key=GATEWAY.public_key, epoch=1, least_agent_version="0.1", gateway_version="0.4"
    )
    changed_message = replace(message, **changed)  # type: ignore[arg-type]
    payload = seal_envelope(GATEWAY, STATUS, Header(sender="aggregator"), changed_message)
    return Arrived(topic=STATUS, payload=payload, retained=True)


def codes(effects: list[AgentEffect]) -> list[str]:
    return [effect.error.code for effect in effects if isinstance(effect, Noticed | Stop)]


# ------------------------------------------------------------ versions


@pytest.mark.parametrize(
    "hello",
    [replace(HELLO, agent_version="0.3.9"), replace(HELLO, protocol_minor=LEAST_AGENT_MINOR - 1)],
)
def test_an_old_agent_is_told_what_to_run(hello: Hello) -> None:
    message = first_message(gateway_answers(hello))
    assert isinstance(message, Rejection)
    assert message.code == "E-AGENT-OLD"
    assert f"agent {hello.agent_version} too old, need 0.4" in message.text
    assert "pip install --upgrade edgefl-runtime" in message.text


def test_a_hello_of_before_minor_versions_is_read_and_is_an_old_one() -> None:
    body: Body = {key: value for key, value in HELLO.to_body().items() if key < 5}
    hello = Hello.from_body(body)
    assert hello.protocol_minor == 0
    assert isinstance(first_message(gateway_answers(hello, least="0.0.1")), Rejection)


def test_an_agent_of_today_is_welcome() -> None:
    assert isinstance(first_message(gateway_answers(HELLO)), Receipt)


def test_an_agent_waits_for_a_gateway_that_is_too_old_and_names_it() -> None:
    core = agent()
    effects = core.handle(status(protocol_minor=LEAST_GATEWAY_MINOR - 1, gateway_version=""), 1.0)
    assert codes(effects) == ["E-GATEWAY-OLD"]
    assert "too old for agent 0.4.0" in str(effects[0].error)  # type: ignore[union-attr]
    assert "pip install --upgrade" in str(effects[0].error)  # type: ignore[union-attr]
    assert not core.has_gateway
    core.handle(status(), 2.0)
    assert core.has_gateway


def test_a_status_of_before_minor_versions_is_read_as_an_old_gateways() -> None:
    message = AggregatorStatus(identity_key=bytes(32), epoch=1, least_agent_version="0.1")
    body: Body = {key: value for key, value in message.to_body().items() if key < 3}
    assert AggregatorStatus.from_body(body).protocol_minor == 0


@pytest.mark.parametrize(
    ("older", "newer"),
    [("0.3", "0.4"), ("0.9.9", "0.10"), ("0.3.1", "0.3.2"), ("nonsense", "0.1"), ("", "0.0.1")],
)
def test_versions_are_ordered_by_their_numbers(older: str, newer: str) -> None:
    assert parse_version(older) < parse_version(newer)


# ------------------------------------------------------------ what a broker kept


def test_a_retained_command_is_ignored_and_counted() -> None:
    core = agent()
    core.handle(status(), 1.0)
    call = Call(
        task="old",
        round_number=1,
        attempt=1,
        mode=RoundMode.SECAGG,
        key_epoch=1,
        key_index=0,
        nonce=bytes(32),
        closes_in_ms=1000,
    )
    topic = topics.calls(FLEET)
    payload = seal_envelope(GATEWAY, topic, Header(sender="aggregator"), call)
    effects = core.handle(Arrived(topic=topic, payload=payload, retained=True), 2.0)
    assert codes(effects) == ["E-RETAINED"]
    assert not any(isinstance(effect, Publish) for effect in effects)
    # The same call from the gateway itself is answered.
    fresh = core.handle(Arrived(topic=topic, payload=payload), 3.0)
    assert "E-RETAINED" not in codes(fresh)
    assert any(isinstance(effect, Publish) for effect in fresh)
