"""`edgefl task`: what a user asks for is done or refused, never passed over."""

from pathlib import Path

import pytest

from edgefl.cli.main import main


@pytest.mark.parametrize(
    "option",
    [("--noise-multiplier", "2.0"), ("--epsilon-budget", "3"), ("--survivor-floor", "4")],
)
def test_the_demos_recipe_takes_no_other_privacy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, str]
) -> None:
    state = tmp_path / "gateway"
    code = main(["task", "submit", "spar", "--cohort", "4", "--state", str(state), *option])
    assert code == 2
    line = capsys.readouterr().err
    assert line.startswith("edgefl: E-DEMO-OPTION: ")
    assert line.count("\n") == 1
    assert option[0] in line
    assert not state.exists()
