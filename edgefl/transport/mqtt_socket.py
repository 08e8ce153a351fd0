"""What must be known of a connection's socket that paho and selectors do not tell."""

import selectors
import socket

_CONNACK_BYTE = 0x20


def has_buffered(sock: object) -> bool:
    """Tell whether TLS holds bytes that no selector can see."""
    pending = getattr(sock, "pending", None)
    return bool(pending()) if callable(pending) else False


def begins_like_connack(sock: object) -> bool:
    """Look at the first byte without taking it; paho would take some of HTTP for packets.

    TLS and WebSocket have a handshake of their own, which other services do not pass.
    """
    if type(sock) is not socket.socket:
        return True
    try:
        first = sock.recv(1, socket.MSG_PEEK)
    except OSError:
        return True  # paho will meet the same error and report it
    return not first or first[0] == _CONNACK_BYTE


def watch(selector: selectors.BaseSelector, number: int, events: int) -> None:
    """Register the socket or change what is waited for."""
    present = selector.get_map().get(number)
    if present is None:
        selector.register(number, events)
    elif present.events != events:
        selector.modify(number, events)
