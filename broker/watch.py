"""The window of a running gateway: its reports go in, and its HTTP server gives them out."""

import asyncio
from pathlib import Path

from broker.core import GatewayCore
from broker.events import Json, Reported
from broker.http_app import HttpApp
from broker.http_server import HttpServer, HttpSettings
from broker.live_status import LinkWords, LiveStatus
from broker.metrics import GatewayMetrics
from edgefl import __version__


class GatewayWatch:
    """The window of one gateway.

    Args:
        core: What is looked at.
        settings: Where the page is served; None serves none.
        fleet: The gateway's fleet.
        state_dir: Where its state lies.
        link: How it is reached.
    """

    def __init__(
        self,
        core: GatewayCore,
        *,
        settings: HttpSettings | None,
        fleet: str,
        state_dir: Path,
        link: LinkWords,
    ) -> None:
        """Take the port, so that its number can be told before anything is served.

        Raises:
            EnvironmentProblem: The port is taken or forbidden.
        """
        self._status = LiveStatus(
            core, fleet=fleet, version=__version__, state_dir=state_dir, link=link
        )
        self._metrics = GatewayMetrics(self._status.facts)
        self._server = None if settings is None else HttpServer(settings)
        if self._server is not None:
            self._server.bind()

    def on_report(self, report: Reported) -> None:
        """Take what the gateway tells its operator."""
        self._status.on_report(report)
        self._metrics.on_report(report)

    def words(self) -> dict[str, Json]:
        """Return what `gateway.json` says of the page. It holds the operator's token."""
        if self._server is None:
            return {}
        words: dict[str, Json] = {"http": self._server.address, "token": self._server.token}
        if self._server.server_name:
            words["http_name"] = self._server.server_name
        return words

    async def serve(self) -> None:
        """Serve until `close`; without a page, wait for that."""
        if self._server is None:
            return
        app = HttpApp(
            self._status,
            metrics=self._metrics.render,
            token=self._server.token,
            hosts=self._server.hosts,
        )
        await self._server.serve(app)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Serve in a task of its own."""
        group.create_task(self.serve(), name="status page")

    def close(self) -> None:
        """End the serving, and free the port."""
        if self._server is not None:
            self._server.close()
