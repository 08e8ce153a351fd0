"""The heavy work of a round, training and masking: in one thread, beside the agent's loop."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor

from edgefl.agent.events import AgentEvent, MaskingEnded, RunMasking, RunTraining, TrainingEnded
from edgefl.agent.guard import PowerGuard
from edgefl.agent.learning import LocalLearner, is_misfit
from edgefl.agent.overdue import OverdueJobs
from edgefl.errors import DataError, EnvironmentProblem, PrivacyError, TrainingError
from edgefl.protocol import masked_input

_LOGGER = logging.getLogger(__name__)


class AgentJobs:
    """Runs one job at a time; each ends as an event.

    Args:
        learner: Trains on the device's examples.
        guard: Knows whether the battery would outlive a training.
        worker: The thread; it also reads the examples.
        events: Where results go.
        lacks_data: Is set when a training found no examples.
    """

    def __init__(
        self,
        learner: LocalLearner,
        guard: PowerGuard,
        worker: ThreadPoolExecutor,
        events: asyncio.Queue[AgentEvent],
        lacks_data: asyncio.Event,
    ) -> None:
        """Run nothing yet."""
        self._learner = learner
        self._guard = guard
        self._worker = worker
        self._events = events
        self._lacks_data = lacks_data
        self._running: set[asyncio.Task[None]] = set()
        self._overdue = OverdueJobs()

    @property
    def hangs(self) -> bool:
        """Tell whether the thread should have come to an end long ago."""
        return self._overdue.hangs(time.monotonic())

    def round_is_over(self) -> None:
        """Wait for no job any more that is under way."""
        self._overdue.round_is_over(time.monotonic())

    def train(self, group: asyncio.TaskGroup, effect: RunTraining) -> None:
        """Begin a training."""
        self._start(group, self._train(effect), "training")

    def mask(self, group: asyncio.TaskGroup, effect: RunMasking) -> None:
        """Begin a masking."""
        self._start(group, self._mask(effect), "masking")

    def _start(self, group: asyncio.TaskGroup, job: Coroutine[None, None, None], name: str) -> None:
        task = group.create_task(job, name=name)
        self._running.add(task)
        self._overdue.begins(task, time.monotonic())
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._overdue.ends(task)

    async def _train(self, effect: RunTraining) -> None:
        session_id = effect.plan.session_id
        if self._guard.must_spare_training():
            _LOGGER.warning(
                "round=%s no training: the battery would not outlive it", effect.plan.round_number
            )
            note = "spared the battery"
            await self._events.put(TrainingEnded(session_id=session_id, update=None, note=note))
            return
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
