"""What an agent is started with."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from edgefl.protocol.identity import DeviceIdentity
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.presence import Presence, PresenceKind
from edgefl.types import FleetName


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What an agent is started with.

    Attributes:
        enrolment_key: Who signs the roster; None pins the first one that is heard.
        has_aes: This processor has AES instructions.
        wall_clock_s: Seconds since 1970 as far as the device knows; it may be wrong.
        is_available: Tells whether the device may take part now (power, temperature, hours).
        presence: What the status topic says while there is a link.
    """

    fleet: FleetName
    identity: DeviceIdentity
    policy: DevicePolicy
    agent_version: str
    enrolment_key: bytes | None = None
    has_aes: bool = False
    wall_clock_s: Callable[[], float] = time.time
    is_available: Callable[[], bool] = lambda: True
    presence: Callable[[], Presence] = lambda: Presence(kind=PresenceKind.ONLINE)
