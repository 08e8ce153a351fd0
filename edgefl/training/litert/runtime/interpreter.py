"""Finds a TFLite interpreter: ai-edge-litert first, else tflite-runtime."""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import EnvironmentProblem, TrainingError

_ADVICE = "install 'edgefl-runtime[litert]', or on a 32-bit board 'edgefl-runtime[tflite]'"
_NUMPY_WITHOUT_TFLITE_RUNTIME = 2


class SignatureRunner(Protocol):
    """Calls one entry point of a file by name."""

    def __call__(self, **inputs: NDArray[np.generic]) -> Mapping[str, NDArray[np.generic]]:
        """Return copies of the outputs by name."""
        ...


class Interpreter(Protocol):
    """What edgefl uses of an interpreter; both packages have it."""

    def allocate_tensors(self) -> None:
        """Plan the memory of the first subgraph."""
        ...

    def set_tensor(self, tensor_index: int, value: NDArray[np.generic]) -> None:
        """Fill an input of the first subgraph."""
        ...

    def get_tensor(self, tensor_index: int) -> NDArray[np.generic]:
        """Return a copy of a tensor of the first subgraph."""
        ...

    def invoke(self) -> None:
        """Run the first subgraph."""
        ...

    def get_signature_runner(self, signature_key: str | None = None) -> SignatureRunner:
        """Return an entry point."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A package with an interpreter, and the releases that edgefl is tested with.

    Attributes:
        distribution: Name at the package index.
        module: Module that holds `Interpreter`.
        least: Oldest release, as numbers.
        below: First release that is too new.
    """

    distribution: str
    module: str
    least: tuple[int, ...]
    below: tuple[int, ...]


RELEASES = (
    Release(
        distribution="ai-edge-litert",
        module="ai_edge_litert.interpreter",
        least=(2, 1),
        below=(3,),
    ),
    Release(
        distribution="tflite-runtime",
        module="tflite_runtime.interpreter",
        least=(2, 14),
        below=(2, 15),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterLibrary:
    """The package that was found.

    Attributes:
        distribution: Its name.
        version: Its release.
        create: Makes an interpreter from a file's bytes (`model_content`, `num_threads`).
    """

    distribution: str
    version: str
    create: Callable[..., Interpreter]


def load_interpreter() -> InterpreterLibrary:
    """Import the interpreter of this environment.

    Returns:
        The first of `RELEASES` that is installed.

    Raises:
        EnvironmentProblem: E-LITERT-MISSING, E-LITERT-VERSION, E-LITERT-NUMPY or E-LITERT-BROKEN.
    """
    for release in RELEASES:
        if importlib.util.find_spec(release.module.partition(".")[0]) is not None:
            return _load(release)
    raise EnvironmentProblem(
        "E-LITERT-MISSING",
        " or ".join(release.distribution for release in RELEASES),
        "neither in this environment",
        _ADVICE,
    )


def _load(release: Release) -> InterpreterLibrary:
    try:
        version = importlib.metadata.version(release.distribution)
    except importlib.metadata.PackageNotFoundError:
        version = "no release number"
    require_version(release, version)
    if release.distribution == "tflite-runtime":
        require_numpy(np.__version__)
    try:
        module = importlib.import_module(release.module)
        create = cast("Callable[..., Interpreter]", module.Interpreter)
    except (ImportError, AttributeError, OSError) as error:
        raise EnvironmentProblem(
            "E-LITERT-BROKEN",
            f"{release.distribution} {version} to load",
            str(error).splitlines()[0][:200] if str(error) else type(error).__name__,
            "install it anew, or a release made for this board's C library",
        ) from error
    return InterpreterLibrary(distribution=release.distribution, version=version, create=create)


def require_version(release: Release, version: str) -> None:
    """Refuse releases that edgefl was not tested with, on both sides.

    Raises:
        EnvironmentProblem: E-LITERT-VERSION with the range.
    """
    numbers = _numbers(version)
    if not release.least <= numbers < release.below:
        least, below = (".".join(map(str, bound)) for bound in (release.least, release.below))
        raise EnvironmentProblem(
            "E-LITERT-VERSION",
            f"{release.distribution} from {least} to before {below}",
            version,
            "install a release of that range",
        )


def require_numpy(version: str) -> None:
    """Refuse numpy 2 beside tflite-runtime, whose release says nothing of it and then fails oddly.

    Raises:
        EnvironmentProblem: E-LITERT-NUMPY.
    """
    if _numbers(version) >= (_NUMPY_WITHOUT_TFLITE_RUNTIME,):
        raise EnvironmentProblem(
            "E-LITERT-NUMPY",
            "numpy below 2 beside tflite-runtime",
            f"numpy {version}",
            "install 'numpy<2', or ai-edge-litert in place of tflite-runtime",
        )


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a release: 2.1.0rc1 gives (2, 1)."""
    found: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)


def open_interpreter(content: bytes, *, threads: int, name: str) -> Interpreter:
    """Make an interpreter of a verified file.

    Args:
        content: A file whose outline was looked at.
        threads: Threads within an operator, at least 1.
        name: For the message.

    Returns:
        The interpreter, with its default delegate.

    Raises:
        TrainingError: E-TRAIN-THREADS, or E-GRAPH-REFUSED when the interpreter cannot load it.
        EnvironmentProblem: There is no interpreter that fits.
    """
    if threads < 1:
        raise TrainingError(
            "E-TRAIN-THREADS", "at least 1 thread", str(threads), "set threads to 1 or more"
        )
    library = load_interpreter()
    with refusals(name):
        return library.create(model_content=content, num_threads=threads)


@contextmanager
def refusals(name: str) -> Iterator[None]:
    """Turn an interpreter's own errors into one that names package, release and file.

    Raises:
        TrainingError: E-GRAPH-REFUSED.
    """
    try:
        yield
    except (RuntimeError, ValueError, SystemError) as error:
        library = load_interpreter()
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TrainingError(
            "E-GRAPH-REFUSED",
            f"{name} to run here",
            f"{library.distribution} {library.version} says: {first_line[:200]}",
            "check the bundle's minimum version with 'edgefl model inspect'",
        ) from error
