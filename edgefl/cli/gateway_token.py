"""`edgefl gateway token`: make, list and revoke the tokens that boards come with."""

import argparse
import datetime
import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.cli.options import add_common, add_json, default_state_dir, parse_fingerprint
from edgefl.errors import ConfigError, EdgeflError

if TYPE_CHECKING:
    from broker.claims import Claim
    from broker.config import GatewayConfig
    from edgefl.protocol.claim_token import ClaimToken

_UNITS = {"m": 60, "h": 3600, "d": 86_400}
_LONGEST_S = 365 * 86_400
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def add_token(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-commands."""
    token = commands.add_parser("token", help="make, list and revoke tokens for boards")
    actions = token.add_subparsers(metavar="ACTION", required=True)
    _add_new(actions)
    listing = actions.add_parser("list", help="show the tokens and their uses")
    _add_state(listing, run_list)
    revoke = actions.add_parser(
        "revoke",
        help="let nobody in any more with a token",
        description="Let nobody in any more with a token. Devices that came with it stay.",
    )
    revoke.add_argument("claim", help="its name, as 'list' shows it")
    _add_state(revoke, run_revoke)


def _add_new(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    new = actions.add_parser(
        "new",
        help="make a token",
        description="Make a token: one line with which boards may ask to be let in. It is a secret "
        "while it is valid, is shown once, and is kept nowhere.",
    )
    new.add_argument("--uses", type=int, default=1, help="how many boards it may let in [1]")
    new.add_argument("--expires", default="24h", help="how long it is valid: 30m, 24h, 7d [24h]")
    new.add_argument("--out", type=Path, help="write it to a file that its owner alone can read")
    new.add_argument(
        "--preauthorised",
        action="store_true",
        help="accept whoever comes with it, without asking: whoever gets hold of it is in",
    )
    new.add_argument(
        "--fingerprint",
        action="append",
        default=[],
        metavar="KEY",
        help="accept the board with this key without asking (edgefl agent enrol --key-only shows "
        "it); may be repeated",
    )
    new.add_argument(
        "--gateway",
        action="append",
        default=[],
        metavar="URL",
        help="where boards reach the gateway (default: by the names in gateway.toml)",
    )
    _add_state(new, run_new)


def _add_state(parser: argparse.ArgumentParser, run: object) -> None:
    parser.add_argument("--state", type=Path, help="the gateway's folder")
    add_json(parser)
    add_common(parser)
    parser.set_defaults(run=run)


def run_new(options: argparse.Namespace) -> int:
    """Make a token."""
    from broker.claims import MAX_USES, keep_claim
    from broker.gateway_identity import read_public_key
    from broker.tls_folder import TlsFolder
    from broker.tokens import make_token

    state_dir = options.state or default_state_dir("gateway")
    if not 1 <= options.uses <= MAX_USES:
        raise ConfigError("E-TOKEN-USES", f"1 to {MAX_USES} uses", str(options.uses))
    config, tls = _require_config(state_dir), TlsFolder(state_dir)
    token, claim = make_token(
        tls.authority,
        fleet=config.fleet,
        gateways=_gateways(options.gateway, config, state_dir),
        trusted=tls.trusted,
        gateway_key=read_public_key(state_dir),
        enrolment_key=config.enrolment_key,
        uses=options.uses,
        life=_life(options.expires),
        now=datetime.datetime.now(tz=datetime.UTC),
        is_preauthorised=options.preauthorised,
        fingerprints=[parse_fingerprint(text) for text in options.fingerprint],
    )
    if options.out is not None:
        _write_token(options.out, token)
    keep_claim(state_dir, claim)
    _show_new(options, token, claim)
    return 0


def run_list(options: argparse.Namespace) -> int:
    """Show the tokens."""
    from broker.claims import read_claims

    state_dir = options.state or default_state_dir("gateway")
    _require_config(state_dir)
    claims = read_claims(state_dir).values()
    if options.json:
        rows = [{**_facts(claim), "state": _state(claim)} for claim in claims]
        sys.stdout.write(json.dumps({"tokens": rows}) + "\n")
        return 0
    for claim in claims:
        sys.stdout.write(
            f"{claim.claim}  {_state(claim):<8}  {claim.uses} uses  until {_date(claim.expires_s)}"
            f"{'  preauthorised' if claim.is_preauthorised or claim.fingerprints else ''}\n"
        )
    if not claims:
        sys.stdout.write("no tokens; 'edgefl gateway token new' makes one\n")
    return 0


def run_revoke(options: argparse.Namespace) -> int:
    """Revoke a token."""
    from broker.claims import revoke_claim

    state_dir = options.state or default_state_dir("gateway")
    claim = revoke_claim(state_dir, options.claim)
    came = _who_came(state_dir, claim.claim)
    if options.json:
        sys.stdout.write(json.dumps({**_facts(claim), "came_with_it": came}) + "\n")
        return 0
    lines = [f"{claim.claim} lets nobody in any more"]
    if came is None:
        lines.append("who came with it cannot be seen now: see 'claim' in 'edgefl devices --json'")
    else:
        lines.append(f"came with it: {', '.join(came) or 'nobody'}")
        lines += ["'edgefl devices revoke' puts a board out"] if came else []
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _who_came(state_dir: Path, claim: str) -> list[str] | None:
    """Return the boards that a token brought; None where a running gateway does not tell."""
    from broker.status_client import view_gateway

    try:
        rows = view_gateway(state_dir).devices(with_rounds=False)["devices"]
    except EdgeflError:
        return None  # The token is revoked all the same.
    found = rows if isinstance(rows, list) else []
    return [str(row["device"]) for row in found if isinstance(row, dict) and row["claim"] == claim]


def _require_config(state_dir: Path) -> "GatewayConfig":
    from broker.config import CONFIG_FILE, load_config

    config = load_config(state_dir)
    if config is None:
        raise ConfigError(
            "E-NO-GATEWAY-CONFIG",
            f"a gateway that was set up in {state_dir}",
            f"no {CONFIG_FILE}",
            "'edgefl gateway init' sets one up",
        )
    return config


def _gateways(named: list[str], config: "GatewayConfig", state_dir: Path) -> tuple[str, ...]:
    """Return the URLs for the token: those that were named, else names and ports of the gateway."""
    from edgefl.transport.broker_url import BrokerAddress, BrokerScheme, parse_broker_urls

    if named or config.brokers:
        addresses = parse_broker_urls(",".join(named or config.brokers))
        return tuple(str(address) for address in addresses)
    # On this machine's own names alone no board could find it.
    hosts = [name for name in config.names if name not in _LOOPBACK] or list(config.names)
    ports = {**_configured_ports(config), **_open_ports(state_dir)}
    urls = [
        str(BrokerAddress(scheme=scheme, host=host, port=port))
        for scheme in (BrokerScheme.MQTTS, BrokerScheme.WSS)
        if (port := ports.get(scheme.value))
        for host in hosts
    ]
    if not urls:
        raise ConfigError(
            "E-TOKEN-GATEWAY",
            "a port for boards in gateway.toml, or --gateway",
            "none that is known",
            "ports of 0 are known while the gateway runs",
        )
    return tuple(urls[:8])


def _configured_ports(config: "GatewayConfig") -> dict[str, int | None]:
    return {"mqtts": config.listening.mqtts_port, "wss": config.listening.wss_port}


def _open_ports(state_dir: Path) -> dict[str, int]:
    """Return the ports that a running gateway has open, which may have been picked freely."""
    try:
        fields = json.loads((state_dir / "gateway.json").read_text(encoding="utf-8"))
        return {
            scheme: int(fields[f"{scheme}_port"])
            for scheme in ("mqtts", "wss")
            if fields.get(f"{scheme}_port")
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _life(text: str) -> datetime.timedelta:
    number, unit = text[:-1], text[-1:]
    if number.isdecimal() and unit in _UNITS and 0 < int(number) * _UNITS[unit] <= _LONGEST_S:
        return datetime.timedelta(seconds=int(number) * _UNITS[unit])
    raise ConfigError("E-TOKEN-EXPIRES", "a time such as 30m, 24h or 7d, up to 365d", repr(text))


def _write_token(path: Path, token: "ClaimToken") -> None:
    try:
        descriptor = os.open(
            path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, stat.S_IRUSR | stat.S_IWUSR
        )
    except OSError as error:
        raise ConfigError(
            "E-TOKEN-FILE", f"a new file {path}", error.strerror or str(error)
        ) from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token.to_text() + "\n")


def _show_new(options: argparse.Namespace, token: "ClaimToken", claim: "Claim") -> None:
    if options.json:
        facts = _facts(claim)
        facts["gateways"] = list(token.gateways)
        facts["token"] = None if options.out is not None else token.to_text()
        facts["file"] = None if options.out is None else str(options.out)
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    if options.out is None:
        # Alone on stdout, so that a script can keep it.
        sys.stdout.write(token.to_text() + "\n")
    lines = [
        f"token {claim.claim} for {claim.uses} boards, valid until {_date(claim.expires_s)}",
        f"boards connect to {', '.join(token.gateways)}",
    ]
    lines += [] if options.out is None else [f"written to {options.out}: it is a secret"]
    sys.stderr.write("\n".join(lines) + "\n")


def _facts(claim: "Claim") -> dict[str, object]:
    return {
        "claim": claim.claim,
        "uses": claim.uses,
        "expires": _date(claim.expires_s),
        "expires_s": claim.expires_s,
        "preauthorised": claim.is_preauthorised,
        "fingerprints": list(claim.fingerprints),
    }


def _state(claim: "Claim") -> str:
    if claim.is_revoked:
        return "revoked"
    return "expired" if claim.expires_s <= time.time() else "valid"


def _date(time_s: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(time_s))
