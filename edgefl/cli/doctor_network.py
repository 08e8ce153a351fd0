"""The network part of `edgefl doctor`: which ways to a gateway are open, and which are blocked.

Hospitals, hotels and mobile networks let little but HTTPS out. Each way is tried by itself: names,
TCP, TLS, and for WebSocket the upgrade.
"""

import base64
import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

from edgefl.agent.enrolled import Enrolled, read_enrolled
from edgefl.cli.doctor_checks import Check, Status
from edgefl.errors import ConfigError
from edgefl.transport.broker_url import BrokerAddress, BrokerScheme, parse_broker_urls
from edgefl.transport.tls import TlsProblem, failure_of

_PATIENCE_S = 5.0
_WSS_PORTS = (8443, 443)
_MAX_ANSWER_BYTES = 4096


def network_checks(gateway: str | None, state_dir: Path) -> Iterator[Check]:
    """Try every way to a gateway.

    Args:
        gateway: HOST or URLs; None takes those of the enrolment, if there is one.
        state_dir: The agent's folder, for the certificates of an enrolled device.

    Raises:
        ConfigError: `gateway` is malformed.
    """
    enrolled = _enrolled(state_dir)
    if gateway is None and enrolled is None:
        return
    addresses = _ways(gateway or ",".join(enrolled.gateways if enrolled else ()))
    checks = [
        check_way(address, _context(enrolled, address), is_enrolled=enrolled is not None)
        for address in addresses
    ]
    yield from checks
    is_open = any(check.status is Status.OK for check in checks)
    if not is_open:
        yield Check(
            name="gateway",
            status=Status.WRONG,
            found="no way to it is open",
            advice="check its address, that it runs, and what the firewalls between let through",
        )
    elif addresses[0].scheme is BrokerScheme.MQTTS and checks[0].status is not Status.OK:
        working = next(
            str(address)
            for address, check in zip(addresses, checks, strict=True)
            if check.status is Status.OK
        )
        yield Check(
            name="gateway",
            status=Status.NOTE,
            found=f"reachable at {working} only",
            advice=f"use it: --gateway {working}",
        )


def check_way(
    address: BrokerAddress, context: ssl.SSLContext | None, *, is_enrolled: bool
) -> Check:
    """Try one way.

    Args:
        address: Where to connect to.
        context: For TLS; None for a plaintext address on this machine.
        is_enrolled: The context trusts the gateway's own authority.
    """
    name = f"gateway {address}"
    try:
        found = _try(address, context)
    except TimeoutError:
        return _blocked(name, f"no answer within {_PATIENCE_S:g} s: a firewall drops it, or the "
                        "host is off")  # fmt: skip
    except ConnectionRefusedError:
        return _blocked(name, "refused: nothing listens there, or a firewall says no")
    except socket.gaierror:
        return _blocked(name, f"no address is known for the name {address.host}")
    except OSError as error:
        return _of_error(name, error, address, is_enrolled=is_enrolled)
    return Check(name=name, status=Status.OK, found=found)


def _try(address: BrokerAddress, context: ssl.SSLContext | None) -> str:
    with contextlib.ExitStack() as stack:
        link = stack.enter_context(
            socket.create_connection((address.host, address.port), _PATIENCE_S)
        )
        link.settimeout(_PATIENCE_S)
        if context is not None:
            link = stack.enter_context(context.wrap_socket(link, server_hostname=address.host))
        if address.scheme.is_websocket:
            _upgrade(link, address)
            return "open: TLS and WebSocket" if context is not None else "open: WebSocket"
        return "open: TLS" if context is not None else "open"


def _upgrade(link: socket.socket, address: BrokerAddress) -> None:
    """Ask for a WebSocket. Source: RFC 6455, section 4.1."""
    key = base64.b64encode(os.urandom(16)).decode()
    link.sendall(
        f"GET {address.path} HTTP/1.1\r\nHost: {address.host_and_port}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Protocol: mqtt\r\n\r\n".encode()
    )
    answer = link.recv(_MAX_ANSWER_BYTES).split(b"\r\n", 1)[0]
    if b" 101 " not in answer + b" ":
        shown = answer[:60].decode(errors="replace")
        raise _NotOursError(f"something else answers there ({shown!r}): a proxy, or another server")


def _of_error(name: str, error: OSError, address: BrokerAddress, *, is_enrolled: bool) -> Check:
    failure = failure_of(error, host=address.host)
    if failure is None:
        return _blocked(name, str(error) or type(error).__name__)
    is_stranger = failure.problem is TlsProblem.CHAIN and not is_enrolled
    if failure.problem is TlsProblem.REFUSED_BY_PEER or is_stranger:
        # It is reached, which is the question here; enrolment is another one.
        found = f"open: TLS; {failure.detail}"
        return Check(name=name, status=Status.OK, found=found, advice=failure.advice)
    return Check(name=name, status=Status.WRONG, found=failure.detail, advice=failure.advice)


def _blocked(name: str, found: str) -> Check:
    return Check(name=name, status=Status.NOTE, found=f"blocked: {found}")


def _ways(gateway: str) -> tuple[BrokerAddress, ...]:
    """Return the addresses of URLs; of a bare host, those that a gateway usually has."""
    parts = [part.strip() for part in gateway.split(",") if part.strip()]
    urls = []
    for part in parts:
        if "://" in part or part.rpartition(":")[2].isdecimal():
            urls.append(part if "://" in part else f"mqtts://{part}")
        else:
            urls += [f"mqtts://{part}", *(f"wss://{part}:{port}/mqtt" for port in _WSS_PORTS)]
    return parse_broker_urls(",".join(urls))


def _context(enrolled: Enrolled | None, address: BrokerAddress) -> ssl.SSLContext | None:
    """Return the context of an enrolled device; another one can only trust the system's."""
    if not address.scheme.has_tls:
        return None
    return ssl.create_default_context() if enrolled is None else enrolled.tls.context()


def _enrolled(state_dir: Path) -> Enrolled | None:
    try:
        return read_enrolled(state_dir)
    except ConfigError:
        return None


class _NotOursError(OSError):
    """What answers is no gateway."""
