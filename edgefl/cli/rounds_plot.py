"""Draws closed rounds: their time by outcome, who was in the sum, and the model's metric."""

import os
from pathlib import Path
from typing import Any

from edgefl.errors import ConfigError, EnvironmentProblem

_KINDS = {".png", ".svg"}
_GOOD, _BAD, _LINE = "#2f6fed", "#c2253c", "#0b8a7a"


def plot_rounds(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the drawing.

    Raises:
        ConfigError: E-PLOT-FILE: another kind of file, no round, or it cannot be written.
        EnvironmentProblem: E-PLOT: matplotlib is not there.
    """
    if path.suffix not in _KINDS:
        raise ConfigError("E-PLOT-FILE", "a file that ends in .png or .svg", repr(str(path)))
    if not rows:
        raise ConfigError("E-PLOT-FILE", "a closed round to draw", "none", "wait for the first one")
    os.environ.setdefault("MPLBACKEND", "Agg")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise EnvironmentProblem(
            "E-PLOT", "matplotlib", "none", "pip install 'edgefl-runtime[plots]'"
        ) from error
    figure = Figure(figsize=(8, 6), layout="constrained")
    time, devices, model = figure.subplots(3, 1, sharex=True)
    attempts = [row["attempt"] for row in rows]
    colours = [_GOOD if row["outcome"] == "COMMITTED" else _BAD for row in rows]
    time.bar(attempts, [row["duration_s"] for row in rows], color=colours)
    time.set_ylabel("round time [s]")
    time.set_title("committed rounds blue, aborted ones red")
    called = [row["phases"][0]["expected"] if row["phases"] else 0 for row in rows]
    devices.step(attempts, called, where="mid", color="#5a6678", label="called")
    devices.bar(attempts, [row["survivors"] for row in rows], color=_LINE, label="in the sum")
    devices.set_ylabel("devices")
    devices.legend(loc="lower left")
    _draw_metric(model, rows)
    model.set_xlabel("attempt")
    try:
        figure.savefig(path)
    except OSError as error:
        raise ConfigError(
            "E-PLOT-FILE", f"a file that can be written at {path}", error.strerror or "none"
        ) from error


def _draw_metric(axes: Any, rows: list[dict[str, Any]]) -> None:  # noqa: ANN401 - matplotlib has no types
    name = "accuracy" if any(row["accuracy"] is not None for row in rows) else "loss"
    measured = [(row["attempt"], row[name]) for row in rows if row[name] is not None]
    axes.plot([x for x, _ in measured], [y for _, y in measured], "o-", color=_GOOD)
    axes.set_ylabel(name)
