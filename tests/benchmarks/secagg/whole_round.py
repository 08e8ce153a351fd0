"""Run one whole round of the real machines over a real key epoch, with devices that fall silent."""

import functools
import hashlib
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from edgefl._native import SigningKey
from edgefl.privacy.plan import make_privacy_plan
from edgefl.protocol.device import DeviceIdentity
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.key_bundle import DEFAULT_MASK_KEYS, prg_bitmask
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.plan import SessionPlan, TrainingPlan
from edgefl.protocol.reasons import AdversaryClass, Phase, Prg, RoundMode
from edgefl.protocol.round_messages import Call
from edgefl.protocol.round_setup import RoundSetup
from tests.benchmarks.secagg.fleet_end import FleetEnd
from tests.benchmarks.secagg.gateway_end import Addressed, GatewayEnd
from tests.epoch_harness import FLEET, Board, CountedSeeds, EpochFleet, signing_key
from tests.round_boards import LEDGER_HEAD, LIMITS, least_floor

GATEWAY_KEY = signing_key("gateway")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSize:
    """A round: how many devices, against whom, over how long a vector.

    Attributes:
        corrupt_permille: Devices that may collude with the gateway, in thousandths.
        drop_permille: Devices that may drop out, in thousandths.
        has_aes: Whether all devices have AES in hardware; none has otherwise.
    """

    devices: int
    coordinates: int
    adversary: AdversaryClass = AdversaryClass.HONEST_BUT_CURIOUS
    corrupt_permille: int = 0
    drop_permille: int = 0
    ring_bits: int = 20
    has_aes: bool = True


class _Board(Board):
    """A board that has AES in hardware."""

    prgs = prg_bitmask(Prg.AES_128_CTR)

    def restart(self) -> None:
        self.machine = DeviceEpoch(
            identity=DeviceIdentity(device=self.name, signing_key=signing_key(self.name)),
            entropy=self.seeds,
            fleet=FLEET,
            prgs=self.prgs,
            limits_grinding=self.limits_grinding,
            snapshot=self.flash,
        )


class _PlainBoard(_Board):
    """A board that lacks it."""

    prgs = prg_bitmask()


class _Fleet(EpochFleet):
    """Boards that are all of one kind.

    Args:
        has_aes: Whether they have AES in hardware.
    """

    def __init__(self, count: int, *, has_aes: bool) -> None:
        self._kind = _Board if has_aes else _PlainBoard
        super().__init__(count, mask_keys=DEFAULT_MASK_KEYS)

    def _board(self, name: str) -> Board:
        return self._kind(name=name, seeds=CountedSeeds(b"board " + name.encode()))


class KeyEpoch:
    """An open key epoch of n devices.

    Attributes:
        boards: Every device's side of it.
        keys: The gateway's side.
    """

    def __init__(self, devices: int, *, has_aes: bool) -> None:
        fleet = _Fleet(devices, has_aes=has_aes)
        fleet.open_epoch()
        if fleet.gateway.keys is None:
            raise ArithmeticError("the key epoch did not open")
        self.boards, self.keys = fleet.boards, fleet.gateway.keys
        self._next_index = 0

    def take_index(self) -> int:
        """Return a key index that no round has used."""
        self._next_index += 1
        return self._next_index - 1


@functools.lru_cache(maxsize=2)
def key_epoch(devices: int, *, has_aes: bool) -> KeyEpoch:
    """Return an open key epoch; a few rounds share it."""
    return KeyEpoch(devices, has_aes=has_aes)


def round_setup(size: RoundSize, keys: MemberKeys, key_index: int) -> RoundSetup:
    """Return the gateway's decisions for a round without noise."""
    floor = least_floor(
        size.devices,
        adversary=size.adversary,
        corrupt_permille=size.corrupt_permille,
        drop_permille=size.drop_permille,
    )
    return RoundSetup(
        fleet=FLEET,
        call=Call(
            task="benchmark",
            round_number=1 + key_index,
            attempt=1 + key_index,
            mode=RoundMode.SECAGG,
            key_epoch=keys.epoch.key_epoch,
            key_index=key_index,
            nonce=hashlib.sha256(key_index.to_bytes(8, "big")).digest(),
            closes_in_ms=30_000,
        ),
        keys=keys,
        population=frozenset(keys.devices),
        adversary=size.adversary,
        corrupt_permille=size.corrupt_permille,
        drop_permille=size.drop_permille,
        privacy=make_privacy_plan(
            clip_norm=1.0,
            noise_multiplier=0.0,
            n_cohort=size.devices,
            survivor_floor=floor,
            colluders=0,
            dimension=size.coordinates,
            delta=1e-5,
            epsilon_budget=math.inf,
            rounds=3,
            ring_bits=size.ring_bits,
        ),
        training=TrainingPlan(local_epochs=1, batch_size=4, learning_rate=0.1),
        bundle_sha256=bytes(32),
        parameters_sha256=bytes(32),
        ledger_head=LEDGER_HEAD,
        limits=LIMITS,
    )


class Gateway(Protocol):
    """The other end, in this process or in one of its own."""

    def begin(self) -> Iterable[Addressed]:
        """Call everybody."""
        ...

    def receive(self, device: str, payload: bytes) -> Iterable[Addressed]:
        """Take a message."""
        ...

    def let_time_pass(self) -> Iterable[Addressed]:
        """Let the phase's time run out."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the round is over."""
        ...


def drive(gateway: Gateway, fleet: FleetEnd) -> None:
    """Carry every message at once and in order, until the round has ended."""
    waiting: deque[Addressed] = deque(gateway.begin())
    while True:
        while waiting:
            device, payload = waiting.popleft()
            for answer in fleet.deliver(device, payload):
                waiting.extend(gateway.receive(device, answer))
        if gateway.has_ended:
            return
        waiting.extend(gateway.let_time_pass())


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRound:
    """A round that has ended, with both ends as they were then."""

    setup: RoundSetup
    gateway: GatewayEnd
    fleet: FleetEnd

    @property
    def is_committed(self) -> bool:
        """Whether there is a sum."""
        return self.gateway.outcome is not None and self.gateway.outcome.total is not None

    @property
    def degree(self) -> int:
        """Neighbours of a device.

        Raises:
            ArithmeticError: The round ended without a plan.
        """
        return self.plan.thresholds.degree

    @property
    def plan(self) -> SessionPlan:
        """The session plan.

        Raises:
            ArithmeticError: The round ended without one.
        """
        outcome = self.gateway.outcome
        if outcome is None or outcome.plan is None:
            raise ArithmeticError("a round without a plan")
        return outcome.plan

    @property
    def wrong_coordinates(self) -> int:
        """Coordinates of the sum that differ from the exact sum of the survivors' vectors.

        Raises:
            ArithmeticError: There is no sum.
        """
        outcome = self.gateway.outcome
        if outcome is None or outcome.total is None:
            raise ArithmeticError("a round without a sum")
        return int((outcome.total != self.fleet.exact_total(len(outcome.total))).sum())


def run_round(
    size: RoundSize, silent: Mapping[str, Phase], key: SigningKey = GATEWAY_KEY
) -> WholeRound:
    """Run a round in this process.

    Args:
        size: The round.
        silent: First phase in which a device says nothing any more.
        key: The gateway's.
    """
    opened = key_epoch(size.devices, has_aes=size.has_aes)
    setup = round_setup(size, opened.keys, opened.take_index())
    gateway = GatewayEnd(setup, key)
    fleet = FleetEnd(
        opened.boards, gateway_key=key.public_key, coordinates=size.coordinates, silent=silent
    )
    drive(gateway, fleet)
    return WholeRound(setup=setup, gateway=gateway, fleet=fleet)
