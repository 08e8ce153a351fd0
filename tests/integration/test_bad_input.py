"""Bad arguments and files end in one line: what was expected, what was found, what to do."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgefl.training.onnx.demo_model import demo_model
from tests.integration.real import content_of, submit_words

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("changed", "error_code"),
    [
        ({"--cohort": 1}, "E-COHORT"),
        ({"--cohort": 2}, "E-COHORT"),
        ({"--survivor-floor": 5}, "E-SURVIVOR-FLOOR"),
        ({"--survivor-floor": 2}, "E-SURVIVOR-FLOOR"),
        ({"--quorum": 5}, "E-QUORUM"),
        ({"--clip-norm": 0}, "E-CLIP-NORM"),
        ({"--clip-norm": "nan"}, "E-CLIP-NORM"),
        ({"--clip-norm": -1}, "E-CLIP-NORM"),
        ({"--clip-norm": "inf"}, "E-CLIP-NORM"),
        ({"--noise-multiplier": "nan"}, "E-NOISE-MULTIPLIER"),
        ({"--noise-multiplier": -0.5}, "E-NOISE-MULTIPLIER"),
        ({"--epsilon-budget": -1}, "E-EPSILON-BUDGET"),
        ({"--epsilon-budget": "nan"}, "E-EPSILON-BUDGET"),
        ({"--delta": 0}, "E-DELTA"),
        ({"--delta": "nan"}, "E-DELTA"),
        ({"--colluders": 4}, "E-COLLUDERS"),
        ({"--rounds": 0}, "E-ROUNDS"),
        ({"--ring-bits": 40}, "E-RING-BITS"),
        ({"--ring-bits": 8, "--noise-multiplier": 500}, "E-RING-TOO-SMALL"),
        ({"--epochs": 0}, "E-TASK-TRAINING"),
        ({"--batch-size": 0}, "E-TASK-TRAINING"),
        ({"--lr": "nan"}, "E-TASK-TRAINING"),
        ({"--server-momentum": 1}, "E-TASK-MOMENTUM"),
        ({"--server-lr": "nan"}, "E-TASK-SERVER-LR"),
        ({"--phase-limit-s": 0}, "E-TASK-LIMIT"),
        ({"--name": "../escape"}, "E-TASK-NAME"),
    ],
)
def test_a_task_that_cannot_hold_is_refused(
    run, bundle: Path, tmp_path: Path, changed: dict, error_code: str
) -> None:
    state = tmp_path / "state"
    run(*submit_words(state, **changed), bundle).refuses(error_code, 2)
    assert not state.exists(), "a refused task left something behind"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("task", "submit", "spar", "--cohort", "4", "--clip-norm", "8abc"), "8abc"),
        (("task", "submit", "spar", "--cohort", "many"), "many"),
        (("gateway", "run", "--port", "http"), "http"),
        (("gateway", "walk"), "walk"),
        (("teleport",), "teleport"),
        ((), "COMMAND"),
    ],
)
def test_usage_errors_are_exit_code_2(run, words: Sequence[str], what: str) -> None:
    ended = run(*words)
    assert ended.code == 2
    assert ended.err.startswith("usage: edgefl")
    assert what in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err


def test_a_model_that_is_not_there_or_not_whole_is_refused(
    run, bundle: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    words = submit_words(state)
    line = run(*words, tmp_path / "absent.efl").refuses("E-MODEL-MISSING", 2)
    assert "absent.efl" in line
    whole = bundle.read_bytes()
    for name, content, error_code in (
        ("short.efl", whole[: len(whole) // 2], "E-BUNDLE-DAMAGED"),
        ("flipped.efl", whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:], "E-BUNDLE-"),
        ("empty.efl", b"", "E-BUNDLE-DAMAGED"),
        ("text.onnx", b"no model", "E-MODEL-UNREADABLE"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        ended = run(*words, path)
        assert ended.code == 2
        assert ended.err.startswith(f"edgefl: {error_code}"), ended.err
        assert ended.err.count("\n") == 1
    assert not state.exists()


def test_an_operator_without_a_gradient_is_named(run, tmp_path: Path) -> None:
    model = demo_model(1)
    node = next(node for node in model.graph.node if node.op_type == "Clip")
    node.op_type = "Hardmax"
    del node.input[1:]
    path = tmp_path / "hardmax.onnx"
    onnx.save(model, path)
    line = run(*submit_words(tmp_path / "state"), path).refuses("E-MODEL-UNSUPPORTED-OPS", 2)
    assert "Hardmax" in line


def test_evaluation_data_must_fit_the_model(run, bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "evaluation.npz"
    np.savez(path, x=np.zeros((4, 3), np.float32), y=np.zeros(4, np.int64))
    line = run(*submit_words(tmp_path / "state"), "--evaluation", path, bundle).refuses(
        "E-DATA-SHAPE", 2
    )
    assert "['n', 64, 6]" in line
    assert "[4, 3]" in line


def test_a_second_task_of_one_name_and_an_unknown_result_are_refused(
    run, bundle: Path, tmp_path: Path
) -> None:
    words = submit_words(tmp_path / "state")
    assert run(*words, bundle).code == 0
    before = content_of(tmp_path / "state")
    run(*words, bundle).refuses("E-TASK-EXISTS", 2)
    target = tmp_path / "model.onnx"
    run("task", "result", "task", "-o", target, "--state", tmp_path / "state").refuses(
        "E-NO-RESULT", 2
    )
    run("task", "result", "nobody", "-o", target, "--state", tmp_path / "state").refuses(
        "E-NO-RESULT", 2
    )
    assert content_of(tmp_path / "state") == before
    assert not target.exists()


# ------------------------------------------------------------------ what an agent is given


def _x(rows: int, fill: float = 0.5) -> np.ndarray:
    return np.full((rows, 64, 6), fill, np.float32)


def _save(path: Path, **arrays: np.ndarray) -> None:
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("make", "error_code"),
    [
        (lambda _: None, "E-DATA-MISSING"),
        (lambda path: path.write_bytes(b"PK\x03\x04 cut off"), "E-DATA-DAMAGED"),
        (lambda path: path.write_bytes(b""), "E-DATA-DAMAGED"),
        (lambda path: _save(path, x=_x(3, np.nan), y=np.zeros(3, np.int64)), "E-DATA-NOT-FINITE"),
        (lambda path: _save(path, x=_x(3, np.inf), y=np.zeros(3, np.int64)), "E-DATA-NOT-FINITE"),
        (lambda path: _save(path, x=_x(3), y=np.zeros(2, np.int64)), "E-DATA-LENGTH"),
        (lambda path: _save(path, x=_x(3), y=np.zeros(3, np.float32)), "E-DATA-DTYPE"),
        (lambda path: _save(path, x=_x(3), y=np.full(3, -1)), "E-DATA-LABEL"),
        (lambda path: _save(path, x=_x(3)), "E-DATA-KEYS"),
    ],
)
def test_data_that_cannot_be_trained_on_stop_an_agent_at_once(
    run, tmp_path: Path, make: Callable[[Path], object], error_code: str
) -> None:
    path, state = tmp_path / "data.npz", tmp_path / "state"
    make(path)
    run("agent", "run", "--device", "d1", "--data", path, "--state", state).refuses(error_code, 2)
    assert not state.exists()


@pytest.mark.parametrize(
    ("changed", "error_code"),
    [
        (("--device", "Board 1"), "E-DEVICE-ID"),
        (("--fleet", "a/b"), "E-FLEET-NAME"),
        (("--gateway", "127.0.0.1:99999"), "E-BROKER-URL"),
        (("--gateway", ":1883"), "E-BROKER-URL"),
        (("--gateway", "192.0.2.1:1883"), "E-PLAINTEXT-REMOTE"),
        (("--max-epsilon", "nan"), "E-MAX-EPSILON"),
        (("--max-epsilon", "0"), "E-MAX-EPSILON"),
        (("--max-clip-norm", "nan"), "E-MAX-CLIP-NORM"),
        (("--least-survivors", "0"), "E-POLICY-FLOOR"),
        (("--threads", "0"), "E-THREADS"),
        (("--wait-s", "nan"), "E-WAIT"),
        (("--wait-s", "-1"), "E-WAIT"),
        (("--data", "spar:11-left"), "E-DATA-"),
        (("--data", "spar:1-middle"), "E-DATA-SOURCE"),
    ],
)
def test_impossible_settings_stop_an_agent_at_once(
    run, tmp_path: Path, changed: tuple, error_code: str
) -> None:
    state = tmp_path / "state"
    words = ("agent", "run", "--device", "d1", "--data", "spar:1-left", "--state", state)
    ended = run(*words, *changed)
    assert ended.code == 2
    assert ended.err.startswith(f"edgefl: {error_code}"), ended.err
    assert ended.err.count("\n") == 1, ended.err
    assert not (state / "agent.sqlite").exists()


@pytest.mark.parametrize(("port", "error_code"), [("65536", "E-PORT"), ("-1", "E-PORT")])
def test_a_port_out_of_range_is_refused(run, tmp_path: Path, port: str, error_code: str) -> None:
    state = tmp_path / "state"
    run("gateway", "run", "--port", port, "--state", state).refuses(error_code, 2)
    assert not state.exists()
