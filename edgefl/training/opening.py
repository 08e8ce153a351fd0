"""Opens a bundle's trainer on a backend; a library is loaded only when it is used."""

from edgefl.errors import EnvironmentProblem
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
        EnvironmentProblem: E-NO-BACKEND when the library is not here or does not load.
    """
    if backend.runtime is Runtime.LITERT:
        from edgefl.training.litert.runtime.trainer import LitertTrainer

        return LitertTrainer(bundle, threads=threads)
    try:
        from edgefl.training.onnx.runtime.trainer import OnnxTrainer
    except (ImportError, OSError, AttributeError) as error:
        # Who names a library gets no probe of it (`asked_backends`).
        raise EnvironmentProblem(
            "E-NO-BACKEND",
            "an onnxruntime that loads",
            " ".join(str(error).split())[:200] or type(error).__name__,
            "install 'edgefl-runtime[onnx]'; 'edgefl doctor' tells more",
        ) from error

    return OnnxTrainer(bundle, threads=threads, provider=backend.provider)
