"""Configurations for brokers of others: mosquitto, and NATS as one node or a cluster.

Pure text from settings. What each line is for stands beside it, for the operator owns the file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgefl.errors import ConfigError
from edgefl.protocol.topics import PREFIX
from edgefl.types import FleetName

MAX_PACKET_BYTES = 262_144
QUEUE_BYTES_PER_DEVICE = 64 << 20
KEEPALIVE_LIMIT_S = 900
STREAM_REPLICAS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFiles:
    """Where a broker finds its certificates.

    Attributes:
        authorities: PEM with the authorities that sign devices' certificates.
        certificate: PEM with the broker's own certificate.
        key: PEM with its key.
        revocations: PEM with the revocation lists.
    """

    authorities: Path
    certificate: Path
    key: Path
    revocations: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Where a broker listens.

    Attributes:
        host: Address to bind.
        mqtt_port: For MQTT; over TLS where there are certificates.
        websocket_port: For MQTT in WebSockets; None: not at all.
    """

    host: str
    mqtt_port: int
    websocket_port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsNode:
    """One node of a cluster.

    Attributes:
        name: Unique in the cluster.
        listener: Where devices connect.
        cluster_host: Address that the other nodes reach it at.
        cluster_port: Port of the same.
        client_port: NATS' own protocol, on loopback only, for its tools.
    """

    name: str
    listener: Listener
    cluster_host: str
    cluster_port: int
    client_port: int


def mosquitto_config(
    fleet: FleetName,
    listener: Listener,
    data_folder: Path,
    *,
    files: BrokerFiles | None,
    acl_file: Path | None,
) -> str:
    """Return mosquitto's configuration.

    Args:
        fleet: Named in the head of the file.
        listener: Where it listens.
        data_folder: Where it keeps sessions, queues and retained messages.
        files: Certificates; None gives a listener without TLS, on loopback only.
        acl_file: Access list; needed with certificates.

    Raises:
        ConfigError: E-BROKER-CONFIG, certificates without an access list.
    """
    if files is not None and acl_file is None:
        raise ConfigError("E-BROKER-CONFIG", "an access list with certificates", "none")
    lines = [
        f"# mosquitto for the fleet {fleet}, written by 'edgefl gateway config mosquitto'.",
        "# Its defaults lose acknowledged messages; docs/operations.md says what each line is for.",
        "per_listener_settings false",
        *_mosquitto_access(files, acl_file),
        "",
        "# Queues are bounded by bytes. By messages they would drop the 1,001st in silence.",
        "max_queued_messages 0",
        f"max_queued_bytes {QUEUE_BYTES_PER_DEVICE}",
        f"max_packet_size {MAX_PACKET_BYTES}",
        "max_inflight_messages 64",
        f"max_keepalive {KEEPALIVE_LIMIT_S}",
        "persistent_client_expiration 2d",
        "queue_qos0_messages false",
        "set_tcp_nodelay true",
        "",
        "# What was acknowledged survives the broker.",
        "persistence true",
        f"persistence_location {_folder_text(data_folder)}/",
        "autosave_on_changes true",
        "autosave_interval 100",
        "",
        *_mosquitto_listener(listener.host, listener.mqtt_port, files, is_websocket=False),
    ]
    if listener.websocket_port is not None:
        port = listener.websocket_port
        lines += ["", *_mosquitto_listener(listener.host, port, files, is_websocket=True)]
    return "\n".join(lines) + "\n"


def mosquitto_acl(fleet: FleetName) -> str:
    """Return mosquitto's access list: a certificate's name opens the topics with that name."""
    own = f"{PREFIX}/{fleet}"
    return "\n".join(
        [
            f"# Access list of the fleet {fleet}; %u is the name in the client's certificate.",
            "user aggregator",
            f"topic readwrite {own}/#",
            "",
            *(f"pattern write {own}/d/%u/{kind}" for kind in ("st", "q", "kb", "up/#")),
            f"pattern read {own}/d/%u/c",
            *(f"pattern read {own}/{shared}" for shared in ("m/#", "r/+/call", "agg")),
            f"pattern write {own}/enrol/%u/q",
            f"pattern read {own}/enrol/%u/c",
            "",
        ]
    )


def nats_config(
    fleet: FleetName,
    nodes: Sequence[NatsNode],
    index: int,
    data_folder: Path,
    *,
    files: BrokerFiles | None,
    users_file: str | None,
) -> str:
    """Return the configuration of one NATS node.

    Args:
        fleet: Named in the cluster's name.
        nodes: All of them: 1, or an odd number from 3.
        index: Which of them this is for.
        data_folder: Where it keeps streams: sessions, queues and retained messages.
        files: Certificates; None gives listeners without TLS, on loopback only.
        users_file: Name of the included file with users; needed with certificates.

    Raises:
        ConfigError: E-BROKER-CONFIG: an even number of nodes, or no users with certificates.
    """
    if len(nodes) % 2 == 0:
        raise ConfigError(
            "E-BROKER-CONFIG",
            "1 node, or 3 or 5",
            f"{len(nodes)}",
            "a cluster goes on while more than half of its nodes live",
        )
    if files is not None and users_file is None:
        raise ConfigError("E-BROKER-CONFIG", "users with certificates", "none")
    node = nodes[index]
    lines = [
        f"# NATS node {node.name} for the fleet {fleet}, by 'edgefl gateway config nats'.",
        f'server_name: "{node.name}"',
        "# NATS' own protocol, for its tools on this machine.",
        f'listen: "127.0.0.1:{node.client_port}"',
        f"max_payload: {MAX_PACKET_BYTES}",
        "max_connections: 65536",
        f'jetstream {{ store_dir: "{_folder_text(data_folder)}" }}',
        *_nats_cluster(fleet, nodes, index, files),
        "mqtt {",
        f'  listen: "{_host_text(node.listener.host)}:{node.listener.mqtt_port}"',
        # A gateway that was restarted gets after this time what it had not acknowledged.
        '  ack_wait: "5s"',
        "  max_ack_pending: 4096",
        *(["  stream_replicas: 3"] if len(nodes) >= STREAM_REPLICAS else []),
        *_nats_tls(files, needs_client=True),
        "}",
        *_nats_websocket(node, files),
    ]
    if users_file is not None:
        lines.append(f'include "{users_file}"')
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetNames:
    """Whom a broker lets in for one fleet.

    Attributes:
        fleet: The fleet's name.
        devices: Names of devices; those that will be enrolled later may be among them.
        claims: Names of claims that may still be used.
    """

    fleet: FleetName
    devices: Sequence[str] = ()
    claims: Sequence[str] = ()


def nats_users(fleets: Sequence[FleetNames]) -> str:
    """Return the users of a NATS node: each certificate's name with the topics that it opens.

    Args:
        fleets: One, or the shards of a fleet, which have one operator and one authority. Their
            gateways may use each other's topics, their devices may not.
    """
    writes: dict[str, list[str]] = {"aggregator": []}
    reads: dict[str, list[str]] = {"aggregator": []}
    for names in fleets:
        own = _subject(f"{PREFIX}/{names.fleet}")
        writes["aggregator"].append(f"{own}.>")
        reads["aggregator"].append(f"{own}.>")
        shared = [f"{own}.m", f"{own}.m.>", f"{own}.r.*.call", f"{own}.agg"]
        for device in names.devices:
            mine = f"{own}.d.{_subject(device)}"
            kinds = ("st", "q", "kb", "up.>")
            writes.setdefault(device, []).extend(f"{mine}.{kind}" for kind in kinds)
            reads.setdefault(device, []).extend([f"{mine}.c", *shared])
        for claim in names.claims:
            mine = f"{own}.enrol.{_subject(claim)}"
            writes.setdefault(claim, []).append(f"{mine}.q")
            reads.setdefault(claim, []).append(f"{mine}.c")
    users = [_nats_user(name, writes[name], reads[name]) for name in sorted(writes)]
    called = ", ".join(names.fleet for names in fleets)
    return "\n".join(
        [
            f"# Users of {called}; after a change: nats-server --signal reload",
            "accounts {",
            "  EDGEFL {",
            "    jetstream: enabled",
            "    users: [",
            *(f"      {user}" for user in users),
            "    ]",
            "  }",
            "}",
            "",
        ]
    )


def _mosquitto_access(files: BrokerFiles | None, acl_file: Path | None) -> list[str]:
    if files is None:
        return ["# No TLS: for trials on this machine only.", "allow_anonymous true"]
    return ["allow_anonymous false", f"acl_file {_folder_text(acl_file or Path())}"]


def _mosquitto_listener(
    host: str, port: int, files: BrokerFiles | None, *, is_websocket: bool
) -> list[str]:
    lines = [f"listener {port} {host}"]
    if is_websocket:
        lines.append("protocol websockets")
    if files is not None:
        lines += [
            f"cafile {_folder_text(files.authorities)}",
            f"certfile {_folder_text(files.certificate)}",
            f"keyfile {_folder_text(files.key)}",
            f"crlfile {_folder_text(files.revocations)}",
            "tls_version tlsv1.2",
            "require_certificate true",
            "use_identity_as_username true",
        ]
    return lines


def _nats_cluster(
    fleet: FleetName, nodes: Sequence[NatsNode], index: int, files: BrokerFiles | None
) -> list[str]:
    if len(nodes) == 1:
        return []
    routes = ", ".join(
        f'"nats-route://{_host_text(node.cluster_host)}:{node.cluster_port}"'
        for position, node in enumerate(nodes)
        if position != index
    )
    node = nodes[index]
    return [
        "cluster {",
        f'  name: "edgefl-{fleet}"',
        f'  listen: "{_host_text(node.listener.host)}:{node.cluster_port}"',
        f"  routes: [ {routes} ]",
        *_nats_tls(files, needs_client=False),
        "}",
    ]


def _nats_tls(files: BrokerFiles | None, *, needs_client: bool) -> list[str]:
    """Return the TLS block of a listener for devices, or of the links among nodes."""
    if files is None:
        return []
    check = "verify_and_map: true" if needs_client else "verify: true"
    return [
        "  tls {",
        f'    cert_file: "{_folder_text(files.certificate)}"',
        f'    key_file: "{_folder_text(files.key)}"',
        f'    ca_file: "{_folder_text(files.authorities)}"',
        f"    {check}",
        "  }",
    ]


def _nats_websocket(node: NatsNode, files: BrokerFiles | None) -> list[str]:
    if node.listener.websocket_port is None:
        return []
    return [
        "websocket {",
        f'  listen: "{_host_text(node.listener.host)}:{node.listener.websocket_port}"',
        *(_nats_tls(files, needs_client=True) or ["  no_tls: true"]),
        "}",
    ]


def _nats_user(name: str, writes: Sequence[str], reads: Sequence[str]) -> str:
    """Return one user; all must read `$MQTT.sub.>`, by which NATS delivers QoS 1."""
    quoted_writes = ", ".join(f'"{subject}"' for subject in writes)
    quoted_reads = ", ".join(f'"{subject}"' for subject in (*reads, "$MQTT.sub.>"))
    return (
        f'{{ user: "CN={name}", permissions: {{ publish: {{ allow: [{quoted_writes}] }}, '
        f"subscribe: {{ allow: [{quoted_reads}] }} }} }}"
    )


def _subject(topic: str) -> str:
    """Return a topic as NATS names it: its levels end at dots, and a dot becomes two slashes."""
    return topic.replace(".", "//").replace("/", ".").replace("..", "//")


def _host_text(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _folder_text(path: Path) -> str:
    """Return a path that fits on one line of a configuration.

    Raises:
        ConfigError: It has characters that would end a line or a quoted text.
    """
    text = str(path)
    if not text.isprintable() or '"' in text or "\\" in text:
        raise ConfigError("E-BROKER-CONFIG", "a path of plain characters", repr(text[:80]))
    return text
