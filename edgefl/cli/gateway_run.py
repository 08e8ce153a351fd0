"""`edgefl gateway run`: what command line and gateway.toml ask for, put together and run."""

import argparse
import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.cli.options import (
    DEFAULT_FLEET,
    DEFAULT_PORT,
    default_state_dir,
    parse_public_key,
    require_port,
    set_state_aside,
)
from edgefl.cli.signals import run_until_signal
from edgefl.errors import ConfigError
from edgefl.protocol import topics
from edgefl.transport.broker_url import BrokerAddress, parse_broker_urls
from edgefl.transport.broker_url import is_loopback as is_loopback_host

if TYPE_CHECKING:
    from broker.config import GatewayConfig, Listening
    from broker.http_server import HttpSettings
    from edgefl.types import FleetName

_STATE_FILE = "gateway.sqlite"
LOST_BY_RESET = (
    "the gateway gets a new identity, which devices refuse, and tasks begin anew; the privacy "
    "ledger stays"
)


def run_gateway_command(options: argparse.Namespace) -> int:
    """Run the gateway until it is stopped."""
    from broker.config import load_config
    from broker.console import format_report
    from broker.events import Reported
    from broker.gateway_state import require_state
    from broker.open_gateway import run_gateway

    def show(report: Reported) -> None:
        sys.stdout.write(format_report(report) + "\n")
        sys.stdout.flush()

    state_dir = options.state or default_state_dir("gateway")
    config = load_config(state_dir)
    fleet, listening = _fleet(options.fleet, config), _listening(options.port, config)
    enrolment_key = parse_public_key(options.enrolment_key)
    if enrolment_key is None and config is not None:
        enrolment_key = config.enrolment_key
    http = _http_settings(options.http_port, config, state_dir)
    brokers = _brokers(options.broker, config)
    if options.reset_state:
        set_state_aside(state_dir / _STATE_FILE, LOST_BY_RESET)
    elif config is not None:
        require_state(state_dir)
    return asyncio.run(
        run_until_signal(
            run_gateway(
                state_dir=state_dir,
                fleet=fleet,
                listening=listening,
                enrolment_key=enrolment_key,
                stop_when_idle=options.stop_when_idle,
                on_report=show,
                names=() if config is None else config.names,
                limits=None if config is None else config.limits,
                brokers=brokers,
                accepted=options.accept_finding,
                http=http,
                moved_to=() if config is None else config.moved_to,
            )
        )
    )


def _fleet(named: str | None, config: "GatewayConfig | None") -> "FleetName":
    if config is None:
        return topics.parse_fleet(named or DEFAULT_FLEET)
    if named is not None and named != config.fleet:
        raise ConfigError(
            "E-GATEWAY-FLEET",
            f"fleet {config.fleet}, for which this gateway was set up",
            repr(named[:80]),
            "leave --fleet out, or choose another --state",
        )
    return config.fleet


def _listening(port: int | None, config: "GatewayConfig | None") -> "Listening":
    from broker.config import Listening

    if config is None:
        plain = require_port(DEFAULT_PORT if port is None else port)
        return Listening(mqtt_port=plain, mqtts_port=None, wss_port=None)
    if port is None:
        return config.listening
    return replace(config.listening, mqtt_port=require_port(port))


def _brokers(named: str | None, config: "GatewayConfig | None") -> tuple[BrokerAddress, ...]:
    urls = named or (None if config is None else ",".join(config.brokers))
    return parse_broker_urls(urls) if urls else ()


def _http_settings(
    port: str | None, config: "GatewayConfig | None", state_dir: Path
) -> "HttpSettings | None":
    """Return where the status page is served; None for nowhere.

    Raises:
        ConfigError: It is no port.
    """
    from broker.http_server import HttpSettings
    from broker.tls_folder import TlsFolder

    if port == "off":
        return None
    if port is None and config is None:
        return HttpSettings()
    if port is None and config is not None:
        is_loopback = is_loopback_host(config.http_host)
        server_file = None if is_loopback else TlsFolder(state_dir).server_file
        return HttpSettings(
            host=config.http_host,
            port=config.http_port,
            is_port_fixed=True,
            certificate_file=server_file,
            key_file=server_file,
            names=config.names,
        )
    if port is None or not port.isascii() or not port.isdecimal() or len(port) > 5:
        raise ConfigError("E-PORT", "a port from 0 to 65535, or off", repr(port)[:20])
    return HttpSettings(port=require_port(int(port)), is_port_fixed=True)
