"""Ask a gateway how it stands: over HTTP while it runs, from its state folder when it does not."""

import http.client
import json
import os
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlencode, urlsplit

from broker.events import Json
from broker.stopped_status import StoppedStatus
from edgefl.errors import ConfigError, TransportError

GATEWAY_FILE: Final = "gateway.json"
TRUSTED_FILE: Final = Path("tls") / "trusted.crt"
_ANSWER_S: Final = 10.0
_MOST_BYTES: Final = 64 << 20


class GatewayView(Protocol):
    """How a gateway stands, whichever way it is looked at."""

    def status(self) -> dict[str, Json]:
        """Return the status."""
        ...

    def rounds(self, task: str | None, most: int) -> list[Json]:
        """Return the newest closed rounds, newest last."""
        ...

    def devices(self, *, with_rounds: bool) -> dict[str, Json]:
        """Return the devices by name."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAddress:
    """What `gateway.json` says.

    Attributes:
        url: Of the status page; empty where none is served.
        server_name: In the page's certificate.
    """

    process_id: int
    url: str
    token: str = field(repr=False)
    server_name: str = ""


class RunningStatus:
    """Asks a gateway that runs.

    Args:
        address: Where.
        state_dir: With the authority that signed the page's certificate, if it has one.
    """

    def __init__(self, address: GatewayAddress, state_dir: Path) -> None:
        """Connect to nothing yet."""
        self._address = address
        self._state_dir = state_dir

    def status(self) -> dict[str, Json]:
        """Return the status.

        Raises:
            TransportError: The gateway does not answer.
        """
        return _table(self._ask("status.json"))

    def rounds(self, task: str | None, most: int) -> list[Json]:
        """Return the newest closed rounds, newest last.

        Raises:
            TransportError: The gateway does not answer.
        """
        wanted = {"most": str(most), **({} if task is None else {"task": task})}
        found = self._ask(f"rounds.json?{urlencode(wanted)}")
        return found if isinstance(found, list) else []

    def devices(self, *, with_rounds: bool) -> dict[str, Json]:
        """Return the devices by name.

        Raises:
            TransportError: The gateway does not answer.
        """
        return _table(self._ask(f"devices.json?who={int(with_rounds)}"))

    def _ask(self, path: str) -> Json:
        connection = self._connect()
        try:
            headers = {"Authorization": f"Bearer {self._address.token}", "Connection": "close"}
            connection.request("GET", f"/{path}", headers=headers)
            answer = connection.getresponse()
            content = answer.read(_MOST_BYTES)
            if answer.status != http.client.OK:
                raise self._silent(f"status {answer.status}")
            return _parsed(content)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._silent(str(error) or type(error).__name__) from error
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._address.url)
        host, port = parts.hostname or "", parts.port or 0
        connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_S)
        if parts.scheme == "https":
            try:
                connection.sock = self._encrypted(host, port)
            except OSError as error:
                raise self._silent(str(error)) from error
        return connection

    def _encrypted(self, host: str, port: int) -> ssl.SSLSocket:
        """Connect to the gateway's own certificate, by a name in it: it listens at an address."""
        context = ssl.create_default_context(cafile=str(self._state_dir / TRUSTED_FILE))
        plain = socket.create_connection((host, port), timeout=_ANSWER_S)
        try:
            return context.wrap_socket(plain, server_hostname=self._address.server_name or host)
        except BaseException:
            plain.close()
            raise

    def _silent(self, found: str) -> TransportError:
        return TransportError(
            "E-GATEWAY-SILENT",
            f"an answer of the gateway at {self._address.url}",
            found,
            "see its log; it may be starting or ending",
        )


def view_gateway(state_dir: Path) -> GatewayView:
    """Return a view of the gateway of a state folder.

    Raises:
        ConfigError: There is no gateway's state.
        TransportError: The gateway runs and does not answer, or serves no status page.
        StorageError: The state is damaged.
    """
    address = read_address(state_dir)
    if address is None or not _is_alive(address.process_id):
        return StoppedStatus(state_dir)
    if not address.url:
        raise TransportError(
            "E-GATEWAY-SILENT",
            "a running gateway with a status page",
            "one that was started with --http-port off",
            "start it without that option, or stop it to read its state",
        )
    running = RunningStatus(address, state_dir)
    try:
        found = running.status()
    except TransportError:
        if _is_alive(address.process_id):
            raise
        return StoppedStatus(state_dir)
    # After a crash the process number or the port may be another program's.
    return running if found.get("process_id") == address.process_id else StoppedStatus(state_dir)


def read_address(state_dir: Path) -> GatewayAddress | None:
    """Return where the gateway of a state folder listens; None where it says nothing.

    Raises:
        ConfigError: E-GATEWAY-STATE: the file is not to be read by this user.
    """
    path = state_dir / GATEWAY_FILE
    try:
        content = json.loads(path.read_text())
        return GatewayAddress(
            process_id=int(content["pid"]),
            url=str(content.get("http", "")),
            token=str(content.get("token", "")),
            server_name=str(content.get("http_name", "")),
        )
    except PermissionError as error:
        raise ConfigError(
            "E-GATEWAY-STATE",
            f"{path}, which the gateway's own user can read",
            "no permission",
            "ask as the user who runs the gateway",
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _parsed(content: bytes) -> Json:
    found: Json = json.loads(content)
    return found


def _table(found: Json) -> dict[str, Json]:
    return found if isinstance(found, dict) else {}
