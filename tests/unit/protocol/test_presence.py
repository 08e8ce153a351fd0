"""The text on status topics: read back as written, and garbage refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.errors import WireError
from edgefl.protocol.presence import (
    MOST_SLEEP_S,
    OFFLINE,
    ONLINE,
    PowerBucket,
    Presence,
    PresenceKind,
    parse_presence,
)

ONLINES = st.builds(
    Presence,
    kind=st.just(PresenceKind.ONLINE),
    is_available=st.booleans(),
    bucket=st.sampled_from(PowerBucket),
)
SLEEPERS = st.builds(
    Presence,
    kind=st.just(PresenceKind.SLEEPING),
    is_available=st.booleans(),
    bucket=st.sampled_from(PowerBucket),
    wakes_in_s=st.integers(1, MOST_SLEEP_S),
)


@given(presence=ONLINES | SLEEPERS)
def test_it_is_read_as_it_was_written(presence: Presence) -> None:
    assert parse_presence(presence.to_bytes()) == presence


def test_devices_of_before_say_one_word() -> None:
    assert parse_presence(b"online") == Presence(kind=PresenceKind.ONLINE)
    assert parse_presence(b"offline") == Presence(kind=PresenceKind.OFFLINE)
    assert parse_presence(OFFLINE).kind is PresenceKind.OFFLINE
    assert ONLINE.startswith(b"online ")


def test_words_of_a_later_version_change_nothing() -> None:
    later = parse_presence(b"online away solar whatever")
    assert not later.is_available
    assert later.bucket is PowerBucket.UNKNOWN


@pytest.mark.parametrize(
    "payload",
    [b"", b"  ", b"gone", b"sleeping", b"sleeping 0", b"sleeping -1 ready", b"sleeping ready 5",
     b"sleeping 86401", b"sleeping 9999999", "sleeping ٣٤".encode(), b"\xff\xfe"],
)  # fmt: skip
def test_anything_else_is_refused(payload: bytes) -> None:
    with pytest.raises(WireError):
        parse_presence(payload)


@given(payload=st.binary(max_size=100))
def test_no_bytes_raise_anything_else(payload: bytes) -> None:
    with contextlib.suppress(WireError):
        parse_presence(payload)
