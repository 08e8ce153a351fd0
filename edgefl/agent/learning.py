"""One device's part in training: fresh data and the received model in, an update out.

It also keeps models. The received global model is measured on the device's own examples before it
is trained on. If it does worse there than the last good one by more than a margin, predictions stay
with the last good one; the device still takes part in the round, since the fleet's model is not its
to judge. The model after local training is kept as the device's own if it does no worse than the
one before.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgefl.agent.deadly_bundles import DeadlyBundles
from edgefl.agent.models import KeptModel, ModelRecord, ModelShelf
from edgefl.data.schema import DataSchema, schema_of
from edgefl.data.source import DataSource
from edgefl.errors import DataError, StorageError
from edgefl.protocol.plan import SessionPlan
from edgefl.training.backends import Backend, ProbedBackend, backend_for
from edgefl.training.base import Trainer, TrainingData
from edgefl.training.bundle import read_bundle
from edgefl.training.local_update import local_update, parse_parameters
from edgefl.training.opening import open_trainer
from edgefl.training.randomness import SmallRandomness
from edgefl.types import Update

_LOGGER = logging.getLogger(__name__)
_MARGIN = 0.1
"""A loss counts as worse beyond this share: losses on a few examples waver from round to round."""
_LEAST_PAUSE_S = 10.0
_MOST_LOOKING_SHARE = 0.01
_MISFITS = frozenset(
    {"E-DATA-SHAPE", "E-DATA-WINDOW", "E-DATA-DTYPE", "E-DATA-TARGET", "E-DATA-LABEL"}
)
"""Data that will not fit in the next round either: the operator must act."""
_PASSING = frozenset({"E-DATA-EMPTY", "E-DATA-LOCKED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What local training gave.

    Attributes:
        update: float32 [d], not yet clipped.
        examples: How many examples it was trained on.
        backend: Library and processor that ran.
    """

    update: Update
    examples: int
    backend: Backend


class LocalLearner:
    """Trains for rounds, one at a time; it blocks, so that it belongs in a thread.

    Args:
        source: The device's examples, read anew for each round.
        shelf: Where models are kept.
        able: Backends that train here, best first.
        threads: Threads within an operator.
        validation_share: Share of the examples that is not trained on, but measured with; with 0
            models are measured on what they are trained on.
        cpu_s: CPU seconds of the calling thread; waiting for a lock costs none.
    """

    def __init__(
        self,
        *,
        source: DataSource,
        shelf: ModelShelf,
        able: Sequence[ProbedBackend],
        threads: int = 1,
        validation_share: float = 0.0,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """Open nothing yet."""
        self._source = source
        self._shelf = shelf
        self._deadly = DeadlyBundles(shelf.folder)
        self._able = able
        self._threads = threads
        self._validation_share = validation_share
        self._cpu_s = cpu_s
        self._opened: tuple[bytes, Trainer, Backend] | None = None
        self._missing = ""
        self._pause_s = _LEAST_PAUSE_S

    @property
    def has_data(self) -> bool:
        """Tell whether there were examples when last looked; without, rounds are declined."""
        return not self._missing

    @property
    def pause_s(self) -> float:
        """Return how long to wait before looking again: most of the time a device rests."""
        return self._pause_s

    def look(self) -> None:
        """Read the source once at the start, so that mistakes show at once.

        Raises:
            DataError: The source cannot be used. That there are no examples yet is no mistake.
        """
        try:
            self._read(None)
        except DataError as error:
            if not is_awaited(error, self._source):
                raise
            self._decline(error)

    def look_again(self) -> None:
        """Read the source while there are no examples; whatever is wrong, it is looked at again."""
        schema = None if self._opened is None else schema_of(self._opened[1].manifest)
        try:
            self._read(schema)
        except DataError as error:
            self._decline(error)
            return
        _LOGGER.info("examples are there: this device takes part in rounds again")

    def learn(self, plan: SessionPlan, bundle: bytes, parameters: bytes) -> Learned:
        """Train for a round.

        Args:
            plan: The round's.
            bundle: Bundle bytes; their hash was checked against the plan.
            parameters: Little-endian float32 [d].

        Raises:
            DataError: There are no examples now, or they do not fit the model.
            TrainingError: The bundle cannot be run, or was not outlived before, or training
                diverged.
            EnvironmentProblem: No backend here runs this bundle.
        """
        sha256 = plan.bundle_sha256.hex()
        self._deadly.begin(sha256)
        try:
            return self._learn(plan, bundle, parameters)
        finally:
            self._deadly.end(sha256)

    def _learn(self, plan: SessionPlan, bundle: bytes, parameters: bytes) -> Learned:
        is_first = self._opened is None or self._opened[0] != plan.bundle_sha256
        trainer, backend = self._open(plan.bundle_sha256, bundle)
        try:
            data = self._read(schema_of(trainer.manifest))
        except DataError as error:
            self._decline(error)
            raise
        training, validation = split_rows(data, self._validation_share)
        keeper = _Keeper(self._shelf, plan, bundle, validation, checks_bundle=is_first)
        keeper.take_global(trainer, parse_parameters(parameters))
        terms = plan.training
        update = local_update(
            trainer,
            parameters,
            training,
            epochs=terms.local_epochs,
            batch_size=terms.batch_size,
            learning_rate=terms.learning_rate,
            rng=SmallRandomness(),
            prox_mu=terms.prox_mu,
            max_gradient_norm=terms.max_gradient_norm,
            example_clip=terms.example_clip,
        )
        keeper.take_personal(trainer, backend)
        return Learned(update=update, examples=training.examples, backend=backend)

    def _open(self, sha256: bytes, bundle_bytes: bytes) -> tuple[Trainer, Backend]:
        if self._opened is None or self._opened[0] != sha256:
            self._opened = None
            bundle = read_bundle(bundle_bytes)
            backend = backend_for(bundle.manifest, self._able)
            trainer = open_trainer(bundle, backend, threads=self._threads)
            _LOGGER.info("training runs on %s", backend)
            self._opened = (sha256, trainer, backend)
        return self._opened[1], self._opened[2]

    def _read(self, schema: DataSchema | None) -> TrainingData:
        started_s = self._cpu_s()
        try:
            data = self._source.read(schema)
        finally:
            took_s = self._cpu_s() - started_s
            self._pause_s = max(_LEAST_PAUSE_S, took_s / _MOST_LOOKING_SHARE)
        self._missing = ""
        return data

    def _decline(self, error: DataError) -> None:
        """Decline rounds from now on; said once, not each time that it is looked at."""
        if str(error) != self._missing:
            _LOGGER.warning(
                "no examples; rounds are declined, and it is looked again every %.0f s: %s",
                self._pause_s,
                error,
            )
        self._missing = str(error)


def is_awaited(error: DataError, source: DataSource) -> bool:
    """Tell whether examples may come without anyone's help.

    They may if the source is there but empty or locked, or if it is not there yet and a settings
    file names it. A path in a command line that is not there is more likely misspelt.
    """
    if error.code == "E-DATA-MISSING":
        return source.awaits_files
    return error.code in _PASSING


def is_misfit(error: DataError) -> bool:
    """Tell whether data cannot fit in any later round either."""
    return error.code in _MISFITS


def split_rows(data: TrainingData, validation_share: float) -> tuple[TrainingData, TrainingData]:
    """Return rows to train on and rows to measure with, spread evenly over the recording.

    Args:
        data: All rows.
        validation_share: Share of the rows to measure with, 0 to 0.5; with 0, or too few rows, both
            parts are all of them.
    """
    rows = np.arange(data.examples)
    count = int(data.examples * validation_share)
    if count < 1:
        return data, data
    chosen = np.unique(np.linspace(0, data.examples - 1, count).round().astype(np.int64))
    return data.rows(np.setdiff1d(rows, chosen)), data.rows(chosen)


class _Keeper:
    """Decides in one round which models stay on the shelf."""

    def __init__(
        self,
        shelf: ModelShelf,
        plan: SessionPlan,
        bundle: bytes,
        validation: TrainingData,
        *,
        checks_bundle: bool,
    ) -> None:
        self._shelf = shelf
        self._checks_bundle = checks_bundle
        self._plan = plan
        self._validation = validation
        sha256 = plan.bundle_sha256.hex()
        known = self._known()
        self._is_new = known is None or known.bundle_sha256 != sha256
        if known is None or self._is_new:
            known = ModelRecord(task=plan.task, bundle_sha256=sha256)
        self._record = known
        self._bundle = bundle if self._is_new else None
        self._good = None if self._is_new else shelf.good(plan.task)
        self._personal = None if self._is_new else shelf.personal(plan.task)
        self._new_good: KeptModel | None = None

    def _known(self) -> ModelRecord | None:
        try:
            record = self._shelf.record(self._plan.task)
            # What cannot be read is replaced; nothing else on the device depends on it.
            self._shelf.good(self._plan.task)
            self._shelf.personal(self._plan.task)
            if record is not None and self._checks_bundle:
                self._shelf.require_bundle(record)
        except StorageError as error:
            _LOGGER.warning("the models kept for task %s begin anew: %s", self._plan.task, error)
            self._shelf.forget(self._plan.task)
            return None
        return record

    def take_global(self, trainer: Trainer, params: NDArray[np.float32]) -> None:
        """Measure the received model beside the last good one, on the same examples."""
        if not all(_fits(kept, trainer) for kept in (self._good, self._personal)):
            _LOGGER.warning("the models kept for task %s do not fit: begun anew", self._plan.task)
            self._good = self._personal = None
        if self._personal is not None:
            trainer.set_local(self._personal.local)
        loss = self._loss(trainer, params)
        good_loss = None if self._good is None else self._loss(trainer, self._good.params)
        is_worse = good_loss is not None and not loss <= good_loss * (1 + _MARGIN)
        if is_worse and good_loss is not None:
            _LOGGER.warning(
                "round=%s the received model has loss %.4g on this device, that of round %s %.4g: "
                "predictions stay with the older one",
                self._plan.round_number,
                loss,
                self._record.good_round,
                good_loss,
            )
            self._record = replace(self._record, is_rolled_back=True)
            return
        self._new_good = KeptModel(params=params, local=trainer.local())
        self._record = replace(
            self._record,
            good_round=self._plan.round_number,
            good_loss=loss,
            is_rolled_back=False,
        )

    def take_personal(self, trainer: Trainer, backend: Backend) -> None:
        """Measure the trained model beside the device's own one, and write what is kept."""
        trained = KeptModel(params=trainer.params(), local=trainer.local())
        loss = self._loss(trainer, trained.params)
        own = self._personal
        if own is not None:
            trainer.set_local(own.local)
            own_loss = self._loss(trainer, own.params)
            if not loss <= own_loss * (1 + _MARGIN):
                _LOGGER.warning(
                    "round=%s local training gave loss %.4g, this device's own model has %.4g and "
                    "is kept",
                    self._plan.round_number,
                    loss,
                    own_loss,
                )
                trained, loss = own, own_loss
        is_new = trained is not own
        self._record = replace(
            self._record,
            last_round=self._plan.round_number,
            personal_round=self._plan.round_number if is_new else self._record.personal_round,
            personal_loss=loss,
            backend=str(backend),
        )
        try:
            self._shelf.keep(
                self._record,
                bundle=self._bundle,
                good=self._new_good,
                personal=trained if is_new else None,
            )
        except StorageError as error:
            # The round needs no model on this disk.
            _LOGGER.warning("the models of this round are not kept: %s", error)

    def _loss(self, trainer: Trainer, params: NDArray[np.float32]) -> float:
        trainer.set_params(params)
        loss = trainer.evaluate(self._validation.x, self._validation.y).loss
        return loss if np.isfinite(loss) else float(np.finfo(np.float64).max)


def _fits(kept: KeptModel | None, trainer: Trainer) -> bool:
    sizes = (trainer.dimension, trainer.manifest.local_dimension)
    return kept is None or (len(kept.params), len(kept.local)) == sizes
