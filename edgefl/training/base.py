"""What every training backend offers to the agent: data in, one flat update out."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import DataError
from edgefl.types import Update


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """Labelled examples of one device.

    Attributes:
        x: float32 [n, ...]: one example per row, finite.
        y: int64 [n]: class of each row, from 0.
    """

    x: NDArray[np.float32]
    y: NDArray[np.int64]

    def __post_init__(self) -> None:
        """Check dtypes, lengths and values.

        Raises:
            DataError: E-DATA-DTYPE, E-DATA-EMPTY, E-DATA-LENGTH, E-DATA-NOT-FINITE or E-DATA-LABEL.
        """
        if self.x.dtype != np.float32 or self.y.dtype != np.int64:
            raise DataError(
                "E-DATA-DTYPE",
                "x of float32 and y of int64",
                f"x of {self.x.dtype} and y of {self.y.dtype}",
                "convert the arrays before saving them",
            )
        if self.x.ndim < 1 or self.y.ndim != 1 or len(self.x) != len(self.y):
            raise DataError(
                "E-DATA-LENGTH",
                "one label for each row of x",
                f"x of shape {list(self.x.shape)} and y of shape {list(self.y.shape)}",
                "save x as [n, ...] and y as [n]",
            )
        if len(self.x) == 0:
            raise DataError(
                "E-DATA-EMPTY",
                "at least one example",
                "none",
                "collect data before joining a round",
            )
        _require_finite(self.x)
        _require_non_negative(self.y)

    @property
    def examples(self) -> int:
        """Return the number of rows, n."""
        return len(self.x)


def _require_finite(x: NDArray[np.float32]) -> None:
    finite = np.isfinite(x)
    if finite.all():
        return
    first_bad = tuple(int(i) for i in np.unravel_index(int(np.argmin(finite)), x.shape))
    raise DataError(
        "E-DATA-NOT-FINITE",
        "finite numbers in x",
        f"{x[first_bad]} at index {list(first_bad)}",
        "remove or repair the faulty windows",
    )


def _require_non_negative(y: NDArray[np.int64]) -> None:
    if int(y.min()) >= 0:
        return
    first_bad = int(np.argmax(y < 0))
    raise DataError(
        "E-DATA-LABEL",
        "labels from 0",
        f"{int(y[first_bad])} at index {first_bad}",
        "number the classes from 0",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How well one set of parameters does on labelled data.

    Attributes:
        accuracy: Share of rows whose largest logit is the label, 0 to 1.
        loss: Mean cross-entropy in nats.
        examples: Number of rows.
    """

    accuracy: float
    loss: float
    examples: int


class Trainer(Protocol):
    """Trains one model on one device.

    The parameters are one flat float32 vector [d] in manifest order, so that clipping, noise and
    masking need not know the model.
    """

    @property
    def dimension(self) -> int:
        """Return d, the number of trainable parameters."""
        ...

    def set_params(self, flat: NDArray[np.float32]) -> None:
        """Take received parameters; `delta` counts from here.

        Args:
            flat: float32 [d], finite.
        """
        ...

    def params(self) -> NDArray[np.float32]:
        """Return a copy of the present parameters: float32 [d]."""
        ...

    def delta(self) -> Update:
        """Return trained minus received parameters: float32 [d]."""
        ...

    def fit(
        self,
        x: NDArray[np.float32],
        y: NDArray[np.int64],
        *,
        epochs: int,
        batch_size: int,
        lr: float,
        rng: np.random.Generator,
    ) -> float:
        """Run SGD over shuffled batches.

        Args:
            x: float32 [n, ...].
            y: int64 [n].
            epochs: Passes over the data, at least 1.
            batch_size: Rows per step, at least 1; a short last batch is padded with rows of weight
                0.
            lr: Learning rate, finite, at least 0.
            rng: Source of the shuffle only; it needs no secrecy.

        Returns:
            Mean loss per example over the last epoch, taken before each step.
        """
        ...

    def predict(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits of each row: float32 [n, classes]."""
        ...

    def evaluate(self, x: NDArray[np.float32], y: NDArray[np.int64]) -> Evaluation:
        """Compare predictions with labels; nothing is trained."""
        ...
