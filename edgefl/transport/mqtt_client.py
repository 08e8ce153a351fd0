"""paho's client, made for one connection; keeps what paho forgets of sockets that fail."""

import contextlib
import selectors
import socket
import ssl
import time
from typing import Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from edgefl.transport import mqtt5
from edgefl.transport.base import Will
from edgefl.transport.broker_url import BrokerAddress
from edgefl.transport.settings import MqttSettings

_GOODBYE_S: Final = 0.5
"""How long a broker has to close its side after a DISCONNECT."""


class OneConnection(paho.Client):
    """Closes the socket of a handshake that failed, and remembers why TLS broke.

    paho leaves the first to the garbage collector, and tells of the second only that a connection
    was lost. Where a later paho names its inner steps otherwise, this class loses its gains and
    the link goes on as paho has it.

    Args:
        settings: How the link behaves.
        address: The broker.
        client_id: Name to connect under.
        will: What the broker says when this process vanishes.
        speaks_5: MQTT 5, else 3.1.1.
    """

    def __init__(
        self,
        settings: MqttSettings,
        address: BrokerAddress,
        *,
        client_id: str,
        will: Will | None,
        speaks_5: bool,
    ) -> None:
        """Prepare; nothing is opened."""
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=None if speaks_5 else settings.clean_start,
            protocol=MQTTProtocolVersion.MQTTv5 if speaks_5 else MQTTProtocolVersion.MQTTv311,
            transport="websockets" if address.scheme.is_websocket else "tcp",
            reconnect_on_failure=False,
            manual_ack=settings.acknowledges_late,
        )
        self.tls_error: ssl.SSLError | None = None
        self._opened: socket.socket | None = None
        self._server_name = None if settings.tls is None else settings.tls.server_name
        self._context: ssl.SSLContext | None = None
        self._is_leaving = False
        self.connect_timeout = settings.connect_timeout_s
        self.max_inflight_messages = settings.max_in_flight
        if address.scheme.is_websocket:
            self.ws_set_options(path=address.path)
        if will is not None:
            properties = mqtt5.will_properties(will) if speaks_5 else None
            self.will_set(will.topic, will.payload, 1, will.retain, properties)

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Encrypt the connection, and check the broker's certificate."""
        self._context = context
        self.tls_set_context(context)

    def leave(self) -> None:
        """Send DISCONNECT, and give the broker a moment to read it and to close.

        A client that comes back at once could otherwise meet its own earlier connection there,
        which the broker then ends as taken over: with its will.
        """
        self._is_leaving = True
        self.disconnect()

    def close_opened(self) -> None:
        """Close the socket, however far it had come."""
        if self._opened is not None:
            with contextlib.suppress(OSError):
                self._opened.close()

    def _sock_close(self) -> None:
        if self._is_leaving and self._sock is not None:
            _wait_for_end(self._sock)
        super()._sock_close()

    def _create_socket_connection(self) -> socket.socket:
        self._opened = super()._create_socket_connection()
        return self._opened

    def _ssl_wrap_socket(self, tcp_sock: socket.socket) -> ssl.SSLSocket:
        if self._context is None:
            return super()._ssl_wrap_socket(tcp_sock)
        name = self._server_name or self.host
        wrapped = self._context.wrap_socket(
            tcp_sock, server_hostname=name, do_handshake_on_connect=False
        )
        self._opened = wrapped
        wrapped.settimeout(self.connect_timeout)
        wrapped.do_handshake()
        return wrapped

    def _sock_recv(self, bufsize: int) -> bytes:
        try:
            return super()._sock_recv(bufsize)
        except ssl.SSLError as error:
            self.tls_error = error
            raise


def _wait_for_end(sock: "paho.SocketLike") -> None:
    """Read until the other side has closed or fails, for a moment at most."""
    deadline_s = time.monotonic() + _GOODBYE_S
    # A failure is an end as well, and there may be no descriptor any more.
    with contextlib.suppress(OSError, ValueError), selectors.DefaultSelector() as selector:
        selector.register(sock.fileno(), selectors.EVENT_READ)
        while (left_s := deadline_s - time.monotonic()) > 0:
            try:
                if not sock.recv(4096):
                    return
            except (BlockingIOError, ssl.SSLWantReadError):
                selector.select(left_s)
