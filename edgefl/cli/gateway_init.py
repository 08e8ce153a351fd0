"""`edgefl gateway init`: set a gateway up for boards elsewhere, and say what comes next."""

import argparse
import datetime
import json
import shlex
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.cli.options import (
    DEFAULT_FLEET,
    add_common,
    add_json,
    default_state_dir,
    parse_public_key,
)

if TYPE_CHECKING:
    from broker.gateway_setup import SetUp

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def add_init(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command."""
    init = commands.add_parser(
        "init",
        help="set a gateway up: TLS authority, settings, and the plan of what comes next",
        description="Make the gateway's identity, its certificate authority and its settings, and "
        "print what was made and what to do next, in order. Without it 'edgefl gateway run' is a "
        "first run: plaintext, on this machine only.",
    )
    init.add_argument("--state", type=Path, help="folder for everything")
    init.add_argument("--fleet", default=DEFAULT_FLEET, help=f"the fleet's name [{DEFAULT_FLEET}]")
    init.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name or address that boards reach this gateway by; may be repeated (default: this "
        "machine's host name); localhost is always added",
    )
    init.add_argument(
        "--enrolment-key",
        help="hex public key of who signs the roster away from this gateway (edgefl roster init)",
    )
    add_json(init)
    add_common(init)
    init.set_defaults(run=run_init)


def run_init(options: argparse.Namespace) -> int:
    """Set the gateway up."""
    from broker.gateway_setup import set_up_gateway

    hosts = options.host or _own_names()
    names = list(dict.fromkeys([*hosts, *_LOOPBACK_NAMES]))
    made = set_up_gateway(
        options.state or default_state_dir("gateway"),
        fleet=options.fleet,
        names=names,
        enrolment_key=parse_public_key(options.enrolment_key),
        now=datetime.datetime.now(tz=datetime.UTC),
    )
    sys.stdout.write((json.dumps(_facts(made)) if options.json else _plan(made)) + "\n")
    return 0


def _own_names() -> list[str]:
    name = socket.gethostname().lower()
    return [name] if "." in name else [name, f"{name}.local"]


def _facts(made: "SetUp") -> dict[str, object]:
    from edgefl.protocol.roster_epoch import fingerprint

    config, listening = made.config, made.config.listening
    return {
        "state_dir": str(made.state_dir),
        "fleet": config.fleet,
        "gateway_key": made.gateway_key.hex(),
        "fingerprint": fingerprint(made.gateway_key),
        "authority_fingerprint": made.authority,
        "enrolment_key_is_elsewhere": config.enrolment_key is not None,
        "names": list(config.names),
        "mqtts_port": listening.mqtts_port,
        "wss_port": listening.wss_port,
        "http_port": config.http_port,
    }


def _plan(made: "SetUp") -> str:
    from broker.config import CONFIG_FILE
    from edgefl.protocol.roster_epoch import fingerprint

    state, config = made.state_dir, made.config
    shown, listening = shlex.quote(str(state)), made.config.listening
    lines = [
        f"gateway of fleet {config.fleet} in {state}",
        "",
        "made:",
        f"  identity   key {fingerprint(made.gateway_key)}; devices know the gateway by it",
        f"  authority  {made.authority} in {state / 'tls'}: signs certificates for TLS",
        f"  settings   {state / CONFIG_FILE}: ports, names, limits",
        "",
        "ports:",
        f"  {listening.mqtts_port}  MQTT over TLS, for boards: open it in the firewall",
        f"  {listening.wss_port}  WebSocket over TLS, for boards in networks that block the other",
        f"  {config.http_port}  status page and metrics, on this machine only",
        f"  names in the certificate: {', '.join(config.names)}",
        "",
        "next, in this order:",
        *_roster_step(made, shown),
        f"  2. start the gateway:    edgefl gateway run --state {shown}",
        f"  3. make a token:         edgefl gateway token new --state {shown} --out FILE",
        "  4. on each board:        edgefl agent enrol --token FILE --device NAME",
        f"  5. compare fingerprints: edgefl devices accept NAME --state {shown}",
        "  6. on each board:        edgefl agent run --data ...",
        f"  7. hand in a task:       edgefl task submit ... --state {shown}",
    ]
    return "\n".join(lines)


def _roster_step(made: "SetUp", shown: str) -> list[str]:
    if made.config.enrolment_key is not None:
        return [
            "  1. the roster is signed elsewhere: when devices wait, take roster-request.json from",
            f"     {made.state_dir} to where the enrolment key is, sign it with 'edgefl roster",
            "     sign', and put the result beside it as roster.cbor",
        ]
    return [
        "  1. decide who signs the roster. As it is, this gateway does, and the fleet is safe",
        "     against an honest-but-curious gateway only. To keep the enrolment key off it, before",
        "     the first device is let in: on another machine 'edgefl roster init --key FILE', and",
        f"     its public key as enrolment_key into {shown}/gateway.toml",
    ]
