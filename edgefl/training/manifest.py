"""The manifest of a training bundle: what the graphs expect, where each parameter lies."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

MANIFEST_FORMAT = 1
LARGEST_DIMENSION = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSlot:
    """One trainable tensor within the flat vector.

    Attributes:
        name: Name in the source model and in both graphs.
        shape: Static shape; empty for a scalar.
        offset: Index of its first value in the flat vector.
        splice_offset: Byte position in the export template where its values belong.
    """

    name: str
    shape: tuple[int, ...]
    offset: int
    splice_offset: int

    @property
    def size(self) -> int:
        """Return the number of values."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything about a bundle that a device or the gateway must know before it runs a graph.

    Attributes:
        parameters: Trainable tensors in flat order, without gaps.
        dimension: d, the length of the flat vector.
        input_name: The model's input.
        input_shape: Shape of one example, without the batch axis.
        output_name: Output of the eval graph, logits float32 [n, classes].
        classes: Number of classes.
        loss: `cross_entropy`.
        optimizer: `sgd`.
        opset: Version of the standard ONNX operators.
        ir_version: ONNX file format version.
        minimum_onnxruntime: Oldest onnxruntime that reads this opset and format.
        source_sha256: Hex digest of the model the bundle was prepared from.
        files: Hex SHA-256 of each other file by name.
    """

    parameters: tuple[ParameterSlot, ...]
    dimension: int
    input_name: str
    input_shape: tuple[int, ...]
    output_name: str
    classes: int
    loss: str
    optimizer: str
    opset: int
    ir_version: int
    minimum_onnxruntime: str
    source_sha256: str
    files: Mapping[str, str]

    def __post_init__(self) -> None:
        """Check that the slots fill the flat vector exactly.

        Raises:
            ValueError: A gap, an overlap, a repeated name, or a number out of range.
        """
        end = 0
        splice_offset = 0
        for slot in self.parameters:
            if slot.offset != end or slot.size < 1 or slot.splice_offset < splice_offset:
                message = f"parameter '{slot.name}' does not follow the one before it"
                raise ValueError(message)
            end += slot.size
            splice_offset = slot.splice_offset
        if end != self.dimension or not 1 <= end <= LARGEST_DIMENSION:
            message = f"the parameters hold {end} values, the manifest says {self.dimension}"
            raise ValueError(message)
        if len({slot.name for slot in self.parameters}) != len(self.parameters):
            message = "a parameter name occurs twice"
            raise ValueError(message)
        if self.classes < 1 or any(size < 1 for size in self.input_shape):
            message = f"classes {self.classes} or input shape {self.input_shape} is not positive"
            raise ValueError(message)

    def to_json(self) -> bytes:
        """Return canonical JSON: sorted keys, no spaces that carry nothing."""
        document = {
            "format": MANIFEST_FORMAT,
            "parameters": [
                {
                    "name": slot.name,
                    "shape": list(slot.shape),
                    "offset": slot.offset,
                    "splice_offset": slot.splice_offset,
                }
                for slot in self.parameters
            ],
            "dimension": self.dimension,
            "input_name": self.input_name,
            "input_shape": list(self.input_shape),
            "output_name": self.output_name,
            "classes": self.classes,
            "loss": self.loss,
            "optimizer": self.optimizer,
            "opset": self.opset,
            "ir_version": self.ir_version,
            "minimum_onnxruntime": self.minimum_onnxruntime,
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
    fields = _Fields(document, "manifest")
    if fields.integer("format") != MANIFEST_FORMAT:
        message = f"manifest format {MANIFEST_FORMAT} is known, not {fields.integer('format')}"
        raise ValueError(message)
    return Manifest(
        parameters=tuple(_parse_slot(entry) for entry in fields.sequence("parameters")),
        dimension=fields.integer("dimension"),
        input_name=fields.text("input_name"),
        input_shape=fields.shape("input_shape"),
        output_name=fields.text("output_name"),
        classes=fields.integer("classes"),
        loss=fields.text("loss"),
        optimizer=fields.text("optimizer"),
        opset=fields.integer("opset"),
        ir_version=fields.integer("ir_version"),
        minimum_onnxruntime=fields.text("minimum_onnxruntime"),
        source_sha256=fields.text("source_sha256"),
        files=fields.texts("files"),
    )


def _parse_slot(entry: object) -> ParameterSlot:
    fields = _Fields(entry, "parameter")
    return ParameterSlot(
        name=fields.text("name"),
        shape=fields.shape("shape"),
        offset=fields.integer("offset"),
        splice_offset=fields.integer("splice_offset"),
    )


class _Fields:
    """Typed access to a JSON object, with the field's name in every complaint."""

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, dict):
            message = f"{what} is no JSON object"
            raise ValueError(message)
        self._value: dict[object, object] = value
        self._what = what

    def _wrong(self, name: str, wanted: str) -> ValueError:
        return ValueError(f"{self._what} field '{name}' is missing or not {wanted}")

    def text(self, name: str) -> str:
        value = self._value.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "text")
        return value

    def integer(self, name: str) -> int:
        value = self._value.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._wrong(name, "a whole number")
        return value

    def sequence(self, name: str) -> list[object]:
        value = self._value.get(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value

    def shape(self, name: str) -> tuple[int, ...]:
        sizes: list[int] = []
        for size in self.sequence(name):
            if not isinstance(size, int) or isinstance(size, bool) or not 0 < size < 2**31:
                raise self._wrong(name, "a list of positive whole numbers")
            sizes.append(size)
        return tuple(sizes)

    def texts(self, name: str) -> dict[str, str]:
        value = self._value.get(name)
        if not isinstance(value, dict):
            raise self._wrong(name, "an object of texts")
        texts: dict[str, str] = {}
        for key, text in value.items():
            if not isinstance(key, str) or not isinstance(text, str):
                raise self._wrong(name, "an object of texts")
            texts[key] = text
        return texts
