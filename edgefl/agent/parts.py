"""The model bundle and the parameters that training needs: asked for by hash, kept while useful."""

import hashlib
from functools import lru_cache

from edgefl.errors import TrainingError
from edgefl.protocol.events import TrainJob
from edgefl.training.bundle import read_bundle

_CACHED_PARTS = 3


class ModelParts:
    """What the gateway sent of models, and the job that waits for more."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._parts: dict[bytes, bytes] = {}
        self.waiting: TrainJob | None = None

    def of(self, job: TrainJob) -> tuple[bytes, bytes]:
        """Return (bundle, parameters) of a job that lacks nothing."""
        return self._parts[job.plan.bundle_sha256], self._parts[job.plan.parameters_sha256]

    def missing(self, job: TrainJob) -> bytes | None:
        """Return the hash of what is to be asked for next, and let the job wait for it.

        The bundle comes first: it holds the first round's parameters.
        """
        wanted = (job.plan.bundle_sha256, job.plan.parameters_sha256)
        missing = next((sha256 for sha256 in wanted if sha256 not in self._parts), None)
        self.waiting = None if missing is None else job
        return missing

    def take(self, content: bytes) -> tuple[bytes, TrainJob | None]:
        """Keep a part that the waiting job wants.

        Returns:
            Its hash, and the job where that wants it: it can start, or ask for the next part.
        """
        job, sha256 = self.waiting, hashlib.sha256(content).digest()
        if job is None or sha256 not in (job.plan.bundle_sha256, job.plan.parameters_sha256):
            return sha256, None
        self._parts[sha256] = content
        if sha256 == job.plan.bundle_sha256 and job.plan.parameters_sha256 not in self._parts:
            self._take_first_parameters(content, job.plan.parameters_sha256)
        while len(self._parts) > _CACHED_PARTS:
            oldest = next(key for key in self._parts if key != job.plan.bundle_sha256)
            del self._parts[oldest]
        return sha256, job

    def _take_first_parameters(self, bundle: bytes, sha256: bytes) -> None:
        """Keep the bundle's own parameters if they are the wanted ones."""
        first = _first_parameters(bundle)
        if first is not None and hashlib.sha256(first).digest() == sha256:
            self._parts[sha256] = first


@lru_cache(maxsize=1)  # All boards of a simulation have the same one.
def _first_parameters(bundle: bytes) -> bytes | None:
    """Return the parameters in a bundle; None of one that is damaged: the training names that."""
    try:
        return read_bundle(bundle).initial_params.astype("<f4").tobytes()
    except TrainingError:
        return None
