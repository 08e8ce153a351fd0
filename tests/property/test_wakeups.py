"""A core never wishes to be woken at a time that is past: its shell would spin."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core import GatewayCore
from broker.demo_task import demo_task
from broker.events import GatewayEvent, TaskSubmitted
from broker.open_gateway import GatewayEntropy
from broker.settings import GatewaySettings
from edgefl._native import Seed, SigningKey
from edgefl.protocol import topics
from edgefl.protocol.envelope import Header, seal_envelope
from edgefl.protocol.service_messages import Hello
from edgefl.protocol.topics import parse_device_id, parse_fleet
from edgefl.storage.memory import MemoryStore
from edgefl.training.bundle import read_bundle
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model
from edgefl.transport.core_events import Arrived, LinkLost, LinkRestored, Woken
from firmware_sim.gateway import MemoryLedger

FLEET = parse_fleet("home")
DEVICES = [parse_device_id(f"d{index}") for index in range(4)]
KEYS = [SigningKey.from_seed(Seed.generate()) for _ in DEVICES]
BUNDLE = compile_bundle(demo_model(1)).bundle_bytes
PARAMETERS = read_bundle(BUNDLE).initial_params
SETTINGS = GatewaySettings(
    fleet=FLEET, signing_key=SigningKey.from_seed(Seed.generate()), least_agent_version="0.0.1"
)


def hello(index: int) -> Arrived:
    topic = topics.uplink(FLEET, DEVICES[index])
    message = Hello(identity_key=KEYS[index].public_key, agent_version="1.0")
    header = Header(sender=DEVICES[index])
    return Arrived(topic=topic, payload=seal_envelope(KEYS[index], topic, header, message))


def status(index: int, text: bytes) -> Arrived:
    return Arrived(topic=topics.status(FLEET, DEVICES[index]), payload=text)


devices = st.integers(0, len(DEVICES) - 1)
steps = st.one_of(
    st.builds(hello, devices),
    st.builds(status, devices, st.sampled_from([b"online", b"offline"])),
    st.sampled_from([LinkLost(), LinkRestored(), Woken()]),
)


@given(
    st.lists(st.tuples(steps, st.sampled_from([0.0, 0.3, 2.0, 7.0, 30.0])), max_size=40),
    st.booleans(),
)
def test_a_gateway_is_never_woken_in_vain(
    history: list[tuple[GatewayEvent, float]], begins_after_an_abort: bool
) -> None:
    core = GatewayCore(
        settings=SETTINGS,
        store=MemoryStore(),
        ledger=MemoryLedger(),
        entropy=GatewayEntropy(),
    )
    now_s = 0.0
    task = demo_task("task", cohort=4, rounds=3, limit_s=5.0)
    core.handle(LinkRestored(), now_s)
    core.handle(
        TaskSubmitted(spec=task, bundle=BUNDLE, initial_parameters=PARAMETERS.copy()), now_s
    )
    if begins_after_an_abort:
        # Everybody is called, nobody checks in, and the pause before the next call begins.
        for index in range(len(DEVICES)):
            core.handle(hello(index), now_s)
        now_s = 5.0
        core.handle(Woken(), now_s)
    for event, pause_s in history:
        core.handle(event, now_s)
        now_s += pause_s
        for _ in range(3):
            wakeup_s = core.wakeup_s
            if wakeup_s is None or wakeup_s > now_s:
                break
            core.handle(Woken(), now_s)
        else:
            raise AssertionError(f"woken thrice at {now_s}, and again wanted at {wakeup_s}")
