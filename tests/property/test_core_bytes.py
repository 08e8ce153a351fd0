"""Whatever peers say to a gateway or an agent, signed by a known key or not, raises nothing."""

import contextlib
from collections.abc import Callable

import cbor2
from hypothesis import given
from hypothesis import strategies as st

from broker.core import GatewayCore
from broker.open_gateway import GatewayEntropy
from broker.settings import GatewaySettings
from edgefl._native import Seed, SigningKey
from edgefl.agent.core import AgentCore
from edgefl.agent.settings import AgentSettings
from edgefl.errors import WireError
from edgefl.privacy.plan import PrivacyPolicy
from edgefl.protocol import topics
from edgefl.protocol.envelope import Header, seal_envelope
from edgefl.protocol.identity import DeviceIdentity
from edgefl.protocol.messages import Message
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.service_messages import AggregatorStatus, Hello
from edgefl.storage.memory import MemoryStore
from edgefl.transport.core_events import Arrived, LinkRestored, Woken
from edgefl.types import DeviceId, FleetName
from firmware_sim.gateway import MemoryLedger
from tests.strategies import BODIES, MESSAGES, PLAIN_VALUES

FLEET, DEVICE = FleetName("home"), DeviceId("d1")
GATEWAY_KEY, DEVICE_KEY, OPERATOR_KEY = (
    SigningKey.from_seed(Seed.from_bytes(bytes([number]) * 32)) for number in (1, 2, 3)
)
UPLINKS = (
    topics.uplink(FLEET, DEVICE),
    topics.key_bundle(FLEET, DEVICE),
    topics.status(FLEET, DEVICE),
)
DOWNLINKS = (topics.downlink(FLEET, DEVICE), topics.calls(FLEET), topics.aggregator(FLEET))
NUMBERS = st.sampled_from([0, 1, 2, 1_000_000])


@st.composite
def arrivals(draw: st.DrawFn, key: SigningKey, sender: str, names: tuple[str, ...]) -> Arrived:
    """Give something on a known topic: a message, another's message, a changed one, garbage."""
    topic = draw(st.sampled_from(names))
    if draw(st.integers(0, 5)) == 0:
        garbage = draw(st.binary(max_size=80) | PLAIN_VALUES.map(_encoded) | BODIES.map(_encoded))
        return Arrived(topic=topic, payload=garbage)
    header = Header(
        session_id=draw(st.sampled_from([bytes(32), b"\x05" * 32])),
        round_number=draw(NUMBERS),
        attempt=draw(NUMBERS),
        sender=draw(st.sampled_from([sender, sender, sender, "aggregator", "d2", ""])),
    )
    message = draw(MESSAGES)
    return Arrived(topic=topic, payload=_sealed(draw, key, topic, header, message))


def _encoded(value: object) -> bytes:
    return cbor2.dumps(value, canonical=True)


def _sealed(
    draw: st.DrawFn, key: SigningKey, topic: str, header: Header, message: Message
) -> bytes:
    """Sign a message, at times with another value in one field."""
    body = dict(message.to_body())
    if draw(st.integers(0, 3)):
        body[draw(st.sampled_from(sorted(body)))] = draw(PLAIN_VALUES | st.integers(0, 255))
    changed = type("Changed", (), {"kind": message.kind, "to_body": lambda _self: body})()
    with contextlib.suppress(WireError):
        return seal_envelope(key, topic, header, changed)
    return seal_envelope(key, topic, header, message)


def play(handle: Callable[[Arrived | Woken, float], object], history: list[Arrived]) -> None:
    for second, event in enumerate(history):
        handle(event, float(second))
        handle(Woken(), second + 0.5)


@given(
    history=st.lists(arrivals(DEVICE_KEY, DEVICE, UPLINKS), min_size=4, max_size=16),
    has_operator=st.booleans(),
    is_known=st.booleans(),
)
def test_a_gateway_takes_anything(
    history: list[Arrived], has_operator: bool, is_known: bool
) -> None:
    core = GatewayCore(
        settings=GatewaySettings(
            fleet=FLEET,
            signing_key=GATEWAY_KEY,
            enrolment_key=OPERATOR_KEY.public_key if has_operator else None,
            least_agent_version="0.0.1",
        ),
        store=MemoryStore(),
        ledger=MemoryLedger(),
        entropy=GatewayEntropy(),
    )
    core.handle(LinkRestored(), 0.0)
    if is_known:
        hello = Hello(identity_key=DEVICE_KEY.public_key, agent_version="1.0")
        topic = topics.uplink(FLEET, DEVICE)
        payload = seal_envelope(DEVICE_KEY, topic, Header(sender=DEVICE), hello)
        core.handle(Arrived(topic=topic, payload=payload), 0.0)
        assert DEVICE in core.online
    play(core.handle, history)
    wakeup_s = core.wakeup_s
    assert wakeup_s is None or wakeup_s > len(history) - 0.5


@given(history=st.lists(arrivals(GATEWAY_KEY, "aggregator", DOWNLINKS), min_size=4, max_size=16))
def test_an_agent_takes_anything(history: list[Arrived]) -> None:
    agent = AgentCore(
        settings=AgentSettings(
            fleet=FLEET,
            identity=DeviceIdentity(device=DEVICE, signing_key=DEVICE_KEY),
            policy=DevicePolicy(
                least_survivor_floor=3, privacy=PrivacyPolicy(max_epsilon=8.0, max_clip_norm=1.0)
            ),
            agent_version="1.0",
        ),
        store=MemoryStore(),
        entropy=GatewayEntropy(),
    )
    agent.handle(LinkRestored(), 0.0)
    topic = topics.aggregator(FLEET)
    status = AggregatorStatus(
        identity_key=GATEWAY_KEY.public_key, epoch=1, least_agent_version="0.0.1"
    )
    payload = seal_envelope(GATEWAY_KEY, topic, Header(sender="aggregator"), status)
    agent.handle(Arrived(topic=topic, payload=payload), 0.0)
    assert agent.has_gateway
    play(agent.handle, history)
