"""Closed sets of choices that a bundle names: losses, optimisers, runtimes, quantization modes."""

import enum


class Loss(enum.Enum):
    """What training makes small; each is a weighted mean over the rows of a batch.

    Attributes:
        CROSS_ENTROPY: Softmax cross-entropy of logits [n, classes] with labels int64 [n].
        BINARY_CROSS_ENTROPY: Of logits [n, k] with targets float32 [n, k] from 0 to 1, mean over k.
        MSE: Squared error of outputs [n, k] and targets float32 [n, k], mean over k.
        HUBER: As MSE, but linear beyond an error of 1 (half of the square within).
    """

    CROSS_ENTROPY = "cross_entropy"
    BINARY_CROSS_ENTROPY = "binary_cross_entropy"
    MSE = "mse"
    HUBER = "huber"

    @property
    def takes_labels(self) -> bool:
        """Tell whether targets are class numbers rather than values."""
        return self is Loss.CROSS_ENTROPY


class Optimizer(enum.Enum):
    """How a step uses the gradient."""

    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAMW = "adamw"

    @property
    def states(self) -> tuple[str, ...]:
        """Return what is kept for each parameter between steps, all zero at first."""
        return _STATES[self]


_STATES = {
    Optimizer.SGD: (),
    Optimizer.MOMENTUM: ("velocity",),
    Optimizer.ADAMW: ("mean", "variance"),
}


class Runtime(enum.Enum):
    """Library that runs a bundle's graphs."""

    ONNX = "onnx"
    LITERT = "litert"


class Provider(enum.Enum):
    """Processor that a runtime works on."""

    CPU = "cpu"
    CUDA = "cuda"


class QuantizationMode(enum.Enum):
    """Which integers a bundle's model uses.

    Attributes:
        NONE: All float32.
        STATIC: Frozen layers run on int8 with calibrated scales; what is trained is float32.
        QAT: All layers are trained in float32 as if rounded to int8 (straight-through gradients).
        GRID: Trained weights stay on their int8 grid, by stochastic rounding after each step.
    """

    NONE = "none"
    STATIC = "static"
    QAT = "qat"
    GRID = "grid"


class ElementType(enum.Enum):
    """Type of a tensor's values, by its numpy name."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    INT8 = "int8"
    UINT8 = "uint8"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"
    OTHER = "other"
