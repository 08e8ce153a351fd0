"""What the gateway's runtime knows of its MQTT: an endpoint of its own, or a broker of others."""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from broker.events import Json, Reported, SendChunks, StopChunks, UploadMoved
from edgefl.transport.base import Transport


class ChunkStreams(Protocol):
    """Cuts chunks from a blob as a device takes them."""

    def send_chunks(self, wish: SendChunks) -> None:
        """Send chunks when their turn comes; none where the device is not connected."""

    def stop_chunks(self, wish: StopChunks) -> None:
        """Send no more of a transfer than is under way."""


class GatewayLink(Protocol):
    """Brings messages to the gateway and takes them away."""

    @property
    def kind(self) -> str:
        """One word for the status page: "endpoint" or "external"."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """URLs that devices reach it by, after `start`."""

    def counters(self) -> Mapping[str, int]:
        """Return counts for the status page: connections and the like; empty for none."""

    @property
    def transport(self) -> Transport:
        """Carries the messages; to be used after `start`."""

    @property
    def streams(self) -> ChunkStreams | None:
        """Sends the chunks of downloads by itself; None: they are published like all else."""

    async def start(self) -> None:
        """Open what must be open before the transport starts.

        Raises:
            EdgeflError: A port is in use, a certificate cannot be read.
        """

    async def supervise(self) -> None:
        """Keep it alive; return after `close`.

        Raises:
            EdgeflError: It cannot be kept alive, or is not safe to use.
        """

    def notices(self) -> AsyncIterator[UploadMoved | Reported]:
        """Yield what is no message, until `close`: uploads that moved, and troubles to report."""

    async def close(self) -> None:
        """End it, after the transport was closed."""

    def describe(self) -> dict[str, Json]:
        """Return how it is reached, for `gateway.json`: host and port at least."""
