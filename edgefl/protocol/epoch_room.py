"""Whom a key epoch invites where more devices are present than it can hold."""

from collections.abc import Collection

from edgefl.errors import RemoteProtocolError
from edgefl.protocol import wire


def draw_invited(devices: Collection[str], most: int, *, key_epoch: int) -> set[str]:
    """Return at most `most` of the devices, drawn anew for each key epoch.

    A draw, so that none is left out for ever for its name. The gateway could draw otherwise: what
    a device is safe against does not depend on whom else the gateway invites.

    Args:
        devices: Who could be invited.
        most: Members that the key epoch can hold.
        key_epoch: Its number.
    """
    if len(devices) <= most:
        return set(devices)
    drawn = sorted(devices, key=lambda device: draw_order(key_epoch, device))
    return set(drawn[:most])


def draw_order(key_epoch: int, device: str) -> bytes:
    """Return a device's place in the draw; the smallest are invited."""
    return wire.digest(["edgefl/1 invited", key_epoch, device])


def refuse_latecomer(most: int) -> RemoteProtocolError:
    """Return what a device is refused with that comes to a key epoch without room."""
    return RemoteProtocolError(
        "E-EPOCH-FULL",
        f"at most {most} members of a key epoch",
        "one more",
        "it may be drawn for the next one; split a larger fleet over several gateways",
    )
