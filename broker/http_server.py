"""The gateway's HTTP server: uvicorn in the gateway's own loop, each client's cost bounded."""

import asyncio
import contextlib
import ipaddress
import logging
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from broker.http_app import HttpApp
from edgefl.errors import ConfigError, EnvironmentProblem

_LOGGER = logging.getLogger(__name__)
LOOPBACK: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8484
MOST_CONNECTIONS: Final = 64
HEAD_S: Final = 5
"""How long a connection may take for a request's head, or rest between two requests."""
LIFE_S: Final = 60.0
"""How long one may stay in all: a reader that takes nothing ends here."""
_HEAD_BYTES: Final = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Where the status page is served.

    Attributes:
        host: An address of this machine; one that others reach needs a certificate.
        port: 0 picks a free one.
        is_port_fixed: Fail where the port is taken, instead of taking a free one.
        certificate_file: PEM, with the chain.
        key_file: PEM.
        names: Further names that browsers may reach it by.
    """

    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    is_port_fixed: bool = False
    certificate_file: Path | None = None
    key_file: Path | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse to show a fleet to a network without encryption.

        Raises:
            ConfigError: E-HTTP-PLAINTEXT.
        """
        if not self.is_loopback and self.certificate_file is None:
            raise ConfigError(
                "E-HTTP-PLAINTEXT",
                "a status page on loopback, or a certificate for it",
                f"host {self.host} without one",
                "use 127.0.0.1 and a tunnel (ssh -L), or 'edgefl gateway init'",
            )

    @property
    def is_loopback(self) -> bool:
        """Tell whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def scheme(self) -> str:
        """The first word of its addresses."""
        return "http" if self.certificate_file is None else "https"

    @property
    def hosts(self) -> frozenset[str]:
        """Names that a request may be for."""
        ours = {"localhost", "127.0.0.1", "::1"} if self.is_loopback else set()
        return frozenset(name.lower() for name in {self.host, *self.names, *ours})


class _BoundedProtocol(H11Protocol):
    """One connection that cannot stay for ever, whatever it does or does not send."""

    _began_s = 0.0
    _head_ends: asyncio.TimerHandle | None = None
    _life_ends: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        if len(self.connections) >= MOST_CONNECTIONS and not self._make_room():
            transport.abort()
            return
        super().connection_made(transport)
        self._began_s = self.loop.time()
        self._life_ends = self.loop.call_later(LIFE_S, transport.abort)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_ends, self._life_ends):
            if timer is not None:
                timer.cancel()
        if self._life_ends is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._life_ends is not None:
            super().data_received(data)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_head()

    @property
    def is_resting(self) -> bool:
        """Tell whether no whole request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self) -> None:
        if self._head_ends is not None:
            self._head_ends.cancel()
        self._head_ends = self.loop.call_later(HEAD_S, self._end_rest)

    def _end_rest(self) -> None:
        """End a connection whose next head did not come whole, however its bytes trickle in."""
        if self.is_resting:
            self.transport.abort()

    def _make_room(self) -> bool:
        """End the oldest connection that rests: who asks nothing keeps nobody out."""
        resting = [
            one for one in self.connections if isinstance(one, _BoundedProtocol) and one.is_resting
        ]
        if not resting:
            return False
        oldest = min(resting, key=lambda one: one._began_s)  # noqa: SLF001 - of this very class
        oldest.transport.abort()
        self.connections.discard(oldest)
        return True


class _Server(uvicorn.Server):
    """A server that leaves signals to the gateway."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves one application until it is closed.

    Args:
        settings: Where.
    """

    def __init__(self, settings: HttpSettings) -> None:
        """Prepare; nothing is bound before `bind`."""
        self._settings = settings
        self._socket: socket.socket | None = None
        self._server: _Server | None = None
        self.token = secrets.token_urlsafe(24)

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        port = 0 if self._socket is None else self._socket.getsockname()[1]
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"{self._settings.scheme}://{host}:{port}/"

    @property
    def port(self) -> int:
        """The port that was bound."""
        return 0 if self._socket is None else int(self._socket.getsockname()[1])

    @property
    def server_name(self) -> str:
        """A name in the page's certificate; empty without one."""
        settings = self._settings
        return "" if settings.certificate_file is None else next(iter(settings.names), "")

    @property
    def hosts(self) -> frozenset[str]:
        """Names that a request may be for."""
        return self._settings.hosts

    def bind(self) -> None:
        """Take the port, so that its number is known before anything is served.

        Raises:
            EnvironmentProblem: E-PORT-IN-USE, E-PORT-FORBIDDEN, E-HTTP-HOST.
        """
        settings = self._settings
        try:
            self._socket = _bound(settings.host, settings.port)
        except OSError as error:
            if settings.is_port_fixed or settings.port == 0:
                raise _not_bound(settings, error) from error
            self._socket = _bound(settings.host, 0)
            _LOGGER.info("port %s is taken; the status page is on %s", settings.port, self.address)

    async def serve(self, app: HttpApp) -> None:
        """Serve until `close`."""
        settings = self._settings
        if self._socket is None:
            self.bind()
        config = uvicorn.Config(
            app,
            http=_BoundedProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            timeout_keep_alive=HEAD_S,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=_HEAD_BYTES,
            ssl_certfile=settings.certificate_file,
            ssl_keyfile=settings.key_file,
        )
        # Its warnings are about requests that strangers can send without end.
        for name in ("uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self._server = _Server(config)
        sockets = [] if self._socket is None else [self._socket]
        try:
            await self._server.serve(sockets=sockets)
        finally:
            # Where the gateway ends by cancellation, uvicorn's own clearing up does not run.
            for listener in getattr(self._server, "servers", []):
                listener.close()
            for connection in list(self._server.server_state.connections):
                connection.transport.abort()
            for bound in sockets:
                bound.close()

    def close(self) -> None:
        """End the serving, and free the port."""
        if self._server is not None:
            self._server.should_exit = True
        elif self._socket is not None:
            self._socket.close()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        # At once: two sockets that only bind can have one port, and the second learns it late.
        listener.listen(MOST_CONNECTIONS)
    except BaseException:
        listener.close()
        raise
    listener.set_inheritable(False)
    return listener


def _not_bound(settings: HttpSettings, error: OSError) -> EnvironmentProblem:
    codes = {"Address already in use": "E-PORT-IN-USE", "Permission denied": "E-PORT-FORBIDDEN"}
    return EnvironmentProblem(
        codes.get(error.strerror or "", "E-HTTP-HOST"),
        f"a free port {settings.port} on {settings.host} for the status page",
        error.strerror or type(error).__name__,
        "choose another with --http-port (0 takes any free one), or see who listens there",
    )
