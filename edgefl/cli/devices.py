"""`edgefl devices`: the boards of a fleet, for its operator; and what is decided about them."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from edgefl.cli.devices_admit import add_admit
from edgefl.cli.options import add_common, add_json, default_state_dir
from edgefl.cli.shown import printable, show_span, show_table

_NAMES = ("device", "state", "link", "heard", "battery", "version", "trains with", "fingerprint")

Document = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the list, and the sub-commands."""
    parser.description = (
        "List the boards of a fleet: state, whether they are there, when they were last heard, "
        "what they run. Names are for the gateway's operator. Works from the state folder where "
        "the gateway does not run."
    )
    parser.add_argument("--state", type=Path, help="the gateway's state folder")
    parser.add_argument(
        "--who",
        action="store_true",
        help="also show in how many of the last rounds each board's update is; that weakens "
        "epsilon_release for whoever sees it",
    )
    add_json(parser)
    add_common(parser)
    parser.set_defaults(run=run_list)
    add_admit(parser.add_subparsers(metavar="ACTION"))


def run_list(options: argparse.Namespace) -> int:
    """Print the boards."""
    from broker.status_client import view_gateway

    view = view_gateway(options.state or default_state_dir("gateway"))
    document: Document = view.devices(with_rounds=options.who)
    if options.json:
        sys.stdout.write(json.dumps(document) + "\n")
        return 0
    names = (*_NAMES, "rounds") if options.who else _NAMES
    rows = [_row(device, with_rounds=options.who) for device in document["devices"]]
    sys.stdout.write(show_table(names, rows) if rows else "no device is known yet\n")
    if options.who:
        sys.stdout.write(
            f"rounds: of the last {document['rounds_remembered']}; {document['note']}\n"
        )
    return 0


def _row(device: Document, *, with_rounds: bool) -> list[str]:
    heard_at_s = device["heard_at_s"]
    heard = "-" if heard_at_s is None else f"{show_span(max(0.0, time.time() - heard_at_s))} ago"
    link = device["link"]
    if link == "online" and device["is_available"] is False:
        link = "online, away"
    row = [
        device["device"],
        device["state"],
        link,
        heard,
        device["battery"] or "-",
        device["version"] or "-",
        device["backend"] or "-",
        device["fingerprint"],
    ]
    shown = [printable(text) for text in row]
    return [*shown, str(device["rounds"])] if with_rounds else shown
