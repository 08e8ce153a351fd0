"""An envelope belongs to its key, its topic, its header and its kind."""

import dataclasses

import cbor2
import pytest

from edgefl._native import Seed, SigningKey
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol.envelope import (
    Header,
    open_envelope,
    require_aggregator_message,
    require_device_message,
    seal_envelope,
)
from edgefl.protocol.messages import AGGREGATOR_MESSAGES, DEVICE_MESSAGES, GetBlob, Receipt
from edgefl.transfer.messages import TRANSFER_ANSWERS, TransferOffer

KEY = SigningKey.from_seed(Seed.from_bytes(b"\x01" * 32))
OTHER_KEY = SigningKey.from_seed(Seed.from_bytes(b"\x02" * 32))
TOPIC = "efl/1/home/d/board/q"
HEADER = Header(session_id=b"\x05" * 32, round_number=3, attempt=4, sender="board")
MESSAGE = GetBlob(sha256=b"\x09" * 32)


def test_the_right_key_and_topic_pass() -> None:
    envelope = open_envelope(TOPIC, seal_envelope(KEY, TOPIC, HEADER, MESSAGE))
    envelope.require_signed_by(KEY.public_key)
    assert (envelope.header, envelope.message) == (HEADER, MESSAGE)


@pytest.mark.parametrize(
    "topic", ["efl/1/home/d/board2/q", "efl/1/home/d/board/c", "efl/1/away/d/board/q", ""]
)
def test_a_message_moved_to_another_topic_does_not_verify(topic: str) -> None:
    envelope = open_envelope(topic, seal_envelope(KEY, TOPIC, HEADER, MESSAGE))
    with pytest.raises(RemoteProtocolError, match="E-SIGNATURE"):
        envelope.require_signed_by(KEY.public_key)


@pytest.mark.parametrize("key", [OTHER_KEY.public_key, bytes(32), b"", b"short"])
def test_another_key_does_not_verify(key: bytes) -> None:
    envelope = open_envelope(TOPIC, seal_envelope(KEY, TOPIC, HEADER, MESSAGE))
    with pytest.raises(RemoteProtocolError, match="E-SIGNATURE"):
        envelope.require_signed_by(key)


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (1, Receipt.kind),
        (2, bytes(32)),
        (3, 4),
        (4, 5),
        (5, "other"),
        (6, cbor2.dumps({0: bytes(32)})),
        (7, bytes(64)),
    ],
)
def test_a_changed_part_does_not_verify(index: int, value: object) -> None:
    parts = cbor2.loads(seal_envelope(KEY, TOPIC, HEADER, MESSAGE))
    parts[index] = value
    envelope = open_envelope(TOPIC, cbor2.dumps(parts, canonical=True))
    with pytest.raises(RemoteProtocolError, match="E-SIGNATURE"):
        envelope.require_signed_by(KEY.public_key)


@pytest.mark.parametrize(
    ("index", "value", "code"),
    [
        (0, 0, "E-WIRE-VERSION"),
        (0, 2, "E-WIRE-VERSION"),
        (1, 0, "E-WIRE-KIND"),
        (1, 250, "E-WIRE-KIND"),
        (2, bytes(31), "E-WIRE-BYTES"),
        (3, -1, "E-WIRE-INT"),
        (4, 1_000_001, "E-WIRE-INT"),
        (4, True, "E-WIRE-INT"),
        (5, "x" * 65, "E-WIRE-TEXT"),
        (6, "text", "E-WIRE-BYTES"),
        (7, bytes(63), "E-WIRE-BYTES"),
    ],
)
def test_parts_of_another_form_are_refused(index: int, value: object, code: str) -> None:
    parts = cbor2.loads(seal_envelope(KEY, TOPIC, HEADER, MESSAGE))
    parts[index] = value
    with pytest.raises(WireError, match=code):
        open_envelope(TOPIC, cbor2.dumps(parts, canonical=True))


@pytest.mark.parametrize("n_parts", [0, 1, 7, 9])
def test_an_envelope_of_another_length_is_refused(n_parts: int) -> None:
    parts = [*cbor2.loads(seal_envelope(KEY, TOPIC, HEADER, MESSAGE)), 0][:n_parts]
    with pytest.raises(WireError):
        open_envelope(TOPIC, cbor2.dumps(parts, canonical=True))


def test_either_side_refuses_the_other_sides_messages() -> None:
    shared = set(DEVICE_MESSAGES) & set(AGGREGATOR_MESSAGES)
    assert shared == {TransferOffer, *TRANSFER_ANSWERS}
    assert require_device_message(MESSAGE) == MESSAGE
    with pytest.raises(WireError, match="E-WIRE-KIND"):
        require_aggregator_message(MESSAGE)
    receipt = Receipt(digest=bytes(32))
    assert require_aggregator_message(receipt) == receipt
    with pytest.raises(WireError, match="E-WIRE-KIND"):
        require_device_message(receipt)


def test_the_signature_covers_the_header_and_not_only_the_body() -> None:
    signed = {
        open_envelope(TOPIC, seal_envelope(KEY, TOPIC, header, MESSAGE)).signed
        for header in (
            HEADER,
            dataclasses.replace(HEADER, attempt=5),
            dataclasses.replace(HEADER, round_number=5),
            dataclasses.replace(HEADER, sender="board-"),
            dataclasses.replace(HEADER, session_id=bytes(32)),
        )
    }
    assert len(signed) == 5
