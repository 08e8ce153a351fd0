"""The devices' end of a round: every device's real machine, over signed bytes, with counters."""

import hashlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgefl._native import RingSum
from edgefl.protocol import masked_input, topics
from edgefl.protocol.device import DeviceIdentity, DeviceRound
from edgefl.protocol.envelope import (
    NO_SESSION,
    Header,
    open_envelope,
    require_aggregator_message,
    seal_envelope,
)
from edgefl.protocol.events import (
    AggregatorSaid,
    DeviceEffect,
    MaskJob,
    Refused,
    SendUp,
    Trained,
    TrainJob,
)
from edgefl.protocol.messages import AggregatorMessage, DeviceMessage
from edgefl.protocol.reasons import Phase
from edgefl.protocol.round_messages import (
    Call,
    CheckIn,
    MaskedInput,
    PlanAnnouncement,
    RevealedShares,
    RoutedShares,
    SharedKeys,
    SurvivorProposal,
    SurvivorVote,
    UnmaskRequest,
)
from edgefl.types import DeviceId, FleetName
from tests.epoch_harness import FLEET, Board, signing_key
from tests.round_boards import POLICY, encoded_without_masks

PHASE_OF: dict[type[DeviceMessage] | type[AggregatorMessage], Phase] = {
    Call: Phase.CHECK_IN,
    CheckIn: Phase.CHECK_IN,
    PlanAnnouncement: Phase.SHARE_KEYS,
    SharedKeys: Phase.SHARE_KEYS,
    RoutedShares: Phase.MASKED_INPUT,
    MaskedInput: Phase.MASKED_INPUT,
    SurvivorProposal: Phase.CERTIFICATE,
    SurvivorVote: Phase.CERTIFICATE,
    UnmaskRequest: Phase.UNMASKING,
    RevealedShares: Phase.UNMASKING,
}
"""The phase that a message belongs to; others close the round."""
_FLEET = FleetName(FLEET)


@dataclass
class Traffic:
    """What one device sent and received in one phase."""

    up_bytes: int = 0
    down_bytes: int = 0
    uplinks: int = 0
    cpu_s: float = 0.0


@dataclass
class _Seat:
    """One device's machine and counters."""

    identity: DeviceIdentity
    board: Board
    machine: DeviceRound | None = None
    traffic: defaultdict[Phase, Traffic] = field(default_factory=lambda: defaultdict(Traffic))


class RefusedHere(Exception):
    """A device refused something, which no honest gateway gives reason to."""


class FleetEnd:
    """All devices of a key epoch, with one update each.

    Args:
        boards: Their key epochs.
        gateway_key: The gateway's public key.
        coordinates: Of every update.
        silent: First phase in which a device says nothing any more.
        sums: Whether the exact sum is kept, by encoding every vector twice.

    Attributes:
        sum: Exact ring sum of the vectors that were sent, once there is one.
    """

    def __init__(
        self,
        boards: Mapping[str, Board],
        *,
        gateway_key: bytes,
        coordinates: int,
        silent: Mapping[str, Phase],
        sums: bool = True,
    ) -> None:
        self._seats = {
            name: _Seat(
                identity=DeviceIdentity(device=name, signing_key=signing_key(name)), board=board
            )
            for name, board in boards.items()
        }
        self._gateway_key = gateway_key
        self._silent, self._sums = silent, sums
        self._update: NDArray[np.float32] = (
            np.random.default_rng(1).normal(size=coordinates).astype(np.float32)
        )
        self.sum: RingSum | None = None

    def traffic(self, device: str) -> Mapping[Phase, Traffic]:
        """Return a device's counters by phase."""
        return self._seats[device].traffic

    def exact_total(self, count: int) -> NDArray[np.uint32]:
        """Return the first `count` values of the exact sum.

        Raises:
            ArithmeticError: No vector was sent.
        """
        if self.sum is None:
            raise ArithmeticError("a sum of nothing")
        return np.frombuffer(self.sum.values(count), dtype="<u4")

    def deliver(self, device: str, payload: bytes) -> Iterator[bytes]:
        """Hand a message to a device, and yield what it sends up, signed.

        Raises:
            RefusedHere: The device refused it.
        """
        seat = self._seats[device]
        started = time.process_time()
        topic = topics.downlink(_FLEET, DeviceId(device))
        envelope = open_envelope(topic, payload)
        envelope.require_signed_by(self._gateway_key)
        message = require_aggregator_message(envelope.message)
        phase = PHASE_OF.get(type(message))
        if phase is None:
            return
        traffic = seat.traffic[phase]
        traffic.down_bytes += len(payload)
        if self._is_silent(device, phase):
            return
        effects = self._handle(seat, message)
        traffic.cpu_s += time.process_time() - started
        yield from self._carry_out(seat, traffic, effects)

    def _is_silent(self, device: str, phase: Phase) -> bool:
        first = self._silent.get(device)
        return first is not None and phase >= first

    def _handle(self, seat: _Seat, message: AggregatorMessage) -> tuple[DeviceEffect, ...]:
        if isinstance(message, Call):
            seat.machine = DeviceRound.answer(
                message,
                identity=seat.identity,
                policy=POLICY,
                entropy=seat.board.seeds,
                epoch=seat.board.machine,
                gateway_key=self._gateway_key,
            )
            return seat.machine.begin()
        return _machine(seat).handle(AggregatorSaid(message=message))

    def _carry_out(
        self, seat: _Seat, traffic: Traffic, effects: tuple[DeviceEffect, ...]
    ) -> Iterator[bytes]:
        for effect in effects:
            if isinstance(effect, SendUp):
                payload = self._sealed(seat, traffic, effect.message)
                yield payload
            elif isinstance(effect, TrainJob):
                trained = _machine(seat).handle(Trained(update=self._update))
                yield from self._carry_out(seat, traffic, trained)
            elif isinstance(effect, MaskJob):
                yield from self._carry_out(seat, traffic, self._mask(seat, traffic, effect))
            elif isinstance(effect, Refused):
                raise RefusedHere(f"{seat.identity.device}: {effect.error}")

    def _mask(self, seat: _Seat, traffic: Traffic, job: MaskJob) -> tuple[DeviceEffect, ...]:
        started = time.process_time()
        effects = _machine(seat).handle(masked_input.run(job))
        traffic.cpu_s += time.process_time() - started
        if self._sums:
            self._add(job)
        return effects

    def _sealed(self, seat: _Seat, traffic: Traffic, message: DeviceMessage) -> bytes:
        started = time.process_time()
        machine, device = _machine(seat), seat.identity.device
        header = Header(
            session_id=NO_SESSION if machine.plan is None else machine.plan.session_id,
            round_number=machine.call.round_number,
            attempt=machine.call.attempt,
            sender=device,
        )
        topic = topics.uplink(_FLEET, DeviceId(device))
        payload = seal_envelope(seat.identity.signing_key, topic, header, message)
        traffic.cpu_s += time.process_time() - started
        traffic.up_bytes += len(payload)
        traffic.uplinks += 1
        return payload

    def _add(self, job: MaskJob) -> None:
        if self.sum is None:
            privacy = job.plan.privacy
            self.sum = RingSum(privacy.vector_length, privacy.ring_bits)
        self.sum.add_packed(encoded_without_masks(job))


def digest_of(total: NDArray[np.uint32]) -> bytes:
    """Return SHA-256 of a sum, to compare two that are in different processes."""
    return hashlib.sha256(np.ascontiguousarray(total, dtype="<u4").tobytes()).digest()


def _machine(seat: _Seat) -> DeviceRound:
    if seat.machine is None:
        raise RefusedHere(f"{seat.identity.device} has not been called")
    return seat.machine
