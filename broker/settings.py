"""What a gateway is started with."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from broker.device_authority import DeviceAuthority
from edgefl._native import SigningKey
from edgefl.privacy.ledger import Ledger, LedgerEntry, Release
from edgefl.transfer.intake import IntakeLimits
from edgefl.transfer.manifest import DEFAULT_CHUNK_BYTES, require_chunk_bytes
from edgefl.types import FleetName


class LedgerStore(Protocol):
    """The privacy ledger, durable when `append` returns."""

    @property
    def ledger(self) -> Ledger:
        """The entries so far."""
        ...

    def append(self, release: Release) -> LedgerEntry:
        """Charge one release durably."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """What a gateway is started with.

    Attributes:
        signing_key: The gateway's identity; devices pin it.
        enrolment_key: Who signs the roster away from this gateway; None lets the gateway sign it.
        authority: Makes devices' certificates; with it, only devices that were let in take part.
        answer_s: How long devices have for each step of a new key epoch.
        wall_clock_s: Seconds since 1970, for the day of an enrolment.
        grace_s: How long a device may be gone before a round stops waiting for it.
        gather_s: How long a round waits for known devices that are not online, once the floor is.
        relink_s: How long devices may take to come back after the broker was away; until then
            their part of an open round is not given up.
        pause_s: The pause after an aborted attempt.
        resend_s: How often a device that is waited for is reminded.
        notice_s: How often a long wait is reported.
        uploads: Bounds of what devices send in chunks.
        chunk_bytes: Largest chunk, where the broker and the device take it.
        moved_to: URLs by which devices shall reach the gateway from now on; empty for no change.
        streams_chunks: Whether the link cuts the chunks of downloads by itself.
    """

    fleet: FleetName
    signing_key: SigningKey
    least_agent_version: str
    enrolment_key: bytes | None = None
    authority: DeviceAuthority | None = None
    answer_s: float = 10.0
    wall_clock_s: Callable[[], float] = time.time
    grace_s: float = 1.0
    gather_s: float = 5.0
    relink_s: float = 15.0
    pause_s: float = 2.0
    resend_s: float = 2.0
    notice_s: float = 10.0
    uploads: IntakeLimits = field(default_factory=IntakeLimits)
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    moved_to: tuple[str, ...] = ()
    streams_chunks: bool = False

    def __post_init__(self) -> None:
        """Check what a user may set.

        Raises:
            ConfigError: E-CHUNK-SIZE.
        """
        require_chunk_bytes(self.chunk_bytes)
