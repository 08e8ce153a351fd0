"""A device that lacks the keys for a call asks for them once, then says that it stays away."""

import hashlib

from edgefl._native import Seed, SigningKey
from edgefl.agent.core import AgentCore
from edgefl.agent.events import AgentEffect
from edgefl.protocol import topics
from edgefl.protocol.envelope import Header, open_envelope, seal_envelope
from edgefl.protocol.reasons import LeaveReason, RoundMode
from edgefl.protocol.round_messages import Call, Leave
from edgefl.protocol.service_messages import Hello
from edgefl.transport.core_events import Arrived, Publish
from tests.unit.agent.test_forged import FLEET, GATEWAY_KEY, greet, start_agent, start_gateway

CALLS = topics.calls(FLEET)


def call(agent: AgentCore, attempt: int) -> list[AgentEffect]:
    message = Call(
        task="count",
        round_number=1,
        attempt=attempt,
        mode=RoundMode.SECAGG,
        key_epoch=1,
        key_index=0,
        nonce=hashlib.sha256(b"call").digest(),
        closes_in_ms=30_000,
    )
    payload = seal_envelope(
        GATEWAY_KEY, CALLS, Header(attempt=attempt, sender="aggregator"), message
    )
    return agent.handle(Arrived(topic=CALLS, payload=payload), 1.0)


def said(effects: list[AgentEffect]) -> list[type | LeaveReason]:
    sent = [
        open_envelope(effect.topic, effect.payload).message
        for effect in effects
        if isinstance(effect, Publish)
    ]
    return [one.reason if isinstance(one, Leave) else type(one) for one in sent]


def test_a_call_that_is_repeated_does_not_make_it_say_hello_again() -> None:
    gateway, status = start_gateway()
    agent = start_agent(SigningKey.from_seed(Seed.generate()))
    greet(agent, gateway, status)
    assert said(call(agent, 1)) == [Hello]
    assert said(call(agent, 1)) == [LeaveReason.STATE_LOST]
    assert said(call(agent, 1)) == [LeaveReason.STATE_LOST]
    assert said(call(agent, 2)) == [Hello]
