"""Find out, by trying, whether a broker of others is safe to run a fleet over.

A PUBACK from a broker says that the broker has a message, not that it will keep it. Three things
can only be found by trying: whether it keeps messages for a client that is away, how many, and
whether it keeps retained ones. The rest it says when it takes a connection, or shows by letting
strangers in. All of it takes about a second, and leaves nothing behind.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from edgefl.errors import EnvironmentProblem, TransportError
from edgefl.protocol.topics import PREFIX
from edgefl.transport.base import Inbound, LinkDown, LinkDownReason, LinkUp, TransportEvent
from edgefl.transport.broker_url import is_loopback
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.mqtt5 import BrokerLimits
from edgefl.transport.settings import MqttSettings
from edgefl.types import FleetName

_LOGGER = logging.getLogger(__name__)

BURST_MESSAGES = 1200
"""More than the 1,000 that mosquitto keeps for a client by default before it drops in silence."""
LEAST_PACKET_BYTES = 8 << 10
"""Room for the smallest chunk of 4 KiB and for any control message."""
GOOD_PACKET_BYTES = 68 << 10
"""Room for a chunk of 64 KiB."""
_END, _RETAINED = b"end", b"retained"
_RETAINED_WITHIN_S = 10.0
_WITHIN_S = 60.0
_PROBE_SESSION_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing about a broker that its operator should know.

    Attributes:
        code: Stable identifier.
        is_fatal: Whether a fleet cannot be run over it safely.
        expected: What would have been right.
        found: What was there instead.
        advice: What to do.
    """

    code: str
    is_fatal: bool
    expected: str
    found: str
    advice: str

    def __str__(self) -> str:
        """Return one line for the log."""
        return f"{self.code}: expected {self.expected}; found {self.found}; {self.advice}"

    def to_error(self) -> EnvironmentProblem:
        """Return the error of a gateway that does not start because of it."""
        return EnvironmentProblem(self.code, self.expected, self.found, self.advice)


_NO_RETAINED = Finding(
    code="E-BROKER-RETAIN",
    is_fatal=True,
    expected="a broker that keeps retained messages",
    found="one that keeps none",
    advice="devices find their gateway by one; switch retained messages on",
)


async def check_broker(settings: MqttSettings, fleet: FleetName) -> tuple[Finding, ...]:
    """Look for what is unsafe about a broker.

    Args:
        settings: How the gateway reaches it; its own client id is not used.
        fleet: Whose topics the gateway may use there.

    Returns:
        What was found, the worst first.

    Raises:
        TransportError: It cannot be reached, or stops answering meanwhile.
    """
    nonce = secrets.token_hex(4)
    topic = f"{PREFIX}/{fleet}/probe/{nonce}"
    probe = replace(
        settings,
        client_id=f"edgefl-{fleet}-probe-{nonce}",
        acknowledges_late=False,
        session_expiry_s=_PROBE_SESSION_S,
        max_in_flight=100,
        keepalive_s=20,
    )
    findings: list[Finding] = []
    try:
        async with asyncio.timeout(_WITHIN_S):
            findings += await _probe_queue(probe, topic)
            limits = await _limits(probe)
            if not limits.has_retain or not await _keeps_retained(probe, topic):
                findings.append(_NO_RETAINED)
            findings += _read_limits(limits, settings.session_expiry_s)
            findings += await _probe_strangers(probe)
    except TimeoutError as error:
        raise TransportError(
            "E-BROKER-PROBE",
            f"a broker at {settings.brokers[0]} that answers within {_WITHIN_S:.0f} s",
            "one that does not",
            "is it overloaded, or does its access list keep the gateway off its own topics?",
        ) from error
    return tuple(sorted(findings, key=lambda finding: not finding.is_fatal))


class _Client:
    """One link of the probe, and what came over it."""

    def __init__(self, transport: MqttTransport) -> None:
        self.transport = transport
        self.had_session = False
        self.inbound: list[Inbound] = []
        self._news = asyncio.Event()
        self._is_up = False

    async def read(self) -> None:
        async for event in self.transport.events():
            self._take(event)

    def _take(self, event: TransportEvent) -> None:
        if isinstance(event, Inbound):
            self.inbound.append(event)
        elif isinstance(event, LinkUp):
            self._is_up, self.had_session = True, event.session_present
        elif not self._is_up and event.reason is not LinkDownReason.UNREACHABLE:
            _LOGGER.info("probing: %s %s", event.reason.value, event.detail)
        self._news.set()

    async def wait_up(self) -> None:
        while not self._is_up:
            await self._next()

    async def wait_for(self, payload: bytes) -> None:
        """Wait until a message with this payload has come."""
        while not any(event.payload == payload for event in self.inbound):
            await self._next()

    async def _next(self) -> None:
        self._news.clear()
        await self._news.wait()


@contextlib.asynccontextmanager
async def _connected(settings: MqttSettings, *filters: str) -> AsyncIterator[_Client]:
    """Give a link that stands; nothing of it is left afterwards but what the broker keeps."""
    client = _Client(MqttTransport(settings))
    await client.transport.subscribe(*filters)
    await client.transport.start()
    reading = asyncio.create_task(client.read(), name="broker probe")
    try:
        await client.wait_up()
        yield client
    finally:
        await asyncio.shield(client.transport.close())
        await reading


async def _probe_queue(probe: MqttSettings, topic: str) -> list[Finding]:
    """Send a burst to a client that is away, and count what it gets when it comes back.

    The end is a message sent after its return, which comes after all that was kept, however slow
    the machine.
    """
    sender = replace(probe, client_id=f"{probe.client_id}-s", clean_start=True)
    async with _connected(probe, topic):
        pass
    async with _connected(sender) as sending:
        for number in range(BURST_MESSAGES):
            await sending.transport.publish(topic, number.to_bytes(4, "big"))
        await sending.transport.drain()
        async with _connected(probe, topic) as returned:
            await sending.transport.publish(topic, _END)
            await returned.wait_for(_END)
            kept_session = returned.had_session
            kept = len({event.payload for event in returned.inbound} - {_END})
    async with _connected(replace(probe, clean_start=True)):
        pass  # forget the session
    if not kept_session:
        return [
            Finding(
                code="E-BROKER-SESSION",
                is_fatal=False,
                expected="a broker that keeps the sessions of clients that are away",
                found="one that forgets them at once",
                advice="devices that sleep between phases will miss messages and need more time; "
                "set its session expiry to a day",
            )
        ]
    return [] if kept == BURST_MESSAGES else [_short_queue(kept)]


def _short_queue(kept: int) -> Finding:
    return Finding(
        code="E-BROKER-QUEUE",
        is_fatal=True,
        expected=f"a broker that keeps {BURST_MESSAGES} messages that it acknowledged",
        found=f"one that kept {kept} and dropped the rest in silence",
        advice="bound its queues by bytes, not by messages (mosquitto: max_queued_messages 0 and "
        "max_queued_bytes); 'edgefl gateway config mosquitto' writes a configuration",
    )


async def _keeps_retained(probe: MqttSettings, topic: str) -> bool:
    """Publish a retained message and look whether a newcomer gets it."""
    sender = replace(probe, client_id=f"{probe.client_id}-s", clean_start=True)
    reader = replace(probe, client_id=f"{probe.client_id}-r", clean_start=True)
    async with _connected(sender) as sending:
        await sending.transport.publish(topic, _RETAINED, retain=True)
        await sending.transport.drain()
        try:
            async with _connected(reader, topic) as reading, asyncio.timeout(_RETAINED_WITHIN_S):
                await reading.wait_for(_RETAINED)
                return True
        except TimeoutError:
            return False
        finally:
            await sending.transport.publish(topic, b"", retain=True)
            await sending.transport.drain()


async def _limits(probe: MqttSettings) -> BrokerLimits:
    async with _connected(replace(probe, clean_start=True)) as client:
        return client.transport.limits


def _read_limits(limits: BrokerLimits, session_expiry_s: int) -> list[Finding]:
    """Judge what the broker says about itself."""
    findings = []
    packet_bytes = limits.max_packet_bytes
    if packet_bytes is not None and packet_bytes < GOOD_PACKET_BYTES:
        findings.append(
            Finding(
                code="E-BROKER-PACKET-SIZE",
                is_fatal=packet_bytes < LEAST_PACKET_BYTES,
                expected=f"a broker that takes packets of {GOOD_PACKET_BYTES} bytes",
                found=f"at most {packet_bytes} bytes",
                advice="smaller chunks cost more packets; raise its largest packet to 262144",
            )
        )
    kept_s = limits.session_expiry_s
    if kept_s is not None and kept_s < session_expiry_s and kept_s != _PROBE_SESSION_S:
        findings.append(
            Finding(
                code="E-BROKER-SESSION-EXPIRY",
                is_fatal=False,
                expected=f"sessions that are kept for {session_expiry_s} s",
                found=f"{kept_s} s",
                advice="devices must not sleep for longer; raise the broker's session expiry",
            )
        )
    return findings


async def _probe_strangers(probe: MqttSettings) -> list[Finding]:
    """Look whether the broker lets in whoever shows no certificate."""
    address = probe.brokers[0]
    if not address.scheme.has_tls or probe.tls is None:
        return [
            Finding(
                code="E-BROKER-PLAINTEXT",
                is_fatal=False,
                expected="TLS with a certificate for each device",
                found=f"a plaintext broker on this machine, {address}",
                advice="any program on this machine can speak for any device in it; for more than "
                "a trial use mqtts:// ('edgefl gateway init')",
            )
        ]
    stranger = replace(
        probe,
        client_id=f"{probe.client_id}-x",
        clean_start=True,
        tls=replace(probe.tls, certificate_file=None, key_file=None),
    )
    if not await _lets_in(stranger):
        return []
    return [
        Finding(
            code="E-BROKER-ANONYMOUS",
            is_fatal=not is_loopback(address.host),
            expected="a broker that takes nobody without a certificate",
            found="one that took a client which showed none",
            advice="require client certificates (mosquitto: require_certificate true)",
        )
    ]


async def _lets_in(settings: MqttSettings) -> bool:
    """Try once to connect; the first answer counts."""
    transport = MqttTransport(settings)
    await transport.start()
    try:
        async for event in transport.events():
            if isinstance(event, LinkUp):
                return True
            if isinstance(event, LinkDown):
                return False
    finally:
        await asyncio.shield(transport.close())
    return False
