"""Real brokers on loopback, as `edgefl gateway config` sets them up, for one suite over all."""

import asyncio
import contextlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgefl._native import MqttEndpoint
from edgefl.cli.main import main
from edgefl.transport.broker_url import BrokerAddress, BrokerScheme
from tests.integration.real import begin_child, free_port

_START_S = 30.0


@dataclass
class Node:
    """One broker process."""

    words: list[str]
    address: BrokerAddress
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / f"{self.address.port}.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                preexec_fn=begin_child,
            )

    def wait_listening(self) -> None:
        deadline_s = time.monotonic() + _START_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(OSError):
                socket.create_connection((self.address.host, self.address.port), 0.5).close()
                return
            assert self.process is not None
            assert self.process.poll() is None, self.log
            time.sleep(0.05)
        raise AssertionError(f"{self.words[0]} does not listen: {self.log}")

    @property
    def log(self) -> str:
        return (self.folder / f"{self.address.port}.log").read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.kill()


@dataclass
class Brokers:
    """One broker, or the nodes of a cluster."""

    nodes: list[Node] = field(default_factory=list)
    endpoint: MqttEndpoint | None = None
    """The gateway's own, in this process: then the gateway's side is no client of a broker."""
    endpoint_port: int = 0

    @property
    def addresses(self) -> tuple[BrokerAddress, ...]:
        if self.endpoint is not None:
            return (_plain(self.endpoint_port),)
        return tuple(node.address for node in self.nodes)

    @property
    def urls(self) -> str:
        return ",".join(map(str, self.addresses))

    def node_at(self, port: int) -> Node:
        return next(node for node in self.nodes if node.address.port == port)


@contextlib.contextmanager
def running(nodes: Sequence[Node]) -> Iterator[Brokers]:
    """Run brokers; all are gone afterwards."""
    try:
        for node in nodes:
            node.start()
        for node in nodes:
            node.wait_listening()
        yield Brokers(list(nodes))
    finally:
        for node in nodes:
            node.stop()


def write_config(*words: object) -> None:
    assert main(["gateway", "config", *map(str, words)]) == 0


def free_ports(count: int) -> int:
    """Return the first of so many free ports that follow each other."""
    for _ in range(200):
        first = random.randrange(20_000, 30_000)  # below what the system gives to clients
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError(f"no {count} free ports in a row")


def _plain(port: int) -> BrokerAddress:
    return BrokerAddress(host="127.0.0.1", port=port)


@contextlib.contextmanager
def mosquitto(
    folder: Path, *, state: Path | None = None, extra: str = "", websocket: bool = False
) -> Iterator[Brokers]:
    """Run mosquitto with our configuration: for a trial, or with the TLS of a gateway's folder."""
    port = free_port()
    words: list[object] = ["--out", folder, "--port", port, "--fleet", "test"]
    words += ["--trial"] if state is None else ["--state", state, "--host", "127.0.0.1"]
    if websocket:
        websocket_port = free_port()
        words += ["--websocket-port", websocket_port]
    write_config("mosquitto", *words)
    scheme = BrokerScheme.MQTT if state is None else BrokerScheme.MQTTS
    address = BrokerAddress(scheme=scheme, host="127.0.0.1", port=port)
    if websocket:
        scheme = BrokerScheme.WS if state is None else BrokerScheme.WSS
        address = BrokerAddress(scheme=scheme, host="127.0.0.1", port=websocket_port)
    with (folder / "mosquitto.conf").open("a") as config:
        # As root it would become another user, who cannot write to a test's folder.
        config.write(f"user root\nlog_dest stdout\n{extra}\n")
    executable = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    with running(
        [Node([executable, "-c", str(folder / "mosquitto.conf")], address, folder)]
    ) as all_:
        yield all_


@contextlib.contextmanager
def stock_mosquitto(folder: Path, extra: str = "") -> Iterator[Brokers]:
    """Run mosquitto with its own defaults."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", "user root", extra]
    (folder / "stock.conf").write_text("\n".join(lines) + "\n")
    executable = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    node = Node([executable, "-c", str(folder / "stock.conf")], _plain(port), folder)
    with running([node]) as all_:
        yield all_


@contextlib.contextmanager
def nats(
    folder: Path, count: int, *, state: Path | None = None, devices: Sequence[str] = ()
) -> Iterator[Brokers]:
    """Run NATS: one node, or a cluster of three."""
    folder.mkdir(parents=True, exist_ok=True)
    first = free_ports(3 * count)
    words: list[object] = ["--out", folder, "--fleet", "test"]
    words += ["--port", first, "--cluster-port", first + count]
    words += ["--client-port", first + 2 * count]
    for _ in range(count):
        words += ["--node", "127.0.0.1"]
    if state is None:
        words.append("--trial")
    else:
        (folder / "names.txt").write_text("\n".join(devices) + "\n")
        words += ["--state", state, "--devices", folder / "names.txt"]
    write_config("nats", *words)
    scheme = BrokerScheme.MQTT if state is None else BrokerScheme.MQTTS
    executable = str(Path(sys.executable).with_name("nats-server"))
    nodes = [
        Node(
            [executable, "-c", str(folder / f"nats-{index + 1}.conf")],
            BrokerAddress(scheme=scheme, host="127.0.0.1", port=first + index),
            folder,
        )
        for index in range(count)
    ]
    with running(nodes) as all_:
        yield all_


_ROUTER = """
id = 0
[router]
id = 0
max_connections = 20000
max_outgoing_packet_count = 200
max_segment_size = 104857600
max_segment_count = 10
[v4.1]
name = "v4"
listen = "127.0.0.1:{port}"
next_connection_delay_ms = 0
[v4.1.connections]
connection_timeout_ms = 60000
max_payload_size = 16777216
max_inflight_count = 100
dynamic_filters = true
"""


@contextlib.contextmanager
def iotcore(folder: Path) -> Iterator[Brokers]:
    """Run iotcore, which is rumqttd: MQTT 3.1.1, nothing on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    (folder / "router.toml").write_text(_ROUTER.format(port=port))
    script = (
        "from iotcore.iotcore import IotCoreBroker\n"
        f"IotCoreBroker(config_path={str(folder / 'router.toml')!r}).run_forever()\n"
    )
    with running([Node([sys.executable, "-c", script], _plain(port), folder)]) as all_:
        yield all_


_AMQTT = """
listeners:
  default:
    type: tcp
    bind: 127.0.0.1:{port}
    max_connections: 0
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""


@contextlib.contextmanager
def amqtt(folder: Path) -> Iterator[Brokers]:
    """Run amqtt as it comes: MQTT 3.1.1, and no sessions."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    (folder / "amqtt.yaml").write_text(_AMQTT.format(port=port))
    words = [str(Path(sys.executable).with_name("amqtt")), "-c", str(folder / "amqtt.yaml")]
    with running([Node(words, _plain(port), folder)]) as all_:
        yield all_


@contextlib.contextmanager
def endpoint(_folder: Path) -> Iterator[Brokers]:
    """Run the gateway's own endpoint, without a gateway behind it."""
    made = MqttEndpoint("test", mqtt="127.0.0.1:0")
    try:
        yield Brokers(endpoint=made, endpoint_port=made.start()["mqtt"])
    finally:
        made.close()


STARTERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Brokers]]] = {
    "endpoint": endpoint,
    "mosquitto": mosquitto,
    "mosquitto-ws": lambda folder: mosquitto(folder, websocket=True),
    "nats-1": lambda folder: nats(folder, 1),
    "nats-3": lambda folder: nats(folder, 3),
    "iotcore": iotcore,
    "amqtt": amqtt,
}


async def until(
    holds: Callable[[], object], what: str = "what is awaited", within_s: float = 30.0
) -> None:
    """Wait for a condition."""
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, f"{what} did not happen within {within_s} s"
        await asyncio.sleep(0.01)
