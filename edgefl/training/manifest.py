"""The manifest of a training bundle: what the graphs expect, where each parameter lies."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edgefl.training.json_fields import Fields
from edgefl.training.kinds import ElementType, Loss, Optimizer, QuantizationMode, Runtime

MANIFEST_FORMAT = 2
LARGEST_DIMENSION = 100_000_000
Facts = Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Name, shape and type of a tensor.

    Attributes:
        name: Its name in the graphs.
        shape: Static shape; of inputs, outputs and features without the batch axis.
        element_type: Type of its values.
    """

    name: str
    shape: tuple[int, ...]
    element_type: ElementType = ElementType.FLOAT32

    @property
    def size(self) -> int:
        """Return the number of values."""
        return math.prod(self.shape)

    def to_json(self) -> dict[str, object]:
        """Return the object that `parse_manifest` reads."""
        return {"name": self.name, "shape": list(self.shape), "type": self.element_type.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSlot:
    """One trained float32 tensor within a flat vector.

    Attributes:
        name: Name in the source model and in all graphs.
        shape: Static shape; empty for a scalar.
        offset: Index of its first value in the flat vector.
    """

    name: str
    shape: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        """Return the number of values."""
        return math.prod(self.shape)

    def to_json(self) -> dict[str, object]:
        """Return the object that `parse_manifest` reads."""
        return {"name": self.name, "shape": list(self.shape), "offset": self.offset}


def slots_of(shapes: Iterable[tuple[str, tuple[int, ...]]]) -> tuple[ParameterSlot, ...]:
    """Lay named shapes one after the other in a flat vector."""
    slots: list[ParameterSlot] = []
    offset = 0
    for name, shape in shapes:
        slot = ParameterSlot(name=name, shape=shape, offset=offset)
        slots.append(slot)
        offset += slot.size
    return tuple(slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The form of the training step for one runtime.

    Attributes:
        runtime: Library that runs it.
        minimum_version: Oldest release of that library that it was made for.
        facts: What a person may want to know: opset and IR version, operators, fixed batch.
    """

    runtime: Runtime
    minimum_version: str
    facts: Facts = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the object that `parse_manifest` reads."""
        return {
            "runtime": self.runtime.value,
            "minimum_version": self.minimum_version,
            "facts": dict(self.facts),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """Which integers the model uses, and what was measured when they were chosen.

    Attributes:
        mode: Where integers are used.
        facts: Calibration rows, accuracies before and after, and the like.
    """

    mode: QuantizationMode = QuantizationMode.NONE
    facts: Facts = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the object that `parse_manifest` reads."""
        return {"mode": self.mode.value, "facts": dict(self.facts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A trained low-rank change of a frozen tensor, added to it when a model is exported.

    With the target as a matrix of `shape[0]` rows: target + scale * left @ right.

    Attributes:
        target: Name of the frozen float32 tensor.
        shape: Its shape; at least one axis.
        offset: Byte position of its values in the export template, where they stay.
        left: Name of the trained tensor of `shape[0]` x r values.
        right: Name of the trained tensor of r x (values / `shape[0]`) values.
        scale: Factor of the product.
    """

    target: str
    shape: tuple[int, ...]
    offset: int
    left: str
    right: str
    scale: float

    @property
    def size(self) -> int:
        """Return the number of the target's values."""
        return math.prod(self.shape)

    def to_json(self) -> dict[str, object]:
        """Return the object that `parse_manifest` reads."""
        return {
            "target": self.target,
            "shape": list(self.shape),
            "offset": self.offset,
            "left": self.left,
            "right": self.right,
            "scale": self.scale,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything about a bundle that a device or the gateway must know before it runs a graph.

    The model's tensors form three groups: `parameters` are trained and averaged, `local` ones are
    trained and never leave their device, `frozen` ones are the same for all and for ever.

    Attributes:
        parameters: Tensors of the flat vector [d] that is handed out and averaged, without gaps.
        local: Tensors of the device's own flat vector, without gaps; often none.
        frozen: All other tensors of the model that hold data, integer buffers included.
        input: The model's input.
        output: Output of the eval graph that the loss reads: logits or values, float32.
        loss: What training makes small.
        optimizer: How a step uses the gradient.
        features: What the frozen front part of the model computes from the input; empty if the
            training graph reads the input itself.
        clips_examples: Whether a step clips the gradient of each example on its own.
        quantization: Which integers the model uses.
        programs: One for each runtime that can train the model, all over the same flat vector.
        optimizer_settings: Constants of the optimiser that are part of the training graph.
        splice_offsets: Byte position of each parameter's values, then of each local one's, in the
            export template, factors of merges left out; empty without a template.
        merges: Low-rank changes that the export adds to frozen tensors.
        source_sha256: Hex digest of the model the bundle was prepared from.
        files: Hex SHA-256 of each other file by name.
    """

    parameters: tuple[ParameterSlot, ...]
    local: tuple[ParameterSlot, ...] = ()
    frozen: tuple[TensorSpec, ...] = ()
    input: TensorSpec
    output: TensorSpec
    loss: Loss
    optimizer: Optimizer
    optimizer_settings: Facts = field(default_factory=dict)
    features: tuple[TensorSpec, ...] = ()
    clips_examples: bool = False
    quantization: Quantization = field(default_factory=Quantization)
    programs: tuple[Program, ...]
    splice_offsets: tuple[int, ...] = ()
    merges: tuple[Merge, ...] = ()
    source_sha256: str
    files: Mapping[str, str]

    def __post_init__(self) -> None:
        """Check that the slots fill the flat vectors exactly.

        Raises:
            ValueError: A gap, an overlap, a repeated name, or a number out of range.
        """
        _require_contiguous(self.parameters)
        _require_contiguous(self.local)
        if not 1 <= self.dimension <= LARGEST_DIMENSION:
            message = f"{self.dimension} averaged values, not 1 to {LARGEST_DIMENSION}"
            raise ValueError(message)
        trained = (*self.parameters, *self.local)
        names = [slot.name for slot in trained] + [tensor.name for tensor in self.frozen]
        if len(set(names)) != len(names):
            message = "a tensor's name occurs twice"
            raise ValueError(message)
        _require_rows(self.input, *self.features)
        if len(self.output.shape) < 1 or self.output.element_type is not ElementType.FLOAT32:
            message = f"output '{self.output.name}' is no float32 of a known shape"
            raise ValueError(message)
        _require_rows(self.output)
        runtimes = [program.runtime for program in self.programs]
        if not runtimes or len(set(runtimes)) != len(runtimes):
            message = "no program, or two for one runtime"
            raise ValueError(message)
        _require_merges(self.merges, trained)
        if self.has_template and len(self.splice_offsets) != len(self.spliced):
            message = f"{len(self.splice_offsets)} export positions for other many trained tensors"
            raise ValueError(message)

    @property
    def has_template(self) -> bool:
        """Tell whether the bundle can be exported as a float32 ONNX model."""
        return bool(self.splice_offsets or self.merges)

    @property
    def spliced(self) -> tuple[ParameterSlot, ...]:
        """Return the trained tensors that an exported model holds as they are, local ones last."""
        factors = {name for merge in self.merges for name in (merge.left, merge.right)}
        trained = (*self.parameters, *self.local)
        return tuple(slot for slot in trained if slot.name not in factors)

    @property
    def dimension(self) -> int:
        """Return d, the length of the vector that is averaged."""
        return sum(slot.size for slot in self.parameters)

    @property
    def local_dimension(self) -> int:
        """Return the length of the vector that stays on the device."""
        return sum(slot.size for slot in self.local)

    @property
    def classes(self) -> int:
        """Return the last size of the output: classes, or values per row."""
        return self.output.shape[-1]

    @property
    def vector_sha256(self) -> str:
        """Return a digest of names, shapes and order of what is averaged.

        Bundles that agree in it can be trained side by side in one round, whatever their runtime.
        """
        listed = json.dumps([slot.to_json() for slot in self.parameters], sort_keys=True)
        return hashlib.sha256(listed.encode()).hexdigest()

    def program(self, runtime: Runtime) -> Program | None:
        """Return the form for a runtime, or None."""
        return next((one for one in self.programs if one.runtime is runtime), None)

    def to_json(self) -> bytes:
        """Return canonical JSON: sorted keys, no spaces that carry nothing."""
        document = {
            "format": MANIFEST_FORMAT,
            "parameters": [slot.to_json() for slot in self.parameters],
            "local": [slot.to_json() for slot in self.local],
            "frozen": [tensor.to_json() for tensor in self.frozen],
            "input": self.input.to_json(),
            "output": self.output.to_json(),
            "loss": self.loss.value,
            "optimizer": self.optimizer.value,
            "optimizer_settings": dict(self.optimizer_settings),
            "features": [tensor.to_json() for tensor in self.features],
            "clips_examples": self.clips_examples,
            "quantization": self.quantization.to_json(),
            "programs": [program.to_json() for program in self.programs],
            "splice_offsets": list(self.splice_offsets),
            "merges": [merge.to_json() for merge in self.merges],
            "source_sha256": self.source_sha256,
            "files": dict(self.files),
        }
        return json.dumps(document, sort_keys=True, indent=1).encode()


def parse_manifest(manifest_json: bytes) -> Manifest:
    """Read a manifest, trusting nothing.

    Args:
        manifest_json: UTF-8 JSON.

    Returns:
        The checked manifest.

    Raises:
        ValueError: Not JSON, a field is missing or of the wrong type, or the values contradict
            each other.
    """
    try:
        document = json.loads(manifest_json)
    except (UnicodeDecodeError, RecursionError) as error:
        message = "the manifest is not JSON text"
        raise ValueError(message) from error
    fields = Fields(document, "manifest")
    if fields.integer("format") != MANIFEST_FORMAT:
        message = f"manifest format {MANIFEST_FORMAT} is known, not {fields.integer('format')}"
        raise ValueError(message)
    return Manifest(
        parameters=tuple(_parse_slot(entry) for entry in fields.sequence("parameters")),
        local=tuple(_parse_slot(entry) for entry in fields.sequence("local")),
        frozen=tuple(_parse_tensor(entry) for entry in fields.sequence("frozen")),
        input=_parse_tensor(fields.member("input")),
        output=_parse_tensor(fields.member("output")),
        loss=fields.choice("loss", Loss),
        optimizer=fields.choice("optimizer", Optimizer),
        optimizer_settings=fields.facts("optimizer_settings"),
        features=tuple(_parse_tensor(entry) for entry in fields.sequence("features")),
        clips_examples=fields.flag("clips_examples"),
        quantization=_parse_quantization(fields.member("quantization")),
        programs=tuple(_parse_program(entry) for entry in fields.sequence("programs")),
        splice_offsets=fields.integers("splice_offsets"),
        merges=tuple(_parse_merge(entry) for entry in fields.sequence("merges")),
        source_sha256=fields.text("source_sha256"),
        files=fields.texts("files"),
    )


def _parse_tensor(entry: object) -> TensorSpec:
    fields = Fields(entry, "tensor")
    return TensorSpec(
        name=fields.text("name"),
        shape=fields.shape("shape"),
        element_type=fields.choice("type", ElementType),
    )


def _parse_slot(entry: object) -> ParameterSlot:
    fields = Fields(entry, "parameter")
    return ParameterSlot(
        name=fields.text("name"), shape=fields.shape("shape"), offset=fields.integer("offset")
    )


def _parse_program(entry: object) -> Program:
    fields = Fields(entry, "program")
    return Program(
        runtime=fields.choice("runtime", Runtime),
        minimum_version=fields.text("minimum_version"),
        facts=fields.facts("facts"),
    )


def _parse_merge(entry: object) -> Merge:
    fields = Fields(entry, "merge")
    return Merge(
        target=fields.text("target"),
        shape=fields.shape("shape"),
        offset=fields.integer("offset"),
        left=fields.text("left"),
        right=fields.text("right"),
        scale=fields.number("scale"),
    )


def _parse_quantization(entry: object) -> Quantization:
    fields = Fields(entry, "quantization")
    return Quantization(mode=fields.choice("mode", QuantizationMode), facts=fields.facts("facts"))


def _require_rows(*tensors: TensorSpec) -> None:
    """Refuse what no array can hold."""
    for tensor in tensors:
        if tensor.element_type is ElementType.OTHER or tensor.size > LARGEST_DIMENSION:
            message = f"rows of {list(tensor.shape)} {tensor.element_type.value} in '{tensor.name}'"
            raise ValueError(message)


def _require_contiguous(slots: Iterable[ParameterSlot]) -> None:
    end = 0
    for slot in slots:
        if slot.offset != end or slot.size < 1:
            message = f"parameter '{slot.name}' does not follow the one before it"
            raise ValueError(message)
        end += slot.size


def _require_merges(merges: Iterable[Merge], trained: Iterable[ParameterSlot]) -> None:
    sizes = {slot.name: slot.size for slot in trained}
    for merge in merges:
        if not merge.shape or merge.left not in sizes or merge.right not in sizes:
            message = f"the change of '{merge.target}' has no trained factors"
            raise ValueError(message)
        rank, rest = divmod(sizes[merge.left], merge.shape[0])
        if rest or rank * (merge.size // merge.shape[0]) != sizes[merge.right]:
            message = f"the factors of '{merge.target}' do not fit its shape"
            raise ValueError(message)
