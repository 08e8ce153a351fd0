"""Boards that lost their state, and strangers in a board's name, where an operator enrols."""

import itertools

import pytest

from broker import population
from broker.core import GatewayCore
from broker.events import EnrolmentWanted, GatewayEffect, RosterBrought
from broker.open_gateway import GatewayEntropy
from broker.settings import GatewaySettings
from edgefl._native import Seed, SigningKey
from edgefl.protocol import topics
from edgefl.protocol.envelope import Header, open_envelope, seal_envelope
from edgefl.protocol.roster import Roster, sign_roster
from edgefl.protocol.roster_epoch import RosterEntry
from edgefl.protocol.service_messages import Hello, Rejection
from edgefl.storage.memory import MemoryStore
from edgefl.transport.core_events import Arrived, LinkRestored, Publish
from edgefl.types import DeviceId, FleetName
from firmware_sim.gateway import MemoryLedger

FLEET, DEVICE = FleetName("home"), DeviceId("d1")
MINUTES = itertools.count(60.0, 60.0)
"""Hellos so far apart that each is asked for at once."""


def new_key() -> SigningKey:
    return SigningKey.from_seed(Seed.generate())


OPERATOR, OLD, NEW = new_key(), new_key(), new_key()


def start(operator: SigningKey | None = OPERATOR) -> GatewayCore:
    core = GatewayCore(
        settings=GatewaySettings(
            fleet=FLEET,
            signing_key=new_key(),
            least_agent_version="0.0.1",
            enrolment_key=None if operator is None else operator.public_key,
        ),
        store=MemoryStore(),
        ledger=MemoryLedger(),
        entropy=GatewayEntropy(),
    )
    core.handle(LinkRestored(), 0.0)
    return core


def say_hello(core: GatewayCore, key: SigningKey, name: str = DEVICE) -> list[GatewayEffect]:
    hello = Hello(identity_key=key.public_key, agent_version="1.0")
    topic = topics.uplink(FLEET, DeviceId(name))
    payload = seal_envelope(key, topic, Header(sender=name), hello)
    return core.handle(Arrived(topic=topic, payload=payload), next(MINUTES))


def refusals(effects: list[GatewayEffect]) -> list[str]:
    opened = [
        open_envelope(effect.topic, effect.payload).message
        for effect in effects
        if isinstance(effect, Publish)
    ]
    return [message.code for message in opened if isinstance(message, Rejection)]


def asked_for(effects: list[GatewayEffect]) -> list[bytes]:
    wanted = [effect.devices for effect in effects if isinstance(effect, EnrolmentWanted)]
    return [devices[DEVICE] for devices in wanted]


def bring(core: GatewayCore, previous: Roster | None, *keys: SigningKey) -> Roster:
    """Let the operator sign and bring a roster of d1 with a key, or of somebody else alone."""
    other = RosterEntry(device="other", identity_key=OPERATOR.public_key, enrolled_day=1)
    boards = [
        RosterEntry(device=DEVICE, identity_key=key.public_key, enrolled_day=2) for key in keys
    ]
    roster = sign_roster(previous, FLEET, [other, *boards], OPERATOR)
    core.handle(RosterBrought(content=roster.to_bytes()), next(MINUTES))
    return roster


def test_a_board_that_lost_its_state_is_enrolled_again_once_the_operator_removes_its_old_key() -> (
    None
):
    core = start()
    assert asked_for(say_hello(core, OLD)) == [OLD.public_key]
    first = bring(core, None, OLD)
    assert refusals(say_hello(core, NEW)) == ["E-DEVICE-KEY"]
    second = bring(core, first)
    assert asked_for(say_hello(core, NEW)) == [NEW.public_key]
    bring(core, second, NEW)
    assert refusals(say_hello(core, NEW)) == []
    assert refusals(say_hello(core, OLD)) == ["E-DEVICE-KEY"]


def test_nobody_takes_a_name_by_saying_hello_before_the_board() -> None:
    core = start()
    say_hello(core, OLD)
    effects = say_hello(core, NEW)
    assert refusals(effects) == []
    assert asked_for(effects) == [NEW.public_key]
    say_hello(core, OLD)
    bring(core, None, NEW)
    assert refusals(say_hello(core, OLD)) == ["E-DEVICE-KEY"]
    assert refusals(say_hello(core, NEW)) == []


def test_a_gateway_that_enrols_keeps_the_first_key() -> None:
    core = start(operator=None)
    assert refusals(say_hello(core, OLD)) == []
    assert refusals(say_hello(core, NEW)) == ["E-DEVICE-KEY"]
    assert refusals(say_hello(core, OLD)) == []


@pytest.mark.parametrize("operator", [OPERATOR, None])
def test_one_key_cannot_have_two_names(operator: SigningKey | None) -> None:
    core = start(operator)
    assert refusals(say_hello(core, OLD)) == []
    assert refusals(say_hello(core, OLD, "d2")) == ["E-DEVICE-KEY-TWICE"]
    assert refusals(say_hello(core, NEW, "d2")) == []


def test_a_full_population_takes_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "MAX_POPULATION", 1)
    core = start(operator=None)
    assert refusals(say_hello(core, OLD)) == []
    assert refusals(say_hello(core, NEW, "d2")) == ["E-POPULATION"]
    assert refusals(say_hello(core, OLD)) == []
