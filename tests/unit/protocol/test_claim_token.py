"""Claim tokens: what is written is read, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.errors import ConfigError
from edgefl.protocol.claim_token import HEAD, MAX_TOKEN_CHARS, ClaimToken

TOKEN = ClaimToken(
    fleet="home",
    claim="claim-abc",
    gateways=("mqtts://gateway.local:8883", "wss://gateway.local:8443/mqtt"),
    authorities=(b"authority",),
    certificate=b"certificate",
    key=b"the secret part",
    gateway_key=b"\x01" * 32,
    enrolment_key=None,
    expires_s=1_800_000_000,
)


@pytest.mark.parametrize("enrolment_key", [None, b"\x02" * 32])
def test_a_token_is_read_as_it_was_written(enrolment_key: bytes | None) -> None:
    token = ClaimToken(
        **{name: getattr(TOKEN, name) for name in TOKEN.__slots__ if name != "enrolment_key"},
        enrolment_key=enrolment_key,
    )
    assert ClaimToken.from_text(token.to_text()) == token
    # Terminals and mail programs break lines.
    text = token.to_text()
    assert ClaimToken.from_text(f"  {text[:50]}\n {text[50:]}\r\n") == token


def test_a_token_shows_no_secret() -> None:
    assert "secret" not in repr(TOKEN)


@given(index=st.integers(0, 10_000), letter=st.characters(codec="ascii"))
def test_a_changed_letter_is_noticed(index: int, letter: str) -> None:
    text = TOKEN.to_text()
    place = index % len(text)
    changed = text[:place] + letter + text[place + 1 :]
    if "".join(changed.split()) == text:
        return
    with pytest.raises(ConfigError, match="E-TOKEN"):
        ClaimToken.from_text(changed)


@given(length=st.integers(0, len(TOKEN.to_text()) - 1))
def test_a_token_that_was_cut_off_is_noticed(length: int) -> None:
    with pytest.raises(ConfigError, match="E-TOKEN"):
        ClaimToken.from_text(TOKEN.to_text()[:length])


@given(text=st.text(max_size=200) | st.text(max_size=200).map(lambda end: HEAD + end))
def test_no_text_raises_anything_else(text: str) -> None:
    with pytest.raises(ConfigError, match="E-TOKEN"):
        ClaimToken.from_text(text)


def test_text_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="E-TOKEN"):
        ClaimToken.from_text(HEAD + "A" * MAX_TOKEN_CHARS)


def test_no_error_repeats_a_token() -> None:
    text = TOKEN.to_text()
    with pytest.raises(ConfigError) as caught:
        ClaimToken.from_text(text[:-5])
    assert text[20:60] not in str(caught.value)
