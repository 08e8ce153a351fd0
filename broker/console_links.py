"""The console's lines about links: who was refused and why, and two boards with one identity."""

from broker.events import Json
from broker.tls_words import explain_refusal


def refused_line(fields: dict[str, Json]) -> str:
    """A connection was refused, or some more of them."""
    if "more" in fields:
        return f"refused {fields['more']} more connections within {fields.get('within_s')} s"
    who = fields.get("identity") or fields.get("client_id") or "a stranger"
    why = explain_refusal(str(fields.get("detail") or fields.get("code") or "no reason told"))
    return f"refused {who} at {fields.get('address', 'an unknown place')}: {why}"


def taken_over_line(fields: dict[str, Json]) -> str:
    """A connection took the place of another one with the same identity."""
    if "more" in fields:
        return f"{fields['more']} more sessions were taken over within {fields.get('within_s')} s"
    who = fields.get("identity") or fields.get("client_id") or "a client"
    return (
        f"{who} connected at {fields.get('new_address')} while it was connected at "
        f"{fields.get('old_address')}: a board that lost its link, or two boards with one identity"
    )
