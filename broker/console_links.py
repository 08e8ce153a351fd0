"""The console's lines about links: who was refused and why, and two boards with one identity."""

from typing import Final

from broker.events import Json
from broker.tls_words import explain_refusal

_REASONS: Final = {
    0x81: "a packet that cannot be read",
    0x82: "a packet that MQTT does not allow there",
    0x84: "another version of MQTT",
    0x87: "what it may not do",
    0x8D: "silence for longer than its keepalive",
    0x8E: "another connection uses its session",
    0x93: "more messages at a time than were allowed",
    0x95: "a packet that is too large",
    0x97: "too much at a time",
}
"""Of MQTT 5 (section 2.4), where the endpoint tells no more than the code."""


def refused_line(fields: dict[str, Json]) -> str:
    """A connection was refused, or some more of them."""
    if "more" in fields:
        return f"refused {fields['more']} more connections within {fields.get('within_s')} s"
    who = fields.get("identity") or fields.get("client_id") or "a stranger"
    why = explain_refusal(str(fields.get("detail") or _words_of(fields.get("code"))))
    return f"refused {who} at {fields.get('address', 'an unknown place')}: {why}"


def _words_of(code: Json) -> str:
    if not isinstance(code, int):
        return "no reason told"
    return _REASONS.get(code, f"reason code 0x{code:02X} of MQTT")


def taken_over_line(fields: dict[str, Json]) -> str:
    """A connection took the place of another one with the same identity."""
    if "more" in fields:
        return f"{fields['more']} more sessions were taken over within {fields.get('within_s')} s"
    who = fields.get("identity") or fields.get("client_id") or "a client"
    return (
        f"{who} connected at {fields.get('new_address')} while it was connected at "
        f"{fields.get('old_address')}: a board that lost its link, or two boards with one identity"
    )
