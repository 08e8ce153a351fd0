"""What every training backend offers to the agent: data in, one flat update out."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import DataError
from edgefl.training.manifest import Manifest
from edgefl.training.randomness import Randomness
from edgefl.types import Update

Inputs = NDArray[np.float32] | NDArray[np.int64]
Targets = NDArray[np.int64] | NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """Examples of one device with what a model is to say of each.

    Attributes:
        x: float32 [n, ...], finite, or int64 [n, ...] (tokens): one example per row.
        y: int64 [n]: class of each row, from 0; or float32 [n, k], finite: values.
    """

    x: Inputs
    y: Targets

    def __post_init__(self) -> None:
        """Check dtypes, lengths and values.

        Raises:
            DataError: E-DATA-DTYPE, E-DATA-EMPTY, E-DATA-LENGTH, E-DATA-NOT-FINITE or E-DATA-LABEL.
        """
        numbers = (np.float32, np.int64)
        if self.x.dtype not in numbers or self.y.dtype not in numbers:
            raise DataError(
                "E-DATA-DTYPE",
                "x and y of float32 or int64",
                f"x of {self.x.dtype} and y of {self.y.dtype}",
                "convert the arrays before saving them",
            )
        axes = 1 if self.y.dtype == np.int64 else 2
        if self.x.ndim < 1 or self.y.ndim != axes or len(self.x) != len(self.y):
            raise DataError(
                "E-DATA-LENGTH",
                "for each row of x one label, or one row of values",
                f"x of shape {list(self.x.shape)} and y of shape {list(self.y.shape)}",
                "save x as [n, ...], and y as int64 [n] or float32 [n, k]",
            )
        if len(self.x) == 0:
            raise DataError(
                "E-DATA-EMPTY",
                "at least one example",
                "none",
                "collect data before joining a round",
            )
        require_finite("x", self.x)
        require_finite("y", self.y)
        if self.y.dtype == np.int64:
            _require_non_negative(self.y)

    @property
    def examples(self) -> int:
        """Return the number of rows, n."""
        return len(self.x)

    def rows(self, chosen: NDArray[np.int64]) -> "TrainingData":
        """Return some rows.

        Args:
            chosen: int64 [m], indices of rows.
        """
        return TrainingData(x=self.x[chosen], y=self.y[chosen])


def require_finite(name: str, values: Inputs | Targets) -> None:
    """Refuse NaN and infinity.

    Args:
        name: What the values are called in the message.
        values: Of any shape.

    Raises:
        DataError: E-DATA-NOT-FINITE, with the first place.
    """
    finite = np.isfinite(values)
    if finite.all():
        return
    first_bad = tuple(int(i) for i in np.unravel_index(int(np.argmin(finite)), values.shape))
    raise DataError(
        "E-DATA-NOT-FINITE",
        f"finite numbers in {name}",
        f"{values[first_bad]} at index {list(first_bad)}",
        "remove or repair the faulty windows",
    )


def _require_non_negative(y: Targets) -> None:
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
    """How well one set of parameters does on data with known targets.

    Attributes:
        accuracy: Share of right answers, 0 to 1: rows whose largest logit is the label, or single
            values on the right side of one half. None for losses of values (MSE, Huber).
        loss: Mean of the bundle's loss; cross-entropy in nats.
        examples: Number of rows.
    """

    accuracy: float | None
    loss: float
    examples: int


class Trainer(Protocol):
    """Trains one model on one device.

    What is averaged is one flat float32 vector [d] in manifest order, so that clipping, noise and
    masking need not know the model. What stays on the device is a second one.
    """

    @property
    def manifest(self) -> Manifest:
        """Return what the graphs expect."""
        ...

    @property
    def dimension(self) -> int:
        """Return d, the number of averaged parameters."""
        ...

    def set_params(self, flat: NDArray[np.float32]) -> None:
        """Take received parameters; `delta` counts from here, and optimisers start anew.

        Args:
            flat: float32 [d], finite.
        """
        ...

    def params(self) -> NDArray[np.float32]:
        """Return a copy of the present parameters: float32 [d]."""
        ...

    def set_local(self, flat: NDArray[np.float32]) -> None:
        """Take the values of the tensors that stay on the device: float32 [local d], finite."""
        ...

    def local(self) -> NDArray[np.float32]:
        """Return a copy of the values that stay on the device: float32 [local d]."""
        ...

    def delta(self) -> Update:
        """Return trained minus received parameters: float32 [d]."""
        ...

    def fit(
        self,
        x: Inputs,
        y: Targets,
        *,
        epochs: int,
        batch_size: int,
        lr: float,
        rng: Randomness,
        sample_weight: NDArray[np.float32] | None = None,
        prox_mu: float = 0.0,
        max_gradient_norm: float | None = None,
        example_clip: float | None = None,
    ) -> float:
        """Run the optimiser over shuffled batches.

        Args:
            x: float32 or int64 [n, ...].
            y: int64 [n] or float32 [n, k].
            epochs: Passes over the data, at least 1.
            batch_size: Rows per step, at least 1; a short last batch is padded with rows of weight
                0.
            lr: Learning rate, finite, at least 0.
            rng: Source of the shuffle and of the rounding onto int8 grids; it needs no secrecy.
            sample_weight: float32 [n], finite, at least 0; None weighs all rows alike.
            prox_mu: FedProx: adds mu / 2 * |params - received|^2 to the loss; 0 turns it off.
            max_gradient_norm: L2 bound of a step's gradient; None bounds nothing.
            example_clip: L2 bound of each example's gradient, for bundles that clip examples.

        Returns:
            Mean loss per example over the last epoch, taken before each step.
        """
        ...

    def predict(self, x: Inputs) -> NDArray[np.float32]:
        """Return the output of each row, before any softmax or sigmoid: float32 [n, ...]."""
        ...

    def evaluate(self, x: Inputs, y: Targets) -> Evaluation:
        """Compare predictions with targets; nothing is trained."""
        ...
