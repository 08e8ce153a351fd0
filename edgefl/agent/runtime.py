"""The agent on a board: an asyncio shell around `AgentCore`, with MQTT, threads and a clock."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor

from edgefl.agent.core import STATUS_OFFLINE, AgentCore
from edgefl.agent.events import (
    AgentEffect,
    AgentEvent,
    KeysReady,
    MaskingEnded,
    Noticed,
    PhaseReached,
    RoundEnded,
    RunMasking,
    RunTraining,
    Stop,
    TrainingEnded,
)
from edgefl.agent.learning import LocalLearner, is_misfit
from edgefl.errors import (
    DataError,
    EnvironmentProblem,
    PrivacyError,
    TrainingError,
    TransportError,
    first_known,
)
from edgefl.protocol import masked_input
from edgefl.transport.base import Inbound, LinkDown, LinkDownReason, LinkUp, Transport
from edgefl.transport.core_events import Arrived, LinkLost, LinkRestored, Publish, Woken

_LOGGER = logging.getLogger(__name__)
_NOTICE_S = 10.0
_MAX_EVENTS = 64
"""Beyond it the transport waits, whose own bounds then hold back the broker."""


class AgentRuntime:
    """Runs one agent until it is cancelled or must stop.

    Args:
        core: The agent.
        transport: Its link to the broker, not yet started.
        learner: Trains on the device's examples.
        status_topic: Where a goodbye is published.
        gateway: How the gateway is called in messages to the user.
        wait_s: How long to wait for this fleet's gateway; None waits for ever.
    """

    def __init__(
        self,
        *,
        core: AgentCore,
        transport: Transport,
        learner: LocalLearner,
        status_topic: str,
        gateway: str,
        wait_s: float | None = None,
    ) -> None:
        """Prepare; nothing runs before `run`."""
        self._core = core
        self._transport = transport
        self._learner = learner
        self._status_topic = status_topic
        self._gateway = gateway
        self._wait_s = wait_s
        self._events: asyncio.Queue[AgentEvent] = asyncio.Queue(_MAX_EVENTS)
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="training")
        self._lacks_data = asyncio.Event()
        self._jobs: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            EdgeflError: The operator must act: a foreign gateway, data that do not fit, a full
                disk.
        """
        await self._transport.start()
        await self._transport.subscribe(*self._core.topics)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read_transport(), name="transport")
                group.create_task(self._watch_for_gateway(), name="gateway watch")
                group.create_task(self._watch_data(), name="data watch")
                group.create_task(self._work(group), name="core")
        except ExceptionGroup as group_error:
            raise first_known(group_error) from group_error
        finally:
            self._worker.shutdown(wait=False, cancel_futures=True)
            with contextlib.suppress(TransportError):
                await self._transport.publish(self._status_topic, STATUS_OFFLINE, retain=True)
            await self._transport.close()

    # ------------------------------------------------------------ tasks

    async def _read_transport(self) -> None:
        async for event in self._transport.events():
            if isinstance(event, Inbound):
                await self._events.put(Arrived(topic=event.topic, payload=event.payload))
            elif isinstance(event, LinkUp):
                _LOGGER.info("connected to %s", self._gateway)
                await self._events.put(LinkRestored())
            else:
                self._on_link_down(event)
                await self._events.put(LinkLost())

    def _on_link_down(self, event: LinkDown) -> None:
        if event.reason is LinkDownReason.TAKEN_OVER:
            raise TransportError(
                "E-DEVICE-TWICE",
                "one running agent for each device",
                "another one that uses this device's name",
                "stop the other agent, or give this one a name of its own",
            )
        if event.reason is LinkDownReason.NOT_MQTT:
            raise TransportError(
                "E-NOT-MQTT",
                f"an MQTT broker at {self._gateway}",
                event.detail or "something else",
                "check host and port of the gateway",
            )
        _LOGGER.info("no link to %s: %s %s", self._gateway, event.reason.value, event.detail)

    async def _watch_for_gateway(self) -> None:
        """Say what is waited for; give up where the user asked to."""
        started_s = time.monotonic()
        next_notice_s = started_s + _NOTICE_S
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
            if now_s >= next_notice_s:
                next_notice_s = now_s + _NOTICE_S
                _LOGGER.info(
                    "waiting for this fleet's gateway at %s for %.0f s",
                    self._gateway,
                    now_s - started_s,
                )

    async def _watch_data(self) -> None:
        """Look again while there are no examples; the thread that trains also reads."""
        loop = asyncio.get_running_loop()
        while True:
            if self._learner.has_data:
                self._lacks_data.clear()
                await self._lacks_data.wait()
            await asyncio.sleep(self._learner.pause_s)
            await loop.run_in_executor(self._worker, self._learner.look_again)

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while True:
            event = await self._next_event()
            for effect in self._core.handle(event, time.monotonic()):
                await self._carry_out(effect, group)

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
        if isinstance(effect, Publish):
            await self._transport.publish(effect.topic, effect.payload, retain=effect.retain)
        elif isinstance(effect, RunTraining):
            self._start(group, self._train(effect), "training")
        elif isinstance(effect, RunMasking):
            self._start(group, self._mask(effect), "masking")
        elif isinstance(effect, Stop):
            raise effect.error
        else:
            _log(effect)

    def _start(self, group: asyncio.TaskGroup, job: Coroutine[None, None, None], name: str) -> None:
        task = group.create_task(job, name=name)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _train(self, effect: RunTraining) -> None:
        loop = asyncio.get_running_loop()
        started_s = time.monotonic()
        ended = await loop.run_in_executor(self._worker, self._train_now, effect)
        _LOGGER.info(
            "round=%s phase=MASKED_INPUT %s in %.2f s",
            effect.plan.round_number,
            ended.note,
            time.monotonic() - started_s,
        )
        await self._events.put(ended)
        if not self._learner.has_data:
            self._lacks_data.set()

    def _train_now(self, effect: RunTraining) -> TrainingEnded:
        session_id = effect.plan.session_id
        try:
            learned = self._learner.learn(effect.plan, effect.bundle, effect.parameters)
        except (TrainingError, EnvironmentProblem, MemoryError) as error:
            # A bundle may ask for any sizes; numpy says of which it has too little memory.
            _LOGGER.warning("training failed: %s", error)
            return TrainingEnded(session_id=session_id, update=None, note="failed to train")
        except DataError as error:
            if is_misfit(error):
                raise
            _LOGGER.warning("no training in this round: %s", error)
            return TrainingEnded(session_id=session_id, update=None, note="had no usable data")
        return TrainingEnded(
            session_id=session_id,
            update=learned.update,
            note=f"trained {learned.examples} examples on {learned.backend}",
            examples=learned.examples,
            backend=str(learned.backend),
        )

    async def _mask(self, effect: RunMasking) -> None:
        loop = asyncio.get_running_loop()
        session_id = effect.job.session.session_id
        try:
            masked = await loop.run_in_executor(self._worker, masked_input.run, effect.job)
        except PrivacyError as error:
            _LOGGER.warning("the update cannot be used: %s", error)
            await self._events.put(MaskingEnded(session_id=session_id, packed=None))
            return
        await self._events.put(MaskingEnded(session_id=session_id, packed=masked.packed))


def _log(effect: PhaseReached | RoundEnded | KeysReady | Noticed) -> None:
    if isinstance(effect, KeysReady):
        _LOGGER.info("key epoch %s is open with %s members", effect.key_epoch, effect.members)
    elif isinstance(effect, PhaseReached):
        _LOGGER.debug("round=%s phase=%s", effect.round_number, effect.phase.name)
    elif isinstance(effect, RoundEnded):
        left = "" if effect.left is None else f" left={effect.left.name}"
        _LOGGER.info(
            "round=%s outcome=%s reason=%s counted=%s%s",
            effect.round_number,
            effect.phase.name,
            effect.abort_reason.name,
            effect.counted,
            left,
        )
    else:
        _LOGGER.warning("ignored: %s", effect.error)
