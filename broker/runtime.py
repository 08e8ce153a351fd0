"""The gateway's shell: asyncio around `GatewayCore`, with its link, disk and a clock."""

import asyncio
import contextlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from broker.core import GatewayCore
from broker.enrolment_events import CutSession, EnrolmentEffect
from broker.event_batches import EventBatches
from broker.events import (
    EnrolmentWanted,
    EvaluationEnded,
    GatewayEffect,
    Json,
    ModelChanged,
    Reported,
    RosterBrought,
    RunUnmasking,
    SendChunks,
    StopChunks,
    TaskEnded,
    TaskSubmitted,
    TaskWished,
    UnmaskingEnded,
)
from broker.gateway_link import GatewayLink
from broker.http_server import HttpSettings
from broker.live_status import LinkWords
from broker.operator_desk import OperatorDesk
from broker.reports import TASK_ENDED, task_refused_report
from broker.roster_folder import RosterFolder
from broker.task_folder import SubmittedTask, list_tasks, load_task, save_model
from broker.task_wishes import TaskWish, read_wish
from broker.watch import GatewayWatch
from edgefl.errors import (
    DataError,
    EdgeflError,
    EnvironmentProblem,
    StorageError,
    TrainingError,
    TransportError,
    first_known,
)
from edgefl.protocol import topics, unmasking
from edgefl.training.bundle import Bundle
from edgefl.training.evaluate import Evaluator
from edgefl.training.int8_evaluate import evaluate_int8
from edgefl.training.int8_export import has_int8_model
from edgefl.training.kinds import Runtime
from edgefl.training.litert.runtime.evaluator import LitertEvaluator
from edgefl.transport.base import Inbound, LinkUp, Transport
from edgefl.transport.core_events import Acknowledge, Arrived, LinkLost, LinkRestored, Publish
from edgefl.types import FleetName

_LOGGER = logging.getLogger(__name__)
_SCAN_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """Where a gateway lives.

    Attributes:
        state_dir: Its folder.
        stop_when_idle: End when every task handed in has ended.
        http: Where the status page is served; None serves none.
        mended: What was mended before the gateway was put together.
    """

    fleet: FleetName
    state_dir: Path
    stop_when_idle: bool = False
    http: HttpSettings | None = None
    mended: tuple[Reported, ...] = ()


class GatewayRuntime:
    """Runs one gateway until it is cancelled.

    Args:
        settings: Where it lives.
        core: The gateway.
        link: Brings its messages: an endpoint of its own, or a broker of others.
        operator: Brings tokens and the operator's orders, and cuts off whom the core puts out.
        commit: Makes durable what the core changed; nothing is said to anybody before.
        has_changes: Whether there is anything to commit: chunks that arrive change nothing.
        on_report: Called with each line for the operator.
    """

    def __init__(
        self,
        *,
        settings: RuntimeSettings,
        core: GatewayCore,
        link: GatewayLink,
        operator: OperatorDesk,
        commit: Callable[[], None],
        has_changes: Callable[[], bool],
        on_report: Callable[[Reported], None],
    ) -> None:
        """Prepare; nothing runs before `run`."""
        self._settings = settings
        self._core = core
        self._commit = commit
        self._has_changes = has_changes
        self._on_report = on_report
        self._link = link
        self._operator = operator
        self._events = EventBatches(time.monotonic)
        self._has_found_tasks = asyncio.Event()
        self._looking = asyncio.Lock()
        self._disk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="state")
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gateway")
        self._tasks: dict[str, SubmittedTask] = {}
        self._evaluators: dict[str, Evaluator | LitertEvaluator] = {}
        self._roster_folder = RosterFolder(settings.state_dir)
        self._wishes: dict[str, TaskWish] = {}
        self._refused: set[str] = set()
        self._unfinished: set[str] = set()
        self._jobs: set[asyncio.Task[None]] = set()
        self._models: set[asyncio.Task[None]] = set()
        self._log: TextIO | None = None
        self._watch: GatewayWatch | None = None

    async def run(self) -> None:
        """Run until cancelled, or until idle where that was asked for.

        Raises:
            EdgeflError: The port is in use, the disk is full, the state is damaged.
        """
        settings = self._settings
        await self._link.start()
        self._operator.use(self._link)
        await self._look_for_orders()
        transport = self._link.transport
        with _open_log(settings.state_dir / "events.jsonl") as log:
            self._log = log
            try:
                self._watch = self._make_watch()
                self._write_gateway_file(self._watch)
                for report in settings.mended:
                    self._report(report)
                # First, so that the link counts as up only once the subscriptions stand.
                await transport.subscribe(*self._core.topics)
                await transport.start()
                await self._run_tasks(transport)
            finally:
                self._worker.shutdown(wait=False, cancel_futures=True)
                # A commit that is under way ends before the state file is closed.
                self._disk.shutdown(wait=True, cancel_futures=True)
                with contextlib.suppress(TransportError):
                    await transport.publish(topics.aggregator(settings.fleet), b"", retain=True)
                await transport.close()
                await self._link.close()
                if self._watch is not None:
                    self._watch.close()
                (settings.state_dir / "gateway.json").unlink(missing_ok=True)

    async def _run_tasks(self, transport: Transport) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._link.supervise(), name="link")
                reading = group.create_task(self._read_transport(transport), name="transport")
                noticing = group.create_task(self._read_notices(), name="notices")
                scanning = group.create_task(self._scan_tasks(), name="task folder")
                if self._watch is not None:
                    self._watch.start(group)
                await self._work(group, transport)
                # Idle, and asked to end then.
                for task in (scanning, reading, noticing):
                    task.cancel()
                if self._watch is not None:
                    self._watch.close()
                await self._link.close()
        except ExceptionGroup as errors:
            raise first_known(errors) from errors

    def _make_watch(self) -> GatewayWatch:
        settings = self._settings
        return GatewayWatch(
            self._core,
            settings=settings.http,
            fleet=settings.fleet,
            state_dir=settings.state_dir,
            link=LinkWords(
                kind=self._link.kind,
                addresses=self._link.addresses,
                counters=self._link.counters,
            ),
        )

    def _write_gateway_file(self, watch: GatewayWatch) -> None:
        """Say where the gateway listens, for scripts on the same machine.

        Only its own user may read the file, which holds the operator's token for the status page.
        """
        content: dict[str, Json] = {
            **self._link.describe(),
            "addresses": list(self._link.addresses),
            "fleet": self._settings.fleet,
            "pid": os.getpid(),
        }
        words = watch.words()
        path = self._settings.state_dir / "gateway.json"
        temporary = path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(json.dumps({**content, **words}) + "\n")
        temporary.replace(path)
        told = {**content, "http": words["http"]} if words else content
        self._report(Reported(kind="gateway", fields=told))

    # ------------------------------------------------------------ tasks

    async def _read_transport(self, transport: Transport) -> None:
        # The core goes on with a round that was left open when it has the round's task, and has to
        # before the first device speaks.
        await self._has_found_tasks.wait()
        async for event in transport.events():
            if isinstance(event, Inbound):
                claim = topics.claim_of(event.topic)
                if claim is not None and self._operator.wants_look(claim, time.monotonic()):
                    await self._look_for_orders()
                await self._events.put(
                    Arrived(topic=event.topic, payload=event.payload, ticket=event.ticket)
                )
            elif isinstance(event, LinkUp):
                await self._events.put(LinkRestored(max_packet_bytes=transport.max_packet_bytes))
            else:
                _LOGGER.info("no link to the broker: %s %s", event.reason.value, event.detail)
                await self._events.put(LinkLost())

    async def _read_notices(self) -> None:
        async for notice in self._link.notices():
            if isinstance(notice, Reported):
                self._report(notice)
            else:
                await self._events.put(notice)

    async def _scan_tasks(self) -> None:
        """Look for tasks that were handed in, and for a roster that was signed."""
        while True:
            for name in list_tasks(self._settings.state_dir):
                await self._look_for_wish(name)
                if name not in self._tasks and name not in self._refused:
                    await self._take_task(name)
            self._has_found_tasks.set()
            roster = await asyncio.to_thread(self._roster_folder.read_new_roster)
            if roster is not None:
                await self._events.put(RosterBrought(content=roster))
            await self._look_for_orders()
            await asyncio.sleep(_SCAN_S)

    async def _look_for_orders(self) -> None:
        """Pass on tokens and orders that are new; one look at a time."""
        async with self._looking:
            for event in await asyncio.to_thread(self._operator.look):
                await self._events.put(event)

    async def _look_for_wish(self, name: str) -> None:
        """Pass on what the operator wants of a task; first of all, so that a paused one waits."""
        wish = await asyncio.to_thread(read_wish, self._settings.state_dir, name)
        if wish is not self._wishes.get(name, TaskWish.RUN):
            self._wishes[name] = wish
            await self._events.put(TaskWished(task=name, wish=wish))

    async def _take_task(self, name: str) -> None:
        try:
            task = await asyncio.to_thread(load_task, self._settings.state_dir, name)
        except EdgeflError as error:
            self._refused.add(name)
            self._look_again()
            _LOGGER.error("task %s is refused: %s", name, error)
            self._report(task_refused_report(name, error))
            return
        self._tasks[name] = task
        await self._events.put(
            TaskSubmitted(
                spec=task.spec,
                bundle=task.device_bundle,
                initial_parameters=task.bundle.initial_params,
            )
        )

    async def _work(self, group: asyncio.TaskGroup, transport: Transport) -> None:
        while True:
            effects: list[GatewayEffect] = []
            for event in await self._events.next(self._core.wakeup_s):
                if isinstance(event, TaskSubmitted):
                    self._unfinished.add(event.spec.name)
                effects += self._core.handle(event, time.monotonic())
            if self._has_changes():
                await asyncio.get_running_loop().run_in_executor(self._disk, self._commit)
            for effect in effects:
                await self._carry_out(effect, group, transport)
            transport.acknowledge([e.ticket for e in effects if isinstance(e, Acknowledge)])
            has_seen_a_task = bool(self._tasks) or bool(self._refused)
            is_idle = has_seen_a_task and not self._unfinished and not self._jobs
            if self._settings.stop_when_idle and is_idle and self._events.is_empty:
                return

    # ------------------------------------------------------------ effects

    async def _carry_out(
        self, effect: GatewayEffect, group: asyncio.TaskGroup, transport: Transport
    ) -> None:
        if isinstance(effect, Publish | SendChunks | StopChunks):
            await self._send(effect, transport)
        elif isinstance(effect, RunUnmasking):
            self._start(group, self._unmask(effect), "unmasking")
        elif isinstance(effect, ModelChanged):
            self._models.add(self._start(group, self._keep_model(effect), "evaluation"))
        elif isinstance(effect, TaskEnded):
            self._unfinished.discard(effect.task)
        elif isinstance(effect, Reported) and effect.kind == TASK_ENDED:
            self._start(group, self._report_end(effect), "end of a task")
        elif isinstance(effect, EnrolmentWanted):
            self._roster_folder.write_request(effect.devices, effect.leaving)
        elif isinstance(effect, CutSession):
            # At a broker of others it takes a connection, which no round should wait for.
            self._start(group, asyncio.to_thread(self._operator.carry_out, effect), "cut off")
        elif isinstance(effect, EnrolmentEffect):
            await asyncio.to_thread(self._operator.carry_out, effect)
        elif isinstance(effect, Reported):
            self._report(effect)

    async def _send(self, effect: Publish | SendChunks | StopChunks, transport: Transport) -> None:
        if isinstance(effect, Publish):
            await transport.publish(
                effect.topic, effect.payload, retain=effect.retain, expiry_s=effect.expiry_s
            )
            return
        streams = self._link.streams
        if streams is None:  # The core does not wish for what its link cannot do.
            return
        if isinstance(effect, SendChunks):
            streams.send_chunks(effect)
        else:
            streams.stop_chunks(effect)

    def _start(
        self, group: asyncio.TaskGroup, job: Coroutine[None, None, None], name: str
    ) -> asyncio.Task[None]:
        task = group.create_task(job, name=name)
        self._jobs.add(task)
        task.add_done_callback(self._on_job_done)
        return task

    def _on_job_done(self, task: asyncio.Task[None]) -> None:
        self._jobs.discard(task)
        self._models.discard(task)
        self._look_again()

    def _look_again(self) -> None:
        """Let the loop see whether everything has ended; a full queue makes it look by itself."""
        self._events.nudge()

    async def _report_end(self, report: Reported) -> None:
        """Say that a task is over once its last model can be fetched."""
        if self._models:
            await asyncio.wait(self._models)
        self._report(report)

    async def _unmask(self, effect: RunUnmasking) -> None:
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self._worker, unmasking.run, effect.job)
        await self._events.put(UnmaskingEnded(attempt=effect.attempt, result=result))

    async def _keep_model(self, effect: ModelChanged) -> None:
        loop = asyncio.get_running_loop()
        ended = await loop.run_in_executor(self._worker, self._keep_model_now, effect)
        if ended is not None:
            await self._events.put(ended)

    def _keep_model_now(self, effect: ModelChanged) -> EvaluationEnded | None:
        """Evaluate where the task brought data, and replace the model on disk."""
        task = self._tasks[effect.task]
        summary: dict[str, object] = {
            "task": effect.task,
            "rounds_committed": effect.round_number,
            "rounds": task.spec.rounds,
        }
        ended = None
        try:
            ended = self._measure(task, effect)
        except (DataError, EnvironmentProblem, TrainingError) as error:
            # The rounds need no measurement, and other tasks do not either.
            _LOGGER.warning(
                "task=%s round=%s the model cannot be measured: %s",
                effect.task,
                effect.round_number,
                error,
            )
        if ended is not None:
            summary["accuracy"], summary["loss"] = ended.accuracy, ended.loss
            if ended.int8_accuracy is not None:
                summary["int8_accuracy"] = ended.int8_accuracy
        save_model(self._settings.state_dir, effect.task, task.bundle, effect.parameters, summary)
        return ended

    def _measure(self, task: SubmittedTask, effect: ModelChanged) -> EvaluationEnded | None:
        if task.evaluation is None:
            return None
        if effect.task not in self._evaluators:
            self._evaluators[effect.task] = _open_evaluator(task.bundle)
        result = self._evaluators[effect.task].evaluate(effect.parameters, task.evaluation)
        int8_accuracy = None
        if effect.round_number == task.spec.rounds and has_int8_model(task.bundle):
            int8_accuracy = evaluate_int8(task.bundle, effect.parameters, task.evaluation).accuracy
        return EvaluationEnded(
            task=effect.task,
            round_number=effect.round_number,
            accuracy=result.accuracy,
            loss=result.loss,
            examples=result.examples,
            int8_accuracy=int8_accuracy,
        )

    def _report(self, report: Reported) -> None:
        if self._log is not None:
            fields = {name: _finite(value) for name, value in report.fields.items()}
            line = {"time": round(time.time(), 3), "kind": report.kind, **fields}
            try:
                self._log.write(json.dumps(line) + "\n")
            except OSError as error:
                raise StorageError(
                    "E-EVENTS-WRITE",
                    f"room to write {self._settings.state_dir / 'events.jsonl'}",
                    error.strerror or type(error).__name__,
                    "make room on the disk; the open round goes on at the next start",
                ) from error
        if self._watch is not None:
            self._watch.on_report(report)
        self._on_report(report)


@contextlib.contextmanager
def _open_log(path: Path) -> Iterator[TextIO]:
    """Open a file that lines are added to, each at once."""
    log = path.open("a", buffering=1)
    try:
        yield log
    finally:
        # What could not be written was said by name when it was tried; the rest of it is tried
        # again here, and must not take that error's place.
        with contextlib.suppress(OSError):
            log.close()


def _finite(value: Json) -> Json:
    """Return null for infinity, which JSON does not have: the epsilon of a task without noise."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _open_evaluator(bundle: Bundle) -> Evaluator | LitertEvaluator:
    """Open what measures a model: ONNX Runtime, or LiteRT for bundles made for it alone."""
    if bundle.manifest.program(Runtime.ONNX) is None:
        return LitertEvaluator(bundle)
    return Evaluator(bundle)
