"""The open round: drives one `AggregatorRound`, and reminds silent devices."""

from broker.events import GatewayEffect, RunUnmasking
from broker.mailer import Mailer, round_header
from edgefl.privacy.sampling import ALWAYS
from edgefl.protocol.aggregator import AggregatorRound
from edgefl.protocol.envelope import NO_SESSION, Header
from edgefl.protocol.events import (
    AggregatorEffect,
    AggregatorEvent,
    Charge,
    PhaseChanged,
    RoundFinished,
    SendDown,
    SetTimer,
    TimerFired,
    UnmaskJob,
)
from edgefl.protocol.reasons import DropReason, Phase, RoundMode
from edgefl.protocol.round_messages import Call

CoreEffect = Charge | PhaseChanged | RoundFinished
"""What the round leaves to the core: the ledger, the records, the model."""


class OpenRound:
    """One attempt that is under way.

    Args:
        machine: The round's machine.
        now_s: The time.
        mailer: Addresses the messages.
        resend_s: How often a device that is waited for is reminded.
    """

    def __init__(
        self,
        machine: AggregatorRound,
        *,
        now_s: float,
        mailer: Mailer,
        resend_s: float,
    ) -> None:
        """Prepare; nothing is sent before `begin`."""
        self._machine = machine
        self._mailer = mailer
        self._resend_s = resend_s
        self._timer_s: float | None = None
        self._reminded_at_s = dict.fromkeys(machine.population, now_s)

    @property
    def call(self) -> Call:
        """The call that opened it."""
        return self._machine.call

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        return self._machine.phase

    @property
    def machine(self) -> AggregatorRound:
        """The machine, for counts."""
        return self._machine

    @property
    def wakeup_s(self) -> float | None:
        """When `wake` is wanted."""
        waiting = self._silent()
        reminders = [self._reminded_at_s[device] + self._resend_s for device in waiting]
        wishes = [*reminders, *([] if self._timer_s is None else [self._timer_s])]
        return min(wishes, default=None)

    def begin(self, now_s: float) -> list[GatewayEffect | CoreEffect]:
        """Call the devices; in the one-upload mode the plan comes at once, and calls nobody."""
        is_called = self.call.mode is RoundMode.SECAGG
        calls = [self._mailer.call(self.call)] if is_called else []
        return [*calls, *self._translate(self._machine.begin(now_s), now_s)]

    def resume(self, now_s: float) -> list[GatewayEffect | CoreEffect]:
        """Go on with a round of an earlier life; devices are reminded as they come back."""
        return self._translate(self._machine.resume(now_s), now_s)

    def handle(self, event: AggregatorEvent, now_s: float) -> list[GatewayEffect | CoreEffect]:
        """Feed an event.

        Raises:
            RemoteProtocolError: A device broke the protocol; call `remove`.
        """
        return self._translate(self._machine.handle(event, now_s), now_s)

    def remove(
        self, device: str, reason: DropReason, now_s: float
    ) -> list[GatewayEffect | CoreEffect]:
        """Stop waiting for a device."""
        return self._translate(self._machine.remove(device, reason, now_s), now_s)

    def wake(self, now_s: float) -> list[GatewayEffect | CoreEffect]:
        """Close what is due, and remind the devices that are waited for."""
        effects: list[GatewayEffect | CoreEffect] = []
        if self._timer_s is not None and now_s >= self._timer_s:
            self._timer_s = None
            effects += self.handle(TimerFired(), now_s)
        for device in self._silent():
            if now_s >= self._reminded_at_s[device] + self._resend_s:
                effects += self.remind(device, now_s)
        return effects

    def remind(self, device: str, now_s: float) -> list[GatewayEffect | CoreEffect]:
        """Send a device what it should have received by now."""
        message = self._machine.message_for(device)
        if device in self._reminded_at_s:
            self._reminded_at_s[device] = now_s
        if message is None:
            return []
        return [self._mailer.to_device(device, message, self._header())]

    def _silent(self) -> list[str]:
        """Return the devices to remind: nobody while coins are thrown, for tails are silent."""
        is_throwing = self.phase is Phase.CHECK_IN and self.call.coin != ALWAYS
        return [] if is_throwing else self._machine.waiting_for()

    def _header(self) -> Header:
        plan = self._machine.plan
        return round_header(self.call, NO_SESSION if plan is None else plan.session_id)

    def _translate(
        self, effects: tuple[AggregatorEffect, ...], now_s: float
    ) -> list[GatewayEffect | CoreEffect]:
        out: list[GatewayEffect | CoreEffect] = []
        for effect in effects:
            if isinstance(effect, SendDown):
                self._reminded_at_s[effect.device] = now_s
                out.append(self._mailer.to_device(effect.device, effect.message, self._header()))
            elif isinstance(effect, SetTimer):
                self._timer_s = effect.at_s
            elif isinstance(effect, UnmaskJob):
                out.append(RunUnmasking(attempt=self.call.attempt, job=effect))
            else:
                out.append(effect)
        return out
