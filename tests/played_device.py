"""A device at a gateway that is played by hand: its flash, its power, its jobs, what it sent.

It can lose power between any two effects.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from edgefl.errors import EdgeflError
from edgefl.protocol import masked_input
from edgefl.protocol.device import DeviceIdentity, DeviceRound
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.epoch_events import PersistEpoch
from edgefl.protocol.events import (
    AggregatorSaid,
    DeviceEffect,
    DeviceFinished,
    Masked,
    MaskJob,
    Persist,
    Refused,
    SendUp,
    Trained,
    TrainJob,
)
from edgefl.protocol.key_bundle import prg_bitmask
from edgefl.protocol.messages import AggregatorMessage, DeviceMessage
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.round_messages import (
    Call,
    Leave,
    MaskedInput,
    SurvivorVote,
)
from edgefl.types import Update
from tests.device_fixtures import Flash
from tests.epoch_harness import FLEET, CountedSeeds, signing_key

_M = TypeVar("_M", bound=DeviceMessage)


@dataclass
class Device:
    """A board: its flash, its machines while it has power, and what it ever sent.

    Attributes:
        update: What training gives; random where it is None.
        trains: Training gives anything at all.
        is_busy: Jobs wait for `work`.
        effects_before_death: Effects that are still carried out in answer to the next event that
            makes the device send something; then it loses power once, and comes back.
    """

    name: str
    flash: Flash
    policy: DevicePolicy
    gateway_key: bytes
    today: int
    seeds: CountedSeeds
    machine: DeviceRound | None = None
    sent: list[DeviceMessage] = field(default_factory=list)
    refused: list[EdgeflError] = field(default_factory=list)
    finished: list[DeviceFinished] = field(default_factory=list)
    jobs: list[TrainJob | MaskJob] = field(default_factory=list)
    mask_jobs: list[MaskJob] = field(default_factory=list)
    update: Update | None = None
    examples: int = 1
    trains: bool = True
    is_busy: bool = False
    effects_before_death: int | None = None

    def __post_init__(self) -> None:
        self.identity = DeviceIdentity(device=self.name, signing_key=signing_key(self.name))
        self.start()

    def twin(self) -> "Device":
        """Return a device with the same flash and past."""
        other = replace(
            self,
            flash=replace(self.flash),
            machine=None,
            sent=list(self.sent),
            refused=list(self.refused),
            finished=list(self.finished),
            jobs=[],
            mask_jobs=list(self.mask_jobs),
        )
        other.restore()
        return other

    def start(self) -> None:
        """Give power: whatever is not on flash is gone."""
        self.machine = None
        self.jobs.clear()
        self.epoch = DeviceEpoch(
            identity=self.identity,
            entropy=self.seeds,
            fleet=FLEET,
            prgs=prg_bitmask(),
            snapshot=self.flash.epoch,
        )

    def restart(self, *, loses_round: bool = False) -> None:
        """Lose power, come back, and go on with the round that is on flash."""
        self.start()
        if loses_round:
            self.flash.round = None
        self.restore()
        if self.machine is not None:
            self.carry_out(self.machine.resume())

    def restore(self) -> None:
        """Take up the round that is on flash, without doing anything."""
        if self.flash.round is not None:
            self.machine = DeviceRound.restore(
                self.flash.round,
                spooled=self.flash.spool,
                identity=self.identity,
                policy=self.policy,
                entropy=self.seeds,
                epoch=self.epoch,
                gateway_key=self.gateway_key,
                today=self.today,
            )

    def answer(self, call: Call) -> None:
        """Answer a call; a refusal is noted."""
        try:
            self.machine = DeviceRound.answer(
                call,
                identity=self.identity,
                policy=self.policy,
                entropy=self.seeds,
                epoch=self.epoch,
                gateway_key=self.gateway_key,
                today=self.today,
            )
        except EdgeflError as error:
            self.refused.append(error)
            return
        self.carry_out(self.machine.begin())

    def say(self, message: AggregatorMessage) -> None:
        """Take a message of the gateway, and do all work that follows from it."""
        if self.machine is None:
            return
        read_back = type(message).from_body(message.to_body())
        self.carry_out(self.machine.handle(AggregatorSaid(message=read_back)))

    def carry_out(self, effects: Sequence[DeviceEffect]) -> None:
        """Carry out effects in order, and finish the jobs among them; die where that is asked."""
        sends = any(isinstance(effect, SendUp) for effect in effects)
        if sends and self.effects_before_death is not None:
            effects, self.effects_before_death = effects[: self.effects_before_death], None
            for effect in effects:
                self._carry_out_one(effect)
            self.restart()
            return
        for effect in effects:
            self._carry_out_one(effect)
        while self.jobs and self.machine is not None and not self.is_busy:
            self.work()

    def work(self) -> None:
        """Finish the oldest job."""
        assert self.machine is not None
        job = self.jobs.pop(0)
        event: Trained | Masked
        if isinstance(job, TrainJob):
            event = Trained(update=self._trained(job), examples=self.examples)
        else:
            self.mask_jobs.append(job)
            event = masked_input.run(job)
        self.carry_out(self.machine.handle(event))

    def _trained(self, job: TrainJob) -> Update | None:
        if self.update is not None or not self.trains:
            return self.update
        # Another one after each loss of power, as with shuffled batches.
        rng = np.random.default_rng([self.seeds.count, len(self.name)])
        return rng.normal(size=job.plan.dimension).astype(np.float32)

    def _carry_out_one(self, effect: DeviceEffect) -> None:
        if isinstance(effect, PersistEpoch):
            self.flash.epoch = effect.snapshot
        elif isinstance(effect, Persist):
            self.flash.round = effect.snapshot
            self.flash.spool = self.flash.spool if effect.spool is None else effect.spool
        elif isinstance(effect, SendUp):
            self._require_persisted(effect.message)
            self.sent.append(effect.message)
        elif isinstance(effect, TrainJob | MaskJob):
            self.jobs.append(effect)
        elif isinstance(effect, Refused):
            self.refused.append(effect.error)
        else:
            self.finished.append(effect)
            self.machine, self.flash.round = None, None

    def _require_persisted(self, message: DeviceMessage) -> None:
        assert self.machine is not None
        assert self.flash.round == self.machine.snapshot(), "sent before it was persisted"
        assert self.flash.epoch == self.epoch.snapshot(), "keys are used before that is noted"
        assert isinstance(message, type(self.machine.last_message()) | MaskedInput | SurvivorVote)

    def sent_of(self, kind: type[_M]) -> list[_M]:
        return [message for message in self.sent if isinstance(message, kind)]

    @property
    def codes(self) -> list[str]:
        return [error.code for error in self.refused]

    @property
    def leaves(self) -> list[str]:
        return [leave.reason.name for leave in self.sent_of(Leave)]
