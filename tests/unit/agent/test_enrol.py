"""How a device gets into a fleet: waits, goes on after interruptions, and believes nobody else."""

import asyncio
import contextlib
import hashlib
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from cryptography import x509

from broker.enrolment_events import Order, Verb
from edgefl.agent import enrol
from edgefl.agent.enrol import Applicant, Enrolment, begin, stored_token
from edgefl.agent.enrolled import Enrolled, TlsFiles, read_enrolled
from edgefl.errors import ConfigError, PolicyRefusal, StorageError, TransportError
from edgefl.protocol import topics
from edgefl.protocol.enrolment_messages import EnrolmentAnswer, EnrolmentState
from edgefl.protocol.envelope import AGGREGATOR, Header, seal_envelope
from edgefl.protocol.identity import DeviceIdentity
from edgefl.transport.base import Inbound, LinkDown, LinkDownReason, TransportEvent
from edgefl.transport.core_events import Publish
from edgefl.transport.memory import MemoryBroker, MemoryTransport
from tests.authority_lab import FLEET, GATEWAY, Lab, new_key


class Home:
    """A gateway's desk behind a broker in memory, and one device's folder."""

    def __init__(self, folder: Path, **token: object) -> None:
        self.lab = Lab(folder / "gateway")
        self.broker = MemoryBroker()
        self.token = self.lab.token(**token)
        self.files = TlsFiles(state_dir=folder / "device")
        self.key = new_key()
        self.said: list[str] = []
        self.is_deaf = False
        self.broker.attach("gateway", None, self.hear)
        self.broker.subscribe("gateway", topics.claim_uplink(FLEET, "+"))
        begin(self.applicant)

    @property
    def applicant(self) -> Applicant:
        identity = DeviceIdentity(device="d1", signing_key=self.key)
        gateways = ("mqtts://localhost:8883",)
        return Applicant(identity=identity, token=self.token, gateways=gateways, files=self.files)

    def hear(self, event: TransportEvent) -> None:
        if isinstance(event, Inbound) and not self.is_deaf:
            self.tell(self.lab.desk.on_request(self.token.claim, event.topic, event.payload))

    def tell(self, effects: list) -> None:
        for effect in effects:
            if isinstance(effect, Publish):
                self.broker.publish(effect.topic, effect.payload)

    def decide(self, verb: Verb) -> None:
        self.tell(self.lab.desk.on_order(Order(order_id="1", verb=verb, device="d1")))

    def enrolment(self, wait_s: float | None = 5.0) -> Enrolment:
        return Enrolment(self.applicant, say=self.say, wait_s=wait_s)

    def say(self, line: str) -> None:
        self.said.append(line)
        if line.startswith("pending"):
            self.pending.set()

    def run(self, wait_s: float | None = 5.0, then: Callable[[], None] | None = None) -> Enrolled:
        async def work() -> Enrolled:
            self.pending = asyncio.Event()
            task = asyncio.create_task(
                self.enrolment(wait_s).run(MemoryTransport(self.broker, "device"))
            )
            if then is not None:
                async with asyncio.timeout(5):
                    await self.pending.wait()
                then()
            return await task

        return asyncio.run(work())


def test_a_device_is_let_in_at_once(tmp_path: Path) -> None:
    home = Home(tmp_path, is_preauthorised=True)
    home.run()
    enrolled = read_enrolled(home.files.state_dir)
    assert enrolled is not None
    assert (enrolled.device, enrolled.fleet) == ("d1", FLEET)
    assert enrolled.tls.certificate_file == home.files.device
    enrolled.tls.context()  # Certificate and key fit together.
    made = x509.load_pem_x509_certificate(home.files.device.read_bytes())
    assert made.subject.rfc4514_string() == "CN=d1"
    left = {path.name for path in (home.files.state_dir / "tls").iterdir()}
    assert left == {"device.pem", "trusted.crt"}
    for path in home.files.state_dir.rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077


def test_a_device_waits_for_the_operator(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.run(then=lambda: home.decide(Verb.ACCEPT))
    assert read_enrolled(home.files.state_dir) is not None
    assert home.said == ["pending: waiting for the operator ('edgefl devices accept d1')"]


def test_a_rejected_device_ends_with_the_reason(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(PolicyRefusal, match=r"E-ENROL-REJECTED.*the operator rejected") as caught:
        home.run(then=lambda: home.decide(Verb.REJECT))
    assert caught.value.exit_code == 3
    assert read_enrolled(home.files.state_dir) is None


def test_an_interrupted_enrolment_goes_on_where_it_was(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(TransportError, match="E-ENROL-PENDING"):
        home.run(wait_s=0.3)
    before = home.files.request.read_bytes()
    assert stored_token(home.files) == home.token
    home.decide(Verb.ACCEPT)
    home.run()
    record = home.lab.desk.enrolments.get("d1")
    assert len(record.issued) == 1
    assert record.certificate_request in _der(before)
    assert stored_token(home.files) is None


def _der(pem: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization

    request = pem.partition(b"-----END PRIVATE KEY-----\n")[2]
    return x509.load_pem_x509_csr(request).public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize("count", range(1, 6))
def test_a_power_cut_in_any_write_leaves_an_enrolment_that_goes_on(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path, is_preauthorised=True)
    write, left = TlsFiles.write, [count]

    def cut(self: TlsFiles, path: Path, content: bytes) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise StorageError("E-TLS-WRITE", "power", "none")
        write(self, path, content)

    monkeypatch.setattr(TlsFiles, "write", cut)
    with contextlib.suppress(StorageError):
        home.run()
    was_cut = left[0] <= 0
    assert was_cut == (count <= 4)
    monkeypatch.setattr(TlsFiles, "write", write)
    if read_enrolled(home.files.state_dir) is None:
        assert stored_token(home.files) == home.token
        home.run()
    enrolled = read_enrolled(home.files.state_dir)
    assert enrolled is not None
    enrolled.tls.context()


def test_a_device_that_lost_its_key_for_tls_enrols_again_with_its_identity(tmp_path: Path) -> None:
    home = Home(tmp_path, is_preauthorised=True)
    home.run()
    first = home.files.device.read_bytes()
    home.token = home.lab.token()
    begin(home.applicant)
    home.run()
    assert home.files.device.read_bytes() != first
    assert len(home.lab.desk.revocations().serials) == 1


def test_nobody_but_the_tokens_gateway_is_believed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    topic = topics.claim_downlink(FLEET, home.token.claim)
    stranger = new_key()

    def lie(event: TransportEvent) -> None:
        if not isinstance(event, Inbound):
            return
        mine = hashlib.sha256(event.payload).digest()
        # A stranger about this device, and the gateway about another one.
        for key, digest in ((stranger, mine), (GATEWAY, bytes(32))):
            for state in (EnrolmentState.REJECTED, EnrolmentState.PENDING):
                answer = EnrolmentAnswer(
                    state=state, reason="", digest=digest, certificate=b"", authorities=()
                )
                payload = seal_envelope(key, topic, Header(sender=AGGREGATOR), answer)
                home.broker.publish(topic, payload)
        home.broker.publish(topic, b"garbage")

    home.is_deaf = True
    home.broker.attach("stranger", None, lie)
    home.broker.subscribe("stranger", topics.claim_uplink(FLEET, "+"))
    with pytest.raises(TransportError, match="E-NO-GATEWAY"):
        home.run(wait_s=0.5)
    assert home.said == []


class Failing:
    """A transport whose link never comes up."""

    def __init__(self, *details: str) -> None:
        self.details = details

    async def start(self) -> None: ...

    async def subscribe(self, *filters: str) -> None: ...

    async def close(self) -> None: ...

    async def events(self) -> AsyncIterator[TransportEvent]:
        for detail in self.details:
            yield LinkDown(reason=LinkDownReason.TLS, detail=detail)
        await asyncio.sleep(60)


@pytest.mark.parametrize("kind", ["host name", "chain", "usage"])
def test_a_certificate_that_stays_wrong_ends_the_attempt(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrol, "_TLS_PATIENCE_S", 0.2)
    home = Home(tmp_path)
    with pytest.raises(TransportError, match=f"E-TLS: .*{kind}: it is wrong") as caught:
        asyncio.run(home.enrolment(30).run(Failing(f"{kind}: it is wrong")))
    assert caught.value.exit_code == 5


def test_a_certificate_out_of_its_dates_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrol, "_TLS_PATIENCE_S", 0.1)
    home = Home(tmp_path)
    with pytest.raises(TransportError, match="E-NO-GATEWAY") as caught:
        asyncio.run(home.enrolment(0.6).run(Failing("time: not valid yet")))
    assert "time: not valid yet" in str(caught.value)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"device": "A", "fleet": "f", "gateways": [], "enrolment_key": null}'],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "enrolled.json").write_text(content)
    with pytest.raises(ConfigError, match="E-ENROLLED"):
        read_enrolled(tmp_path)
