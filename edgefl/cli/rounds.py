"""`edgefl rounds`: how rounds closed, and what the open one waits for, line by line."""

import argparse
import datetime
import json
import sys
from pathlib import Path
from typing import Any

from edgefl.cli.options import add_common, default_state_dir
from edgefl.cli.shown import printable, show_bytes, show_number, show_span, show_table
from edgefl.errors import ConfigError

_MOST = 256
_NAMES = (
    "task", "round", "attempt", "closed", "took", "called", "in sum", "dropped", "up", "down",
    "epsilon", "metric", "outcome",
)  # fmt: skip

Document = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Show how the last rounds closed; '0 of 5 reported' is an outcome like any other. Works "
        "from the state folder where the gateway does not run."
    )
    parser.add_argument("--state", type=Path, help="the gateway's state folder")
    parser.add_argument("--task", help="rounds of this task alone")
    parser.add_argument("--last", type=int, default=20, help=f"how many, up to {_MOST} [20]")
    parser.add_argument(
        "--follow",
        action="store_true",
        help="print one line per phase as it comes, and every 10 s what is waited for, until "
        "interrupted; with --task, until that task ends",
    )
    parser.add_argument(
        "--who",
        action="store_true",
        help="with --follow, name devices; that weakens epsilon_release for whoever sees it",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the rounds into a .png or .svg file"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON; with --follow, one object per line"
    )
    add_common(parser)
    parser.set_defaults(run=run_rounds)


def run_rounds(options: argparse.Namespace) -> int:
    """Print, draw or follow the rounds."""
    state_dir = options.state or default_state_dir("gateway")
    if not 0 < options.last <= _MOST:
        raise ConfigError("E-ROUNDS-LAST", f"1 to {_MOST} rounds", str(options.last))
    if options.follow:
        from edgefl.cli.rounds_follow import follow

        return follow(state_dir, task=options.task, is_json=options.json, names_devices=options.who)
    from broker.status_client import view_gateway

    rows: list[Document] = [
        row
        for row in view_gateway(state_dir).rounds(options.task, options.last)
        if isinstance(row, dict)
    ]
    if options.plot is not None:
        from edgefl.cli.rounds_plot import plot_rounds

        plot_rounds(rows, options.plot)
    if options.json:
        sys.stdout.write(json.dumps({"rounds": rows}) + "\n")
    elif rows:
        sys.stdout.write(show_table(_NAMES, [_row(row) for row in rows]))
    else:
        sys.stdout.write("no round has closed yet\n")
    return 0


def _row(row: Document) -> list[str]:
    closed = datetime.datetime.fromtimestamp(row["closed_at_s"]).astimezone()
    where = f" in {row['in_phase']}" if row["in_phase"] else ""
    metric = row["accuracy"] if row["accuracy"] is not None else row["loss"]
    called = row["phases"][0]["expected"] if row["phases"] else 0
    reported = f"{row['reported']} of {row['asked']} reported: " if row["phases"] else ""
    texts = [
        row["task"],
        str(row["round"]),
        str(row["attempt"]),
        f"{closed:%m-%d %H:%M:%S}",
        show_span(row["duration_s"]),
        str(called),
        str(row["survivors"]),
        str(sum(drop["count"] for drop in row["drops"])),
        show_bytes(row["up_bytes"]),
        show_bytes(row["down_bytes"]),
        show_number(row["epsilon_server"]) if row["has_spend"] else "-",
        show_number(metric),
        "committed" if row["outcome"] == "COMMITTED" else f"{reported}{row['reason']}{where}",
    ]
    return [printable(text) for text in texts]
