"""`edgefl gateway`: run the aggregator with its embedded MQTT broker."""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.cli.options import (
    DEFAULT_FLEET,
    DEFAULT_PORT,
    add_common,
    add_reset_state,
    default_state_dir,
    parse_public_key,
    require_port,
    set_state_aside,
)
from edgefl.cli.signals import run_until_signal
from edgefl.errors import ConfigError
from edgefl.protocol import topics
from edgefl.transport.broker_url import parse_broker_urls

if TYPE_CHECKING:
    from broker.http_server import HttpSettings

_STATE_FILE = "gateway.sqlite"
_LOST_BY_RESET = (
    "the gateway gets a new identity, which devices refuse, and tasks begin anew; the privacy "
    "ledger stays"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands."""
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    run = commands.add_parser(
        "run",
        help="run rounds until stopped",
        description="Run rounds for the tasks handed in with 'edgefl task submit', until stopped. "
        "After a crash it aborts the open round by name, keeps model and ledger, and goes on.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    run.add_argument("--state", type=Path, help="folder for state, ledger, tasks and models")
    run.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="MQTT port on loopback; 0 picks a free one"
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
    run.add_argument("--fleet", default=DEFAULT_FLEET, help="the fleet's name")
    run.add_argument(
        "--enrolment-key",
        help="hex public key that signs the roster away from this gateway (edgefl roster init); "
        "without it the gateway enrols every device that says hello, which is safe against an "
        "honest-but-curious gateway only",
    )
    run.add_argument("--stop-when-idle", action="store_true", help="end when every task has ended")
    add_reset_state(run, _LOST_BY_RESET)
    add_common(run)
    run.set_defaults(run=run_gateway_command)


def run_gateway_command(options: argparse.Namespace) -> int:
    """Run the gateway until it is stopped."""
    from broker.console import format_report
    from broker.events import Reported
    from broker.open_gateway import run_gateway

    def show(report: Reported) -> None:
        sys.stdout.write(format_report(report) + "\n")
        sys.stdout.flush()

    fleet, port = topics.parse_fleet(options.fleet), require_port(options.port)
    enrolment_key = parse_public_key(options.enrolment_key)
    http = _http_settings(options.http_port)
    brokers = () if options.broker is None else parse_broker_urls(options.broker)
    state_dir = options.state or default_state_dir("gateway")
    if options.reset_state:
        set_state_aside(state_dir / _STATE_FILE, _LOST_BY_RESET)
    return asyncio.run(
        run_until_signal(
            run_gateway(
                state_dir=state_dir,
                fleet=fleet,
                port=port,
                enrolment_key=enrolment_key,
                stop_when_idle=options.stop_when_idle,
                on_report=show,
                brokers=brokers,
                accepted=options.accept_finding,
                http=http,
            )
        )
    )


def _http_settings(port: str | None) -> "HttpSettings | None":
    """Return where the status page is served; None for nowhere.

    Raises:
        ConfigError: It is no port.
    """
    from broker.http_server import HttpSettings

    if port is None:
        return HttpSettings()
    if port == "off":
        return None
    if not port.isascii() or not port.isdecimal() or len(port) > 5:
        raise ConfigError("E-PORT", "a port from 0 to 65535, or off", repr(port[:20]))
    return HttpSettings(port=require_port(int(port)), is_port_fixed=True)
