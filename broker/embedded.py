"""The gateway's link to the broker that it starts itself."""

from collections.abc import AsyncIterator

from broker.endpoint import HOST, EmbeddedEndpoint
from broker.events import Json, Reported, UploadMoved
from edgefl.protocol import topics
from edgefl.transport.base import Will
from edgefl.transport.broker_url import plain_broker
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings
from edgefl.types import FleetName


class EmbeddedBroker:
    """A `GatewayLink` to a broker in a child process.

    Args:
        endpoint: The child process, not yet started.
        fleet: Whose gateway this is.
    """

    def __init__(self, endpoint: EmbeddedEndpoint, fleet: FleetName) -> None:
        """Prepare; nothing runs before `start`."""
        self._endpoint = endpoint
        self._fleet = fleet
        self._transport: MqttTransport | None = None

    @property
    def transport(self) -> MqttTransport:
        """Carries the messages; made when the port is known."""
        if self._transport is None:
            settings = MqttSettings(
                brokers=(plain_broker(self._endpoint.port),),
                client_id=f"edgefl-{self._fleet}-aggregator",
                keepalive_s=20,
                max_outbox_messages=4096,
                max_outbox_bytes=64 << 20,
                max_inbox_messages=8192,
            )
            will = Will(topic=topics.aggregator(self._fleet), payload=b"", retain=True)
            self._transport = MqttTransport(settings, will)
        return self._transport

    @property
    def kind(self) -> str:
        """One word for the status page."""
        return "endpoint"

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where devices reach it."""
        return (str(plain_broker(self._endpoint.port)),)

    def counters(self) -> dict[str, int]:
        """Return nothing: this broker does not count."""
        return {}

    async def start(self) -> None:
        """Start the broker and wait until it listens.

        Raises:
            EnvironmentProblem: The port is in use or forbidden, or the broker does not start.
        """
        await self._endpoint.start()

    async def supervise(self) -> None:
        """Start the broker again whenever it dies; return after `close`.

        Raises:
            EnvironmentProblem: It dies again and again.
        """
        await self._endpoint.supervise()

    async def notices(self) -> AsyncIterator[UploadMoved | Reported]:
        """Yield nothing."""
        nothing: tuple[Reported, ...] = ()
        for notice in nothing:
            yield notice

    async def close(self) -> None:
        """End the broker."""
        await self._endpoint.close()

    def describe(self) -> dict[str, Json]:
        """Return where it listens."""
        return {"host": HOST, "port": self._endpoint.port}
