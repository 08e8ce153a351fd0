"""The simulated gateway: the real gateway core over a virtual network, store and clock."""

from collections.abc import Callable

from broker.core import GatewayCore, GatewaySettings
from broker.events import (
    Arrived,
    GatewayEffect,
    GatewayEvent,
    LinkRestored,
    ModelChanged,
    Publish,
    Reported,
    RunUnmasking,
    TaskEnded,
    UnmaskingEnded,
    Woken,
)
from edgefl.privacy.ledger import Ledger, LedgerEntry, Release
from edgefl.protocol import topics, unmasking
from edgefl.storage.memory import MemoryStore
from firmware_sim.clock import VirtualClock
from firmware_sim.entropy import InsecureSeededEntropy
from firmware_sim.network import VirtualNetwork

_CLIENT = "gateway"


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
        """Build the gateway; it is not connected yet."""
        self._clock = clock
        self._network = network
        self._fleet = settings.fleet
        self._on_model = on_model
        self._on_report = on_report
        self.ledger = MemoryLedger()
        self._core = GatewayCore(
            settings=settings,
            store=MemoryStore(),
            ledger=self.ledger,
            entropy=InsecureSeededEntropy(seed, _CLIENT),
        )
        self._wakeup_s: float | None = None
        self.ended: TaskEnded | None = None

    def start(self) -> None:
        """Connect."""
        self._network.connect(
            _CLIENT,
            filters=self._core.topics,
            deliver=lambda topic, payload: self.feed(Arrived(topic=topic, payload=payload)),
            will=(topics.aggregator(self._fleet), b""),
        )
        self.feed(LinkRestored())

    def feed(self, event: GatewayEvent) -> None:
        """Give an event to the core, and carry out what it wants."""
        for effect in self._core.handle(event, self._clock.now_s):
            self._carry_out(effect)
        self._schedule_wakeup()

    def _carry_out(self, effect: GatewayEffect) -> None:
        if isinstance(effect, Publish):
            self._network.publish(_CLIENT, effect.topic, effect.payload, retain=effect.retain)
        elif isinstance(effect, RunUnmasking):
            result = unmasking.run(effect.job)
            event = UnmaskingEnded(attempt=effect.attempt, result=result)
            self._clock.call_after(0.001, lambda: self.feed(event))
        elif isinstance(effect, ModelChanged):
            answer = self._on_model(effect)
            if answer is not None:
                self._clock.call_after(0.0, lambda: self.feed(answer))
        elif isinstance(effect, Reported):
            self._on_report(effect)
        else:
            self.ended = effect

    def _schedule_wakeup(self) -> None:
        wakeup_s = self._core.wakeup_s
        if wakeup_s is None or wakeup_s == self._wakeup_s:
            return
        self._wakeup_s = wakeup_s

        def wake() -> None:
            if self._wakeup_s == wakeup_s:
                self._wakeup_s = None
                self.feed(Woken())

        self._clock.call_at(wakeup_s, wake)
