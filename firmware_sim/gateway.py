"""The simulated gateway: the real gateway core over a virtual network, store and clock."""

from collections.abc import Callable

from broker.core import GatewayCore
from broker.events import (
    GatewayEffect,
    GatewayEvent,
    ModelChanged,
    Reported,
    RunUnmasking,
    TaskEnded,
    TaskSubmitted,
    UnmaskingEnded,
)
from broker.settings import GatewaySettings
from edgefl.privacy.ledger import Ledger, LedgerEntry, Release
from edgefl.protocol import topics, unmasking
from edgefl.storage.batch import BatchStore
from edgefl.storage.memory import MemoryFile, MemoryStore
from edgefl.transport.core_events import Arrived, LinkRestored, Publish, Woken
from firmware_sim.clock import VirtualClock
from firmware_sim.entropy import InsecureSeededEntropy
from firmware_sim.network import VirtualNetwork

_CLIENT = "gateway"
_UNMASKING_S = 0.001


class MemoryLedger:
    """The privacy ledger without a disk."""

    def __init__(self) -> None:
        """Start with nothing spent."""
        self.ledger = Ledger()

    def append(self, release: Release) -> LedgerEntry:
        """Charge one release."""
        return self.ledger.append(release)


class SimulatedGateway:
    """The gateway of a simulated fleet.

    Args:
        settings: The gateway's settings.
        clock: Virtual time.
        network: The fleet's links.
        seed: The scenario's seed.
        on_model: Called with each committed model; gives events to feed back.
        on_report: Called with each line for the operator.
    """

    def __init__(
        self,
        *,
        settings: GatewaySettings,
        clock: VirtualClock,
        network: VirtualNetwork,
        seed: int,
        on_model: Callable[[ModelChanged], GatewayEvent | None],
        on_report: Callable[[Reported], None],
    ) -> None:
        """Build the gateway; it does not run yet."""
        self._clock = clock
        self._network = network
        self._fleet = settings.fleet
        self._on_model = on_model
        self._on_report = on_report
        self.ledger = MemoryLedger()
        self._settings = settings
        self._disk = MemoryFile()
        # One stream over all lives: a restarted gateway never draws a nonce again.
        self._entropy = InsecureSeededEntropy(seed, _CLIENT)
        self._core: GatewayCore | None = None
        self._store = BatchStore(MemoryStore("gateway", file=self._disk), namespace="gateway")
        self._life = 0
        self._submitted: list[TaskSubmitted] = []
        self._wakeup_s: float | None = None
        self.ended: TaskEnded | None = None

    def start(self) -> None:
        """Start the process from its disk, find the tasks handed in before, and connect."""
        self._life += 1
        self._store = BatchStore(MemoryStore("gateway", file=self._disk), namespace="gateway")
        core = GatewayCore(
            settings=self._settings,
            store=self._store,
            ledger=self.ledger,
            entropy=self._entropy,
        )
        self._core = core
        for task in self._submitted:
            self.feed(task)
        self._network.connect(
            _CLIENT,
            filters=core.topics,
            deliver=lambda topic, payload: self.feed(Arrived(topic=topic, payload=payload)),
            will=(topics.aggregator(self._fleet), b""),
        )
        self.feed(LinkRestored(max_packet_bytes=self._network.told_packet_bytes))

    def die(self, *, outage_s: float) -> None:
        """End as by SIGKILL; what was persisted stays. Start again after the outage."""
        if self._core is None:
            return
        self._core = None
        self._wakeup_s = None
        self._network.vanish(_CLIENT)
        self._clock.call_after(outage_s, self.start)

    def submit(self, task: TaskSubmitted) -> None:
        """Put a task into the gateway's folder."""
        self._submitted.append(task)
        self.feed(task)

    def feed(self, event: GatewayEvent) -> None:
        """Give an event to the core, and carry out what it wants."""
        if self._core is None:
            return
        effects = self._core.handle(event, self._clock.now_s)
        self._store.batch.commit()
        for effect in effects:
            self._carry_out(effect)
        self._schedule_wakeup()

    def _feed_later(self, delay_s: float, event: GatewayEvent) -> None:
        """Give an event to this life of the gateway, and to no later one."""
        life = self._life

        def give() -> None:
            if self._life == life:
                self.feed(event)

        self._clock.call_after(delay_s, give)

    def _carry_out(self, effect: GatewayEffect) -> None:
        if isinstance(effect, Publish):
            self._network.publish(_CLIENT, effect.topic, effect.payload, retain=effect.retain)
        elif isinstance(effect, RunUnmasking):
            result = unmasking.run(effect.job)
            self._feed_later(_UNMASKING_S, UnmaskingEnded(attempt=effect.attempt, result=result))
        elif isinstance(effect, ModelChanged):
            answer = self._on_model(effect)
            if answer is not None:
                self._feed_later(0.0, answer)
        elif isinstance(effect, Reported):
            self._on_report(effect)
        elif isinstance(effect, TaskEnded):
            self.ended = effect
        # The gateway enrols by itself: nobody has to be asked.

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
