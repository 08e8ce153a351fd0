"""`edgefl task`: what a user asks for is done or refused, never passed over."""

import json
from pathlib import Path

import pytest

from edgefl.cli.main import main
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model


@pytest.mark.parametrize(
    "option",
    [
        ("--noise-multiplier", "2.0"),
        ("--epsilon-budget", "3"),
        ("--survivor-floor", "4"),
        ("--weighted",),
        ("--weight-bound", "9"),
        ("--no-rotation",),
    ],
)
def test_the_demos_recipe_takes_no_other_privacy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, ...]
) -> None:
    state = tmp_path / "gateway"
    code = main(["task", "submit", "spar", "--cohort", "4", "--state", str(state), *option])
    assert code == 2
    line = capsys.readouterr().err
    assert line.startswith("edgefl: E-DEMO-OPTION: ")
    assert line.count("\n") == 1
    assert option[0] in line
    assert not state.exists()


def test_the_demos_model_can_be_trained_against_a_malicious_gateway(tmp_path: Path) -> None:
    terms = {"adversary": "malicious", "corrupt_permille": 60, "drop_permille": 125}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in terms.items()]
    assert main(["task", "submit", "spar", "--cohort", "16", "--state", str(tmp_path), *words]) == 0
    (stored,) = (tmp_path / "tasks").glob("*/task.json")
    assert terms.items() <= json.loads(stored.read_text()).items()


@pytest.mark.parametrize("cohort", ["0", "2", "-1", "16385", "1000000"])
def test_a_cohort_that_no_plan_can_hold_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cohort: str
) -> None:
    assert main(["task", "submit", "spar", "--cohort", cohort, "--state", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.fixture
def submit(tmp_path: Path) -> list[str]:
    """Return a command that hands in a model."""
    bundle = tmp_path / "model.efl"
    bundle.write_bytes(compile_bundle(demo_model(1)).bundle_bytes)
    return ["task", "submit", str(bundle), "--cohort", "16", "--state", str(tmp_path), "--json"]


def test_weights_and_rotation_reach_the_plan(
    submit: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*submit, "--noise-multiplier", "0", "--weighted"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["weight_bound"] == 256
    assert facts["rotation_block"] == 2048
    plain = [*submit, "--name", "plain", "--noise-multiplier", "0", "--no-rotation"]
    assert main(plain) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["weight_bound"], facts["rotation_block"]) == (1, 0)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--weighted"], "E-WEIGHT-WITH-NOISE"),
        (["--weight-bound", "5"], "E-TASK-WEIGHTS"),
        (["--weighted", "--weight-bound", "1"], "E-TASK-WEIGHTS"),
        (
            [
                "--noise-multiplier",
                "0",
                "--weighted",
                "--weight-bound",
                "4096",
                "--ring-bits",
                "16",
            ],
            "E-RING-TOO-SMALL",
        ),
    ],
)
def test_weights_that_cannot_hold_are_refused(
    submit: list[str], capsys: pytest.CaptureFixture[str], options: list[str], code: str
) -> None:
    assert main([*submit, *options]) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"edgefl: {code}: ")
    assert line.count("\n") == 1
