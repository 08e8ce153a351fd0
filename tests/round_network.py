"""The machines of one round and the network between them, in memory and virtual time.

Every message crosses the wire format and its signature. Roster and key epoch are real; they are
made once for each number of devices. `RoundHarness` (round_harness.py) drives it.
"""

import numpy as np

from edgefl._native import SigningKey
from edgefl.errors import RemoteProtocolError
from edgefl.protocol import topics, unmasking
from edgefl.protocol.aggregator import AggregatorRound
from edgefl.protocol.device import DeviceIdentity, DeviceRound
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
from edgefl.protocol.events import (
    AggregatorEffect,
    AggregatorEvent,
    AggregatorSaid,
    Cancelled,
    Charge,
    Charged,
    DeviceOffline,
    DeviceOnline,
    DeviceSaid,
    RoundFinished,
    SendDown,
    SetTimer,
    TimerFired,
    UnmaskJob,
)
from edgefl.protocol.messages import AggregatorMessage
from edgefl.protocol.plan import TrainingPlan
from edgefl.protocol.reasons import AbortReason, AdversaryClass, DropReason, Phase, RoundMode
from edgefl.protocol.round_messages import (
    Call,
    UnmaskRequest,
)
from edgefl.protocol.round_setup import RoundSetup
from edgefl.types import DeviceId
from tests.epoch_harness import DAY, FLEET, signing_key
from tests.round_boards import (
    LEDGER_HEAD,
    LIMITS,
    POLICY,
    Device,
    InsecureEntropy,
    Packet,
    least_floor,
    opened_epoch,
    privacy_plan,
    restored_epoch,
)
from tests.round_devices import RoundDevices


class RoundNetwork(RoundDevices):
    """n devices, one aggregator, and the network between them.

    Args:
        n_devices: Members of the key epoch.
        floor: Survivor floor; the least possible if not given.
        absent: Members that are not called, and have no power.
        offline: Devices that are called and known to be gone.

    Attributes:
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
        super().__init__()
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
        self._count_attempt()
        self.opened_with = self.setup()
        self.aggregator = self.new_aggregator(offline)
        for name in self.devices:
            self._send_down(name, self.aggregator.call)
        self._carry_out(self.aggregator.begin(self.now_s))

    def _count_attempt(self) -> None:
        self.attempt += 1
        self.timer_s: float | None = None
        self.charges: list[Charge] = []
        self.unmask_jobs: list[UnmaskJob] = []
        self.outcome: RoundFinished | None = None
        self.was_charged = False

    def new_aggregator(self, offline: frozenset[str]) -> AggregatorRound:
        """Return the aggregator's half of the attempt, from its beginning."""
        return AggregatorRound(
            setup=self.opened_with, offline=offline, now_s=self.now_s, keeps_journal=True
        )

    def setup(self) -> RoundSetup:
        """Return the gateway's decisions for the attempt."""
        return RoundSetup(
            fleet=FLEET,
            call=self.next_call(),
            keys=self.keys,
            population=self.called,
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

    @property
    def called(self) -> frozenset[str]:
        """Devices that the attempt may have."""
        return frozenset(self.devices)

    def next_call(self) -> Call:
        """Return the attempt's call."""
        return Call(
            task="count",
            round_number=1,
            attempt=self.attempt,
            mode=RoundMode.SECAGG,
            key_epoch=self.keys.epoch.key_epoch,
            key_index=self.attempt - 1,
            nonce=self._gateway_entropy.fresh_bytes(),
            closes_in_ms=30_000,
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
        self._take_down(device, envelope, require_aggregator_message(envelope.message))

    def _take_down(self, device: Device, envelope: Envelope, message: AggregatorMessage) -> None:
        """Let a device take a message of the gateway."""
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
