"""Small models whose examples are clipped, and the same by a loop over single examples."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgefl.training.onnx import names
from edgefl.training.onnx.compile.differentiate import differentiate
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.perexample import (
    ExampleForm,
    emit_clipped_gradients,
)
from edgefl.training.onnx.runtime.quiet import onnxruntime

BATCH = 5
FORMS = [ExampleForm.VECTORISED, ExampleForm.SCAN]


class Case:
    """A forward model from `x` to rows of values, compared with targets by squared error."""

    def __init__(self, nodes, input_shape, weights, *, frozen=(), integer_below=0):
        self.weights = {
            n: v.astype(np.float32) if v.dtype.kind == "f" else v for n, v in weights.items()
        }
        self.trainable = [
            n for n, v in self.weights.items() if v.dtype == np.float32 and n not in frozen
        ]
        rng = np.random.default_rng(len(nodes))
        shape = (BATCH, *input_shape)
        self.x = rng.normal(size=shape).astype(np.float32)
        if integer_below:
            self.x = rng.integers(-integer_below, integer_below, shape)
        element = TensorProto.INT64 if integer_below else TensorProto.FLOAT
        graph = helper.make_graph(
            [*nodes, helper.make_node("Flatten", ["y"], ["rows"], axis=1)],
            "case",
            [helper.make_tensor_value_info("x", element, ["N", *input_shape])],
            [helper.make_empty_tensor_value_info("rows")],
            [numpy_helper.from_array(v, n) for n, v in self.weights.items()],
        )
        self.model = onnx.shape_inference.infer_shapes(as_model(graph), strict_mode=True)
        columns = self.model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
        self.target = rng.normal(size=(BATCH, columns)).astype(np.float32)
        self.example_weights = rng.uniform(0.5, 2, BATCH).astype(np.float32)
        self.example_weights[1] = 0

    def feeds(self, rows=slice(None), **extra):
        return {
            "x": self.x[rows],
            names.TARGET: self.target[rows],
            **{name: self.weights[name] for name in self.trainable},
            **{name: np.asarray(value, np.float32) for name, value in extra.items()},
        }

    def single_gradients(self):
        """Gradients of each example's own loss, by the ordinary rules, one batch of one each."""
        emitter = GraphEmitter(self.model)
        nodes = list(self.model.graph.node)
        error = emit_error(emitter)
        gradients = differentiate(emitter, nodes, self.trainable, "rows", error)
        run = self.session(emitter, self.shapes(gradients))
        return [
            dict(zip(gradients, run(self.feeds(slice(i, i + 1))), strict=True))
            for i in range(BATCH)
        ]

    def clipped(self, clip, form):
        """Gradients, norms and the form that was chosen."""
        emitter = GraphEmitter(self.model)
        total = emitter.reduce_sum(names.SAMPLE_WEIGHT, [0])
        found = emit_clipped_gradients(
            emitter,
            list(self.model.graph.node),
            self.trainable,
            batch_inputs=["x"],
            output="rows",
            example_gradients=emit_error(emitter),
            emit_example_gradients=emit_error,
            weights=emitter.emit("Div", names.SAMPLE_WEIGHT, total),
            form=form,
        )
        run = self.session(emitter, {**self.shapes(found.gradients), found.norms: ["N"]})
        *gradients, norms = run(
            self.feeds(**{names.SAMPLE_WEIGHT: self.example_weights, names.EXAMPLE_CLIP: [clip]})
        )
        return dict(zip(found.gradients, gradients, strict=True)), norms, found

    def shapes(self, gradients):
        return {value: self.weights[name].shape for name, value in gradients.items()}

    def session(self, emitter, outputs):
        nodes = [*self.model.graph.node, *emitter.nodes]
        inputs = [
            self.model.graph.input[0],
            helper.make_tensor_value_info(names.TARGET, TensorProto.FLOAT, ["N", None]),
            helper.make_tensor_value_info(names.SAMPLE_WEIGHT, TensorProto.FLOAT, ["N"]),
            helper.make_tensor_value_info(names.EXAMPLE_CLIP, TensorProto.FLOAT, [1]),
            *(
                helper.make_tensor_value_info(n, TensorProto.FLOAT, self.weights[n].shape)
                for n in self.trainable
            ),
        ]
        graph = helper.make_graph(
            nodes,
            "step",
            inputs,
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
            [
                *(t for t in self.model.graph.initializer if t.name not in self.trainable),
                *emitter.constants,
            ],
        )
        model = as_model(graph)
        onnx.checker.check_model(model, full_check=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        declared = {value.name for value in session.get_inputs()}

        def run(feeds):
            missing = {
                names.SAMPLE_WEIGHT: np.ones(1, np.float32),
                names.EXAMPLE_CLIP: np.ones(1, np.float32),
            }
            return session.run(
                list(outputs), {n: v for n, v in (missing | feeds).items() if n in declared}
            )

        return run


def as_model(graph):
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def emit_error(emitter):
    return emitter.emit("Sub", "rows", names.TARGET)


def assert_clipped_like_single_examples(case, form):
    singles = case.single_gradients()
    norms = np.sqrt([sum(float((g.astype(float) ** 2).sum()) for g in s.values()) for s in singles])
    shares = case.example_weights / case.example_weights.sum()
    # One clip norm that no example reaches, one that some do, one that all do.
    for clip in (2 * norms.max(), np.median(norms), 0.3 * norms.min()):
        gradients, found_norms, found = case.clipped(clip, form)
        assert found.form is (form or ExampleForm.VECTORISED), found.reason
        np.testing.assert_allclose(found_norms, norms, rtol=2e-6)
        factors = shares * np.minimum(1, clip / norms)
        for name in case.trainable:
            expected = sum(f * s[name].astype(float) for f, s in zip(factors, singles, strict=True))
            assert gradients[name].shape == expected.shape, name
            scale = max(np.abs(f * s[name]).max() for f, s in zip(factors, singles, strict=True))
            np.testing.assert_allclose(
                gradients[name], expected, rtol=0, atol=2e-6 * scale, err_msg=name
            )


def weight(*shape, seed=3):
    return np.random.default_rng([seed, *shape]).normal(size=shape) / np.sqrt(
        max(shape[-1:] or [1])
    )


def node(op, inputs, output="y", **attributes):
    return helper.make_node(
        op, inputs.split(" "), output.split(), name=f"the_{output}", **attributes
    )


def dense_then(*nodes, shape=(4,), width=6, weights=None, **options):
    """x W, so that what follows gets gradients that depend on the example, then the nodes."""
    first = node("MatMul", "x first", "a")
    return Case(
        [first, *nodes], shape, {"first": weight(shape[-1], width), **(weights or {})}, **options
    )


def recurrent(operator, gates, directions, steps, **attributes):
    weights = {
        "w": weight(directions, gates * 3, 4),
        "r": weight(directions, gates * 3, 3),
        "b": weight(directions, 2 * gates * 3),
    }
    nodes = [
        node("Transpose", "x", "sequence", perm=[1, 0, 2]),
        node(operator, "sequence w r b", "states", hidden_size=3, **attributes),
        node("Tanh", "states", "squashed"),
        node("Transpose", "squashed", "y", perm=[2, 0, 1, 3]),
    ]
    return Case(nodes, (steps, 4), weights)


CUTS = {
    "zero": np.array([0]),
    "two": np.array([2]),
    "three": np.array([3]),
    "five": np.array([5]),
    "axis": np.array([0]),
}
CASES = {
    "Gemm": lambda: Case(
        [
            node("Gemm", "x w b", "a"),
            node("Tanh", "a", "h"),
            node("Gemm", "h v c", "y", transB=1, alpha=0.5, beta=2.0),
        ],
        (4,),
        {"w": weight(4, 6), "b": weight(6), "v": weight(3, 6), "c": weight(1, 3)},
    ),
    "Gemm, weight or bias alone": lambda: Case(
        [node("Gemm", "x w b", "a"), node("Tanh", "a", "h"), node("Gemm", "h v c")],
        (4,),
        {"w": weight(4, 6), "b": weight(6), "v": weight(6, 3), "c": weight(3)},
        frozen=("w", "c"),
    ),
    "Gemm on merged rows": lambda: Case(
        [
            node("Reshape", "x merged", "rows_of_all"),
            node("Gemm", "rows_of_all w b", "h", transB=1, beta=0.5),
            node("Reshape", "h apart", "y"),
        ],
        (7, 4),
        {
            "w": weight(3, 4),
            "b": weight(3),
            "merged": np.array([-1, 4]),
            "apart": np.array([-1, 7, 3]),
        },
    ),
    "Gemm on rows merged from outside": lambda: Case(
        [
            node("Transpose", "x", "by_step", perm=[1, 0, 2]),
            node("Reshape", "by_step merged", "rows_of_all"),
            node("Gemm", "rows_of_all w b", "h"),
            node("Reshape", "h apart", "steps"),
            node("Transpose", "steps", "y", perm=[1, 0, 2]),
        ],
        (2, 9),
        {
            "w": weight(9, 8),
            "b": weight(8),
            "merged": np.array([-1, 9]),
            "apart": np.array([2, -1, 8]),
        },
    ),
    "MatMul and Add, long": lambda: dense_then(
        node("Add", "a p", "b"),
        node("MatMul", "b v"),
        shape=(9, 4),
        weights={"p": weight(6), "v": weight(6, 5)},
    ),
    "MatMul, short": lambda: dense_then(
        node("Tanh", "a", "b"),
        node("MatMul", "b v"),
        shape=(2, 12),
        width=12,
        weights={"v": weight(12, 12)},
    ),
    "attention": lambda: dense_then(
        node("MatMul", "x key", "k"),
        node("Transpose", "k", "kt", perm=[0, 2, 1]),
        node("MatMul", "a kt", "scores"),
        node("Softmax", "scores", "shares", axis=-1),
        node("MatMul", "shares x"),
        shape=(5, 4),
        weights={"key": weight(4, 6)},
    ),
    "positions": lambda: dense_then(
        node("Add", "a p", "b"),
        node("Mul", "s b"),
        shape=(3, 4),
        weights={"p": weight(1, 3, 6), "s": weight(3, 1)},
    ),
    "Sub, Div, scalars": lambda: dense_then(
        node("Sub", "p a", "b"),
        node("Div", "b q"),
        weights={"p": weight(6), "q": np.array(1.5)},
    ),
    "batch on the second axis": lambda: Case(
        [
            node("Transpose", "x", "by_step", perm=[1, 0, 2]),
            node("Mul", "by_step s", "scaled"),
            node("Add", "scaled p", "shifted"),
            node("MatMul", "shifted w", "product"),
            node("Transpose", "product", "y", perm=[1, 0, 2]),
        ],
        (3, 4),
        {"s": weight(3, 1, 4), "p": weight(4), "w": weight(4, 5)},
    ),
    "PRelu": lambda: dense_then(node("PRelu", "a slope"), weights={"slope": weight(6)}),
    "Conv": lambda: Case(
        [
            node("Conv", "x w b", "a", pads=[1, 2], strides=[2]),
            node("Relu", "a", "h"),
            node("Conv", "h v c", "y", dilations=[2]),
        ],
        (3, 12),
        {"w": weight(4, 3, 3), "b": weight(4), "v": weight(2, 4, 2), "c": weight(2)},
    ),
    "Conv, few positions": lambda: Case(
        [node("Conv", "x w b", "y")],
        (16, 4),
        {"w": weight(20, 16, 3), "b": weight(20)},
    ),
    "Conv, two axes, groups": lambda: Case(
        [
            node("Conv", "x w b", "a", group=2, strides=[2, 1], auto_pad="SAME_UPPER"),
            node("Conv", "a v", "h", group=8, pads=[1, 1, 1, 1]),
            node("Conv", "h p", "y"),
        ],
        (4, 5, 6),
        {
            "w": weight(8, 2, 3, 2),
            "b": weight(8),
            "v": weight(16, 1, 3, 3),
            "p": weight(3, 16, 1, 1),
        },
    ),
    "BatchNormalization": lambda: Case(
        [
            node("Conv", "x w", "a"),
            node("BatchNormalization", "a s b mean variance", "h", epsilon=1e-3),
            node("Relu", "h", "r"),
            node("GlobalAveragePool", "r", "y"),
        ],
        (3, 8),
        {
            "w": weight(4, 3, 3),
            "s": weight(4),
            "b": weight(4),
            "mean": weight(4),
            "variance": weight(4, seed=8) ** 2 + 0.5,
        },
        frozen=("mean", "variance"),
    ),
    "LayerNormalization": lambda: dense_then(
        node("LayerNormalization", "a s b", axis=-1, epsilon=1e-4),
        shape=(3, 4),
        weights={"s": weight(6), "b": weight(6, seed=9)},
    ),
    "LayerNormalization, two axes": lambda: dense_then(
        node("LayerNormalization", "a s", axis=1),
        shape=(3, 4),
        weights={"s": weight(3, 6)},
    ),
    "InstanceNormalization": lambda: Case(
        [node("Conv", "x w", "a"), node("InstanceNormalization", "a s b")],
        (3, 8),
        {"w": weight(4, 3, 3), "s": weight(4), "b": weight(4, seed=9)},
    ),
    "Gather": lambda: Case(
        [node("Gather", "table x", "a"), node("MatMul", "a w", "y")],
        (6,),
        {"table": weight(4, 3), "w": weight(3, 2)},
        integer_below=4,
    ),
    "weight in parts": lambda: dense_then(
        node("Slice", "v zero three axis", "upper"),
        node("Slice", "v three five axis", "lower"),
        node("Concat", "lower u upper", "rows_of_v", axis=0),
        node("MatMul", "a rows_of_v"),
        weights={"v": weight(5, 2), "u": weight(1, 2), **CUTS},
    ),
    "Resize": lambda: Case(
        [node("Conv", "x w", "a"), node("Resize", "a  scales", mode="nearest")],
        (2, 5),
        {"w": weight(3, 2, 2), "scales": np.array([1, 1, 2.0], np.float32)},
        frozen=("scales",),
    ),
    "Transposed weight": lambda: dense_then(
        node("Transpose", "v", "vt", perm=[1, 0]),
        node("MatMul", "a vt"),
        weights={"v": weight(3, 6)},
    ),
    "LSTM": lambda: recurrent("LSTM", 4, 1, 6),
    "LSTM, both directions, few steps": lambda: recurrent(
        "LSTM", 4, 2, 2, direction="bidirectional"
    ),
    "GRU": lambda: recurrent("GRU", 3, 1, 6, linear_before_reset=1),
    "GRU, reset before the product": lambda: recurrent("GRU", 3, 1, 6, direction="reverse"),
}
