"""The boards of a round harness, what they start from, and how their messages are read."""

import functools
import hashlib
import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from edgefl._native import Seed, encode_and_mask, unpack
from edgefl.errors import EdgeflError
from edgefl.privacy.plan import PrivacyPlan, PrivacyPolicy, make_privacy_plan
from edgefl.privacy.rotation import rotation_seed
from edgefl.protocol import wire
from edgefl.protocol.device import DeviceIdentity, DeviceRound
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.device_session import DeviceSession
from edgefl.protocol.device_state import DeviceState
from edgefl.protocol.events import (
    DeviceEffect,
    DeviceFinished,
    MaskJob,
    Persist,
    TrainJob,
)
from edgefl.protocol.key_bundle import prg_bitmask
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.reasons import AdversaryClass
from edgefl.protocol.round_messages import (
    Leave,
    RevealedShares,
)
from edgefl.protocol.round_setup import PhaseLimits
from edgefl.protocol.thresholds import LEAST_SPARSE_BASE, thresholds_for
from edgefl.types import RingVector
from tests.epoch_harness import FLEET, CountedSeeds, EpochFleet

LIMITS = PhaseLimits(
    check_in_s=30, share_keys_s=30, masked_input_s=120, certificate_s=30, unmasking_s=30
)
POLICY = DevicePolicy(
    adversary_classes=frozenset(AdversaryClass),
    least_survivor_floor=2,
    privacy=PrivacyPolicy(max_epsilon=math.inf, max_clip_norm=10),
)
LEDGER_HEAD = hashlib.sha256(b"an empty ledger").digest()
MASK_KEYS = 8
"""Attempts that one harness can call."""
MOST_EXAMPLES = 9


class InsecureEntropy:
    """Seeds that follow from a name. Two of the same name give the same secrets."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0

    def fresh_seed(self) -> Seed:
        return Seed.from_bytes(self.fresh_bytes())

    def fresh_bytes(self) -> bytes:
        self._count += 1
        return hashlib.sha256(f"{self._name}/{self._count}".encode()).digest()


@functools.cache
def opened_epoch(n_devices: int) -> tuple[MemberKeys, dict[str, bytes]]:
    """Return an open key epoch of that many devices, and what each has on its flash."""
    fleet = EpochFleet(n_devices, mask_keys=MASK_KEYS)
    fleet.open_epoch()
    assert fleet.gateway.keys is not None
    flashes = {name: board.flash for name, board in fleet.boards.items()}
    return fleet.gateway.keys, {name: flash for name, flash in flashes.items() if flash}


@functools.cache
def privacy_plan(
    n_cohort: int,
    survivor_floor: int,
    dimension: int,
    noise: float,
    weight_bound: int = 1,
    *,
    is_rotated: bool = False,
) -> PrivacyPlan:
    """Return a plan with noise, or in exact mode in a ring of 20 bits."""
    return make_privacy_plan(
        clip_norm=1.0,
        noise_multiplier=noise,
        n_cohort=n_cohort,
        survivor_floor=survivor_floor,
        colluders=0,
        dimension=dimension,
        delta=1e-5,
        epsilon_budget=1e6 if noise else math.inf,
        rounds=3,
        ring_bits=None if noise else 20,
        weight_bound=weight_bound,
        rotation=is_rotated,
    )


def least_floor(
    n_devices: int,
    *,
    adversary: AdversaryClass = AdversaryClass.HONEST_BUT_CURIOUS,
    corrupt_permille: int = 0,
    drop_permille: int = 0,
) -> int:
    """Return the least survivor floor with which that many called devices can be unmasked."""
    sizes = {n_devices}
    if adversary is not AdversaryClass.MALICIOUS:
        sizes.add(min(n_devices, LEAST_SPARSE_BASE - 1))
    found = [
        thresholds_for(
            adversary=adversary,
            base_size=size,
            roster_size=size,
            corrupt_permille=corrupt_permille,
            drop_permille=drop_permille,
            survivor_floor=size,
        )
        for size in sizes
    ]
    return max(max(least.neighbourhood + 1, least.certificate) for least in found)


@dataclass
class Packet:
    """Signed bytes on their way."""

    device: str
    payload: bytes
    goes_up: bool


@dataclass
class Device:
    """A board: its flash, its machines while it has power, and what it ever sent."""

    identity: DeviceIdentity
    entropy: InsecureEntropy
    policy: DevicePolicy
    rng: np.random.Generator
    epoch_flash: bytes
    epoch: DeviceEpoch
    flash: bytes | None = None
    spool: bytes | None = None
    machine: DeviceRound | None = None
    effects: deque[DeviceEffect] = field(default_factory=deque)
    jobs: list[TrainJob | MaskJob] = field(default_factory=list)
    last_attempt: int = 0
    is_silent: bool = False
    persisted: set[bytes] = field(default_factory=set)
    sent: list[tuple[bytes, DeviceMessage]] = field(default_factory=list)
    refused: list[EdgeflError] = field(default_factory=list)
    finished: list[DeviceFinished] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.identity.device

    @functools.cached_property
    def epoch_on_flash(self) -> DeviceEpoch:
        return restored_epoch(self.identity, self.epoch_flash)

    def persist_epoch(self, snapshot: bytes) -> None:
        self.epoch_flash = snapshot
        self.__dict__.pop("epoch_on_flash", None)

    def persist(self, effect: Persist) -> None:
        self.flash = effect.snapshot
        if effect.spool is not None:
            self.spool = effect.spool

    @property
    def has_power(self) -> bool:
        return not self.is_silent


def restored_epoch(identity: DeviceIdentity, flash: bytes) -> DeviceEpoch:
    """Return a device's key epochs as they are on its flash."""
    return DeviceEpoch(
        identity=identity,
        entropy=CountedSeeds(b"later " + identity.device.encode()),
        fleet=FLEET,
        prgs=prg_bitmask(),
        snapshot=flash,
    )


def encoded_without_masks(job: MaskJob) -> bytes:
    """Encode a job's update again, packed, without masks."""
    privacy, session_id = job.plan.privacy, job.plan.session_id
    return encode_and_mask(
        job.update,
        clip_norm=privacy.clip_norm,
        scale=privacy.scale,
        l2_squared_bound=privacy.l2_squared_bound,
        noise_variance=privacy.noise_share_variance,
        ring_bits=privacy.ring_bits,
        rotation_block=privacy.rotation_block,
        rotation_seed=rotation_seed(session_id),
        weight=job.weight,
        weight_bound=privacy.weight_bound,
        session_id=session_id,
        rounding_seed=job.rounding_seed,
        noise_seed=job.noise_seed,
        masks=[],
        rounding_prg=job.session.own_prg(job.own),
    )


def ring_vector_of(job: MaskJob) -> RingVector:
    """Encode a job's update again, without masks, weight slot and check coordinates."""
    privacy = job.plan.privacy
    values = np.empty(privacy.vector_length, dtype=np.uint32)
    unpack(encoded_without_masks(job), privacy.ring_bits, values)
    return values[: privacy.padded_dimension]


def kinds_revealed(device: Device, flash: bytes, message: RevealedShares) -> dict[int, str]:
    """Tell of each share that a device sends which of its owner's two secrets it belongs to."""
    state = DeviceState.from_bytes(flash, device.spool)
    session = DeviceSession(state.require_plan(), state.peers, device.epoch.keys)
    shares = dict(message.shares)
    kinds = {}
    for owner, (mask_share, seed_share) in session.open_shares(state.require_routed()).items():
        if owner not in shares:
            continue
        assert shares[owner] in (mask_share, seed_share)
        kinds[owner] = "mask key" if shares[owner] == mask_share else "self seed"
    assert set(kinds) == set(shares), "a share of a stranger"
    return kinds


def leaves_of(device: Device) -> list[Leave]:
    """Return the leave messages that a device sent."""
    return [message for _, message in device.sent if isinstance(message, Leave)]


def bytes_of(message: DeviceMessage) -> bytes:
    return wire.encode([message.kind, dict(message.to_body())])
