"""What the gradients of one direction of a recurrent layer are made from, and shared pieces."""

from dataclasses import dataclass

from edgefl.training.onnx.compile.graph import GraphEmitter


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectionInputs:
    """One direction of a layer: T steps, N examples, I features, H hidden values, G gates.

    Attributes:
        steps: T.
        hidden: H.
        is_reversed: Whether it reads the sequence from its end.
        x: [T*N, I].
        w: [G*H, I].
        r: [G*H, H].
        w_bias: [G*H], or None.
        r_bias: [G*H], or None.
        states: Y of this direction, [T, N, H].
        previous: The hidden state before each step, [T*N, H].
        initial_cell: [N, H]; LSTM only.
        states_gradient: Of Y, [T, N, H], or None.
        last_hidden_gradient: Of Y_h or zeros, [N, H].
        last_cell_gradient: Of Y_c or zeros, [N, H]; LSTM only.
        resets_after_product: GRU only.
        activation: RNN only.
    """

    steps: int
    hidden: int
    is_reversed: bool
    x: str
    w: str
    r: str
    w_bias: str | None
    r_bias: str | None
    states: str
    previous: str
    initial_cell: str | None
    states_gradient: str | None
    last_hidden_gradient: str
    last_cell_gradient: str | None
    resets_after_product: bool
    activation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProduct:
    """A weight's gradient as the product rows(left)' rows(right), which sums over time and batch.

    Attributes:
        left: [T*N, rows of the weight].
        right: [T*N, columns of the weight].
        rows: Rows of the weight.
    """

    left: str
    right: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectionGradients:
    """The reverse pass through one direction, before anything is summed over time.

    Attributes:
        input_gates: Gradient of x W' + w_bias, [T*N, G*H].
        recurrent_gates: Gradient of (previous) R' + r_bias, [T*N, G*H].
        recurrence: Products whose results, one below the other, are the gradient of R.
        initial_hidden: [N, H].
        initial_cell: [N, H]; LSTM only.
    """

    input_gates: str
    recurrent_gates: str
    recurrence: tuple[RowProduct, ...]
    initial_hidden: str
    initial_cell: str | None = None


def linear(graph: GraphEmitter, rows: str, weight: str, bias: str | None) -> str:
    """Emit rows weight' + bias."""
    operands = [rows, weight] if bias is None else [rows, weight, bias]
    return graph.emit("Gemm", *operands, transB=1)


def split_last(graph: GraphEmitter, value: str, sizes: list[int]) -> list[str]:
    """Split a value along its last axis."""
    return graph.emit_outputs("Split", [value, graph.int64s(sizes)], len(sizes), axis=-1)


def one_minus(graph: GraphEmitter, value: str) -> str:
    """Emit 1 - value."""
    return graph.emit("Sub", graph.float32(1.0), value)


def sigmoid_slope(graph: GraphEmitter, y: str) -> str:
    """Emit the derivative of the sigmoid where its value is y."""
    return graph.emit("Mul", y, one_minus(graph, y))


def tanh_slope(graph: GraphEmitter, y: str) -> str:
    """Emit the derivative of tanh where its value is y."""
    return one_minus(graph, graph.emit("Mul", y, y))


def by_step(graph: GraphEmitter, direction: DirectionInputs, rows: str, columns: int) -> str:
    """Give [T*N, columns] the shape [T, N, columns]."""
    return graph.reshape(rows, (direction.steps, None, columns))


def as_rows(graph: GraphEmitter, by_step_value: str, columns: int) -> str:
    """Give [T, N, columns] the shape [T*N, columns]."""
    return graph.reshape(by_step_value, (None, columns))


def before_each_step(
    graph: GraphEmitter, direction_is_reversed: bool, steps: int, initial: str, states: str
) -> str:
    """Return what a state was before each step.

    Args:
        graph: Where to emit.
        direction_is_reversed: Whether the last step comes first.
        steps: T.
        initial: [N, H].
        states: After each step, [T, N, H].

    Returns:
        [T, N, H].
    """
    first = graph.emit("Unsqueeze", initial, graph.int64s([0]))
    if steps == 1:
        return first
    begin, end = (1, steps) if direction_is_reversed else (0, steps - 1)
    kept = graph.emit(
        "Slice", states, graph.int64s([begin]), graph.int64s([end]), graph.int64s([0])
    )
    ordered = [kept, first] if direction_is_reversed else [first, kept]
    return graph.emit("Concat", *ordered, axis=0)


def added(graph: GraphEmitter, state: str, elements: list[str]) -> str:
    """Add the gradient that arrives at this step's output, if any does, to the state's."""
    return graph.emit("Add", state, elements[0]) if elements else state
