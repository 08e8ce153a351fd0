"""Good and bad certificates, in real handshakes on loopback."""

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.certificates import CertificateAuthority, make_authority
from edgefl.errors import ConfigError
from edgefl.transport.tls import TlsProblem, TlsSettings, failure_of

NOW = datetime.datetime.now(tz=datetime.UTC)
YEAR = datetime.timedelta(days=365)


class Place:
    """Two authorities, and files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ours, self.foreign = (self._authority() for _ in range(2))
        self.trusted = self.write("trusted.crt", self.ours.certificate)

    def _authority(self, now: datetime.datetime = NOW) -> CertificateAuthority:
        made = make_authority("home", now)
        return CertificateAuthority(made.certificate, made.key)

    def write(self, name: str, content: bytes, mode: int = 0o600) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        path.chmod(mode)
        return path

    def client(self, authority: CertificateAuthority | None = None) -> TlsSettings:
        pair = (authority or self.ours).issue_client("d1", NOW)
        file = self.write("client.pem", pair.certificate + pair.key)
        return TlsSettings(ca_file=self.trusted, certificate_file=file, key_file=file)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@contextmanager
def server(place: Place, file: Path, *, wants_client: bool = False) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(place.trusted)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(10)

    def serve() -> None:
        try:
            with listener.accept()[0] as plain:
                plain.settimeout(5)
                with context.wrap_socket(plain, server_side=True) as link:
                    link.sendall(link.recv(4))
        except OSError:
            return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        thread.join(10)
        listener.close()


def connect(settings: TlsSettings, port: int, *, is_first: bool = True) -> bytes:
    with (
        socket.create_connection(("127.0.0.1", port), 5) as plain,
        settings.context().wrap_socket(plain, server_hostname="localhost") as link,
    ):
        if is_first:
            link.sendall(b"ping")
        return link.recv(4)


def server_file(place: Place, kind: str) -> Path:
    ours, foreign = place.ours, place.foreign
    if kind == "chain":
        pair = foreign.issue_server(["localhost"], NOW)
    elif kind == "host name":
        pair = ours.issue_server(["other.example"], NOW)
    elif kind == "time":
        pair = ours.issue_server(["localhost"], NOW - 2 * YEAR)
    elif kind == "not yet":
        pair = ours.issue_server(["localhost"], NOW + YEAR)
    elif kind == "usage":
        pair = ours.issue_client("localhost", NOW)
    else:
        pair = ours.issue_server(["localhost"], NOW)
    return place.write("server.pem", pair.certificate + pair.key)


def test_a_good_pair_of_certificates_connects(place: Place) -> None:
    with server(place, server_file(place, "good"), wants_client=True) as port:
        assert connect(place.client(), port) == b"ping"


PROBLEMS = {
    "host name": (TlsProblem.HOST_NAME, "host name: "),
    "chain": (TlsProblem.CHAIN, "chain: "),
    "time": (TlsProblem.TIME, "time: "),
    "not yet": (TlsProblem.TIME, "time: "),
    "usage": (TlsProblem.USAGE, "usage: "),
}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_four_bad_certificates_have_four_messages(place: Place, kind: str) -> None:
    problem, words = PROBLEMS[kind]
    with server(place, server_file(place, kind)) as port, pytest.raises(ssl.SSLError) as caught:
        connect(TlsSettings(ca_file=place.trusted), port)
    failure = failure_of(caught.value, host="localhost")
    assert failure is not None
    assert failure.problem is problem
    assert failure.detail.startswith(words)
    assert failure.advice
    others = [text for _, text in PROBLEMS.values() if text != words]
    assert not any(failure.detail.startswith(other) for other in others)


@pytest.mark.parametrize("shows", [True, False])
def test_a_server_that_refuses_this_side_is_named(place: Place, shows: bool) -> None:
    foreign = place.client(place.foreign)
    settings = foreign if shows else TlsSettings(ca_file=place.trusted)
    with (
        server(place, server_file(place, "good"), wants_client=True) as port,
        pytest.raises(OSError) as caught,  # noqa: PT011 - what it is, is the question
    ):
        connect(settings, port, is_first=False)
    failure = failure_of(caught.value, host="localhost")
    assert failure is not None
    assert failure.problem is TlsProblem.REFUSED_BY_PEER
    assert ("does not know the authority" if shows else "wants a certificate") in failure.detail


def test_a_server_without_tls_is_named(place: Place) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with listener.accept()[0] as plain:
            plain.recv(1)
            plain.sendall(b"\x20\x02\x00\x00 plain text, no TLS")

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    with pytest.raises(ssl.SSLError) as caught:
        connect(TlsSettings(ca_file=place.trusted), int(listener.getsockname()[1]))
    thread.join(10)
    listener.close()
    failure = failure_of(caught.value, host="localhost")
    assert failure is not None
    assert failure.problem is TlsProblem.NO_TLS


def test_other_errors_are_none_of_tls() -> None:
    assert failure_of(ConnectionRefusedError(), host="localhost") is None


def test_nothing_turns_verification_off(place: Place) -> None:
    context = place.client().context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_files_that_do_not_do_are_named(place: Place) -> None:
    settings = place.client()
    key = settings.key_file
    key.chmod(0o640)
    with pytest.raises(ConfigError, match="E-KEY-MODE"):
        settings.context()
    key.write_bytes(b"no PEM")
    key.chmod(0o600)
    with pytest.raises(ConfigError, match="E-TLS-FILE"):
        settings.context()
    key.unlink()
    with pytest.raises(ConfigError, match="E-TLS-FILE"):
        settings.context()
    with pytest.raises(ConfigError, match="E-TLS-FILE"):
        TlsSettings(ca_file=place.folder / "none.crt").context()
    with pytest.raises(ConfigError, match="E-TLS-FILES"):
        TlsSettings(ca_file=place.trusted, certificate_file=key)
