"""`edgefl gateway config`: write the configuration of a broker that is not the gateway's own."""

import argparse
import datetime
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.cli.options import DEFAULT_FLEET, HelpFormatter, add_common, add_json, default_state_dir
from edgefl.errors import ConfigError, EnvironmentProblem
from edgefl.protocol import topics
from edgefl.transport.broker_url import is_loopback, require_port

if TYPE_CHECKING:
    from broker.broker_config import BrokerFiles, FleetNames, Listener, NatsNode

_MQTT_PORT = 8883
_TRIAL_PORT = 1883
_CLUSTER_PORT = 6222
_CLIENT_PORT = 4222


def add_config(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command."""
    config = commands.add_parser(
        "config",
        help="write the configuration of another broker",
        description="Write configuration, access list and certificates for a broker that the "
        "gateway then uses with 'edgefl gateway run --broker URL'.",
    )
    kinds = config.add_subparsers(metavar="BROKER", required=True)
    mosquitto = kinds.add_parser("mosquitto", help="one mosquitto, 2.0.11 or newer")
    _add_shared(mosquitto)
    mosquitto.add_argument(
        "--host",
        action="append",
        default=[],
        help="name or address that devices reach it by, for its certificate; may be repeated",
    )
    mosquitto.set_defaults(run=write_mosquitto)
    nats = kinds.add_parser(
        "nats", help="a NATS server with MQTT, 2.12 or newer, or a cluster of them"
    )
    _add_shared(nats)
    nats.add_argument(
        "--node",
        action="append",
        default=[],
        metavar="HOST",
        help="name or address that devices and the other nodes reach a node by; once, or three "
        "or five times; a host that is repeated gets the next port of each kind",
    )
    nats.add_argument(
        "--devices",
        type=Path,
        help="file with the names of devices, one a line, that are not enrolled yet: NATS lets "
        "only those in that its configuration names",
    )
    nats.add_argument(
        "--shard",
        action="append",
        default=[],
        metavar="FLEET=STATE",
        help="another fleet on the same nodes, with its gateway's folder; its authority must be "
        "the same (docs/operations.md); may be repeated",
    )
    nats.add_argument("--cluster-port", type=int, default=_CLUSTER_PORT, help="among the nodes")
    nats.add_argument(
        "--client-port", type=int, default=_CLIENT_PORT, help="NATS' own protocol, on loopback"
    )
    nats.set_defaults(run=write_nats)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = HelpFormatter
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--state", type=Path, help="the gateway's folder, with its authority")
    parser.add_argument("--fleet", default=DEFAULT_FLEET, help="the fleet's name")
    parser.add_argument(
        "--trial",
        action="store_true",
        help="no TLS, no access list, on this machine only: to try things",
    )
    parser.add_argument(
        "--port", type=int, help=f"for MQTT; {_MQTT_PORT} or, in a trial, {_TRIAL_PORT}"
    )
    parser.add_argument("--websocket-port", type=int, help="for MQTT in WebSockets, under /mqtt")
    add_json(parser)
    add_common(parser)


def write_mosquitto(options: argparse.Namespace) -> int:
    """Write what mosquitto needs."""
    from broker.broker_config import mosquitto_acl, mosquitto_config

    fleet = topics.parse_fleet(options.fleet)
    hosts = _hosts(options.host, is_trial=options.trial)
    out = _make_folder(options.out)
    files = None if options.trial else _write_certificates(options, out, hosts, "mosquitto")
    acl = None if options.trial else out / "mosquitto.acl"
    if acl is not None:
        _write(acl, mosquitto_acl(fleet))
    listener = _listener(options, "127.0.0.1" if options.trial else "", 0)
    data = _make_folder(out / "data")
    text = mosquitto_config(fleet, listener, data, files=files, acl_file=acl)
    _write(out / "mosquitto.conf", text)
    urls = _urls(options, hosts[:1], [listener])
    _say(options, urls, [f"mosquitto -c {out / 'mosquitto.conf'}"])
    return 0


def write_nats(options: argparse.Namespace) -> int:
    """Write what each NATS node needs."""
    from broker.broker_config import nats_config, nats_users

    fleet = topics.parse_fleet(options.fleet)
    hosts = _hosts(options.node, is_trial=options.trial)
    out = _make_folder(options.out)
    nodes = _nodes(options, hosts)
    users = None if options.trial else "users.conf"
    commands = []
    for index, node in enumerate(nodes):
        files = None
        if not options.trial:
            files = _write_certificates(options, out, [node.cluster_host], node.name, is_node=True)
        data = _make_folder(out / f"{node.name}-data")
        text = nats_config(fleet, nodes, index, data, files=files, users_file=users)
        _write(out / f"{node.name}.conf", text)
        commands.append(f"nats-server -c {out / f'{node.name}.conf'}")
    if users is not None:
        _write(out / users, nats_users(_fleets(options)))
    _say(options, _urls(options, hosts, [node.listener for node in nodes]), commands)
    return 0


def _nodes(options: argparse.Namespace, hosts: Sequence[str]) -> "list[NatsNode]":
    from broker.broker_config import NatsNode

    nodes = []
    for index, host in enumerate(hosts):
        nth = hosts[:index].count(host)
        # Devices come from other machines, the nodes' own links from where they are told.
        bind = "127.0.0.1" if options.trial else ""
        nodes.append(
            NatsNode(
                name=f"nats-{index + 1}",
                listener=_listener(options, bind, nth),
                cluster_host=host,
                cluster_port=_port(options.cluster_port + nth),
                client_port=_port(options.client_port + nth),
            )
        )
    return nodes


def _listener(options: argparse.Namespace, bind: str, nth: int) -> "Listener":
    from broker.broker_config import Listener

    port = options.port or (_TRIAL_PORT if options.trial else _MQTT_PORT)
    websocket = options.websocket_port
    return Listener(
        host=bind or "0.0.0.0",  # noqa: S104 - devices are elsewhere; certificates guard it
        mqtt_port=_port(port + nth),
        websocket_port=None if websocket is None else _port(websocket + nth),
    )


def _port(port: int) -> int:
    require_port(port)
    return port


def _hosts(named: Sequence[str], *, is_trial: bool) -> list[str]:
    """Return the hosts that were named.

    Raises:
        ConfigError: E-BROKER-CONFIG: none, where a certificate needs one; or another machine in
            a trial.
    """
    hosts = list(named) or (["127.0.0.1"] if is_trial else [])
    if not hosts:
        raise ConfigError(
            "E-BROKER-CONFIG",
            "the name that devices reach the broker by, for its certificate",
            "none",
            "give --host (mosquitto) or --node (nats); --trial is for this machine alone",
        )
    foreign = [host for host in hosts if is_trial and not is_loopback(host)]
    if foreign:
        raise ConfigError("E-PLAINTEXT-REMOTE", "a trial on this machine", repr(foreign[0][:80]))
    return hosts


def _write_certificates(
    options: argparse.Namespace,
    out: Path,
    hosts: Sequence[str],
    name: str,
    *,
    is_node: bool = False,
) -> "BrokerFiles":
    """Write the broker's own certificate and whom it shall trust."""
    from broker.broker_config import BrokerFiles
    from broker.tls_folder import TlsFolder

    state_dir = options.state or default_state_dir("gateway")
    folder = TlsFolder(state_dir)
    signer = folder.authorities[-1]  # during a rotation some devices know the old one only
    pair = signer.issue_server(hosts, datetime.datetime.now(datetime.UTC), is_node=is_node)
    files = BrokerFiles(
        authorities=out / "trusted.crt",
        certificate=out / f"{name}.crt",
        key=out / f"{name}.key",
        revocations=out / "revoked.crl",
    )
    try:
        _write(files.authorities, folder.trusted_file.read_text())
        _write(files.revocations, folder.revocations_file.read_text())
    except OSError as error:
        raise _unreadable(state_dir, error) from error
    _write(files.certificate, pair.certificate.decode())
    _write(files.key, pair.key.decode(), mode=0o600)
    return files


def _fleets(options: argparse.Namespace) -> "list[FleetNames]":
    """Return whom the nodes let in.

    Raises:
        ConfigError: E-BROKER-CONFIG, a shard is malformed or has another authority.
    """
    from broker.broker_config import FleetNames
    from broker.tls_folder import TlsFolder

    first = options.state or default_state_dir("gateway")
    states = {topics.parse_fleet(options.fleet): first}
    for text in options.shard:
        name, equals, folder = text.partition("=")
        fleet = topics.parse_fleet(name)
        if not equals or not folder or fleet in states:
            raise ConfigError("E-BROKER-CONFIG", "FLEET=STATE, each fleet once", repr(text[:80]))
        states[fleet] = Path(folder)
        if TlsFolder(states[fleet]).trusted != TlsFolder(first).trusted:
            raise ConfigError(
                "E-BROKER-CONFIG",
                "one authority for all fleets on a broker",
                f"another one in {folder}",
                "copy the folder tls of the first gateway before 'edgefl gateway init'",
            )
    announced = _announced(options.devices)
    return [
        FleetNames(
            fleet=fleet,
            devices=sorted({*_enrolled(state), *announced}),
            claims=_claim_names(state),
        )
        for fleet, state in states.items()
    ]


def _announced(path: Path | None) -> list[str]:
    """Return the devices that are to be enrolled.

    Raises:
        ConfigError: E-DEVICES-FILE, it cannot be read; or a name in it is none.
    """
    if path is None:
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        expected = f"names, one a line, in {path}"
        raise ConfigError("E-DEVICES-FILE", expected, str(error)) from error
    return [topics.parse_device_id(line.strip()) for line in lines if line.strip()]


def _enrolled(state_dir: Path) -> Sequence[str]:
    """Return the names of accepted devices from the gateway's state, as far as there is any."""
    from broker.admissions import NAMESPACE
    from broker.enrolments import Admission, read_records
    from edgefl.storage.read_only import read_namespaces

    path = state_dir / "gateway.sqlite"
    if not path.exists():
        return []
    store = read_namespaces(path, (NAMESPACE,))[NAMESPACE]
    records = read_records(store)
    return [record.device for record in records if record.admission is Admission.ACCEPTED]


def _claim_names(state_dir: Path) -> list[str]:
    from broker.claims import read_claims

    return sorted(name for name, claim in read_claims(state_dir).items() if not claim.is_revoked)


def _urls(
    options: argparse.Namespace, hosts: Sequence[str], listeners: "Sequence[Listener]"
) -> list[str]:
    from edgefl.transport.broker_url import BrokerAddress, BrokerScheme

    scheme = BrokerScheme.MQTT if options.trial else BrokerScheme.MQTTS
    return [
        str(BrokerAddress(scheme=scheme, host=host, port=listener.mqtt_port))
        for host, listener in zip(hosts, listeners, strict=True)
    ]


def _say(options: argparse.Namespace, urls: Sequence[str], commands: Sequence[str]) -> None:
    """Tell what was written and what comes next."""
    state = "" if options.state is None else f" --state {options.state}"
    use = f"edgefl gateway run{state} --fleet {options.fleet} --broker {','.join(urls)}"
    if options.json:
        document = {"folder": str(options.out), "commands": list(commands), "brokers": list(urls)}
        sys.stdout.write(json.dumps(document) + "\n")
        return
    lines = [f"written to {options.out}", "start the broker:", *(f"  {line}" for line in commands)]
    sys.stdout.write("\n".join([*lines, "then the gateway:", f"  {use}"]) + "\n")


def _make_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error
    return path.absolute()


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace a file in one step."""
    temporary = path.with_name(f"{path.name}.new")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> EnvironmentProblem:
    found = error.strerror or str(error)
    return EnvironmentProblem("E-OUT-FOLDER", f"{path} to be writable", found, "choose another")


def _unreadable(path: Path, error: OSError) -> EnvironmentProblem:
    found = error.strerror or str(error)
    advice = "'edgefl gateway init' makes one"
    return EnvironmentProblem("E-TLS-FOLDER", f"the gateway's authority in {path}", found, advice)
