"""What the devices of a hand-played gateway start from: keys and flash."""

import functools
from dataclasses import dataclass

from edgefl.protocol.reasons import AdversaryClass
from tests.epoch_harness import DAY, EpochFleet, signing_key

GATEWAY = signing_key("gateway identity")
TODAY = DAY + 100
CURIOUS = AdversaryClass.HONEST_BUT_CURIOUS
LIAR = AdversaryClass.MALICIOUS


@functools.cache
def opened_fleet(n_devices: int) -> EpochFleet:
    """Return a fleet whose first key epoch is open; its boards' flash is where devices start."""
    fleet = EpochFleet(n_devices, mask_keys=8)
    fleet.open_epoch()
    return fleet


@dataclass
class Flash:
    """What outlives a loss of power."""

    epoch: bytes
    round: bytes | None = None
    spool: bytes | None = None
