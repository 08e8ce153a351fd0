"""docs/protocol.cddl describes what is sent: every kind of message, and nothing else passes."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings

from edgefl._native import Seed, SigningKey
from edgefl.errors import WireError
from edgefl.protocol.envelope import Header, seal_envelope
from edgefl.protocol.messages import AGGREGATOR_MESSAGES, DEVICE_MESSAGES, Message
from edgefl.protocol.wire import decode, encode
from tests.cddl import Cddl
from tests.strategies import BY_TYPE, MESSAGES

TEXT = (Path(__file__).parents[3] / "docs" / "protocol.cddl").read_text(encoding="utf-8")
SCHEMA = Cddl(TEXT)
KINDS = tuple(dict.fromkeys([*DEVICE_MESSAGES, *AGGREGATOR_MESSAGES]))
KEY = SigningKey.from_seed(Seed.from_bytes(b"\x07" * 32))


@pytest.mark.parametrize("kind", KINDS)
def test_every_message_is_described(kind: type[Message]) -> None:
    name = kind.__name__

    @settings(max_examples=20)
    @given(message=BY_TYPE[kind])
    def agrees(message: Message) -> None:
        body = decode(encode(message.to_body()))
        assert isinstance(body, dict)
        assert SCHEMA.accepts(name, body)
        assert SCHEMA.accepts(name, {**body, 200: "from a later version"})
        for key, value in body.items():
            # Another type in the place of any field: text for what is not, a number for text.
            wrong = 1.5 if isinstance(value, str) else "text"
            assert not SCHEMA.accepts(name, {**body, key: wrong})

    agrees()


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_that_is_gone_is_missed_by_both(kind: type[Message]) -> None:
    """What the text calls optional can be left out, and nothing else."""

    @settings(max_examples=5)
    @given(message=BY_TYPE[kind])
    def agrees(message: Message) -> None:
        body = dict(message.to_body())
        for key in body:
            rest = {other: value for other, value in body.items() if other != key}
            try:
                kind.from_body(rest)
                is_read = True
            except WireError:
                is_read = False
            described = decode(encode(rest))
            assert SCHEMA.accepts(kind.__name__, described) or not is_read, key

    agrees()


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_beside_each_rule_is_its_kind(kind: type[Message]) -> None:
    start = TEXT.index(f"\n{kind.__name__} = {{") + 1
    (number, sender) = re.findall(r"; (\d+), (device|aggregator|both)", TEXT[start:])[0]
    senders = {"device": kind in DEVICE_MESSAGES, "aggregator": kind in AGGREGATOR_MESSAGES}
    said = [name for name, is_sender in senders.items() if is_sender]
    assert (number, sender) == (str(kind.kind), said[0] if len(said) == 1 else "both")


def test_no_rule_is_left_over() -> None:
    maps = [name for name, rule in SCHEMA.rules.items() if rule[0] == "map"]
    assert sorted(maps) == sorted(kind.__name__ for kind in KINDS)


@settings(max_examples=30)
@given(message=MESSAGES)
def test_every_payload_is_an_envelope(message: Message) -> None:
    payload = seal_envelope(KEY, "topic", Header(sender="d1", round_number=3, attempt=4), message)
    parts = decode(payload)
    assert isinstance(parts, list)
    assert SCHEMA.accepts("Envelope", parts)
    assert not SCHEMA.accepts("Envelope", parts[:-1])
    assert not SCHEMA.accepts("Envelope", [2, *parts[1:]])
