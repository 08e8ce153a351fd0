"""`edgefl gateway`: set up and run the aggregator with its MQTT endpoint."""

import argparse
from pathlib import Path

from edgefl.cli.gateway_ca import add_ca
from edgefl.cli.gateway_config import add_config
from edgefl.cli.gateway_init import add_init
from edgefl.cli.gateway_run import LOST_BY_RESET, run_gateway_command
from edgefl.cli.gateway_status import add_status
from edgefl.cli.gateway_token import add_token
from edgefl.cli.options import (
    DEFAULT_FLEET,
    DEFAULT_PORT,
    HelpFormatter,
    add_common,
    add_reset_state,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands."""
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    add_init(commands)
    _add_run(commands)
    add_token(commands)
    add_config(commands)
    add_ca(commands)
    add_status(commands)


def _add_run(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    run = commands.add_parser(
        "run",
        help="run rounds until stopped",
        description="Run rounds for the tasks handed in with 'edgefl task submit', until stopped. "
        "What is not said here is taken from gateway.toml, which 'edgefl gateway init' writes; "
        "without that file this is a first run, in plaintext and on this machine only. "
        "After a crash it goes on with the round that was open.",
        formatter_class=HelpFormatter,
    )
    run.add_argument("--state", type=Path, help="folder for state, ledger, tasks and models")
    run.add_argument(
        "--port",
        type=int,
        help="port for MQTT in plaintext, on loopback only; 0 picks a free one "
        f"[{DEFAULT_PORT} on a first run, else none]",
    )
    run.add_argument(
        "--http-port",
        help="port of the status page on loopback; 0 picks a free one, off serves none; unless "
        "given, 8484 or, where that is taken, a free one",
    )
    run.add_argument(
        "--broker",
        help="URL of an MQTT broker to use instead of the gateway's own (mqtts, wss; mqtt and ws "
        "on this machine only); several, separated by commas, are tried in turn",
    )
    run.add_argument(
        "--accept-finding",
        action="append",
        default=[],
        metavar="CODE",
        help="run although the broker was found unsafe in this way, such as E-BROKER-QUEUE",
    )
    run.add_argument("--fleet", help=f"the fleet's name [{DEFAULT_FLEET}]")
    run.add_argument(
        "--enrolment-key",
        help="hex public key that signs the roster away from this gateway (edgefl roster init); "
        "without it the gateway signs, which is safe against an honest-but-curious gateway only",
    )
    run.add_argument("--stop-when-idle", action="store_true", help="end when every task has ended")
    add_reset_state(run, LOST_BY_RESET)
    add_common(run)
    run.set_defaults(run=run_gateway_command)
