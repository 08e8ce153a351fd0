"""The devices of a round in memory: flash and power, jobs and what they send.

What was sent must have been persisted before; `RoundNetwork` (round_network.py) carries it.
"""

import numpy as np

from edgefl._native import SigningKey
from edgefl.protocol import masked_input, topics
from edgefl.protocol.device import DeviceRound
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.envelope import NO_SESSION, Header, seal_envelope
from edgefl.protocol.epoch_events import PersistEpoch
from edgefl.protocol.events import Masked, MaskJob, Persist, Refused, SendUp, Trained, TrainJob
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.round_messages import MaskedInput, RevealedShares
from edgefl.types import DeviceId, RingVector, Update
from tests.epoch_harness import DAY, FLEET
from tests.round_boards import (
    MOST_EXAMPLES,
    Device,
    Packet,
    bytes_of,
    kinds_revealed,
    restored_epoch,
    ring_vector_of,
)


class RoundDevices:
    """What devices do with their effects and jobs, and what is noted of it.

    Attributes:
        vectors: Ring vector by the packed masked input that hides it, recomputed from the seeds.
        hidden: (update, weight) by the same.
        revealed_kinds: By (session, owner), the kinds of share that devices sent of it.
        masked_versions: By (session, device), the masked inputs that it sent.
    """

    keys: MemberKeys
    gateway_key: SigningKey

    def __init__(self) -> None:
        self.packets: list[Packet] = []
        self.vectors: dict[bytes, RingVector] = {}
        self.hidden: dict[bytes, tuple[Update, int]] = {}
        self.revealed_kinds: dict[tuple[bytes, int], set[str]] = {}
        self.masked_versions: dict[tuple[bytes, str], set[bytes]] = {}

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
        if not device.jobs or device.machine is None:
            return  # What was settled ended the round, or the device.
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

    def restored(
        self, device: Device, flash: bytes, epoch: DeviceEpoch | None = None
    ) -> DeviceRound:
        """Return the round that a device goes on with after a restart."""
        return DeviceRound.restore(
            flash,
            spooled=device.spool,
            identity=device.identity,
            policy=device.policy,
            entropy=device.entropy,
            epoch=epoch or device.epoch,
            gateway_key=self.gateway_key.public_key,
            today=DAY,
        )

    def _persist(self, device: Device, effect: Persist) -> None:
        device.persist(effect)
        machine = self.restored(device, effect.snapshot, device.epoch_on_flash)
        device.last_attempt = machine.call.attempt
        device.persisted.add(bytes_of(machine.last_message()))

    def _send_up(self, device: Device, message: DeviceMessage) -> None:
        assert bytes_of(message) in device.persisted, "sent before it was persisted"
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
        self._send(device, header, message)

    def _send(self, device: Device, header: Header, message: DeviceMessage) -> None:
        topic = topics.uplink(FLEET, DeviceId(device.name))
        payload = seal_envelope(device.identity.signing_key, topic, header, message)
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
