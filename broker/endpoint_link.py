"""The gateway's link to its devices by its own MQTT endpoint, on threads of this process."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from broker.config import Listening
from broker.endpoint_notices import EndpointNotices, Notice
from broker.endpoint_transport import EndpointTransport, require_endpoint
from broker.events import Json
from broker.open_files import allow_connections
from broker.tls_folder import TlsFolder
from edgefl import _native
from edgefl._native import UploadStage
from edgefl.errors import TransportError
from edgefl.types import FleetName

_LOGGER = logging.getLogger(__name__)
_LOOPBACK: Final = "127.0.0.1"
_ADMINISTRATIVE_ACTION: Final = 0x98
"""MQTT 5.0, section 3.14.2.1."""


class EndpointLink:
    """A `GatewayLink` over the endpoint in this process; it dies with the gateway.

    Nothing of it outlives the process: after a restart devices find no session and no retained
    message, and both sides say again what they want known. A PUBACK is a durable receipt all the
    same, for it waits for the gateway's commit.

    Args:
        fleet: Whose gateway this is.
        listening: Where it listens.
        topics: What the gateway wants to hear, asked for before the first device can connect.
        stage: Where chunks of uploads go, without passing through Python.
        tls: Certificates; None where it listens without TLS only.
        max_connections: Most clients at a time.
        known_count: How many devices are known, which want room.
    """

    def __init__(
        self,
        *,
        fleet: FleetName,
        listening: Listening,
        topics: Sequence[str],
        stage: UploadStage,
        tls: TlsFolder | None,
        max_connections: int,
        known_count: int = 0,
    ) -> None:
        """Prepare; nothing listens before `start`.

        Raises:
            EnvironmentProblem: E-NO-ENDPOINT, this build has none; E-OPEN-FILES.
            ConfigError: The certificates cannot be used.
        """
        require_endpoint()
        self._listening = listening
        room = allow_connections(max_connections)
        if room < max_connections:
            _LOGGER.warning(
                "room for %s clients instead of %s%s: raise the limit on open files (ulimit -n, or "
                "LimitNOFILE of the service)",
                room,
                max_connections,
                f", and {known_count} devices are known" if known_count > room else "",
            )
        server = None if tls is None else tls.server_file.read_bytes()
        self._endpoint = _native.MqttEndpoint(
            fleet,
            mqtt=_address(_LOOPBACK, listening.mqtt_port),
            mqtts=_address(listening.mqtts_host, listening.mqtts_port),
            ws=_address(_LOOPBACK, listening.ws_port),
            wss=_address(listening.wss_host, listening.wss_port),
            client_authorities=None if tls is None else tls.trusted_file.read_bytes(),
            certificate_chain=server,
            private_key=server,
            stage=stage,
            max_connections=room,
            max_sessions=2 * max_connections,
        )
        self._endpoint.subscribe(topics)
        self._notices = EndpointNotices()
        self._transport = EndpointTransport(self._endpoint, self._notices.take)
        self._ports: dict[str, int] = {}
        self._closed = asyncio.Event()

    @property
    def kind(self) -> str:
        """One word for the status page."""
        return "endpoint"

    @property
    def transport(self) -> EndpointTransport:
        """Carries the messages."""
        return self._transport

    @property
    def streams(self) -> EndpointTransport:
        """Cuts the chunks of downloads."""
        return self._transport

    @property
    def addresses(self) -> tuple[str, ...]:
        """URLs by which devices reach it."""
        hosts = {
            "mqtt": (_LOOPBACK, ""),
            "mqtts": (self._listening.mqtts_host, ""),
            "ws": (_LOOPBACK, "/mqtt"),
            "wss": (self._listening.wss_host, "/mqtt"),
        }
        return tuple(
            f"{scheme}://{host}:{self._ports[scheme]}{path}"
            for scheme, (host, path) in hosts.items()
            if scheme in self._ports
        )

    def counters(self) -> Mapping[str, int]:
        """Return counts for the status page."""
        return self._endpoint.stats()

    async def start(self) -> None:
        """Listen.

        Raises:
            EnvironmentProblem: E-PORT-IN-USE, E-PORT-FORBIDDEN or E-LISTEN-ADDRESS.
        """
        self._ports = self._endpoint.start()
        if not self._ports:
            raise TransportError("E-NO-LISTENER", "one port to listen on", "none", "open one")

    async def supervise(self) -> None:
        """Return after `close`: the endpoint lives as long as this process."""
        await self._closed.wait()

    def notices(self) -> AsyncIterator[Notice]:
        """Yield what is no message, until `close`: uploads that moved, troubles to report."""
        return self._notices.read()

    async def close(self) -> None:
        """Say goodbye to the devices, and end every thread."""
        self._closed.set()
        self._notices.close()
        await asyncio.to_thread(self._endpoint.close)

    def describe(self) -> dict[str, Json]:
        """Return where it listens, for scripts on this machine.

        `host` and `port` are of the plaintext listener where there is one.
        """
        first = min(self._ports, key=("mqtt", "mqtts", "ws", "wss").index)
        ports: dict[str, Json] = {f"{name}_port": port for name, port in self._ports.items()}
        return {"host": _LOOPBACK, "port": self._ports[first], **ports}

    # ------------------------------------------------------------ identity

    def set_revoked(self, serials: Sequence[str], identities: Sequence[str]) -> None:
        """Refuse these from now on, and cut off those that are there."""
        self._endpoint.set_revoked(serials, identities)

    def disconnect(self, identity: str, reason: str) -> None:
        """Cut off a client by the name in its certificate.

        Args:
            identity: The name.
            reason: For this side's log; the client hears an administrative action.
        """
        count = self._endpoint.disconnect(identity, _ADMINISTRATIVE_ACTION)
        _LOGGER.info("device=%s cut off (%s connections): %s", identity, count, reason)

    def set_certificates(self, chain: bytes, key: bytes, authorities: bytes) -> None:
        """Show another certificate from the next connection on.

        Raises:
            ConfigError: They cannot be used; the present ones stay.
        """
        self._endpoint.set_tls(authorities, chain, key)


def _address(host: str, port: int | None) -> str | None:
    if port is None:
        return None
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
