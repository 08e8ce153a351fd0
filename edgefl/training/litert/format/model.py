"""What a TFLite file holds, as plain data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgefl.training.litert.format.kinds import DTYPES, Builtin, OptionValue, TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """How integers stand for numbers: number = scale * (integer - zero point).

    Attributes:
        scales: One for the whole tensor, or one for each index of `axis`.
        zero_points: As many.
        axis: Axis along which the scales change.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int = 0

    def __post_init__(self) -> None:
        """Check lengths and values.

        Raises:
            ValueError: Unequal lengths, or a scale that is not a positive number.
        """
        if len(self.scales) != len(self.zero_points):
            message = f"{len(self.scales)} scales with {len(self.zero_points)} zero points"
            raise ValueError(message)
        if not all(math.isfinite(scale) and scale > 0.0 for scale in self.scales):
            message = "a scale that is not a positive number"
            raise ValueError(message)


@dataclass(slots=True, kw_only=True)
class Tensor:
    """One tensor of a subgraph.

    Attributes:
        shape: Its sizes.
        kind: Type of its values.
        content: Its bytes, if it is a constant.
        name: For people; signatures have names of their own.
        scales: Meaning of its integers, if they have one.
        is_variable: Whether it keeps its values between calls.
    """

    shape: tuple[int, ...]
    kind: TensorType
    content: bytes | None = None
    name: str = ""
    scales: Scales | None = None
    is_variable: bool = False

    @property
    def values(self) -> NDArray[np.generic]:
        """Return the values of a constant.

        Raises:
            ValueError: Not a constant, or bytes that do not fill the shape.
        """
        if self.content is None or self.kind not in DTYPES:
            message = f"no constant: '{self.name}'"
            raise ValueError(message)
        return np.frombuffer(self.content, DTYPES[self.kind]).reshape(self.shape)


@dataclass(slots=True, kw_only=True)
class Operator:
    """One step of a subgraph.

    Attributes:
        code: What it does.
        inputs: Indices of the tensors it reads; -1 where an optional one is left out.
        outputs: Indices of the tensors it makes.
        options: Its settings by name; those left out have their defaults.
        version: Least version of the operator that a runtime must have.
    """

    code: Builtin
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    version: int = 1


@dataclass(slots=True, kw_only=True)
class Subgraph:
    """Tensors and the steps between them.

    Attributes:
        name: For people.
        tensors: All tensors.
        inputs: Indices of those that a caller fills.
        outputs: Indices of those that a caller reads.
        operators: In execution order.
    """

    name: str
    tensors: list[Tensor] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A subgraph that can be called by name.

    Attributes:
        key: Its name.
        subgraph: Index of the subgraph.
        inputs: Tensor index by name.
        outputs: Tensor index by name.
    """

    key: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(slots=True, kw_only=True)
class ModelFile:
    """A whole file.

    Attributes:
        subgraphs: The first is what a plain call runs.
        signatures: What can be called by name.
        description: For people.
    """

    subgraphs: list[Subgraph]
    signatures: list[Signature] = field(default_factory=list)
    description: str = "edgefl"

    def signature(self, key: str) -> Signature | None:
        """Return the signature of that name, or None."""
        return next((one for one in self.signatures if one.key == key), None)
