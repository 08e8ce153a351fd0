"""The gateway's end of a round: wire bytes in, wire bytes out, nothing else in between.

What a network would do is left to the caller, and so is the ledger, which is always ready here.
"""

import time
from collections.abc import Iterator

from edgefl._native import SigningKey
from edgefl.errors import RemoteProtocolError
from edgefl.protocol import topics, unmasking
from edgefl.protocol.aggregator import AggregatorRound
from edgefl.protocol.envelope import (
    AGGREGATOR,
    NO_SESSION,
    Header,
    open_envelope,
    require_device_message,
    seal_envelope,
)
from edgefl.protocol.events import (
    AggregatorEffect,
    AggregatorEvent,
    Charge,
    Charged,
    DeviceSaid,
    RoundFinished,
    SendDown,
    SetTimer,
    TimerFired,
    UnmaskJob,
)
from edgefl.protocol.messages import AggregatorMessage
from edgefl.protocol.reasons import Phase
from edgefl.protocol.round_setup import RoundSetup
from edgefl.types import DeviceId, FleetName

Addressed = tuple[str, bytes]
"""A device, and signed bytes from or for it."""


class GatewayEnd:
    """One aggregator round over signed messages.

    Args:
        setup: The gateway's decisions.
        key: What it signs with.

    Attributes:
        outcome: How it ended.
        unmask_cpu_s: CPU time of reconstruction and mask removal.
        cpu_s: CPU time of all of it.
    """

    def __init__(self, setup: RoundSetup, key: SigningKey) -> None:
        self._round = AggregatorRound(setup=setup, offline=frozenset(), now_s=0.0)
        self._setup, self._key = setup, key
        self._now_s = 0.0
        self._timer_s: float | None = None
        self.outcome: RoundFinished | None = None
        self.unmask_cpu_s = 0.0
        self.cpu_s = 0.0

    @property
    def phase(self) -> Phase:
        """Where the round stands."""
        return self._round.phase

    @property
    def has_ended(self) -> bool:
        """Whether the round is over."""
        return self.outcome is not None

    def begin(self) -> Iterator[Addressed]:
        """Call everybody."""
        for device in sorted(self._setup.population):
            yield self._sealed(device, self._round.call)
        yield from self._carry_out(self._round.begin(self._now_s))

    def receive(self, device: str, payload: bytes) -> Iterator[Addressed]:
        """Take a device's message.

        Raises:
            RemoteProtocolError: It breaks the protocol; no device does so here.
        """
        started = time.process_time()
        envelope = open_envelope(topics.uplink(self._fleet, DeviceId(device)), payload)
        envelope.require_signed_by(self._setup.keys.bundle_of(device).identity_key)
        said = DeviceSaid(
            device=device,
            session_id=envelope.header.session_id,
            message=require_device_message(envelope.message),
        )
        self.cpu_s += time.process_time() - started
        yield from self._tell(said)

    def let_time_pass(self) -> Iterator[Addressed]:
        """Let the phase's time run out.

        Raises:
            RemoteProtocolError: E-NO-TIMER, nothing is waited for and the round has not ended.
        """
        if self._timer_s is None:
            raise RemoteProtocolError("E-NO-TIMER", "a round that waits or ended", "neither")
        self._now_s, self._timer_s = max(self._now_s, self._timer_s), None
        yield from self._tell(TimerFired())

    def _tell(self, event: AggregatorEvent) -> Iterator[Addressed]:
        started = time.process_time()
        effects = self._round.handle(event, self._now_s)
        self.cpu_s += time.process_time() - started
        yield from self._carry_out(effects)

    def _carry_out(self, effects: tuple[AggregatorEffect, ...]) -> Iterator[Addressed]:
        for effect in effects:
            if isinstance(effect, SendDown):
                yield self._sealed(effect.device, effect.message)
            elif isinstance(effect, SetTimer):
                self._timer_s = effect.at_s
            elif isinstance(effect, Charge):
                yield from self._tell(Charged())
            elif isinstance(effect, UnmaskJob):
                yield from self._unmask(effect)
            elif isinstance(effect, RoundFinished):
                self.outcome = effect

    def _unmask(self, job: UnmaskJob) -> Iterator[Addressed]:
        started = time.process_time()
        unmasked = unmasking.run(job)
        used_s = time.process_time() - started
        self.unmask_cpu_s += used_s
        self.cpu_s += used_s
        yield from self._tell(unmasked)

    def _sealed(self, device: str, message: AggregatorMessage) -> Addressed:
        started = time.process_time()
        plan = self._round.plan
        header = Header(
            session_id=NO_SESSION if plan is None else plan.session_id,
            round_number=self._round.call.round_number,
            attempt=self._round.call.attempt,
            sender=AGGREGATOR,
        )
        topic = topics.downlink(self._fleet, DeviceId(device))
        payload = seal_envelope(self._key, topic, header, message)
        self.cpu_s += time.process_time() - started
        return device, payload

    @property
    def _fleet(self) -> FleetName:
        return FleetName(self._setup.fleet)
