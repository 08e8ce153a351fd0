"""`edgefl devices accept|reject|revoke`: decide about boards that want in, or are in."""

import argparse
from pathlib import Path

from edgefl.cli.operator_orders import report_order, require_gateway
from edgefl.cli.options import add_common, add_json, default_state_dir, parse_fingerprint

_TEXTS = {
    "accept": "let a board in that waits",
    "reject": "refuse a board that waits",
    "revoke": "put a board out: its session is cut at once, and its certificate is worth nothing",
}


def add_admit(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-commands."""
    for verb, text in _TEXTS.items():
        parser = commands.add_parser(verb, help=text, description=_description(verb, text))
        parser.add_argument("device", help="the board's name")
        parser.add_argument(
            "--fingerprint",
            metavar="KEY",
            help="refuse if the board's key is another one than this, as the board shows it",
        )
        parser.add_argument("--state", type=Path, help="the gateway's folder")
        add_json(parser)
        add_common(parser)
        parser.set_defaults(run=run_order, verb=verb)


def _description(verb: str, text: str) -> str:
    sentence = text[0].upper() + text[1:]
    if verb == "accept":
        return (
            f"{sentence}. Compare the fingerprint that the board shows with the gateway's first: "
            "whoever got hold of a token could ask in the board's name."
        )
    if verb == "revoke":
        return (
            f"{sentence}. It leaves the roster with the next one: at once where this gateway signs "
            "it, else by the operator's next 'edgefl roster sign', whose request names it."
        )
    return f"{sentence}. It may ask again with another key."


def run_order(options: argparse.Namespace) -> int:
    """Give the order, and say what became of it."""
    from broker.enrolment_events import Verb
    from broker.orders import OrderFolder
    from edgefl.protocol.topics import parse_device_id

    state_dir = options.state or default_state_dir("gateway")
    require_gateway(state_dir)
    device = parse_device_id(options.device)
    shown = None if options.fingerprint is None else parse_fingerprint(options.fingerprint)
    order_id = OrderFolder(state_dir).give(Verb(options.verb), device, shown)
    return report_order(options, state_dir, order_id)
