"""One simulated board: the real agent core over a virtual network, store, clock and battery."""

import random
from collections import Counter
from collections.abc import Callable

from edgefl.agent.core import STATUS_OFFLINE, AgentCore
from edgefl.agent.events import (
    AgentEffect,
    AgentEvent,
    MaskingEnded,
    Noticed,
    RunMasking,
    RunTraining,
    Stop,
    TrainingEnded,
)
from edgefl.agent.settings import AgentSettings
from edgefl.errors import DataError, PrivacyError, TrainingError
from edgefl.protocol import masked_input, topics
from edgefl.protocol.plan import SessionPlan
from edgefl.storage.memory import MemoryFile, MemoryStore
from edgefl.transport.core_events import Arrived, LinkRestored, Publish, Woken
from edgefl.types import DeviceId, Update
from firmware_sim.battery import Battery
from firmware_sim.clock import VirtualClock
from firmware_sim.entropy import InsecureSeededEntropy
from firmware_sim.network import VirtualNetwork

_MASKING_S = 0.001

TrainFunction = Callable[[str, SessionPlan, bytes, bytes], Update]
"""(device, plan, bundle, parameters) -> update float32 [d].

It may raise TrainingError or DataError.
"""


class SimulatedDevice:
    """A board that may die at any moment and go on from its flash.

    Args:
        settings: The agent's settings.
        clock: Virtual time.
        network: The fleet's links.
        battery: Its charge.
        train: The local training.
        examples_per_s: Speed of training.
        examples: Rows of local data.
        seed: The scenario's seed.
    """

    def __init__(
        self,
        *,
        settings: AgentSettings,
        clock: VirtualClock,
        network: VirtualNetwork,
        battery: Battery,
        train: TrainFunction,
        examples_per_s: float,
        examples: int,
        seed: int,
    ) -> None:
        """Build the board, switched off."""
        self._settings = settings
        self.name = settings.identity.device
        self._clock = clock
        self._network = network
        self._battery = battery
        self._train = train
        self._examples_per_s = examples_per_s
        self._examples = examples
        self._entropy = InsecureSeededEntropy(seed, self.name)
        self._rng = random.Random(f"{seed} {self.name}")  # noqa: S311 - virtual radio, no secret
        self._flash = MemoryFile()
        self._core: AgentCore | None = None
        self._life = 0
        self._watches = 0
        self._wakeup_s: float | None = None
        self.deaths = 0
        self.empty_battery_deaths = 0
        self.noticed: Counter[str] = Counter()
        self.stopped_by: str | None = None

    @property
    def is_alive(self) -> bool:
        """Tell whether the board is on."""
        return self._core is not None

    def boot(self) -> None:
        """Switch on, and read the flash."""
        if self._core is not None or self.stopped_by is not None:
            return
        self._life += 1
        self._battery.switch(on=True, now_s=self._clock.now_s)
        store = MemoryStore("state", file=self._flash)
        self._core = AgentCore(settings=self._settings, store=store, entropy=self._entropy)
        fleet = self._settings.fleet
        self._network.connect(
            self.name,
            filters=self._core.topics,
            deliver=lambda topic, payload: self.feed(Arrived(topic=topic, payload=payload)),
            will=(topics.status(fleet, DeviceId(self.name)), STATUS_OFFLINE),
        )
        self.feed(LinkRestored(max_packet_bytes=self._network.told_packet_bytes))
        self._watch_battery()

    def die(self, *, outage_s: float = 0.0) -> None:
        """Lose power now; what was persisted stays.

        Args:
            outage_s: Time without power; the board boots after it, once its charge suffices.
        """
        if self._core is None:
            return
        self.deaths += 1
        self._switch_off()
        restart_s = self._battery.restarts_at_s(self._clock.now_s)
        if restart_s is not None:
            self._clock.call_at(max(restart_s, self._clock.now_s + outage_s), self.boot)

    def _switch_off(self) -> None:
        self._core = None
        self._wakeup_s = None
        self._battery.switch(on=False, now_s=self._clock.now_s)
        self._network.vanish(self.name)

    def _die_of_empty_battery(self) -> None:
        self.empty_battery_deaths += 1
        self.die()

    def feed(self, event: AgentEvent) -> None:
        """Give an event to the agent, and carry out what it wants."""
        if self._core is None:
            return
        for effect in self._core.handle(event, self._clock.now_s):
            if self._core is None:
                return
            self._carry_out(effect)
        self._schedule_wakeup()

    # ------------------------------------------------------------ effects

    def _carry_out(self, effect: AgentEffect) -> None:
        if isinstance(effect, Publish):
            self._publish(effect)
        elif isinstance(effect, RunTraining):
            self._start_training(effect)
        elif isinstance(effect, RunMasking):
            self._finish_masking(effect)
        elif isinstance(effect, Noticed):
            self.noticed[effect.error.code] += 1
        elif isinstance(effect, Stop):
            # As the agent's process does: it ends, and nobody starts it again.
            self.stopped_by = effect.error.code
            self._switch_off()

    def _publish(self, effect: Publish) -> None:
        energy_j = len(effect.payload) * self._battery.profile.joule_per_byte
        if not self._battery.take(energy_j, self._clock.now_s):
            self._die_of_empty_battery()
            return
        self._watch_battery()
        self._network.publish(self.name, effect.topic, effect.payload, retain=effect.retain)

    def _start_training(self, effect: RunTraining) -> None:
        now_s, life = self._clock.now_s, self._life
        self._battery.set_load(self._battery.profile.training_w, now_s)
        self._watch_battery()
        work = effect.plan.training.local_epochs * self._examples / self._examples_per_s
        duration_s = work * (0.8 + 0.4 * self._rng.random())

        def finish() -> None:
            if self._life != life or self._core is None:
                return
            self._battery.set_load(0.0, self._clock.now_s)
            self._watch_battery()
            self.feed(self._train_now(effect))

        self._clock.call_after(duration_s, finish)

    def _train_now(self, effect: RunTraining) -> TrainingEnded:
        session_id = effect.plan.session_id
        try:
            update = self._train(self.name, effect.plan, effect.bundle, effect.parameters)
        except (TrainingError, DataError) as error:
            self.noticed[error.code] += 1
            return TrainingEnded(session_id=session_id, update=None, note="failed to train")
        return TrainingEnded(
            session_id=session_id, update=update, note="trained", examples=self._examples
        )

    def _finish_masking(self, effect: RunMasking) -> None:
        session_id, life = effect.job.session.session_id, self._life
        try:
            packed: bytes | None = masked_input.run(effect.job).packed
        except PrivacyError as error:
            self.noticed[error.code] += 1
            packed = None
        event = MaskingEnded(session_id=session_id, packed=packed)

        def finish() -> None:
            if self._life == life:
                self.feed(event)

        self._clock.call_after(_MASKING_S, finish)

    # ------------------------------------------------------------ time

    def _schedule_wakeup(self) -> None:
        wakeup_s = None if self._core is None else self._core.wakeup_s
        if wakeup_s is None or wakeup_s == self._wakeup_s:
            return
        self._wakeup_s = wakeup_s
        life = self._life

        def wake() -> None:
            if self._life == life and self._wakeup_s == wakeup_s:
                self._wakeup_s = None
                self.feed(Woken())

        self._clock.call_at(wakeup_s, wake)

    def _watch_battery(self) -> None:
        """Die when the charge ends at the present load; the newest watch replaces earlier ones."""
        self._watches += 1
        watch = self._watches
        empty_s = self._battery.empties_at_s(self._clock.now_s)
        if empty_s is None:
            return

        def check() -> None:
            if self._watches != watch or self._core is None:
                return
            if self._battery.charge_j(self._clock.now_s) <= 1e-6:
                self._die_of_empty_battery()
            else:
                self._watch_battery()

        self._clock.call_at(empty_s + 1e-3, check)
