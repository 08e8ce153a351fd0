"""The model bundle and the parameters that training needs: asked for by hash, kept while useful."""

import hashlib

from edgefl.protocol.events import TrainJob

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

    def missing(self, job: TrainJob) -> list[bytes]:
        """Return the hashes that are not here, and let the job wait if there are any."""
        wanted = (job.plan.bundle_sha256, job.plan.parameters_sha256)
        missing = [sha256 for sha256 in wanted if sha256 not in self._parts]
        self.waiting = job if missing else None
        return missing

    def take(self, content: bytes) -> tuple[bytes, TrainJob | None]:
        """Keep a part that the waiting job wants.

        Returns:
            Its hash, and the job where it now lacks nothing.
        """
        job, sha256 = self.waiting, hashlib.sha256(content).digest()
        if job is None or sha256 not in (job.plan.bundle_sha256, job.plan.parameters_sha256):
            return sha256, None
        self._parts[sha256] = content
        while len(self._parts) > _CACHED_PARTS:
            oldest = next(key for key in self._parts if key != job.plan.bundle_sha256)
            del self._parts[oldest]
        return sha256, None if self.missing(job) else job
