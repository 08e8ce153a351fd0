"""HTTP clients that are slow, silent, many or rude cost a bounded amount, and the page stays."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from broker import http_server
from broker.events import Json
from broker.http_app import HttpApp
from broker.http_server import HttpServer, HttpSettings
from broker.status_client import GatewayAddress, RunningStatus
from edgefl.errors import EnvironmentProblem, TransportError

_REQUEST = b"GET /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


class _Source:
    def status(self) -> dict[str, Json]:
        return {"is_running": True, "filling": "x" * 4_000_000}

    def rounds(self, task: str | None, most: int) -> list[Json]:
        return [task, most]

    def devices(self, *, with_rounds: bool) -> dict[str, Json]:
        return {"who": with_rounds}


@contextlib.asynccontextmanager
async def _serving(settings: HttpSettings | None = None) -> AsyncIterator[HttpServer]:
    server = HttpServer(settings or HttpSettings(port=0))
    server.bind()
    app = HttpApp(_Source(), metrics=lambda: b"# none\n", token=server.token, hosts=server.hosts)
    task = asyncio.create_task(server.serve(app))
    try:
        yield server
    finally:
        server.close()
        await task


async def _ask(port: int, request: bytes = _REQUEST) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _is_ended(reader: asyncio.StreamReader, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            while await reader.read(1 << 16):
                pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def test_silent_and_trickling_clients_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_S", 0.4)

    async def play() -> None:
        async with _serving() as server:
            silent, _w1 = await asyncio.open_connection("127.0.0.1", server.port)
            trickling, writer = await asyncio.open_connection("127.0.0.1", server.port)

            async def trickle() -> None:
                with contextlib.suppress(OSError):
                    for byte in _REQUEST[:-2] * 10:
                        writer.write(bytes([byte]))
                        await writer.drain()
                        await asyncio.sleep(0.05)

            drops = asyncio.create_task(trickle())
            began_s = time.monotonic()
            assert await _is_ended(silent, 3)
            assert await _is_ended(trickling, 3)
            assert time.monotonic() - began_s < 2
            drops.cancel()
            _w1.close()
            writer.close()

    asyncio.run(play())


def test_a_reader_that_takes_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "LIFE_S", 0.6)

    async def play() -> None:
        async with _serving() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10)
            writer.write(_REQUEST)
            await asyncio.sleep(1.0)
            # What the kernel held for it comes, and then the end; never the whole answer.
            taken = 0
            with contextlib.suppress(OSError):
                while piece := await asyncio.wait_for(reader.read(1 << 20), 5):
                    taken += len(piece)
            assert 0 < taken < 4_000_000
            writer.close()

    asyncio.run(play())


def test_a_crowd_that_asks_nothing_keeps_nobody_out() -> None:
    async def play() -> None:
        async with _serving() as server:
            crowd = [
                await asyncio.open_connection("127.0.0.1", server.port)
                for _ in range(3 * http_server.MOST_CONNECTIONS)
            ]
            answer = await _ask(server.port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 ")
            for _, writer in crowd:
                writer.close()

    asyncio.run(play())


@pytest.mark.parametrize(
    "rude",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000,
        b"POST /status.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_rude_clients_change_nothing(rude: bytes) -> None:
    async def play() -> None:
        async with _serving() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(rude)
            with contextlib.suppress(OSError, TimeoutError):
                answer = await asyncio.wait_for(reader.read(200), 2)
                assert not answer.startswith(b"HTTP/1.1 5")
            writer.close()
            assert (await _ask(server.port)).startswith(b"HTTP/1.1 200 ")

    asyncio.run(play())


def test_a_taken_port_is_named_or_another_is_found() -> None:
    first = HttpServer(HttpSettings(port=0))
    first.bind()
    try:
        with pytest.raises(EnvironmentProblem, match="E-PORT-IN-USE"):
            HttpServer(HttpSettings(port=first.port, is_port_fixed=True)).bind()
        second = HttpServer(HttpSettings(port=first.port))
        second.bind()
        assert second.port not in (0, first.port)
        second.close()
    finally:
        first.close()


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for the name `gateway` and 127.0.0.1, which signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")])
    now = datetime.now(UTC)
    names = [x509.DNSName("gateway"), x509.IPAddress(ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls").mkdir()
    public, secret = folder / "tls" / "trusted.crt", folder / "key.pem"
    public.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return public, secret


def test_the_page_is_served_over_tls_and_asked_with_verification(tmp_path: Path) -> None:
    public, secret = _certificate(tmp_path)
    settings = HttpSettings(
        host="0.0.0.0",  # noqa: S104 - with a certificate
        port=0,
        certificate_file=public,
        key_file=secret,
        names=("gateway", "127.0.0.1"),
    )

    async def play() -> None:
        async with _serving(settings) as server:
            url = f"https://127.0.0.1:{server.port}/"
            assert server.address == url.replace("127.0.0.1", "0.0.0.0")  # noqa: S104
            address = GatewayAddress(
                process_id=1, url=url, token=server.token, server_name="gateway"
            )
            asked = await asyncio.to_thread(
                RunningStatus(address, tmp_path).devices, with_rounds=True
            )
            assert asked == {"who": True}
            wrong = GatewayAddress(process_id=1, url=url, token=server.token, server_name="another")
            with pytest.raises(TransportError, match="E-GATEWAY-SILENT"):
                await asyncio.to_thread(RunningStatus(wrong, tmp_path).status)
            plain = b""
            with contextlib.suppress(OSError):
                plain = await _ask(server.port)
            assert not plain.startswith(b"HTTP")

    asyncio.run(play())
