"""docs/models.md says what the compiler does: operators, losses, terms and error codes."""

import re
from pathlib import Path

from edgefl.training.kinds import Loss, Optimizer, QuantizationMode
from edgefl.training.onnx.compile.rules import covered_operators

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
COMPILER = "\n".join(
    path.read_text(encoding="utf-8") for path in (ROOT / "edgefl" / "training").rglob("*.py")
)


def test_the_page_lists_exactly_the_operators_with_rules():
    (listed,) = re.findall(r"^  (Abs, [^.]+)\.$", PAGE, re.MULTILINE | re.DOTALL)
    assert [name.strip() for name in listed.split(",")] == covered_operators()


def test_the_page_names_every_loss_optimiser_and_mode():
    for kind in (*Loss, *Optimizer, *QuantizationMode):
        assert f"`{kind.value}`" in PAGE, kind


def test_every_code_on_the_page_is_raised_somewhere():
    codes = set(re.findall(r"E-[A-Z]+(?:-[A-Z]+)+", PAGE))
    assert len(codes) > 20
    unknown = {code for code in codes if f'"{code}"' not in COMPILER}
    # Made of the option's name.
    assert unknown <= {"E-MODEL-LOSS", "E-MODEL-OPTIMIZER"}
