"""`edgefl agent enrol`: get this device into a fleet, with a token from its operator."""

import argparse
import asyncio
import json
import secrets
import shlex
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.agent import clock
from edgefl.agent.gateway_pin import pin_gateway
from edgefl.cli.options import add_common, add_json, default_state_dir
from edgefl.cli.signals import run_until_signal
from edgefl.errors import ConfigError

if TYPE_CHECKING:
    from edgefl.agent.enrol import Applicant
    from edgefl.agent.enrolled import Enrolled, TlsFiles
    from edgefl.protocol.claim_token import ClaimToken
    from edgefl.protocol.identity import DeviceIdentity
    from edgefl.types import DeviceId

_MAX_TOKEN_BYTES = 32 * 1024


def add_enrol(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command."""
    enrol = commands.add_parser(
        "enrol",
        help="get this device into a fleet",
        description="Make this device's keys, show their fingerprint, and ask the gateway to let "
        "the device in. Interrupted or cut off, it goes on where it was when it is run again; "
        "exit code 0: accepted, 3: rejected, 5: no gateway, or no decision within --wait-s.",
    )
    enrol.add_argument("--device", help="this board's name in the fleet (default: its host name)")
    enrol.add_argument(
        "--token",
        help="file with the token, or - to read it from stdin; the token itself works too, but "
        "other users of this machine can then see it in the list of processes",
    )
    enrol.add_argument(
        "--gateway",
        help="HOST or URL of the gateway, several with commas between (default: as the token says)",
    )
    enrol.add_argument("--state", type=Path, help="the agent's folder")
    enrol.add_argument("--wait-s", type=float, help="give up without an answer after this time")
    enrol.add_argument(
        "--key-only",
        action="store_true",
        help="make the key and show its fingerprint, which an operator can accept beforehand "
        "(edgefl gateway token new --fingerprint), and do nothing else",
    )
    add_json(enrol)
    add_common(enrol)
    enrol.set_defaults(run=run_enrol)


def run_enrol(options: argparse.Namespace) -> int:
    """Enrol, or only make the key."""
    from edgefl.agent.enrolled import TlsFiles, read_enrolled
    from edgefl.agent.identity import load_identity
    from edgefl.agent.recovery import keep_copy, open_state
    from edgefl.cli.agent_run import STATE_FILE

    if options.wait_s is not None and not options.wait_s > 0:
        raise ConfigError("E-WAIT", "a time to wait above 0 s", str(options.wait_s))
    state_dir = options.state or default_state_dir("agent")
    known = read_enrolled(state_dir)
    device = _device(options.device or (None if known is None else known.device))
    path = state_dir / STATE_FILE
    store = open_state(path, wall_clock_s=time.time())
    try:
        identity = load_identity(store, device)
        keep_copy(path, store)  # The gateway knows this identity from now on.
        if options.key_only:
            _show(options, _facts(identity), [_key_line(identity)])
            return 0
        files = TlsFiles(state_dir=state_dir)
        token = _token(options.token, files)
        applicant = _applicant(options.gateway, identity, token, files)
        pin_gateway(store, token.gateway_key)
        keep_copy(path, store)
        return _enrol(options, applicant)
    finally:
        store.close()


def _enrol(options: argparse.Namespace, applicant: "Applicant") -> int:
    from edgefl.agent.enrol import begin

    begin(applicant)

    def say(line: str) -> None:
        if options.json:
            sys.stderr.write(line + "\n")
        else:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    for line in _opening(applicant):
        say(line)
    enrolled: list[Enrolled] = []
    code = asyncio.run(run_until_signal(_run(options, applicant, say, enrolled)))
    if not enrolled:
        return code
    state = shlex.quote(str(applicant.files.state_dir))
    lines = [
        f"accepted: {applicant.device} belongs to fleet {applicant.token.fleet}",
        f"next: edgefl agent run --state {state} --data ...",
    ]
    facts = {
        **_facts(applicant.identity),
        "state": "accepted",
        "fleet": applicant.token.fleet,
        "gateways": list(enrolled[0].gateways),
        "state_dir": str(applicant.files.state_dir),
    }
    _show(options, facts, lines)
    return 0


async def _run(
    options: argparse.Namespace,
    applicant: "Applicant",
    say: Callable[[str], None],
    enrolled: "list[Enrolled]",
) -> None:
    from edgefl.agent.enrol import Enrolment
    from edgefl.transport.broker_url import parse_broker_urls
    from edgefl.transport.mqtt import MqttTransport
    from edgefl.transport.settings import MqttSettings

    token = applicant.token
    await clock.wait_until_set(time.time, lambda: None)
    if token.expires_s <= time.time():
        raise ConfigError(
            "E-TOKEN-EXPIRED",
            "a token that is valid",
            f"one that ended at {_date(token.expires_s)}; the clock here says "
            f"{_date(int(time.time()))}",
            "have a new one made: edgefl gateway token new",
        )
    settings = MqttSettings(
        brokers=parse_broker_urls(",".join(applicant.gateways)),
        # Several boards may use one token at a time.
        client_id=f"edgefl-{token.fleet}-{token.claim}-{secrets.token_hex(4)}",
        tls=applicant.files.claim_settings,
        clean_start=True,
        session_expiry_s=0,
    )
    enrolment = Enrolment(applicant, say=say, wait_s=options.wait_s)
    enrolled.append(await enrolment.run(MqttTransport(settings)))


def _applicant(
    gateway: str | None, identity: "DeviceIdentity", token: "ClaimToken", files: "TlsFiles"
) -> "Applicant":
    from edgefl.agent.enrol import Applicant
    from edgefl.transport.broker_url import parse_broker_urls

    if gateway is not None:
        parts = [part.strip() for part in gateway.split(",") if part.strip()]
        urls = [part if "://" in part else f"mqtts://{part}" for part in parts]
    else:
        urls = list(token.gateways)
    addresses = parse_broker_urls(",".join(urls))
    if not addresses[0].scheme.has_tls:
        raise ConfigError(
            "E-ENROL-PLAINTEXT",
            "a gateway with TLS (mqtts:// or wss://)",
            str(addresses[0]),
            "a token is a secret, and is never shown without TLS",
        )
    return Applicant(
        identity=identity,
        token=token,
        gateways=tuple(str(address) for address in addresses),
        files=files,
    )


def _device(named: str | None) -> "DeviceId":
    from edgefl.protocol.topics import parse_device_id

    if named is not None:
        return parse_device_id(named)
    try:
        return parse_device_id(socket.gethostname().partition(".")[0].lower())
    except ConfigError as error:
        raise ConfigError(
            error.code, error.expected, f"the host name {error.found}", "name it with --device"
        ) from None


def _token(named: str | None, files: "TlsFiles") -> "ClaimToken":
    """Return the token of the command line, or of an enrolment that was begun."""
    from edgefl.agent.enrol import stored_token
    from edgefl.protocol.claim_token import HEAD, ClaimToken
    from edgefl.storage.files import read_file

    if named is None:
        begun = stored_token(files)
        if begun is None:
            raise ConfigError(
                "E-TOKEN",
                "--token with a file that 'edgefl gateway token new' wrote",
                "none",
                "ask the operator of the gateway for one",
            )
        return begun
    if named == "-":
        return ClaimToken.from_text(sys.stdin.read(_MAX_TOKEN_BYTES))
    if named.startswith(HEAD):
        return ClaimToken.from_text(named)
    try:
        text = read_file(Path(named), _MAX_TOKEN_BYTES).decode(errors="replace")
    except OSError as error:
        raise ConfigError(
            "E-TOKEN", "a file with a token", f"{error.strerror} ({named[:120]})"
        ) from error
    return ClaimToken.from_text(text)


def _opening(applicant: "Applicant") -> list[str]:
    from edgefl.protocol.roster_epoch import fingerprint

    token = applicant.token
    signer = token.enrolment_key
    return [
        _key_line(applicant.identity),
        f"gateway of fleet {token.fleet}  key {fingerprint(token.gateway_key)}",
        "roster signed by the gateway itself: honest-but-curious gateway only"
        if signer is None
        else f"roster signed with key {fingerprint(signer)}, away from the gateway",
        f"asking {', '.join(applicant.gateways)} to let this device in (token {token.claim})",
    ]


def _key_line(identity: "DeviceIdentity") -> str:
    from edgefl.protocol.roster_epoch import fingerprint

    return f"device {identity.device}  key {fingerprint(identity.signing_key.public_key)}"


def _facts(identity: "DeviceIdentity") -> dict[str, object]:
    from edgefl.protocol.roster_epoch import fingerprint

    key = identity.signing_key.public_key
    return {
        "device": identity.device,
        "identity_key": key.hex(),
        "fingerprint": fingerprint(key),
    }


def _show(options: argparse.Namespace, facts: dict[str, object], lines: list[str]) -> None:
    sys.stdout.write((json.dumps(facts) if options.json else "\n".join(lines)) + "\n")


def _date(time_s: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(time_s))
