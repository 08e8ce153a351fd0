"""The gateway's HTTP application: who may see what, and what never leaves it."""

import json
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.events import Json
from broker.http_app import FRESH_S, Answer, HttpApp
from broker.http_server import HttpSettings
from broker.page_files import page_files
from broker.round_record import record_to_json
from broker.status import status_document
from edgefl.errors import ConfigError
from tests.status_facts import a_round, some_facts

_TOKEN = "0123456789abcdef0123456789abcdef"  # noqa: S105 - made up
_ORIGIN = "http://www.w3.org/"


class _Source:
    def __init__(self) -> None:
        self.looks = 0

    def status(self) -> dict[str, Json]:
        self.looks += 1
        return status_document(some_facts())

    def rounds(self, task: str | None, most: int) -> list[Json]:
        return [record_to_json(a_round(1))] if most and task in (None, "wake") else []

    def devices(self, *, with_rounds: bool) -> dict[str, Json]:
        return {"devices": [{"device": "secret-name-1"}], "who": with_rounds}


def _app(source: _Source | None = None) -> HttpApp:
    return HttpApp(
        source or _Source(),
        metrics=lambda: b"# HELP edgefl_x x\n",
        token=_TOKEN,
        hosts=HttpSettings().hosts,
    )


def _ask(
    path: str,
    *,
    app: HttpApp | None = None,
    host: bytes | None = b"localhost:8484",
    method: str = "GET",
    query: str = "",
    headers: Mapping[bytes, bytes] | None = None,
) -> Answer:
    given_headers = [*([] if host is None else [(b"host", host)]), *(headers or {}).items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": given_headers,
    }
    return (app or _app()).answer(scope)


@pytest.mark.parametrize("path", sorted({*page_files(), "/status.json", "/rounds.json"}))
def test_no_page_names_a_device_or_shows_the_token(path: str) -> None:
    answer = _ask(path)
    assert answer.status == 200
    assert b"secret-name" not in answer.content
    assert _TOKEN.encode() not in answer.content


def test_the_page_asks_nobody_else() -> None:
    """No address of another origin is in any file, apart from the names of XML's vocabularies."""
    for path, file in page_files().items():
        text = file.content.decode().replace(_ORIGIN, "")
        assert not re.search(r"(?:https?|wss?):|//[a-z0-9.-]+\.[a-z]", text), path
        assert not re.search(r"\b(?:innerHTML|eval|document\.write|outerHTML)\b", text), path
        assert not re.search(r"@import|url\(|\son[a-z]+=|style=", text), path
    assert page_files()["/"].content.count(b'="/') >= 4


def test_devices_are_for_the_operator_alone() -> None:
    assert _ask("/devices.json").status == 401
    for given_token in (b"", b"Bearer", b"Bearer x", f"Basic {_TOKEN}".encode(), b"Bearer \xff"):
        answer = _ask("/devices.json", headers={b"authorization": given_token})
        assert answer.status == 401
        assert b"secret-name" not in answer.content
    answer = _ask(
        "/devices.json", query="who=1", headers={b"authorization": f"Bearer {_TOKEN}".encode()}
    )
    assert json.loads(answer.content) == {"devices": [{"device": "secret-name-1"}], "who": True}


@pytest.mark.parametrize(
    "host", [None, b"", b"evil.example", b"evil.example:8484", b"localhost.evil.example", b"[::2]"]
)
def test_a_page_that_another_name_was_bound_to_reads_nothing(host: bytes | None) -> None:
    assert _ask("/status.json", host=host).status == 421
    assert _ask("/", host=host).status == 421


@pytest.mark.parametrize("host", [b"localhost", b"LOCALHOST:1", b"127.0.0.1:8484", b"[::1]:8484"])
def test_our_own_names_are_served(host: bytes) -> None:
    assert _ask("/status.json", host=host).status == 200


def test_only_reading_is_allowed() -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert _ask("/status.json", method=method).status == 405
    assert _ask("/nothing").status == 404
    assert _ask("/../broker/page/page.js").status == 404


def test_a_flood_of_requests_makes_the_gateway_look_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("broker.http_app.time.monotonic", lambda: now_s)
    source = _Source()
    app = _app(source)
    for _ in range(100):
        assert _ask("/status.json", app=app).status == 200
    assert source.looks == 1
    now_s += FRESH_S
    assert _ask("/status.json", app=app).status == 200
    assert source.looks == 2


def test_rounds_are_asked_for_by_number_and_task() -> None:
    (row,) = json.loads(_ask("/rounds.json", query="most=5&task=wake").content)
    assert row["survivors"] == 7
    assert json.loads(_ask("/rounds.json", query="task=other").content) == []
    for most in ("0", "-1", "257", "x", "9" * 5000, "1e3", "0" * 5 + "9" * 5000, "0000011000"):
        assert _ask("/rounds.json", query=f"most={most}").status == 400


@given(
    path=st.text(max_size=40),
    query=st.binary(max_size=60),
    headers=st.lists(st.tuples(st.sampled_from([b"host", b"authorization"]), st.binary())),
)
def test_no_request_raises_anything(
    path: str, query: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    for asked in (path, "/rounds.json", "/devices.json"):
        scope = {
            "type": "http",
            "method": "GET",
            "path": asked,
            "query_string": query,
            "headers": [(b"host", b"localhost"), *headers],
        }
        answer = _app().answer(scope)
        assert answer.status in {200, 400, 401, 404, 421}
        assert asked != "/devices.json" or answer.status in {401, 421}


def test_a_network_needs_a_certificate() -> None:
    for host in ("0.0.0.0", "192.0.2.1", "::", "gateway.example"):  # noqa: S104 - refused
        with pytest.raises(ConfigError, match="E-HTTP-PLAINTEXT"):
            HttpSettings(host=host)
    for host in ("127.0.0.1", "localhost", "::1", "127.3.2.1"):
        assert HttpSettings(host=host).is_loopback
