"""The devices of a fleet as its operator sees them: names, so only for the operator."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker.enrolments import Admission, EnrolmentRecord
from broker.events import Json
from broker.history import WEAKENS, RoundMembers
from edgefl.protocol.roster_epoch import fingerprint

UNKNOWN: Final = "-"


class DeviceState(Enum):
    """Whether a device belongs to the fleet."""

    ACCEPTED = "accepted"
    PENDING = "pending"
    REJECTED = "rejected"
    REVOKED = "revoked"


class DeviceLink(Enum):
    """Whether a device is there."""

    ONLINE = "online"
    ASLEEP = "asleep"
    OFFLINE = "offline"
    UNKNOWN = "unknown"
    """The gateway does not run, so nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFact:
    """One device.

    Attributes:
        fingerprint: Of its identity key, as the board shows it.
        heard_at_s: In seconds since 1970; None for not in this life of the gateway.
        backend: What it says that it trains with; empty before its first training.
        version: Of its agent; empty where it is not known.
        battery: The coarse bucket that it told; empty where it told none.
        is_available: Whether it would answer a call; None where it has not said.
        rounds: How many of the last rounds hold its update; None where that was not asked for.
        claim: The token that it came with; empty where it needed none.
    """

    name: str
    state: DeviceState
    link: DeviceLink
    fingerprint: str
    heard_at_s: float | None = None
    backend: str = ""
    version: str = ""
    battery: str = ""
    is_available: bool | None = None
    rounds: int | None = None
    claim: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one device stands with the fleet."""

    state: DeviceState
    identity_key: bytes
    claim: str = ""


def standings_of(
    *,
    known: Mapping[str, bytes],
    roster: Mapping[str, bytes],
    records: Iterable[EnrolmentRecord],
    is_automatic: bool,
) -> dict[str, Standing]:
    """Return how each device stands, by name.

    Args:
        known: Identity key of the devices that said hello.
        roster: Identity key of the devices in the roster.
        records: Of devices that asked for a certificate; their states come first.
        is_automatic: The gateway enrols whoever says hello.
    """
    found = {
        device: Standing(
            state=DeviceState.ACCEPTED
            if is_automatic or roster.get(device) == key
            else DeviceState.PENDING,
            identity_key=key,
        )
        for device, key in known.items()
    }
    for record in records:
        found[record.device] = Standing(
            state=_STATES[record.admission], identity_key=record.identity_key, claim=record.claim
        )
    return found


def count_states(standings: Mapping[str, Standing]) -> dict[str, int]:
    """Return how many devices are known, and how many are in each state."""
    states = Counter(standing.state for standing in standings.values())
    return {"known": len(standings), **{state.value: states[state] for state in DeviceState}}


def rounds_by_device(members: Sequence[RoundMembers]) -> dict[str, int]:
    """Count in how many of the rounds that are remembered each device's update is."""
    return dict(Counter(device for round_ in members for device in round_.survivors))


def devices_document(
    devices: Sequence[DeviceFact], *, rounds_remembered: int | None
) -> dict[str, Json]:
    """Return the devices as JSON has them.

    Args:
        devices: In any order.
        rounds_remembered: Over how many rounds was counted; None where it was not asked for.
    """
    rows: list[Json] = []
    for device in sorted(devices, key=lambda one: one.name):
        row: dict[str, Json] = {
            "device": device.name,
            "state": device.state.value,
            "link": device.link.value,
            "fingerprint": device.fingerprint,
            "heard_at_s": None if device.heard_at_s is None else round(device.heard_at_s, 1),
            "backend": device.backend,
            "version": device.version,
            "battery": device.battery,
            "is_available": device.is_available,
            "claim": device.claim or None,
        }
        rows.append(row if device.rounds is None else {**row, "rounds": device.rounds})
    document: dict[str, Json] = {"devices": rows}
    if rounds_remembered is not None:
        document |= {"rounds_remembered": rounds_remembered, "note": WEAKENS}
    return document


_STATES = {
    Admission.PENDING: DeviceState.PENDING,
    Admission.ACCEPTED: DeviceState.ACCEPTED,
    Admission.REJECTED: DeviceState.REJECTED,
    Admission.REVOKED: DeviceState.REVOKED,
}


def device_fingerprint(identity_key: bytes) -> str:
    """Return what a board shows of its key too; a dash for none."""
    return fingerprint(identity_key) if identity_key else UNKNOWN
