"""Works out the shapes that a model computes while it runs, as far as they follow from the batch.

Exporters write `Shape -> Gather -> Concat -> Reshape` for a batch axis that may vary. Here each
such whole number is known as `a * N + b`, N being the batch size, so that most of these nodes turn
into constants with one free axis, and every other size is known before training.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray

from edgefl.training.onnx.compile.attributes import int_attribute, ints_attribute
from edgefl.training.onnx.compile.graph_edit import GraphEdit
from edgefl.training.onnx.names import BATCH_AXIS

_INTEGERS = frozenset({onnx.TensorProto.INT64, onnx.TensorProto.INT32})
Vector = NDArray[np.object_]
"""Any number of `Size` values, as an array of any shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The whole number `per_batch * N + fixed` for a batch of N examples."""

    per_batch: int
    fixed: int

    def __add__(self, other: "Size") -> "Size":
        """Add."""
        return Size(per_batch=self.per_batch + other.per_batch, fixed=self.fixed + other.fixed)

    def __sub__(self, other: "Size") -> "Size":
        """Subtract."""
        return Size(per_batch=self.per_batch - other.per_batch, fixed=self.fixed - other.fixed)

    def __mul__(self, other: "Size") -> "Size":
        """Multiply; a square of the batch size has no such form.

        Raises:
            ArithmeticError: Both depend on the batch.
        """
        if self.per_batch and other.per_batch:
            raise ArithmeticError("the square of the batch size")
        return Size(
            per_batch=self.per_batch * other.fixed + self.fixed * other.per_batch,
            fixed=self.fixed * other.fixed,
        )

    def __floordiv__(self, other: "Size") -> "Size":
        """Divide where nothing is left over for any batch.

        Raises:
            ArithmeticError: It is not so.
        """
        if self.fixed == 0 and other.fixed == 0 and other.per_batch:
            return Size(per_batch=0, fixed=_exact(self.per_batch, other.per_batch))
        if other.per_batch or not other.fixed:
            raise ArithmeticError("a division by the batch size")
        return Size(
            per_batch=_exact(self.per_batch, other.fixed), fixed=_exact(self.fixed, other.fixed)
        )


def resolve_sizes(edit: GraphEdit) -> bool:
    """Replace computed shapes by constants where they are known, once through the graph.

    Args:
        edit: Graph with shapes as last inferred.

    Returns:
        Whether something changed, so that inferring shapes again may tell more.
    """
    known: dict[str, Vector] = {}
    expanded: dict[str, Vector] = {}
    outputs = {value.name for value in edit.graph.output}
    kept: list[onnx.NodeProto] = []
    changed = False
    for node in edit.graph.node:
        found = _evaluate(edit, node, known, expanded)
        if found is None:
            changed |= node.op_type == "Reshape" and _fix_reshape(edit, node, known)
            changed |= node.op_type == "Resize" and _fix_resize(edit, node, known)
            if node.op_type == "Expand":
                changed |= _note_expanded(edit, node, known, expanded)
            changed |= node.op_type == "Tile" and _note_tiled(edit, node, known)
            changed |= node.op_type == "Resize" and _note_resized(edit, node)
            kept.append(node)
            continue
        name = node.output[0]
        known[name] = found
        if name in outputs or any(size.per_batch for size in _listed(found)):
            kept.append(node)
            continue
        edit.add_constant(name, _fixed(found).astype(_numpy_type(edit, name)))
        changed = True
    if changed:
        edit.rewrites += 1
        edit.replace_nodes(kept)
    return changed


def _exact(number: int, divisor: int) -> int:
    quotient, rest = divmod(number, divisor)
    if rest:
        raise ArithmeticError("a division with a rest")
    return quotient


def _fixed(sizes: Vector) -> NDArray[np.int64]:
    flat = np.array([size.fixed for size in _listed(sizes)], np.int64)
    return flat.reshape(sizes.shape)


def _listed(sizes: Vector) -> list[Size]:
    listed: list[Size] = sizes.reshape(-1).tolist()
    return listed


def _numpy_type(edit: GraphEdit, name: str) -> type[np.generic]:
    if edit.element_type(name) == onnx.TensorProto.BOOL:
        return np.bool_
    return np.int32 if edit.element_type(name) == onnx.TensorProto.INT32 else np.int64


def _note_expanded(
    edit: GraphEdit, node: onnx.NodeProto, known: dict[str, Vector], expanded: dict[str, Vector]
) -> bool:
    """Remember the sizes of an Expand's result, which shape inference does not tell."""
    target, before = known.get(node.input[1]), edit.sizes(node.input[0])
    if target is None or before is None or len(before) > target.size or None in before:
        return False
    own = [1] * (target.size - len(before)) + [size or 1 for size in before]
    one = Size(per_batch=0, fixed=1)
    pairs = zip(own, _listed(target), strict=True)
    sizes = [Size(per_batch=0, fixed=size) if other == one else other for size, other in pairs]
    expanded[node.output[0]] = _vector(sizes, (len(sizes),))
    return _tell(edit, node, sizes)


def _note_tiled(edit: GraphEdit, node: onnx.NodeProto, known: dict[str, Vector]) -> bool:
    """Tell the sizes of a Tile whose repeats are computed."""
    repeats, before = known.get(node.input[1]), edit.sizes(node.input[0])
    if repeats is None or before is None or len(before) != repeats.size or None in before:
        return False
    own = [Size(per_batch=0, fixed=size or 0) for size in before]
    pairs = zip(own, _listed(repeats), strict=True)
    return _tell(edit, node, [size * times for size, times in pairs])


def _note_resized(edit: GraphEdit, node: onnx.NodeProto) -> bool:
    """Tell that an axis of scale 1 stays the batch axis, which shape inference does not follow."""
    scales = edit.constant(node.input[2]) if len(node.input) > 2 else None
    before, after = _sizes_of(edit, node.input[0], {}), edit.sizes(node.output[0])
    if scales is None or before is None or after is None or scales.size != len(before):
        return False
    sizes = [
        size if scale == 1.0 else Size(per_batch=0, fixed=result or 0)
        for size, scale, result in zip(before, scales, after, strict=True)
    ]
    return all(size.per_batch or size.fixed for size in sizes) and _tell(edit, node, sizes)


def _tell(edit: GraphEdit, node: onnx.NodeProto, sizes: Sequence[Size]) -> bool:
    """Tell the sizes of a node's output if each is fixed or just the batch size."""
    batch = Size(per_batch=1, fixed=0)
    if any(size.per_batch and size != batch for size in sizes):
        return False
    told: list[int | str] = [BATCH_AXIS if size.per_batch else size.fixed for size in sizes]
    return edit.tell_sizes(node.output[0], told)


def _evaluate(
    edit: GraphEdit,
    node: onnx.NodeProto,
    known: dict[str, Vector],
    expanded: dict[str, Vector],
) -> Vector | None:
    if node.domain not in {"", "ai.onnx"}:
        return None
    if node.op_type in {"Shape", "Size"}:
        sizes = _sizes_of(edit, node.input[0], expanded)
        return None if sizes is None else _of_shape(node, sizes)
    rule = _RULES.get(node.op_type)
    if rule is None or not any(value in known for value in node.input):
        return None
    operands = [_operand(edit, value, known) for value in node.input]
    if any(operand is None for operand in operands):
        return None
    try:
        found = rule(node, [operand for operand in operands if operand is not None])
    except (ArithmeticError, ValueError, IndexError, TypeError):
        return None  # no number of the form a * N + b
    return np.asarray(found, dtype=np.object_)


def _operand(edit: GraphEdit, value: str, known: dict[str, Vector]) -> Vector | None:
    if value in known:
        return known[value]
    constant = edit.constant(value)
    if constant is None or constant.dtype.kind not in "iu":
        return None
    return _vector([Size(per_batch=0, fixed=int(v)) for v in constant.flat], constant.shape)


def _vector(sizes: Sequence[Size], shape: Sequence[int]) -> Vector:
    flat = np.empty(len(sizes), np.object_)
    flat[:] = sizes
    return flat.reshape(shape)


def _sizes_of(edit: GraphEdit, value: str, expanded: dict[str, Vector]) -> list[Size] | None:
    if value in expanded:
        return _listed(expanded[value])
    sizes = edit.sizes(value)
    if sizes is None:
        return None
    listed: list[Size] = []
    for axis, size in enumerate(sizes):
        if size is None and edit.axis_name(value, axis) != BATCH_AXIS:
            return None
        listed.append(Size(per_batch=int(size is None), fixed=size or 0))
    return listed


def _of_shape(node: onnx.NodeProto, sizes: list[Size]) -> Vector:
    if node.op_type == "Size":
        total = Size(per_batch=0, fixed=1)
        for size in sizes:
            total *= size
        return _vector([total], ())
    start = int_attribute(node, "start", 0)
    chosen = sizes[start : int_attribute(node, "end", len(sizes))]
    return _vector(chosen, (len(chosen),))


def _fix_reshape(edit: GraphEdit, node: onnx.NodeProto, known: dict[str, Vector]) -> bool:
    """Give a Reshape a constant shape in which the batch axis is known for what it is.

    Axis 0 is copied from the input where both are the batch, since shape inference follows that;
    otherwise the axis that varies is what is left over.
    """
    if node.input[1] not in known:
        return _copy_batch(edit, node)
    sizes = _listed(known[node.input[1]])
    varying = [axis for axis, size in enumerate(sizes) if size.per_batch]
    if len(varying) != 1 or sizes[varying[0]].fixed:
        return False
    target = np.array([size.fixed for size in sizes], np.int64)
    if -1 in target and not _fill_rest(edit, node, target, sizes[varying[0]].per_batch):
        return False
    target[varying[0]] = -1
    set_reshape_target(edit, node, target)
    _copy_batch(edit, node)
    return True


def _fill_rest(
    edit: GraphEdit, node: onnx.NodeProto, target: NDArray[np.int64], per_batch: int
) -> bool:
    """Put the size in place of -1, which is then free for the axis that varies."""
    before = edit.sizes(node.input[0])
    if before is None or before[:1] != (None,) or None in before[1:]:
        return False
    if edit.axis_name(node.input[0], 0) != BATCH_AXIS:
        return False
    of_each = math.prod(size or 1 for size in before[1:])
    others = -per_batch * math.prod(size for size in target.tolist() if size)
    if others <= 0 or of_each % others:
        return False
    target[target == -1] = of_each // others
    return True


def _copy_batch(edit: GraphEdit, node: onnx.NodeProto) -> bool:
    """Copy axis 0 where -1 stands for the batch and the batch comes first in the input too."""
    target, before = edit.constant(node.input[1]), edit.sizes(node.input[0])
    if target is None or before is None or before[:1] != (None,) or None in before[1:]:
        return False
    if target.ndim != 1 or not target.size or target[0] != -1 or 0 in target:
        return False
    rest = math.prod(size or 1 for size in before[1:])
    if edit.axis_name(node.input[0], 0) != BATCH_AXIS or math.prod(target[1:].tolist()) != rest:
        return False
    set_reshape_target(edit, node, np.array([0, *target[1:]], np.int64))
    return True


def _fix_resize(edit: GraphEdit, node: onnx.NodeProto, known: dict[str, Vector]) -> bool:
    """Say by scales what a Resize says by sizes that hold the batch."""
    if len(node.input) < 4 or node.input[3] not in known:
        return False
    sizes = _listed(known[node.input[3]])
    return set_resize_scales(edit, node, [None if s.per_batch else s.fixed for s in sizes])


def set_resize_scales(edit: GraphEdit, node: onnx.NodeProto, wanted: Sequence[int | None]) -> bool:
    """Give a Resize constant scales instead of sizes; None keeps an axis as it is.

    Returns:
        Whether the sizes before are known, so that it could be done.
    """
    before = edit.sizes(node.input[0])
    if before is None:
        return False
    scales = np.ones(len(before), np.float32)
    for axis, (size, target) in enumerate(zip(before, wanted, strict=True)):
        if target is None:
            continue
        if size is None:
            return False
        scales[axis] = target / size
        if np.floor(scales[axis] * np.float32(size)) < target:  # rounded down: a pixel would go
            scales[axis] = np.nextafter(scales[axis], np.float32(np.inf))
    name = edit.new_constant(f"{node.output[0]}/scales", scales)
    region = node.input[1] if len(node.input) > 1 else ""
    del node.input[1:]
    node.input.extend([region, name])
    return True


def set_reshape_target(edit: GraphEdit, node: onnx.NodeProto, target: NDArray[np.int64]) -> None:
    """Give a Reshape a constant target, in which 0 copies an axis."""
    for attribute in [a for a in node.attribute if a.name == "allowzero"]:
        node.attribute.remove(attribute)
    node.input[1] = edit.new_constant(f"{node.output[0]}/shape", target)


def _ints(operand: Vector) -> NDArray[np.int64]:
    if any(size.per_batch for size in _listed(operand)):
        raise ArithmeticError("an index that depends on the batch")
    return _fixed(operand)


def _gather(node: onnx.NodeProto, operands: list[Vector]) -> Vector:
    axis = int_attribute(node, "axis", 0)
    return np.asarray(np.take(operands[0], _ints(operands[1]), axis=axis), dtype=np.object_)


def _slice(_: onnx.NodeProto, operands: list[Vector]) -> Vector:
    starts, ends, *rest = (_ints(operand) for operand in operands[1:])
    axes = rest[0] if rest else np.arange(len(starts))
    steps = rest[1] if len(rest) > 1 else np.ones(len(starts), np.int64)
    cut = [slice(None)] * operands[0].ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step < 0:
            raise ArithmeticError("a shape read backwards")
        cut[axis] = slice(int(start), int(end), int(step))
    return operands[0][tuple(cut)]


def _squeeze(_: onnx.NodeProto, operands: list[Vector]) -> Vector:
    axes = tuple(_ints(operands[1])) if len(operands) > 1 else None
    return np.squeeze(operands[0], axes)


def _unsqueeze(_: onnx.NodeProto, operands: list[Vector]) -> Vector:
    return np.expand_dims(operands[0], tuple(_ints(operands[1])))


def _product(node: onnx.NodeProto, operands: list[Vector]) -> Vector:
    axes = ints_attribute(node, "axes")
    if operands[0].ndim != 1 or axes not in (None, [0], [-1]):
        raise ArithmeticError("a product over a part")
    total = Size(per_batch=0, fixed=1)
    for size in _listed(operands[0]):
        total *= size
    return _vector([total], (1,) if int_attribute(node, "keepdims", 1) else ())


def _equal(_: onnx.NodeProto, operands: list[Vector]) -> Vector:
    """Compare; a flag is the size 1 or 0."""
    first, second = np.broadcast_arrays(*operands)
    pairs = zip(_listed(first), _listed(second), strict=True)
    return _vector([_same(one, other) for one, other in pairs], first.shape)


def _same(one: Size, other: Size) -> Size:
    """Tell whether two sizes are equal for every batch.

    Raises:
        ArithmeticError: They are for one batch size only.
    """
    apart = one - other
    if apart.per_batch and -apart.fixed // apart.per_batch >= 1:
        raise ArithmeticError("a comparison with the batch size")
    return Size(per_batch=0, fixed=int(apart == Size(per_batch=0, fixed=0)))


def _where(_: onnx.NodeProto, operands: list[Vector]) -> Vector:
    flags, first, second = np.broadcast_arrays(*operands)
    triples = zip(_listed(flags), _listed(first), _listed(second), strict=True)
    return _vector([one if flag.fixed else other for flag, one, other in triples], flags.shape)


def _concat(node: onnx.NodeProto, operands: list[Vector]) -> Vector:
    return np.concatenate(operands, axis=int_attribute(node, "axis", 0))


_RULES: dict[str, Callable[[onnx.NodeProto, list[Vector]], Vector]] = {
    "Add": lambda _, operands: operands[0] + operands[1],
    "Cast": lambda node, operands: _cast(node, operands),
    "Concat": _concat,
    "Equal": _equal,
    "Div": lambda _, operands: operands[0] // operands[1],
    "Gather": _gather,
    "Identity": lambda _, operands: operands[0],
    "Mul": lambda _, operands: operands[0] * operands[1],
    "ReduceProd": _product,
    "Reshape": lambda _, operands: operands[0].reshape(_ints(operands[1])),
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": lambda _, operands: operands[0] - operands[1],
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}


def _cast(node: onnx.NodeProto, operands: list[Vector]) -> Vector:
    if int_attribute(node, "to", 0) not in _INTEGERS:
        raise ArithmeticError("no whole number any more")
    return operands[0]
