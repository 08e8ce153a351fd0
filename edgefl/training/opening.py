"""Opens a bundle's trainer on a backend; a library is loaded only when it is used."""

from edgefl.training.backends import Backend
from edgefl.training.base import Trainer
from edgefl.training.bundle import Bundle
from edgefl.training.kinds import Runtime


def open_trainer(bundle: Bundle, backend: Backend, *, threads: int = 1) -> Trainer:
    """Open a bundle for training.

    Args:
        bundle: A verified bundle with a program for the backend's runtime.
        backend: Library and processor.
        threads: Threads within an operator.

    Raises:
        TrainingError: The runtime refuses the graph, or the bundle has no such program.
    """
    if backend.runtime is Runtime.LITERT:
        from edgefl.training.litert.runtime.trainer import LitertTrainer

        return LitertTrainer(bundle, threads=threads)
    from edgefl.training.onnx.runtime.trainer import OnnxTrainer

    return OnnxTrainer(bundle, threads=threads, provider=backend.provider)
