"""Drive device rounds and one aggregator round through their effects, in memory and virtual time.

Every message crosses the wire format and its signature. The caller decides what the network does
with each packet, when a device dies, and which effect was the last one that it carried out. Roster
and key epoch are real; they are made once for each number of devices.
"""

import functools
import hashlib
import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgefl._native import Seed, SigningKey, encode_and_mask, unpack
from edgefl.errors import EdgeflError, RemoteProtocolError
from edgefl.privacy.plan import PrivacyPlan, PrivacyPolicy, make_privacy_plan
from edgefl.privacy.rotation import rotation_seed
from edgefl.protocol import masked_input, topics, unmasking, wire
from edgefl.protocol.aggregator import AggregatorRound
from edgefl.protocol.device import DeviceIdentity, DeviceRound
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.device_session import DeviceSession
from edgefl.protocol.device_state import DeviceState
from edgefl.protocol.envelope import (
    AGGREGATOR,
    NO_SESSION,
    Envelope,
    Header,
    open_envelope,
    require_aggregator_message,
    require_device_message,
    seal_envelope,
)
from edgefl.protocol.epoch_events import PersistEpoch
from edgefl.protocol.events import (
    AggregatorEffect,
    AggregatorEvent,
    AggregatorSaid,
    Cancelled,
    Charge,
    Charged,
    DeviceEffect,
    DeviceFinished,
    DeviceOffline,
    DeviceOnline,
    DeviceSaid,
    Masked,
    MaskJob,
    Persist,
    Refused,
    RoundFinished,
    SendDown,
    SendUp,
    SetTimer,
    TimerFired,
    Trained,
    TrainJob,
    UnmaskJob,
)
from edgefl.protocol.key_bundle import prg_bitmask
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.messages import AggregatorMessage, DeviceMessage
from edgefl.protocol.plan import TrainingPlan
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.reasons import AbortReason, AdversaryClass, DropReason, Phase, RoundMode
from edgefl.protocol.round_messages import (
    Call,
    Leave,
    MaskedInput,
    RevealedShares,
    UnmaskRequest,
)
from edgefl.protocol.round_setup import PhaseLimits, RoundSetup
from edgefl.protocol.thresholds import LEAST_SPARSE_BASE, thresholds_for
from edgefl.types import DeviceId, RingVector, Update
from tests.epoch_harness import DAY, FLEET, CountedSeeds, EpochFleet, signing_key

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

    @property
    def has_power(self) -> bool:
        return not self.is_silent


class RoundHarness:
    """n devices, one aggregator, and the network between them.

    Args:
        n_devices: Members of the key epoch.
        floor: Survivor floor; the least possible if not given.
        absent: Members that are not called, and have no power.
        offline: Devices that are called and known to be gone.

    Attributes:
        vectors: Ring vector by the packed masked input that hides it, recomputed from the seeds.
        hidden: (update, weight) by the same.
        revealed_kinds: By (session, owner), the kinds of share that devices sent of it.
        charged_survivors: Survivors of every attempt that came as far as a charge.
    """

    def __init__(
        self,
        n_devices: int,
        *,
        floor: int | None = None,
        dimension: int = 7,
        noise: float = 0.0,
        weight_bound: int = 1,
        is_rotated: bool = False,
        seed: int = 0,
        adversary: AdversaryClass = AdversaryClass.HONEST_BUT_CURIOUS,
        corrupt_permille: int = 0,
        drop_permille: int = 0,
        absent: frozenset[str] = frozenset(),
        offline: frozenset[str] = frozenset(),
    ) -> None:
        self.adversary = adversary
        self.corrupt_permille, self.drop_permille = corrupt_permille, drop_permille
        n_called = n_devices - len(absent)
        self.floor = floor or least_floor(
            n_devices if adversary is AdversaryClass.MALICIOUS else n_called,
            adversary=adversary,
            corrupt_permille=corrupt_permille,
            drop_permille=drop_permille,
        )
        self.dimension = dimension
        self.privacy = privacy_plan(
            n_called, self.floor, dimension, noise, weight_bound, is_rotated=is_rotated
        )
        self.now_s = 100.0
        self._gateway_entropy = InsecureEntropy(f"{seed}/gateway")
        self.gateway_key = SigningKey.from_seed(self._gateway_entropy.fresh_seed())
        self.keys, flashes = opened_epoch(n_devices)
        self.members = {
            name: self._board(name, flashes[name], seed, index)
            for index, name in enumerate(self.keys.devices)
        }
        self.devices = {name: device for name, device in self.members.items() if name not in absent}
        self.packets: list[Packet] = []
        self.vectors: dict[bytes, RingVector] = {}
        self.hidden: dict[bytes, tuple[Update, int]] = {}
        self.revealed_kinds: dict[tuple[bytes, int], set[str]] = {}
        self.masked_versions: dict[tuple[bytes, str], set[bytes]] = {}
        self.charged_survivors: list[int] = []
        self.bad_messages: list[tuple[str, RemoteProtocolError]] = []
        self.attempt = 0
        self.start_attempt(offline)

    def _board(self, name: str, epoch_flash: bytes, seed: int, index: int) -> Device:
        identity = DeviceIdentity(device=name, signing_key=signing_key(name))
        return Device(
            identity=identity,
            entropy=InsecureEntropy(f"{seed}/{name}"),
            policy=POLICY,
            rng=np.random.default_rng([seed, index]),
            epoch_flash=epoch_flash,
            epoch=restored_epoch(identity, epoch_flash),
        )

    # ------------------------------------------------------------ the aggregator

    def start_attempt(self, offline: frozenset[str] = frozenset()) -> None:
        """Call the next attempt. Packets of earlier ones stay on their way."""
        self.attempt += 1
        self.timer_s: float | None = None
        self.charges: list[Charge] = []
        self.unmask_jobs: list[UnmaskJob] = []
        self.outcome: RoundFinished | None = None
        self.was_charged = False
        self.aggregator = AggregatorRound(setup=self.setup(), offline=offline, now_s=self.now_s)
        for name in self.devices:
            self._send_down(name, self.aggregator.call)
        self._carry_out(self.aggregator.begin(self.now_s))

    def setup(self) -> RoundSetup:
        """Return the gateway's decisions for the attempt."""
        return RoundSetup(
            fleet=FLEET,
            call=Call(
                task="count",
                round_number=1,
                attempt=self.attempt,
                mode=RoundMode.SECAGG,
                key_epoch=self.keys.epoch.key_epoch,
                key_index=self.attempt - 1,
                nonce=self._gateway_entropy.fresh_bytes(),
                closes_in_ms=30_000,
            ),
            keys=self.keys,
            population=frozenset(self.devices),
            adversary=self.adversary,
            corrupt_permille=self.corrupt_permille,
            drop_permille=self.drop_permille,
            privacy=self.privacy,
            training=TrainingPlan(local_epochs=1, batch_size=4, learning_rate=0.1),
            bundle_sha256=bytes(32),
            parameters_sha256=bytes(32),
            ledger_head=LEDGER_HEAD,
            limits=LIMITS,
        )

    def tell(self, event: AggregatorEvent) -> None:
        """Give the aggregator an event; a device that broke the protocol is removed."""
        try:
            self._carry_out(self.aggregator.handle(event, self.now_s))
        except RemoteProtocolError as error:
            if not isinstance(event, DeviceSaid):
                raise
            self.bad_messages.append((event.device, error))
            self._carry_out(
                self.aggregator.remove(event.device, DropReason.BAD_MESSAGE, self.now_s)
            )

    def say_offline(self, name: str) -> None:
        self.tell(DeviceOffline(device=name))

    def say_online(self, name: str) -> None:
        self.tell(DeviceOnline(device=name))

    def cancel(self) -> None:
        self.tell(Cancelled(reason=AbortReason.CANCELLED))

    def charge(self) -> None:
        """Make the ledger row durable, if the aggregator asked for one."""
        if self.charges:
            self.charges.pop()
            self.was_charged = True
            self.tell(Charged())

    def unmask(self) -> None:
        """Run the unmasking job, if there is one."""
        if self.unmask_jobs:
            self.tell(unmasking.run(self.unmask_jobs.pop()))

    def fire_timer(self) -> bool:
        """Let the time pass until the aggregator's timer; tell whether one was set."""
        if self.timer_s is None:
            return False
        self.now_s = max(self.now_s, self.timer_s)
        self.timer_s = None
        self.tell(TimerFired())
        return True

    def _carry_out(self, effects: tuple[AggregatorEffect, ...]) -> None:
        for effect in effects:
            if isinstance(effect, SendDown):
                assert not isinstance(effect.message, UnmaskRequest) or self.was_charged
                self._send_down(effect.device, effect.message)
            elif isinstance(effect, SetTimer):
                self.timer_s = effect.at_s
            elif isinstance(effect, Charge):
                assert not self.was_charged, "one charge per attempt"
                self.charges.append(effect)
                self.charged_survivors.append(effect.n_survivors)
            elif isinstance(effect, UnmaskJob):
                self.unmask_jobs.append(effect)
            elif isinstance(effect, RoundFinished):
                assert self.outcome is None, "a round ends once"
                self.outcome = effect
                self.timer_s = None

    def _send_down(self, name: str, message: AggregatorMessage) -> None:
        plan = self.aggregator.plan
        header = Header(
            session_id=NO_SESSION if plan is None else plan.session_id,
            round_number=self.aggregator.call.round_number,
            attempt=self.aggregator.call.attempt,
            sender=AGGREGATOR,
        )
        self.inject(name, message, header)

    def inject(self, name: str, message: AggregatorMessage, header: Header) -> None:
        """Send a message that the gateway signed, whether or not its machine asked for it."""
        topic = topics.downlink(FLEET, DeviceId(name))
        payload = seal_envelope(self.gateway_key, topic, header, message)
        self.packets.append(Packet(device=name, payload=payload, goes_up=False))

    # ------------------------------------------------------------ the network

    def deliver(self, index: int) -> None:
        """Deliver one packet, and nothing that follows from it at the receiver's end."""
        packet = self.packets.pop(index)
        if packet.goes_up:
            self._deliver_up(packet)
        else:
            self._deliver_down(packet)

    def _deliver_up(self, packet: Packet) -> None:
        envelope = open_envelope(topics.uplink(FLEET, DeviceId(packet.device)), packet.payload)
        key = self.devices[packet.device].identity.signing_key.public_key
        envelope.require_signed_by(key)
        if envelope.header.attempt != self.aggregator.call.attempt:
            return
        self.tell(
            DeviceSaid(
                device=packet.device,
                session_id=envelope.header.session_id,
                message=require_device_message(envelope.message),
            )
        )

    def _deliver_down(self, packet: Packet) -> None:
        device = self.devices[packet.device]
        if not device.has_power:
            return
        self.settle(device)
        envelope = open_envelope(topics.downlink(FLEET, DeviceId(device.name)), packet.payload)
        envelope.require_signed_by(self.gateway_key.public_key)
        message = require_aggregator_message(envelope.message)
        if isinstance(message, Call):
            self._answer(device, message)
            return
        machine = device.machine
        if machine is None or envelope.header.attempt != machine.call.attempt:
            return
        if self._is_for(machine, envelope):
            device.effects.extend(machine.handle(AggregatorSaid(message=message)))

    @staticmethod
    def _is_for(machine: DeviceRound, envelope: Envelope) -> bool:
        if machine.plan is None:
            return True
        return envelope.header.session_id == machine.plan.session_id

    def _answer(self, device: Device, call: Call) -> None:
        if call.attempt <= device.last_attempt:
            if device.machine is not None and device.machine.phase is Phase.CHECK_IN:
                device.effects.extend(device.machine.resume())
            return
        device.jobs.clear()
        device.machine = None
        try:
            device.machine = DeviceRound.answer(
                call,
                identity=device.identity,
                policy=device.policy,
                entropy=device.entropy,
                epoch=device.epoch,
                gateway_key=self.gateway_key.public_key,
                today=DAY,
            )
        except RemoteProtocolError as error:
            device.refused.append(error)
            return
        device.effects.extend(device.machine.begin())

    def deliver_all(self) -> None:
        """Deliver every packet that is on its way now, first sent first."""
        for _ in range(len(self.packets)):
            self.deliver(0)

    def deliver_all_down(self) -> None:
        """Deliver what is on its way to devices, and let what goes up wait."""
        going_up = [packet for packet in self.packets if packet.goes_up]
        self.packets = [packet for packet in self.packets if not packet.goes_up]
        self.deliver_all()
        self.packets = going_up + self.packets

    # ------------------------------------------------------------ the devices

    def step(self, device: Device) -> None:
        """Carry out a device's next effect."""
        if not device.effects:
            return
        effect = device.effects.popleft()
        if isinstance(effect, Persist):
            self._persist(device, effect)
        elif isinstance(effect, PersistEpoch):
            device.persist_epoch(effect.snapshot)
        elif isinstance(effect, SendUp):
            self._send_up(device, effect.message)
        elif isinstance(effect, TrainJob | MaskJob):
            device.jobs.append(effect)
        elif isinstance(effect, Refused):
            device.refused.append(effect.error)
        else:
            device.finished.append(effect)
            device.flash = None
            device.machine = None
            device.jobs.clear()

    def settle(self, device: Device) -> None:
        """Carry out all of a device's effects."""
        while device.effects:
            self.step(device)

    def work(self, device: Device) -> None:
        """Finish a device's oldest job."""
        if not device.jobs or device.machine is None:
            return
        self.settle(device)
        job = device.jobs.pop(0)
        event = self._train(device, job) if isinstance(job, TrainJob) else self._mask(device, job)
        device.effects.extend(device.machine.handle(event))

    def crash(self, device: Device) -> None:
        """Take away power: what was not carried out is lost, flash stays."""
        device.machine = None
        device.effects.clear()
        device.jobs.clear()
        device.epoch = restored_epoch(device.identity, device.epoch_flash)

    def restart(self, device: Device) -> None:
        """Give power again: go on from flash."""
        if device.machine is not None or device.flash is None or device.is_silent:
            return
        machine = self.restored(device, device.flash)
        if machine.phase.is_final:
            return
        device.machine = machine
        device.effects.extend(machine.resume())

    def silence(self, device: Device) -> None:
        """Take away power for good."""
        self.crash(device)
        device.is_silent = True

    def resend(self, device: Device) -> None:
        """Let a device send its newest message again, as it does without a receipt."""
        if device.machine is not None and not device.machine.phase.is_final:
            self.settle(device)
            if device.machine is not None:
                self._send_up(device, device.machine.last_message())

    def ask_again(self, name: str) -> None:
        """Let the aggregator send again what a device should have by now."""
        message = self.aggregator.message_for(name)
        if message is not None:
            self._send_down(name, message)

    def restored(self, device: Device, flash: bytes) -> DeviceRound:
        """Return the round that a device goes on with after a restart."""
        return DeviceRound.restore(
            flash,
            identity=device.identity,
            policy=device.policy,
            entropy=device.entropy,
            epoch=device.epoch,
            gateway_key=self.gateway_key.public_key,
            today=DAY,
        )

    def _persist(self, device: Device, effect: Persist) -> None:
        device.flash = effect.snapshot
        machine = DeviceRound.restore(
            effect.snapshot,
            identity=device.identity,
            policy=device.policy,
            entropy=device.entropy,
            epoch=device.epoch_on_flash,
            gateway_key=self.gateway_key.public_key,
            today=DAY,
        )
        device.last_attempt = machine.call.attempt
        device.persisted.add(_bytes_of(machine.last_message()))

    def _send_up(self, device: Device, message: DeviceMessage) -> None:
        assert _bytes_of(message) in device.persisted, "sent before it was persisted"
        machine = device.machine
        assert machine is not None
        session_id = NO_SESSION if machine.plan is None else machine.plan.session_id
        self._record(device, session_id, message)
        header = Header(
            session_id=session_id,
            round_number=machine.call.round_number,
            attempt=machine.call.attempt,
            sender=device.name,
        )
        payload = seal_envelope(
            device.identity.signing_key,
            topics.uplink(FLEET, DeviceId(device.name)),
            header,
            message,
        )
        self.packets.append(Packet(device=device.name, payload=payload, goes_up=True))

    def _record(self, device: Device, session_id: bytes, message: DeviceMessage) -> None:
        device.sent.append((session_id, message))
        if isinstance(message, MaskedInput):
            versions = self.masked_versions.setdefault((session_id, device.name), set())
            versions.add(message.packed)
        if isinstance(message, RevealedShares):
            assert device.flash is not None
            for owner, kind in kinds_revealed(device, device.flash, message).items():
                self.revealed_kinds.setdefault((session_id, owner), set()).add(kind)

    def _train(self, device: Device, job: TrainJob) -> Trained:
        # A device that trains again after a crash gets another update, as with shuffled batches.
        update = device.rng.normal(size=job.plan.dimension).astype(np.float32)
        return Trained(update=update, examples=int(device.rng.integers(1, MOST_EXAMPLES + 1)))

    def _mask(self, device: Device, job: MaskJob) -> Masked:
        plan = job.plan
        assert self.keys.devices[plan.epoch_positions[job.own]] == device.name
        values = ring_vector_of(job)
        masked = masked_input.run(job)
        self.vectors[masked.packed] = values
        self.hidden[masked.packed] = (job.update, job.weight)
        return masked

    # ------------------------------------------------------------ whole runs

    def progress(self) -> bool:
        """Deliver, work and charge once around; tell whether there was anything to do."""
        before = (len(self.packets), self.aggregator.phase)
        had_work = bool(self.packets or self.charges or self.unmask_jobs)
        self.deliver_all()
        for device in self.devices.values():
            self.settle(device)
            had_work |= bool(device.jobs)
            self.work(device)
            self.settle(device)
        self.charge()
        self.unmask()
        return had_work or before != (len(self.packets), self.aggregator.phase)

    def run_until(self, phase: Phase) -> None:
        """Run a perfect network until the aggregator has reached a phase or ended."""
        for _ in range(100):
            if self.aggregator.phase >= phase or not self.progress():
                return
        raise AssertionError("the round does not come to rest")

    def run_to_end(self) -> RoundFinished:
        """Run a perfect network, and the timers where it comes to rest."""
        for _ in range(300):
            if self.outcome is not None:
                return self.outcome
            if not self.progress() and not self.fire_timer():
                break
        raise AssertionError(f"no end from {self.aggregator.phase.name}")

    def packed_by(self, outcome: RoundFinished) -> list[bytes]:
        """Return the masked inputs of the survivors."""
        assert outcome.plan is not None
        found = []
        for name in outcome.report.survivors:
            (packed,) = self.masked_versions[outcome.plan.session_id, name]
            found.append(packed)
        return found

    def survivors_sum(self, outcome: RoundFinished) -> NDArray[np.uint32]:
        """Return the exact ring sum of the vectors that the survivors hid."""
        total = np.zeros(self.privacy.padded_dimension, dtype=np.uint64)
        for packed in self.packed_by(outcome):
            total += self.vectors[packed]
        return (total & np.uint64((1 << self.privacy.ring_bits) - 1)).astype(np.uint32)

    def survivors_weight(self, outcome: RoundFinished) -> int:
        """Return the sum of the weights that the survivors hid."""
        return sum(self.hidden[packed][1] for packed in self.packed_by(outcome))

    def position_of(self, name: str) -> int:
        """Return a device's position in the plan."""
        plan, member = self.aggregator.plan, self.keys.epoch_position_of(name)
        assert plan is not None
        assert member is not None
        position = plan.position_of(member)
        assert position is not None
        return position

    def name_of(self, position: int) -> str:
        """Return the device at a position in the plan."""
        plan = self.aggregator.plan
        assert plan is not None
        return self.keys.devices[plan.epoch_positions[position]]


def restored_epoch(identity: DeviceIdentity, flash: bytes) -> DeviceEpoch:
    """Return a device's key epochs as they are on its flash."""
    return DeviceEpoch(
        identity=identity,
        entropy=CountedSeeds(b"later " + identity.device.encode()),
        fleet=FLEET,
        prgs=prg_bitmask(),
        snapshot=flash,
    )


def ring_vector_of(job: MaskJob) -> RingVector:
    """Encode a job's update again, without masks, weight slot and check coordinates."""
    privacy, session_id = job.plan.privacy, job.plan.session_id
    packed = encode_and_mask(
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
    values = np.empty(privacy.vector_length, dtype=np.uint32)
    unpack(packed, privacy.ring_bits, values)
    return values[: privacy.padded_dimension]


def kinds_revealed(device: Device, flash: bytes, message: RevealedShares) -> dict[int, str]:
    """Tell of each share that a device sends which of its owner's two secrets it belongs to."""
    state = DeviceState.from_bytes(flash)
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


def _bytes_of(message: DeviceMessage) -> bytes:
    return wire.encode([message.kind, dict(message.to_body())])
