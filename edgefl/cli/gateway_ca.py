"""`edgefl gateway ca`: replace the gateway's certificate authority without losing devices."""

import argparse
import json
import sys
from pathlib import Path

from edgefl.cli.operator_orders import report_order
from edgefl.cli.options import add_common, add_json, default_state_dir


def add_ca(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-commands."""
    authority = commands.add_parser("ca", help="show or replace the certificate authority")
    actions = authority.add_subparsers(metavar="ACTION", required=True)
    _add(actions, "show", "show which authorities are trusted", run_show)
    _add(
        actions,
        "rotate",
        "begin to replace the authority: devices learn the new one, both are trusted",
        run_rotate,
    )
    finish = _add(
        actions, "finish", "end the replacement: trust the new authority alone", run_finish
    )
    finish.add_argument(
        "--force",
        action="store_true",
        help="even where devices have not learned the new one: they have to enrol again",
    )


def _add(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    text: str,
    run: object,
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text)
    parser.add_argument("--state", type=Path, help="the gateway's folder")
    add_json(parser)
    add_common(parser)
    parser.set_defaults(run=run)
    return parser


def run_show(options: argparse.Namespace) -> int:
    """Show the authorities."""
    from broker.tls_folder import TlsFolder

    tls = TlsFolder(options.state or default_state_dir("gateway"))
    previous = None if tls.previous is None else tls.previous.fingerprint
    if options.json:
        facts = {"authority": tls.authority.fingerprint, "previous": previous}
        sys.stdout.write(json.dumps(facts) + "\n")
        return 0
    sys.stdout.write(f"authority {tls.authority.fingerprint}\n")
    if previous is not None:
        sys.stdout.write(f"replaces  {previous}, which is still trusted\n")
    return 0


def run_rotate(options: argparse.Namespace) -> int:
    """Begin to replace the authority."""
    from broker.orders import OrderFolder

    state_dir = options.state or default_state_dir("gateway")
    order_id = OrderFolder(state_dir).give_authority_order(begins=True)
    return report_order(options, state_dir, order_id)


def run_finish(options: argparse.Namespace) -> int:
    """End the replacement."""
    from broker.orders import OrderFolder

    state_dir = options.state or default_state_dir("gateway")
    order_id = OrderFolder(state_dir).give_authority_order(begins=False, is_forced=options.force)
    return report_order(options, state_dir, order_id)
