"""`edgefl doctor --gateway`: which ways are open, which are blocked, and by what."""

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgefl.agent.device_keys import certified, to_pem
from edgefl.agent.enrolled import Enrolled, TlsFiles
from edgefl.cli import doctor_network
from edgefl.cli.doctor_checks import Check, Status
from edgefl.cli.doctor_network import network_checks
from tests.authority_lab import FLEET, Board, Lab
from tests.command import Run


class Place(Lab):
    """A gateway's authority of today, and a device's folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "gateway")
        self.state_dir = folder / "device"
        now = datetime.datetime.now(tz=datetime.UTC)
        pair = self.tls.authority.issue_server(["localhost"], now)
        self.server = folder / "server.pem"
        self.server.write_bytes(pair.certificate + pair.key)

    def enrol(self, *urls: str) -> None:
        self.now = datetime.datetime.now(tz=datetime.UTC)
        board, token = Board("d1"), self.token(is_preauthorised=True)
        answer = self.ask(board, token)
        files = TlsFiles(state_dir=self.state_dir)
        files.write(files.trusted, to_pem(answer.authorities))
        files.write(
            files.device, certified(board.wish, answer.certificate, answer.authorities, "d1")
        )
        Enrolled(
            device="d1", fleet=FLEET, gateways=urls, enrolment_key=None, state_dir=self.state_dir
        ).write()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@contextmanager
def server(place: Place, answer: bytes = b"") -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place.server)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                plain = listener.accept()[0]
            except OSError:
                return
            try:
                with plain, context.wrap_socket(plain, server_side=True) as link:
                    link.settimeout(5)
                    if link.recv(4096) and answer:
                        link.sendall(answer)
            except OSError:
                continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"


def checks(place: Place, gateway: str | None = None) -> list[Check]:
    return list(network_checks(gateway, place.state_dir))


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        return int(holder.getsockname()[1])


def test_open_ways_of_an_enrolled_device(place: Place) -> None:
    with server(place) as mqtts, server(place, UPGRADED) as wss:
        place.enrol(f"mqtts://localhost:{mqtts}", f"wss://localhost:{wss}/mqtt")
        first, second = checks(place)
    assert (first.status, first.found) == (Status.OK, "open: TLS")
    assert (second.status, second.found) == (Status.OK, "open: TLS and WebSocket")


def test_where_one_way_is_blocked_the_other_is_recommended(place: Place) -> None:
    with server(place, UPGRADED) as wss:
        blocked, url = closed_port(), f"wss://localhost:{wss}/mqtt"
        place.enrol(f"mqtts://localhost:{blocked}", url)
        first, second, verdict = checks(place)
    assert first.status is Status.NOTE
    assert first.found.startswith("blocked: refused")
    assert second.status is Status.OK
    assert url in verdict.advice


def test_where_all_is_blocked_the_doctor_fails(
    run: Run, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_network, "_PATIENCE_S", 0.2)
    look_up = socket.getaddrinfo

    def look_up_here(host: str, *more: object, **options: object) -> object:
        if host.endswith(".invalid"):
            raise socket.gaierror(-2, "Name or service not known")
        return look_up(host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up_here)
    # A listener whose queue is full is as silent as a firewall that drops packets.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
        port = silent.getsockname()[1]
        held = [socket.socket() for _ in range(4)]
        for one in held:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        words = ("--gateway", f"mqtts://127.0.0.1:{port},mqtts://no-such-host.invalid:8883")
        ran = run("doctor", "--state", place.state_dir, "--port", 0, *words)
        for one in held:
            one.close()
    assert ran.code == 4
    assert "blocked: no answer within" in ran.out
    assert "no address is known for the name no-such-host.invalid" in ran.out
    assert "no way to it is open" in ran.out


def test_a_proxy_that_answers_instead_is_named(place: Place) -> None:
    with server(place, b"HTTP/1.1 403 Forbidden\r\n\r\n") as port:
        place.enrol(f"wss://localhost:{port}/mqtt")
        first, _ = checks(place)
    assert "403 Forbidden" in first.found


def test_a_device_that_is_not_enrolled_sees_what_is_open(place: Place) -> None:
    with server(place) as port:
        (check,) = checks(place, f"localhost:{port}")
    assert check.status is Status.OK
    assert check.found.startswith("open: TLS; chain: ")


def test_a_wrong_name_is_wrong(place: Place) -> None:
    with server(place) as port:
        place.enrol(f"mqtts://127.0.0.1:{port}")
        first, _ = checks(place)
    assert first.status is Status.WRONG
    assert first.found.startswith("host name: ")


def test_a_bare_host_is_tried_on_the_usual_ports() -> None:
    assert [str(address) for address in doctor_network._ways("gw.local")] == [
        "mqtts://gw.local:8883",
        "wss://gw.local:8443/mqtt",
        "wss://gw.local:443/mqtt",
    ]


def test_without_a_gateway_nothing_is_tried(place: Place) -> None:
    assert checks(place) == []
