"""The gateway's HTTP application: status page, status, rounds, metrics; devices for the operator.

Security: reading is all that it does. Names of devices are given only for the operator's token. A
page of another origin cannot read anything here: it cannot know the token, its own name in the Host
header is refused (DNS rebinding), and no answer allows other origins.
"""

import hmac
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import parse_qs

from broker.events import Json
from broker.page_files import CONTENT_POLICY, page_files
from edgefl.errors import LocalProtocolError

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
FRESH_S: Final = 0.5
"""How long an answer is given again, so that no flood of requests makes the gateway count anew."""
MOST_ROUNDS: Final = 256
_JSON: Final = "application/json; charset=utf-8"
_TEXT: Final = "text/plain; charset=utf-8"
_HEADERS: Final = (
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)

Scope = Mapping[str, object]
Message = dict[str, object]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class StatusSource(Protocol):
    """What the answers are made from."""

    def status(self) -> dict[str, Json]:
        """Return the status; no device's name is in it."""
        ...

    def rounds(self, task: str | None, most: int) -> list[Json]:
        """Return the newest closed rounds, newest last; no device's name is in them."""
        ...

    def devices(self, *, with_rounds: bool) -> dict[str, Json]:
        """Return the devices by name."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer."""

    status: int
    content: bytes
    kind: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class HttpApp:
    """An ASGI application.

    Args:
        source: What the answers are made from.
        metrics: Returns what Prometheus reads.
        token: The operator's.
        hosts: Names that a request's Host header may hold, without the port.
    """

    def __init__(
        self,
        source: StatusSource,
        *,
        metrics: Callable[[], bytes],
        token: str,
        hosts: frozenset[str],
    ) -> None:
        """Prepare."""
        self._source = source
        self._metrics = metrics
        self._token = token.encode()
        self._hosts = hosts
        self._kept: dict[str, tuple[float, bytes]] = {}
        self._routes: dict[str, Callable[[Mapping[str, str]], Answer]] = {
            "/status.json": self._status,
            "/rounds.json": self._rounds,
            "/metrics": self._prometheus,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; its body is not read."""
        del receive
        if scope["type"] != "http":
            raise LocalProtocolError("E-HTTP-SCOPE", "a request", str(scope["type"]))
        answer = self.answer(scope)
        headers = [
            (b"content-type", answer.kind.encode()),
            (b"content-length", str(len(answer.content)).encode()),
            *_HEADERS,
            *answer.headers,
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        content = b"" if scope["method"] == "HEAD" else answer.content
        await send({"type": "http.response.body", "body": content})

    def answer(self, scope: Scope) -> Answer:
        """Return the answer to a request's head."""
        headers = _headers(scope.get("headers"))
        if not self._is_our_name(headers.get(b"host", [])):
            return _refusal(421, "this gateway does not go by that name")
        if scope["method"] not in {"GET", "HEAD"}:
            return _refusal(405, "only GET", (b"allow", b"GET, HEAD"))
        path, query = str(scope["path"]), _query(scope.get("query_string"))
        file = page_files().get(path)
        if file is not None:
            return Answer(status=200, content=file.content, kind=file.kind)
        route = self._routes.get(path)
        if route is not None:
            return route(query)
        if path != "/devices.json":
            return _refusal(404, "no such page")
        if not self._is_operator(headers.get(b"authorization", [])):
            challenge = (b"www-authenticate", b'Bearer realm="edgefl operator"')
            return _refusal(401, "the operator's token is needed", challenge)
        return _json(self._source.devices(with_rounds=query.get("who") == "1"))

    # ------------------------------------------------------------ who asks

    def _is_our_name(self, hosts: Sequence[bytes]) -> bool:
        """Tell whether the one Host header holds a name of ours."""
        if len(hosts) != 1:
            return False
        name = hosts[0].decode("latin-1").strip().lower()
        if name.startswith("["):
            name = name.partition("]")[0].removeprefix("[")
        elif name.count(":") == 1:
            name = name.partition(":")[0]
        return name in self._hosts

    def _is_operator(self, given: Sequence[bytes]) -> bool:
        if len(given) != 1:
            return False
        kind, _, token = given[0].partition(b" ")
        return kind.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)

    # ------------------------------------------------------------ pages

    def _status(self, query: Mapping[str, str]) -> Answer:
        del query
        content = self._fresh("status", lambda: _encode(self._source.status()))
        return Answer(status=200, content=content, kind=_JSON)

    def _prometheus(self, query: Mapping[str, str]) -> Answer:
        del query
        content = self._fresh("metrics", self._metrics)
        return Answer(status=200, content=content, kind=METRICS_TYPE)

    def _rounds(self, query: Mapping[str, str]) -> Answer:
        most = query.get("most", "50")
        is_short = len(most) <= len(str(MOST_ROUNDS))
        is_number = is_short and most.isascii() and most.isdecimal()
        if not is_number or not 0 < int(most) <= MOST_ROUNDS:
            return _refusal(400, f"most is a number from 1 to {MOST_ROUNDS}")
        return _json(self._source.rounds(query.get("task"), int(most)))

    def _fresh(self, name: str, make: Callable[[], bytes]) -> bytes:
        now_s = time.monotonic()
        made_s, content = self._kept.get(name, (-FRESH_S, b""))
        if not content or now_s - made_s >= FRESH_S:
            content = make()
            self._kept[name] = (now_s, content)
        return content


def _headers(given: object) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for name, value in given if isinstance(given, list) else []:
        found.setdefault(bytes(name).lower(), []).append(bytes(value))
    return found


def _query(given: object) -> dict[str, str]:
    text = given.decode("latin-1") if isinstance(given, bytes) else ""
    try:
        return {name: values[-1] for name, values in parse_qs(text, max_num_fields=8).items()}
    except ValueError:
        return {}


def _encode(content: Json) -> bytes:
    return json.dumps(content, allow_nan=False).encode()


def _json(content: Json) -> Answer:
    return Answer(status=200, content=_encode(content), kind=_JSON)


def _refusal(status: int, text: str, *headers: tuple[bytes, bytes]) -> Answer:
    return Answer(status=status, content=f"{text}\n".encode(), kind=_TEXT, headers=headers)
