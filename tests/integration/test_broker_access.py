"""Brokers over TLS with our configurations: a certificate opens its own topics and no others."""

import asyncio
import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.broker_check import check_broker
from broker.external import ExternalBroker
from broker.tls_folder import TlsFolder
from edgefl.protocol.topics import parse_fleet
from edgefl.transport.base import LinkDown, LinkDownReason
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings
from edgefl.transport.tls import TlsSettings
from tests.integration.brokers import Brokers, mosquitto, nats, until
from tests.integration.test_brokers import connected

NAMES = ("aggregator", "dev.1", "d2", "claim-abc")
OWN = "efl/1/test/d"
GUARDED = [pytest.param("mosquitto", marks=pytest.mark.long), "mosquitto-wss", "nats"]


class Identities:
    """A gateway's authority, and certificates that it gave out."""

    def __init__(self, folder: Path) -> None:
        now = datetime.datetime.now(datetime.UTC)
        self.state = folder
        self.tls = TlsFolder.create(folder, fleet="test", hosts=["127.0.0.1"], now=now)
        self.serials = {}
        for name in NAMES:
            pair = self.tls.authority.issue_client(name, now)
            path = folder / f"{name}-client.pem"
            path.touch(mode=0o600)
            path.write_bytes(pair.certificate + pair.key)
            self.serials[name] = pair.serial

    def of(self, name: str | None) -> TlsSettings:
        file = None if name is None else self.state / f"{name}-client.pem"
        return TlsSettings(ca_file=self.tls.trusted_file, certificate_file=file, key_file=file)

    def revoke(self, name: str) -> None:
        self.tls.write_revocations([self.serials[name]], datetime.datetime.now(datetime.UTC))


@pytest.fixture(scope="module", params=GUARDED)
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Brokers, Identities]]:
    folder = tmp_path_factory.mktemp(request.param)
    identities = Identities(folder / "state")
    if request.param == "nats":
        devices = ["dev.1", "d2"]
        with nats(folder / "broker", 1, state=identities.state, devices=devices) as brokers:
            yield brokers, identities
    else:
        websocket = request.param == "mosquitto-wss"
        state = identities.state
        with mosquitto(folder / "broker", state=state, websocket=websocket) as brokers:
            yield brokers, identities


def test_a_device_uses_its_own_topics(guarded: tuple[Brokers, Identities]) -> None:
    brokers, identities = guarded

    async def run() -> None:
        at = brokers.addresses
        tls = identities.of("aggregator")
        async with (
            connected(at, "gw", f"{OWN}/+/q", f"{OWN}/+/up/#", tls=tls) as gateway,
            connected(at, "edgefl-test-dev.1", f"{OWN}/dev.1/c", "efl/1/test/m/#",
                      "efl/1/test/r/all/call", "efl/1/test/agg", tls=identities.of("dev.1"))
            as device,
        ):  # fmt: skip
            await gateway.transport.publish("efl/1/test/agg", b"here", retain=True)
            await gateway.transport.publish(f"{OWN}/dev.1/c", b"offer")
            await gateway.transport.publish("efl/1/test/m/abc/man", b"manifest")
            await device.transport.publish(f"{OWN}/dev.1/q", b"check-in")
            await device.transport.publish(f"{OWN}/dev.1/up/1f", b"chunk")
            await until(lambda: len(gateway.inbound) == 2, "the device is heard")
            await until(lambda: len(device.inbound) == 3, "the gateway is heard")

    asyncio.run(run())


def test_a_device_neither_reads_nor_writes_those_of_others(
    guarded: tuple[Brokers, Identities],
) -> None:
    brokers, identities = guarded

    async def run() -> None:
        at = brokers.addresses
        tls = identities.of("aggregator")
        async with (
            connected(at, "gw", f"{OWN}/+/q", "efl/1/test/agg", "efl/1/test/r/all/call",
                      tls=tls) as gateway,
            connected(at, "edgefl-test-d2", f"{OWN}/dev.1/c", f"{OWN}/+/q",
                      tls=identities.of("d2")) as spy,
        ):  # fmt: skip
            for topic in (f"{OWN}/dev.1/q", "efl/1/test/agg", "efl/1/test/r/all/call"):
                await spy.transport.publish(topic, b"forged")
            await gateway.transport.publish(f"{OWN}/dev.1/c", b"secret")
            await asyncio.sleep(0.3)
            # NATS closes at a forged message, and it is set aside: the honest one is the last.
            await spy.transport.publish(f"{OWN}/d2/q", b"honest")
            await until(lambda: gateway.payloads(f"{OWN}/d2/q"), "the honest message")
            assert not [event for event in gateway.inbound if event.payload == b"forged"]
            assert not spy.inbound

    asyncio.run(run())


@pytest.mark.parametrize("device", ["d2", "dev.1"])
def test_the_gateway_cuts_a_device_off_by_taking_its_session_over(
    guarded: tuple[Brokers, Identities], device: str
) -> None:
    """With its own certificate under the device's client id, which a broker may refuse."""
    brokers, identities = guarded
    gateway = ExternalBroker(
        brokers=brokers.addresses,
        tls=identities.of("aggregator"),
        fleet=parse_fleet("test"),
        accepted=(),
    )

    async def run() -> None:
        client_id, tls = f"edgefl-test-{device}", identities.of(device)
        at = brokers.addresses
        async with connected(at, client_id, f"{OWN}/{device}/c", tls=tls) as cut:
            assert cut.down_reasons == []
            await asyncio.to_thread(gateway.disconnect, device, "revoked by the operator")
            await until(lambda: cut.down_reasons, "the device is cut off")
            assert cut.down_reasons[0] in {LinkDownReason.TAKEN_OVER, LinkDownReason.LOST}
        await gateway.transport.close()

    asyncio.run(run())


def test_nobody_comes_in_without_a_certificate(guarded: tuple[Brokers, Identities]) -> None:
    brokers, identities = guarded
    settings = MqttSettings(
        brokers=brokers.addresses, client_id="gw", tls=identities.of("aggregator")
    )
    assert asyncio.run(check_broker(settings, "test")) == ()


def test_mosquitto_that_wants_no_certificates_is_named(tmp_path: Path) -> None:
    identities = Identities(tmp_path / "state")
    out = tmp_path / "broker"
    with mosquitto(out, state=identities.state) as brokers:
        (node,) = brokers.nodes
        node.stop()
        config = (out / "mosquitto.conf").read_text()
        config = config.replace("require_certificate true", "require_certificate false")
        config = config.replace("use_identity_as_username true\n", "")
        config = config.replace("allow_anonymous false", "allow_anonymous true")
        config = config.replace("acl_file", "# acl_file")
        (out / "mosquitto.conf").write_text(config)
        node.start()
        node.wait_listening()
        settings = MqttSettings(
            brokers=brokers.addresses, client_id="gw", tls=identities.of("aggregator")
        )
        (finding,) = asyncio.run(check_broker(settings, "test"))
    assert finding.code == "E-BROKER-ANONYMOUS"


def test_mosquitto_refuses_a_revoked_device(tmp_path: Path) -> None:
    identities = Identities(tmp_path / "state")
    identities.revoke("d2")

    async def run(brokers: Brokers) -> LinkDown:
        settings = MqttSettings(
            brokers=brokers.addresses, client_id="edgefl-test-d2", tls=identities.of("d2")
        )
        transport = MqttTransport(settings)
        await transport.start()
        try:
            async with asyncio.timeout(20):
                async for event in transport.events():
                    assert isinstance(event, LinkDown)
                    # Sometimes the broker's reset overtakes its word.
                    if event.reason is LinkDownReason.TLS:
                        return event
        finally:
            await transport.close()
        raise AssertionError("no event")

    with mosquitto(tmp_path / "broker", state=identities.state) as brokers:
        assert "revoked" in asyncio.run(run(brokers)).detail
