"""Numbers that a TFLite file uses: element types, operators and the tables of their options.

Source: the public TFLite schema (`schema.fbs` of TensorFlow 2.14, field order as released).
"""

import enum
from dataclasses import dataclass

import numpy as np


class TensorType(enum.IntEnum):
    """Type of a tensor's values."""

    FLOAT32 = 0
    FLOAT16 = 1
    INT32 = 2
    UINT8 = 3
    INT64 = 4
    STRING = 5
    BOOL = 6
    INT16 = 7
    COMPLEX64 = 8
    INT8 = 9
    FLOAT64 = 10
    COMPLEX128 = 11
    UINT64 = 12
    RESOURCE = 13
    VARIANT = 14
    UINT32 = 15
    UINT16 = 16
    INT4 = 17


DTYPES: dict[TensorType, np.dtype[np.generic]] = {
    TensorType.FLOAT32: np.dtype(np.float32),
    TensorType.FLOAT16: np.dtype(np.float16),
    TensorType.INT32: np.dtype(np.int32),
    TensorType.UINT8: np.dtype(np.uint8),
    TensorType.INT64: np.dtype(np.int64),
    TensorType.BOOL: np.dtype(np.bool_),
    TensorType.INT16: np.dtype(np.int16),
    TensorType.INT8: np.dtype(np.int8),
    TensorType.FLOAT64: np.dtype(np.float64),
    TensorType.UINT64: np.dtype(np.uint64),
    TensorType.UINT32: np.dtype(np.uint32),
    TensorType.UINT16: np.dtype(np.uint16),
}
"""The numpy type of each element type that has one."""

TENSOR_TYPES = {dtype: kind for kind, dtype in DTYPES.items()}


class Builtin(enum.IntEnum):
    """Operators that edgefl writes, or reads in order to write them again."""

    ADD = 0
    AVERAGE_POOL_2D = 1
    CONCATENATION = 2
    CONV_2D = 3
    DEPTHWISE_CONV_2D = 4
    DEPTH_TO_SPACE = 5
    DEQUANTIZE = 6
    FLOOR = 8
    FULLY_CONNECTED = 9
    LOGISTIC = 14
    MAX_POOL_2D = 17
    MUL = 18
    RELU = 19
    RELU6 = 21
    RESHAPE = 22
    SOFTMAX = 25
    SPACE_TO_DEPTH = 26
    TANH = 28
    CUSTOM = 32
    PAD = 34
    GATHER = 36
    TRANSPOSE = 39
    MEAN = 40
    SUB = 41
    DIV = 42
    SQUEEZE = 43
    STRIDED_SLICE = 45
    EXP = 47
    SPLIT = 49
    LOG_SOFTMAX = 50
    CAST = 53
    PRELU = 54
    MAXIMUM = 55
    ARG_MAX = 56
    MINIMUM = 57
    LESS = 58
    NEG = 59
    PADV2 = 60
    GREATER = 61
    GREATER_EQUAL = 62
    LESS_EQUAL = 63
    SLICE = 65
    SIN = 66
    TRANSPOSE_CONV = 67
    TILE = 69
    EXPAND_DIMS = 70
    EQUAL = 71
    NOT_EQUAL = 72
    LOG = 73
    SUM = 74
    SQRT = 75
    RSQRT = 76
    SHAPE = 77
    POW = 78
    REDUCE_PROD = 81
    REDUCE_MAX = 82
    PACK = 83
    LOGICAL_OR = 84
    ONE_HOT = 85
    LOGICAL_AND = 86
    LOGICAL_NOT = 87
    UNPACK = 88
    REDUCE_MIN = 89
    SQUARE = 92
    FILL = 94
    FLOOR_MOD = 95
    LEAKY_RELU = 98
    SQUARED_DIFFERENCE = 99
    ABS = 101
    SPLIT_V = 102
    CEIL = 104
    REVERSE_V2 = 105
    GATHER_ND = 107
    COS = 108
    ELU = 111
    QUANTIZE = 114
    ROUND = 116
    HARD_SWISH = 117
    IF = 118
    WHILE = 119
    SCATTER_ND = 122
    SELECT_V2 = 123
    BATCH_MATMUL = 126
    CUMSUM = 128
    CALL_ONCE = 129
    BROADCAST_TO = 130
    VAR_HANDLE = 142
    READ_VARIABLE = 143
    ASSIGN_VARIABLE = 144
    GELU = 150
    SIGN = 158


class FieldKind(enum.Enum):
    """How a field of a table is stored; the value is struct's letter, or a word for what is not."""

    INT8 = "b"
    UINT8 = "B"
    BOOL = "?"
    INT32 = "i"
    UINT32 = "I"
    UINT64 = "Q"
    FLOAT32 = "f"
    INT32S = "int32s"
    TEXT = "text"


OptionValue = int | float | bool | str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OptionField:
    """One field of an options table; its place in the table is its place in the tuple.

    Attributes:
        name: What it sets.
        kind: How it is stored.
        default: Value that a missing field has.
    """

    name: str
    kind: FieldKind
    default: OptionValue


@dataclass(frozen=True, slots=True)
class OptionTable:
    """The options of one or more operators.

    Attributes:
        number: Its number in the union of all options.
        fields: Its fields in order.
    """

    number: int
    fields: tuple[OptionField, ...] = ()


def _int8(name: str, default: int = 0) -> OptionField:
    return OptionField(name, FieldKind.INT8, default)


def _int32(name: str, default: int = 0) -> OptionField:
    return OptionField(name, FieldKind.INT32, default)


def _flag(name: str, default: int = 0) -> OptionField:
    return OptionField(name, FieldKind.BOOL, bool(default))


def _float(name: str) -> OptionField:
    return OptionField(name, FieldKind.FLOAT32, 0.0)


_ACTIVATION = _int8("activation")
_STRIDES = (_int8("padding"), _int32("stride_w"), _int32("stride_h"))
_DILATIONS = (_int32("dilation_w", 1), _int32("dilation_h", 1))

_ADD = OptionTable(11, (_ACTIVATION, _flag("pot_scale_int16", 1)))
_COMPARE = {Builtin.LESS: 41, Builtin.GREATER: 44, Builtin.GREATER_EQUAL: 45}
_COMPARE |= {Builtin.LESS_EQUAL: 46, Builtin.EQUAL: 53, Builtin.NOT_EQUAL: 54}
_REDUCER = OptionTable(27, (_flag("keep_dims"),))
_POOL = OptionTable(5, (*_STRIDES, _int32("filter_width"), _int32("filter_height"), _ACTIVATION))
_PLAIN = {
    Builtin.EXP: 33,
    Builtin.LOG_SOFTMAX: 36,
    Builtin.DEQUANTIZE: 38,
    Builtin.MAXIMUM: 39,
    Builtin.MINIMUM: 39,
    Builtin.NEG: 42,
    Builtin.PADV2: 43,
    Builtin.SLICE: 48,
    Builtin.TILE: 51,
    Builtin.EXPAND_DIMS: 52,
    Builtin.POW: 56,
    Builtin.LOGICAL_OR: 60,
    Builtin.LOGICAL_AND: 62,
    Builtin.LOGICAL_NOT: 63,
    Builtin.SQUARE: 66,
    Builtin.FILL: 68,
    Builtin.FLOOR_MOD: 72,
    Builtin.SQUARED_DIFFERENCE: 76,
    Builtin.ABS: 78,
    Builtin.REVERSE_V2: 81,
    Builtin.GATHER_ND: 83,
    Builtin.COS: 84,
    Builtin.QUANTIZE: 89,
    Builtin.HARD_SWISH: 91,
    Builtin.SCATTER_ND: 97,
    Builtin.SELECT_V2: 98,
    Builtin.BROADCAST_TO: 104,
    Builtin.READ_VARIABLE: 112,
    Builtin.ASSIGN_VARIABLE: 113,
    Builtin.PAD: 22,
    Builtin.TRANSPOSE: 26,
}

OPTION_TABLES: dict[Builtin, OptionTable] = {
    **{code: OptionTable(number) for code, number in (_COMPARE | _PLAIN).items()},
    Builtin.ADD: _ADD,
    Builtin.SUB: OptionTable(28, _ADD.fields),
    Builtin.MUL: OptionTable(21, (_ACTIVATION,)),
    Builtin.DIV: OptionTable(29, (_ACTIVATION,)),
    Builtin.AVERAGE_POOL_2D: _POOL,
    Builtin.MAX_POOL_2D: _POOL,
    Builtin.CONCATENATION: OptionTable(10, (_int32("axis"), _ACTIVATION)),
    Builtin.CONV_2D: OptionTable(1, (*_STRIDES, _ACTIVATION, *_DILATIONS)),
    Builtin.DEPTHWISE_CONV_2D: OptionTable(
        2, (*_STRIDES, _int32("depth_multiplier"), _ACTIVATION, *_DILATIONS)
    ),
    Builtin.TRANSPOSE_CONV: OptionTable(49, (*_STRIDES, _ACTIVATION)),
    Builtin.DEPTH_TO_SPACE: OptionTable(94, (_int32("block_size"),)),
    Builtin.SPACE_TO_DEPTH: OptionTable(19, (_int32("block_size"),)),
    Builtin.FULLY_CONNECTED: OptionTable(
        8, (_ACTIVATION, _int8("weights_format"), _flag("keep_num_dims"), _flag("asymmetric"))
    ),
    Builtin.SOFTMAX: OptionTable(9, (_float("beta"),)),
    Builtin.RESHAPE: OptionTable(17, (OptionField("new_shape", FieldKind.INT32S, ()),)),
    Builtin.SQUEEZE: OptionTable(30, (OptionField("axes", FieldKind.INT32S, ()),)),
    Builtin.GATHER: OptionTable(23, (_int32("axis"), _int32("batch_dims"))),
    Builtin.SUM: _REDUCER,
    Builtin.MEAN: _REDUCER,
    Builtin.REDUCE_MAX: _REDUCER,
    Builtin.REDUCE_MIN: _REDUCER,
    Builtin.REDUCE_PROD: _REDUCER,
    Builtin.STRIDED_SLICE: OptionTable(
        32,
        (
            _int32("begin_mask"),
            _int32("end_mask"),
            _int32("ellipsis_mask"),
            _int32("new_axis_mask"),
            _int32("shrink_axis_mask"),
            _flag("offset"),
        ),
    ),
    Builtin.SPLIT: OptionTable(35, (_int32("splits"),)),
    Builtin.SPLIT_V: OptionTable(79, (_int32("splits"),)),
    Builtin.CAST: OptionTable(37, (_int8("from_type"), _int8("to_type"))),
    Builtin.ARG_MAX: OptionTable(40, (_int8("output_type"),)),
    Builtin.SHAPE: OptionTable(55, (_int8("output_type"),)),
    Builtin.PACK: OptionTable(59, (_int32("values"), _int32("axis"))),
    Builtin.UNPACK: OptionTable(64, (_int32("values"), _int32("axis"))),
    Builtin.ONE_HOT: OptionTable(61, (_int32("axis"),)),
    Builtin.LEAKY_RELU: OptionTable(75, (_float("alpha"),)),
    Builtin.BATCH_MATMUL: OptionTable(
        101, (_flag("transpose_x"), _flag("transpose_y"), _flag("asymmetric"))
    ),
    Builtin.CUMSUM: OptionTable(102, (_flag("exclusive"), _flag("reverse"))),
    Builtin.CALL_ONCE: OptionTable(103, (_int32("subgraph"),)),
    Builtin.IF: OptionTable(92, (_int32("then_subgraph"), _int32("else_subgraph"))),
    Builtin.WHILE: OptionTable(93, (_int32("condition"), _int32("body"))),
    Builtin.VAR_HANDLE: OptionTable(
        111,
        (
            OptionField("container", FieldKind.TEXT, ""),
            OptionField("shared_name", FieldKind.TEXT, ""),
        ),
    ),
    Builtin.GELU: OptionTable(116, (_flag("approximate"),)),
    Builtin.SIGN: OptionTable(123),
}
"""Options by operator; an operator without an entry has none."""

VALID_PADDING = 1
