"""Results of a step get their names without nodes that only copy, also out of branches."""

from onnx import helper

from edgefl.training.onnx.compile.results import name_results


def node(op, *names, **attributes):
    return helper.make_node(op, list(names[:-1]), [names[-1]], **attributes)


def flat(nodes):
    return [(one.op_type, list(one.input), list(one.output)) for one in nodes]


def test_the_node_that_makes_a_result_takes_its_name():
    emitted = [node("Neg", "x", "a"), node("Relu", "a", "b")]
    found = name_results(emitted, {"first": "a", "second": "b"})
    assert flat(found) == [("Neg", ["x"], ["first"]), ("Relu", ["first"], ["second"])]
    assert flat(emitted) == [("Neg", ["x"], ["a"]), ("Relu", ["a"], ["b"])], "left as they were"


def test_a_value_of_two_results_is_copied():
    found = name_results([node("Neg", "x", "a")], {"first": "a", "second": "a"})
    assert flat(found) == [
        ("Neg", ["x"], ["a"]),
        ("Identity", ["a"], ["first"]),
        ("Identity", ["a"], ["second"]),
    ]


def test_an_input_that_is_a_result_is_copied():
    assert flat(name_results([], {"same": "x"})) == [("Identity", ["x"], ["same"])]


def test_branches_read_the_new_name():
    body = helper.make_graph(
        [node("Relu", "a", "inner")], "body", [], [helper.make_empty_tensor_value_info("inner")]
    )
    choice = node("If", "condition", "b", then_branch=body, else_branch=body)
    found = name_results([node("Neg", "x", "a"), choice], {"first": "a", "second": "b"})
    assert list(found[1].output) == ["second"]
    for attribute in found[1].attribute:
        assert list(attribute.g.node[0].input) == ["first"]
        assert attribute.g.output[0].name == "inner"
