"""Certificates at the gateway's own endpoint: taken, refused by name, withdrawn, replaced."""

import asyncio
import datetime
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from broker.certificates import CertificateAuthority, KeyPair, make_authority
from broker.config import Listening
from broker.console import format_report
from broker.endpoint_link import EndpointLink
from broker.events import Reported
from broker.tls_folder import TlsFolder
from edgefl._native import UploadStage
from edgefl.protocol import topics
from edgefl.transport.base import Inbound, LinkDown, LinkDownReason, LinkUp, TransportEvent
from edgefl.transport.broker_url import BrokerAddress, BrokerScheme
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings
from edgefl.transport.tls import TlsSettings
from edgefl.types import FleetName

FLEET = FleetName("home")
NOW = datetime.datetime.now(tz=datetime.UTC)
YEAR = datetime.timedelta(days=365)


class Place:
    """An endpoint with its authority, and clients' files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tls = TlsFolder.create(folder, fleet=FLEET, hosts=["localhost"], now=NOW)
        self.reports: list[Reported] = []
        self.port = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[EndpointLink]:
        link = EndpointLink(
            fleet=FLEET,
            listening=Listening(mqtts_host="127.0.0.1", mqtts_port=0, wss_port=None),
            topics=topics.of_aggregator(FLEET),
            stage=UploadStage(1 << 20, 4),
            tls=self.tls,
            max_connections=100,
        )
        await link.start()
        # Notices come to light while somebody takes events.
        tasks = [asyncio.create_task(self._read(link)), asyncio.create_task(self._drain(link))]
        self.port = int(str(link.describe()["port"]))
        try:
            await link.transport.start()
            yield link
        finally:
            for task in tasks:
                task.cancel()
            await link.transport.close()
            await link.close()

    async def _read(self, link: EndpointLink) -> None:
        async for notice in link.notices():
            if isinstance(notice, Reported):
                self.reports.append(notice)

    async def _drain(self, link: EndpointLink) -> None:
        async for event in link.transport.events():
            if isinstance(event, Inbound) and event.ticket is not None:
                link.transport.acknowledge([event.ticket])

    def client(self, pair: KeyPair, *, trusted: bytes | None = None) -> TlsSettings:
        file, authorities = self.folder / f"client-{pair.serial}.pem", self.folder / "trusted.crt"
        file.write_bytes(pair.certificate + pair.key)
        file.chmod(0o600)
        authorities.write_bytes(trusted or self.tls.trusted_file.read_bytes())
        return TlsSettings(ca_file=authorities, certificate_file=file, key_file=file)

    def transport(
        self, tls: TlsSettings, device: str = "d1", host: str = "localhost"
    ) -> MqttTransport:
        address = BrokerAddress(scheme=BrokerScheme.MQTTS, host=host, port=self.port)
        settings = MqttSettings(
            brokers=(address,), client_id=f"edgefl-{FLEET}-{device}", tls=tls, backoff_cap_s=0.2
        )
        return MqttTransport(settings)

    async def first(self, tls: TlsSettings, **options: str) -> TransportEvent:
        """Return what a client's first attempt comes to."""
        transport = self.transport(tls, **options)
        await transport.start()
        try:
            async with asyncio.timeout(10):
                return await anext(aiter(transport.events()))
        finally:
            await transport.close()

    async def lines(self, wanted: str) -> str:
        """Wait for a line of the gateway's log."""
        async with asyncio.timeout(10):
            while True:
                said = [format_report(report) for report in self.reports]
                for line in said:
                    if wanted in line:
                        return line
                await asyncio.sleep(0.02)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(bounded())


def foreign() -> CertificateAuthority:
    made = make_authority(FLEET, NOW)
    return CertificateAuthority(made.certificate, made.key)


def test_bad_certificates_of_devices_are_told_apart_in_the_gateways_log(place: Place) -> None:
    authority = place.tls.authority
    bad = {
        "chain: no authority of this gateway": foreign().issue_client("d1", NOW),
        "time: the device's certificate has expired": authority.issue_client("d1", NOW - 2 * YEAR),
        "time: the device's certificate is not valid yet": authority.issue_client("d1", NOW + YEAR),
        "usage: the device's certificate": authority.issue_server(["d1"], NOW),
    }

    async def work() -> None:
        async with place.running():
            assert isinstance(
                await place.first(place.client(authority.issue_client("d1", NOW))), LinkUp
            )
            for words, pair in bad.items():
                event = await place.first(place.client(pair))
                assert isinstance(event, LinkDown), words
                await place.lines(words)
            # Something that was never enrolled.
            with suppress(OSError):
                await asyncio.to_thread(_shake_hands, place)
            await place.lines("no certificate")

    run(work)
    assert len(bad) == 4


def _shake_hands(place: Place) -> None:
    context = TlsSettings(ca_file=place.tls.trusted_file).context()
    with (
        socket.create_connection(("127.0.0.1", place.port), 5) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as link,
    ):
        link.recv(1)


def test_bad_certificates_of_the_gateway_are_told_apart_on_both_sides(place: Place) -> None:
    good = place.tls.authority.issue_client("d1", NOW)
    stranger = foreign()

    async def work() -> None:
        async with place.running() as link:
            event = await place.first(place.client(good), host="127.0.0.1")
            assert isinstance(event, LinkDown)
            assert event.reason is LinkDownReason.TLS
            assert event.detail.startswith("host name: ")
            await place.lines("host name: ")
            event = await place.first(place.client(good, trusted=stranger.certificate))
            assert isinstance(event, LinkDown)
            assert event.detail.startswith("chain: ")
            await place.lines("chain: the device does not trust")
            show(link, place, place.tls.authority.issue_server(["localhost"], NOW - 2 * YEAR))
            event = await place.first(place.client(good))
            assert isinstance(event, LinkDown)
            assert event.detail.startswith("time: ")
            await place.lines("time: to the device")
            show(link, place, place.tls.authority.issue_client("localhost", NOW))
            event = await place.first(place.client(good))
            assert isinstance(event, LinkDown)
            assert event.detail.startswith("usage: ")
            await place.lines("usage: the device does not take")
            show(link, place, place.tls.authority.issue_server(["localhost"], NOW))
            assert isinstance(await place.first(place.client(good)), LinkUp)

    run(work)


def show(link: EndpointLink, place: Place, pair: KeyPair) -> None:
    link.set_certificates(pair.certificate, pair.key, place.tls.trusted_file.read_bytes())


def test_a_withdrawn_certificate_is_cut_off_and_refused_and_others_are_not(place: Place) -> None:
    authority = place.tls.authority
    out, in_ = authority.issue_client("d1", NOW), authority.issue_client("d2", NOW)

    async def work() -> None:
        async with place.running() as link:
            one, two = place.transport(place.client(out)), place.transport(place.client(in_), "d2")
            await one.start()
            await two.start()
            ones, twos = aiter(one.events()), aiter(two.events())
            assert isinstance(await anext(ones), LinkUp)
            assert isinstance(await anext(twos), LinkUp)
            link.set_revoked([f"{out.serial:x}"], ["d1"])
            link.disconnect("d1", "revoked by the operator")
            assert isinstance(await anext(ones), LinkDown)
            again = await anext(ones)
            assert isinstance(again, LinkDown)
            assert again.reason is LinkDownReason.REFUSED
            assert "revoked" in again.detail
            await place.lines("d1 at 127.0.0.1")
            # Another certificate in the same name is no way back, while the name is out.
            event = await place.first(place.client(authority.issue_client("d1", NOW)))
            assert isinstance(event, LinkDown)
            assert two.is_up
            link.set_revoked([f"{out.serial:x}"], [])
            fresh = place.client(authority.issue_client("d1", NOW))
            await one.close()
            assert isinstance(await place.first(fresh), LinkUp)
            assert two.is_up
            await two.close()

    run(work)


def test_while_authorities_are_replaced_devices_of_both_connect(place: Place) -> None:
    old = place.client(place.tls.authority.issue_client("d1", NOW))

    async def work() -> None:
        async with place.running() as link:
            place.tls.rotate(fleet=FLEET, now=NOW)
            place.tls.refresh(["localhost"], NOW)
            content = place.tls.server_file.read_bytes()
            link.set_certificates(content, content, place.tls.trusted_file.read_bytes())
            assert isinstance(await place.first(old), LinkUp)
            new = place.client(place.tls.authority.issue_client("d2", NOW))
            assert isinstance(await place.first(new, device="d2"), LinkUp)
            place.tls.finish(["localhost"], NOW)
            content = place.tls.server_file.read_bytes()
            link.set_certificates(content, content, place.tls.trusted_file.read_bytes())
            new = place.client(place.tls.authority.issue_client("d2", NOW))
            assert isinstance(await place.first(new, device="d2"), LinkUp)
            trusting = place.client(place.tls.authority.issue_client("d2", NOW)).ca_file
            late = TlsSettings(
                ca_file=trusting, certificate_file=old.certificate_file, key_file=old.key_file
            )
            event = await place.first(late)
            assert isinstance(event, LinkDown)
            await place.lines("chain: no authority of this gateway")

    run(work)


def test_two_living_boards_with_one_identity_are_named_and_one_is_stopped(place: Place) -> None:
    pair = place.tls.authority.issue_client("d1", NOW)

    async def watch(transport: MqttTransport) -> list[TransportEvent]:
        return [event async for event in transport.events()]

    async def work() -> None:
        async with place.running():
            boards = [place.transport(place.client(pair)) for _ in range(2)]
            for board in boards:
                await board.start()
            watching = [asyncio.create_task(watch(board)) for board in boards]
            line = await place.lines("two clients with one identity")
            assert line.count("127.0.0.1:") >= 2
            assert "d1" in await place.lines("or two boards with one identity")
            for board in boards:
                await board.close()
            events = [event for task in watching for event in await task]
            downs = [event.detail for event in events if isinstance(event, LinkDown)]
            assert any("living client has this identity" in detail for detail in downs)

    run(work)
