"""What strangers say in the name of a device or of the gateway stops neither of them."""

from broker.core import GatewayCore
from broker.events import GatewayEffect
from broker.open_gateway import GatewayEntropy
from broker.settings import GatewaySettings
from edgefl._native import Seed, SigningKey
from edgefl.agent.core import AgentCore
from edgefl.agent.events import AgentEffect, Noticed, Stop
from edgefl.agent.settings import AgentSettings
from edgefl.privacy.plan import PrivacyPolicy
from edgefl.protocol import topics
from edgefl.protocol.device import DeviceIdentity
from edgefl.protocol.envelope import Header, seal_envelope
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.service_messages import AggregatorStatus, Hello
from edgefl.storage.memory import MemoryStore
from edgefl.transport.core_events import Arrived, LinkRestored, Publish
from edgefl.types import DeviceId, FleetName
from firmware_sim.gateway import MemoryLedger

FLEET, DEVICE = FleetName("home"), DeviceId("d1")
AGGREGATOR = topics.aggregator(FLEET)
UPLINK = topics.uplink(FLEET, DEVICE)
GATEWAY_KEY = SigningKey.from_seed(Seed.generate())
STRANGER = SigningKey.from_seed(Seed.generate())


def start_gateway() -> tuple[GatewayCore, Publish]:
    """Return a gateway, and the status that it publishes."""
    settings = GatewaySettings(fleet=FLEET, signing_key=GATEWAY_KEY, least_agent_version="0.0.1")
    core = GatewayCore(
        settings=settings,
        store=MemoryStore(),
        ledger=MemoryLedger(),
        entropy=GatewayEntropy(),
    )
    (status,) = statuses(core.handle(LinkRestored(), 0.0))
    return core, status


def statuses(effects: list[GatewayEffect]) -> list[Publish]:
    return [
        effect
        for effect in effects
        if isinstance(effect, Publish) and effect.topic == AGGREGATOR and effect.retain
    ]


def start_agent(key: SigningKey, store: MemoryStore | None = None) -> AgentCore:
    policy = DevicePolicy(
        least_survivor_floor=3, privacy=PrivacyPolicy(max_epsilon=8.0, max_clip_norm=1.0)
    )
    return AgentCore(
        settings=AgentSettings(
            fleet=FLEET,
            identity=DeviceIdentity(device=DEVICE, signing_key=key),
            policy=policy,
            agent_version="1.0",
        ),
        store=store or MemoryStore(),
        entropy=GatewayEntropy(),
    )


def greet(agent: AgentCore, gateway: GatewayCore, status: Publish) -> list[Arrived]:
    """Let an agent hear the gateway's status and say hello; return the gateway's answers."""
    heard = Arrived(topic=status.topic, payload=status.payload)
    said = [*agent.handle(LinkRestored(), 0.0), *agent.handle(heard, 0.0)]
    hello = next(one for one in said if isinstance(one, Publish) and one.topic == UPLINK)
    return tell(gateway, hello.payload)


def tell(gateway: GatewayCore, payload: bytes) -> list[Arrived]:
    """Say something on the device's uplink; return what the gateway sends to the device."""
    effects = gateway.handle(Arrived(topic=UPLINK, payload=payload), 0.0)
    return [
        Arrived(topic=effect.topic, payload=effect.payload)
        for effect in effects
        if isinstance(effect, Publish)
    ]


def strangers_status() -> Arrived:
    status = AggregatorStatus(
        identity_key=STRANGER.public_key, epoch=9, least_agent_version="0.0.1"
    )
    payload = seal_envelope(STRANGER, AGGREGATOR, Header(sender="aggregator"), status)
    return Arrived(topic=AGGREGATOR, payload=payload)


def codes(effects: list[AgentEffect], kind: type[Stop] | type[Noticed]) -> list[str]:
    return [effect.error.code for effect in effects if isinstance(effect, kind)]


def test_the_rejection_of_an_impostor_does_not_stop_the_device_it_names() -> None:
    gateway, status = start_gateway()
    agent = start_agent(SigningKey.from_seed(Seed.generate()))
    (receipt,) = greet(agent, gateway, status)
    assert agent.handle(receipt, 0.0) == []
    hello = Hello(identity_key=STRANGER.public_key, agent_version="1.0")
    forged = seal_envelope(STRANGER, UPLINK, Header(sender=DEVICE), hello)
    (rejection,) = tell(gateway, forged)
    effects = agent.handle(rejection, 1.0)
    assert codes(effects, Stop) == []
    assert codes(effects, Noticed) == ["E-DEVICE-KEY"]


def test_a_device_with_a_name_that_is_taken_stops() -> None:
    gateway, status = start_gateway()
    assert len(greet(start_agent(SigningKey.from_seed(Seed.generate())), gateway, status)) == 1
    second = start_agent(SigningKey.from_seed(Seed.generate()))
    (rejection,) = greet(second, gateway, status)
    assert codes(second.handle(rejection, 1.0), Stop) == ["E-DEVICE-KEY"]


def test_a_strangers_status_does_not_stop_a_device_that_hears_its_gateway() -> None:
    gateway, status = start_gateway()
    agent = start_agent(SigningKey.from_seed(Seed.generate()))
    greet(agent, gateway, status)
    effects = agent.handle(strangers_status(), 1.0)
    assert codes(effects, Stop) == []
    assert codes(effects, Noticed) == ["E-GATEWAY-KEY"]


def test_a_device_that_finds_only_another_gateway_stops() -> None:
    gateway, status = start_gateway()
    store = MemoryStore()
    greet(start_agent(SigningKey.from_seed(Seed.generate()), store), gateway, status)
    moved = start_agent(SigningKey.from_seed(Seed.generate()), store.reopened())
    assert codes(moved.handle(strangers_status(), 0.0), Stop) == ["E-GATEWAY-KEY"]


def test_the_gateway_says_again_who_it_is_when_its_status_was_replaced() -> None:
    gateway, status = start_gateway()
    for payload in (strangers_status().payload, b"", b"\xff"):
        effects = gateway.handle(Arrived(topic=AGGREGATOR, payload=payload), 1.0)
        assert statuses(effects) == [status]
    assert gateway.handle(Arrived(topic=AGGREGATOR, payload=status.payload), 2.0) == []
