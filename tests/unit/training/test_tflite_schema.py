"""The project's reader and writer of TFLite files against the schema that ai-edge-litert ships.

Apart from the other TFLite tests, which also run where only tflite-runtime is installed.
"""

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from edgefl.training.bundle import read_bundle
from edgefl.training.litert.compile.bundle import with_litert
from edgefl.training.litert.format.decode import read_model
from edgefl.training.litert.format.encode import write_model
from edgefl.training.litert.format.kinds import OPTION_TABLES, Builtin, FieldKind, TensorType
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.demo_model import demo_model
from tests.unit.training.litert.test_format import SAMPLES, small_model
from tests.unit.training.litert.test_graft import int8_backbone, streaming_backbone

UNION = {
    number: name for name, number in vars(schema.BuiltinOptions).items() if not name.startswith("_")
}
# Names that the project gives in plain words.
RENAMED = {
    "activation": "fusedActivationFunction",
    "asymmetric": "asymmetricQuantizeInputs",
    "axes": "squeezeDims",
    "begin_mask": "beginMask",
    "condition": "condSubgraphIndex",
    "body": "bodySubgraphIndex",
    "dilation_h": "dilationHFactor",
    "dilation_w": "dilationWFactor",
    "else_subgraph": "elseSubgraphIndex",
    "from_type": "inDataType",
    "output_type": ("outputType", "outType"),
    "pot_scale_int16": "potScaleInt16",
    "splits": "numSplits",
    "subgraph": "initSubgraphIndex",
    "then_subgraph": "thenSubgraphIndex",
    "to_type": "outDataType",
    "transpose_x": "adjX",
    "transpose_y": "adjY",
    "values": ("valuesCount", "num"),
}


def parse(content):
    return schema.ModelT.InitFromPackedBuf(content, 0)


@pytest.fixture(scope="module")
def demo_file():
    prepared = compile_with(demo_model(1), CompileOptions())
    return read_bundle(with_litert(prepared.bundle_bytes)).content("model.tflite")


@pytest.mark.parametrize("code", list(Builtin))
def test_operators_have_the_numbers_of_the_schema(code):
    assert getattr(schema.BuiltinOperator, code.name) == code


@pytest.mark.parametrize("kind", list(TensorType))
def test_types_have_the_numbers_of_the_schema(kind):
    assert getattr(schema.TensorType, kind.name) == kind


@pytest.mark.parametrize("code", sorted(OPTION_TABLES))
def test_options_are_read_by_the_schema_as_they_were_meant(code):
    fields = OPTION_TABLES[code].fields
    options = {
        field.name: (not field.default if field.kind is FieldKind.BOOL else SAMPLES[field.kind])
        for field in fields
    }
    model = parse(write_model(small_model(code, **options)))
    (operator,) = model.subgraphs[0].operators
    assert type(operator.builtinOptions).__name__ == f"{UNION[OPTION_TABLES[code].number]}T"
    for field in fields:
        found = vars(operator.builtinOptions)
        named = RENAMED.get(field.name, _camel(field.name))
        choices = (named,) if isinstance(named, str) else named
        (name,) = [choice for choice in choices if choice in found]
        value = found[name]
        if field.kind is FieldKind.TEXT:
            assert value.decode() == options[field.name]
        elif field.kind is FieldKind.INT32S:
            assert tuple(value) == options[field.name]
        else:
            assert value == options[field.name]


def _camel(name):
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def test_a_whole_file_is_read_alike(demo_file):
    theirs, ours = parse(demo_file), read_model(demo_file)
    assert len(theirs.subgraphs) == len(ours.subgraphs) == 3
    for other, mine in zip(theirs.subgraphs, ours.subgraphs, strict=True):
        assert [list(tensor.shape) for tensor in other.tensors] == [
            list(tensor.shape) for tensor in mine.tensors
        ]
        assert [tensor.type for tensor in other.tensors] == [tensor.kind for tensor in mine.tensors]
        assert list(other.inputs) == mine.inputs
        codes = [theirs.operatorCodes[one.opcodeIndex].builtinCode for one in other.operators]
        assert codes == [operator.code for operator in mine.operators]
        for tensor, own in zip(other.tensors, mine.tensors, strict=True):
            data = theirs.buffers[tensor.buffer].data
            content = b"" if data is None else np.asarray(data, np.uint8).tobytes()
            assert content == (own.content or b"")
    named = {one.signatureKey.decode(): one for one in theirs.signatureDefs}
    for signature in ours.signatures:
        inputs = {entry.name.decode(): entry.tensorIndex for entry in named[signature.key].inputs}
        assert inputs == dict(signature.inputs)
        assert named[signature.key].subgraphIndex == signature.subgraph


@pytest.mark.parametrize("make", [int8_backbone, streaming_backbone])
def test_files_of_the_other_writer_are_read(make):
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(parse(make()).Pack(builder), b"TFL3")
    theirs = read_model(bytes(builder.Output()))
    ours = read_model(make())
    for other, mine in zip(theirs.subgraphs, ours.subgraphs, strict=True):
        assert other == mine
