"""The agent on a board: an asyncio shell around `AgentCore`, with MQTT, threads and a clock."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from edgefl.agent.certificate_watch import CertificateWatch
from edgefl.agent.core import STATUS_OFFLINE, AgentCore
from edgefl.agent.events import (
    AgentEffect,
    AgentEvent,
    CertificateBrought,
    GatewayMoved,
    KeysReady,
    Noticed,
    PhaseReached,
    PresenceChanged,
    RoundEnded,
    RunMasking,
    RunTraining,
    Stop,
)
from edgefl.agent.guard import PowerGuard
from edgefl.agent.hearing import Hearing, first_hearing, new_hearing
from edgefl.agent.jobs import AgentJobs
from edgefl.agent.learning import LocalLearner
from edgefl.agent.link import AgentLink
from edgefl.agent.reminder import Reminder
from edgefl.agent.renewal import CertificateKeeper
from edgefl.agent.reporter import Reporter
from edgefl.agent.round_log import log_effect
from edgefl.agent.service import ServiceManager
from edgefl.errors import PolicyRefusal, TransportError, first_known
from edgefl.protocol.presence import Presence
from edgefl.protocol.reasons import Phase
from edgefl.transport.base import Inbound, LinkDown, LinkDownReason, LinkUp
from edgefl.transport.core_events import Arrived, LinkLost, LinkRestored, Publish, Woken

_LOGGER = logging.getLogger(__name__)
_REVOKED = "revoked"
"""In the reason of an endpoint of ours that refuses a certificate."""
_TWICE = "another living client has this identity"
"""The reason of an endpoint of ours that has to choose between two."""
_MAX_EVENTS = 64
"""Beyond it the transport waits, whose own bounds then hold back the broker."""
_GUARD_S = 30.0
"""How often power is looked at outside of calls: seldom, for it wakes the board."""
_QUIET_S = 20.0
"""For so long nothing must have happened before a board goes to sleep."""
_LEAST_SLEEP_S = 30
"""Connecting costs more packets than a shorter sleep saves."""
_SLEEP_JITTER = 0.2


class AgentRuntime:
    """Runs one agent until it is cancelled or must stop.

    Args:
        core: The agent.
        commit: Makes what the core has stored in a step durable.
        link: Its link to the broker, not yet started.
        learner: Trains on the device's examples.
        guard: Says whether the board works for rounds now.
        reporter: Shows what the agent does.
        manager: Is given signs of life, if it wants any.
        gateway: How the gateway is called in messages to the user.
        keeper: Keeps this device's certificate valid; None where it has none.
        wait_s: How long to wait for this fleet's gateway; None waits for ever.
        guard_s: How often power is looked at.
        quiet_s: How long nothing must have happened before a sleep.
        hearing: Says when a link that stands brings nothing any more.
    """

    def __init__(
        self,
        *,
        core: AgentCore,
        commit: Callable[[], object],
        link: AgentLink,
        learner: LocalLearner,
        guard: PowerGuard,
        reporter: Reporter,
        manager: ServiceManager,
        gateway: str,
        keeper: CertificateKeeper | None = None,
        wait_s: float | None = None,
        guard_s: float = _GUARD_S,
        quiet_s: float = _QUIET_S,
        hearing: Hearing | None = None,
    ) -> None:
        """Prepare; nothing runs before `run`."""
        self._core = core
        self._commit = commit
        self._link = link
        self._learner = learner
        self._guard = guard
        self._reporter = reporter
        self._manager = manager
        self._gateway = self._broker = gateway
        self._wait_s = wait_s
        self._guard_s = guard_s
        self._quiet_s = quiet_s
        self._hearing = hearing or new_hearing(random.random)
        self._events: asyncio.Queue[AgentEvent] = asyncio.Queue(_MAX_EVENTS)
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="training")
        self._lacks_data = asyncio.Event()
        self._jobs = AgentJobs(learner, guard, self._worker, self._events, self._lacks_data)
        self._certificate = CertificateWatch(keeper, self._events.put)
        self._told: Presence | None = None
        self._is_linked = False
        self._turns = 0
        self._status_timer: asyncio.TimerHandle | None = None
        self._last_event_s = time.monotonic()

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            EdgeflError: The operator must act: a foreign gateway, data that do not fit, a full
                disk.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read_link(), name="transport")
                group.create_task(self._watch_for_gateway(), name="gateway watch")
                group.create_task(self._watch_data(), name="data watch")
                group.create_task(self._watch_power(), name="power watch")
                group.create_task(self._certificate.run(), name="certificate watch")
                group.create_task(self._show_life(), name="watchdog")
                group.create_task(self._work(group), name="core")
        except ExceptionGroup as group_error:
            error = first_known(group_error)
            self._reporter.on_error(error)
            raise error from group_error
        finally:
            self._worker.shutdown(wait=False, cancel_futures=True)
            with contextlib.suppress(TransportError):
                await self._link.close(STATUS_OFFLINE)
            if self._status_timer is not None:
                self._status_timer.cancel()
            self._reporter.on_link("stopped")
            self._reporter.write_now()

    # ------------------------------------------------------------ tasks

    async def _read_link(self) -> None:
        async for event in self._link.events():
            if isinstance(event, Inbound):
                await self._events.put(
                    Arrived(topic=event.topic, payload=event.payload, retained=event.retained)
                )
            elif isinstance(event, LinkUp):
                self._broker = event.broker or self._gateway
                _LOGGER.info("connected to %s", self._broker)
                self._is_linked = True
                self._reporter.on_link("connected")
                await self._events.put(LinkRestored(max_packet_bytes=self._link.max_packet_bytes))
            else:
                self._on_link_down(event)
                await self._events.put(LinkLost())

    def _on_link_down(self, event: LinkDown) -> None:
        self._is_linked = False
        is_refused = event.reason is LinkDownReason.REFUSED
        if event.reason is LinkDownReason.TAKEN_OVER or (is_refused and _TWICE in event.detail):
            raise TransportError(
                "E-DEVICE-TWICE",
                "one running agent for each device",
                "another one that uses this device's name",
                "stop the other agent, or give this one a name of its own",
            )
        if event.reason is LinkDownReason.NOT_MQTT:
            raise TransportError(
                "E-NOT-MQTT",
                f"an MQTT broker at {self._broker}",
                event.detail or "something else",
                "check host and port of the gateway",
            )
        if is_refused and _REVOKED in event.detail:
            raise PolicyRefusal(
                "E-DEVICE-REVOKED",
                f"a device that the gateway at {self._broker} takes",
                event.detail,
                "ask the gateway's operator; to come back it needs a new identity and a token",
            )
        if event.reason is LinkDownReason.CLOSED:
            return  # By this side, which has said why.
        self._reporter.on_link(f"no link: {event.reason.value} {event.detail}".strip())
        detail = f" ({event.detail})" if event.detail else ""
        _LOGGER.info("no link to %s: %s%s", self._broker, event.reason.value, detail)

    async def _watch_for_gateway(self) -> None:
        """Say what is waited for, connect anew now and then; give up where the user asked to."""
        started_s = time.monotonic()
        reminder = Reminder(started_s)
        hearing = first_hearing(random.random)
        while not self._core.has_gateway:
            await asyncio.sleep(0.2)
            now_s = time.monotonic()
            if self._wait_s is not None and now_s - started_s >= self._wait_s:
                raise TransportError(
                    "E-NO-GATEWAY",
                    f"this fleet's gateway at {self._gateway} within {self._wait_s:g} s",
                    "none",
                    "check host, port and --fleet, and that 'edgefl gateway run' is running",
                )
            if reminder.is_due(now_s):
                _LOGGER.info(
                    "waiting for this fleet's gateway at %s for %.0f s",
                    self._gateway,
                    now_s - started_s,
                )
            if hearing.is_deaf(now_s, is_linked=self._is_linked, awaits_answer=True):
                await self._link.renew()

    async def _watch_data(self) -> None:
        """Look again while there are no examples; the thread that trains also reads."""
        loop = asyncio.get_running_loop()
        while True:
            if self._learner.has_data:
                self._lacks_data.clear()
                await self._lacks_data.wait()
            await asyncio.sleep(self._learner.pause_s)
            await loop.run_in_executor(self._worker, self._learner.look_again)

    async def _watch_power(self) -> None:
        """Tell the gateway when the board becomes ready or goes away, and sleep where that pays."""
        while True:
            presence = self._guard.presence()
            obstacles = tuple(one.value for one in self._guard.verdict().obstacles)
            self._reporter.on_power(obstacles, self._guard.readings())
            self._show_status()
            if self._told is not None and presence != self._told:
                await self._events.put(PresenceChanged())
            self._told = presence
            await asyncio.sleep(self._guard_s)
            await self._sleep_if_it_pays()

    async def _sleep_if_it_pays(self) -> None:
        """Sleep where the owner and the gateway let it, and nothing waits for this device."""
        most_s = min(self._guard.sleep_s, self._core.most_sleep_s)
        is_quiet = time.monotonic() - self._last_event_s >= self._quiet_s
        if most_s < _LEAST_SLEEP_S or not (self._is_linked and is_quiet and self._core.is_at_rest):
            return
        # Boards that went to sleep together must not all come back in one instant.
        sleep_s = int(most_s * (1 - _SLEEP_JITTER * random.random()))  # noqa: S311 - no secret
        _LOGGER.info("nothing to do: no link for %s s", sleep_s)
        self._reporter.on_link(f"asleep for {sleep_s} s")
        await self._link.sleep(sleep_s, self._guard.presence(sleeps_s=sleep_s).to_bytes())

    async def _show_life(self) -> None:
        """Give signs of life while the core's loop turns, if somebody wants them."""
        seen_turns, beat_s = -1, self._manager.heartbeat_s
        while beat_s is not None:
            await asyncio.sleep(beat_s)
            if self._jobs.hangs:
                _LOGGER.error("a training hangs: no sign of life, so that this agent is restarted")
            elif self._turns != seen_turns:
                seen_turns = self._turns
                self._manager.alive()
            # Without work the loop is asked for a turn; one that hangs does not take it.
            with contextlib.suppress(asyncio.QueueFull):
                self._events.put_nowait(Woken())

    def _show_status(self) -> None:
        """Write what has changed; what changed just after a write, a little later."""
        self._reporter.write_if_due()
        due_s = self._reporter.due_in_s
        if due_s is not None and self._status_timer is None:
            loop = asyncio.get_running_loop()
            self._status_timer = loop.call_later(due_s, self._show_status_later)

    def _show_status_later(self) -> None:
        self._status_timer = None
        self._show_status()

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while True:
            event = await self._next_event()
            if not isinstance(event, Woken):
                self._last_event_s = time.monotonic()
            effects = self._core.handle(event, time.monotonic())
            # One transaction for all of a step, before anything of it leaves the board.
            self._commit()
            for effect in effects:
                await self._carry_out(effect, group)
            await self._renew_deaf_link(event)
            self._reporter.on_gateway(is_heard=self._core.has_gateway)
            self._show_status()
            self._turns += 1

    async def _renew_deaf_link(self, event: AgentEvent) -> None:
        """Connect anew where a standing link brings no answers.

        It needs no clock of its own: what is not answered is sent again, at least every half
        minute, which brings the loop here.
        """
        if isinstance(event, Arrived) and event.topic == self._core.downlink:
            self._hearing.heard()
        awaits_answer = self._core.awaits_answer
        if self._hearing.is_deaf(
            time.monotonic(), is_linked=self._is_linked, awaits_answer=awaits_answer
        ):
            _LOGGER.warning("connected to %s, but no answer comes: connecting anew", self._broker)
            await self._link.renew()

    async def _next_event(self) -> AgentEvent:
        wakeup_s = self._core.wakeup_s
        delay_s = None if wakeup_s is None else max(0.0, wakeup_s - time.monotonic())
        try:
            async with asyncio.timeout(delay_s):
                return await self._events.get()
        except TimeoutError:
            return Woken()

    # ------------------------------------------------------------ effects

    async def _carry_out(self, effect: AgentEffect, group: asyncio.TaskGroup) -> None:
        self._reporter.on_effect(effect)
        if isinstance(effect, Publish):
            await self._link.publish(
                effect.topic, effect.payload, retain=effect.retain, expiry_s=effect.expiry_s
            )
        elif isinstance(effect, RunTraining):
            self._jobs.train(group, effect)
        elif isinstance(effect, RunMasking):
            self._jobs.mask(group, effect)
        elif isinstance(effect, Stop):
            raise effect.error
        elif isinstance(effect, CertificateBrought):
            await self._certificate.take(effect.message)
        elif isinstance(effect, GatewayMoved):
            _LOGGER.info("the gateway has moved to %s: connecting there", ", ".join(effect.urls))
            await self._link.renew()
        else:
            self._follow(effect)
            log_effect(effect)

    def _follow(self, effect: PhaseReached | RoundEnded | KeysReady | Noticed) -> None:
        """Learn what rounds cost."""
        if isinstance(effect, PhaseReached) and effect.phase is Phase.CHECK_IN:
            self._guard.round_begins()
        elif isinstance(effect, RoundEnded):
            self._guard.round_ends()
            self._jobs.round_is_over()
            self._reporter.on_spent(self._core.spent_epsilon)
