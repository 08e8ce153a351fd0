"""What nobody answered is sent again, ever more slowly, and no longer than it matters."""

import hashlib

from edgefl._native import Seed, SigningKey
from edgefl.agent.outbox import Outbox
from edgefl.protocol.envelope import open_envelope
from edgefl.protocol.service_messages import Hello
from edgefl.transport.core_events import Publish, Woken
from tests.unit.agent.test_forged import UPLINK, greet, start_agent, start_gateway


def message(text: str) -> Publish:
    return Publish(topic="t", payload=text.encode())


def test_a_message_is_sent_again_until_its_receipt() -> None:
    outbox = Outbox()
    outbox.put("round", message("a"), 0.0)
    assert outbox.wakeup_s == 2.0
    assert outbox.due(1.9) == []
    assert [one.payload for one in outbox.due(2.0)] == [b"a"]
    assert outbox.wakeup_s == 6.0
    outbox.settle(hashlib.sha256(b"another").digest())
    assert outbox.wakeup_s == 6.0
    outbox.settle(hashlib.sha256(b"a").digest())
    assert outbox.wakeup_s is None


def test_the_pause_doubles_up_to_half_a_minute() -> None:
    outbox = Outbox()
    outbox.put("round", message("a"), 0.0)
    at_s, pauses = 0.0, []
    for _ in range(7):
        assert outbox.wakeup_s is not None
        pauses.append(outbox.wakeup_s - at_s)
        at_s = outbox.wakeup_s
        outbox.due(at_s)
    assert pauses == [2, 4, 8, 16, 30, 30, 30]


def test_a_newer_message_takes_the_slot_of_the_older() -> None:
    outbox = Outbox()
    outbox.put("round", message("old"), 0.0)
    outbox.put("round", message("new"), 1.0)
    outbox.put("blob 1", message("x"), 1.0)
    outbox.put("blob 2", message("y"), 1.0)
    assert sorted(one.payload for one in outbox.due(3.0)) == [b"new", b"x", b"y"]
    outbox.drop("blob ")
    assert [one.payload for one in outbox.due(60.0)] == [b"new"]


def test_a_lost_hello_is_said_again_until_the_gateway_heard_it() -> None:
    gateway, status = start_gateway()
    agent = start_agent(SigningKey.from_seed(Seed.generate()))
    (receipt,) = greet(agent, gateway, status)
    wakeup_s = agent.wakeup_s
    assert wakeup_s is not None
    again = agent.handle(Woken(), wakeup_s)
    assert [type(open_envelope(UPLINK, one.payload).message) for one in again] == [Hello]
    agent.handle(receipt, wakeup_s)
    assert agent.wakeup_s is None
