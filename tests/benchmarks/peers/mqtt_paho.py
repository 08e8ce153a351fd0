"""An aggregator behind a broker, by paho-mqtt: receives chunks and counts them, nothing more.

It neither hashes nor sums, so what it costs is a floor for any aggregator that uses this client.
"""

import argparse
import asyncio
import threading

import paho.mqtt.client as paho

from tests.benchmarks.gateway import own_figures
from tests.benchmarks.peers.line_server import Json, serve_lines


class Receiver:
    """One subscriber with paho's own thread.

    Args:
        port: The broker's.
        topic_filter: What to receive.
    """

    def __init__(self, port: int, topic_filter: str) -> None:
        """Connect and subscribe."""
        self._count = 0
        self._bytes = 0
        subscribed = threading.Event()
        self._client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, "aggregator", clean_session=False,
            protocol=paho.MQTTv311,
        )  # fmt: skip
        self._client.on_connect = lambda client, *_: client.subscribe(topic_filter, 1)
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.on_message = self._on_message
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        if not subscribed.wait(20):
            raise TimeoutError("no SUBACK within 20 s")

    async def answer(self, operation: str, arguments: dict[str, Json]) -> dict[str, Json]:
        """Say what has come; with `begin`, count from nothing."""
        del arguments
        if operation == "begin":
            self._count = self._bytes = 0
            own_figures.forget_peak()
        return {**own_figures.cpu_and_memory(), "messages": self._count, "bytes": self._bytes}

    def _on_message(self, client: paho.Client, user: object, message: paho.MQTTMessage) -> None:
        del client, user
        self._count += 1
        self._bytes += len(message.payload)


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--filter", required=True)
    options = parser.parse_args()

    async def run() -> None:
        await serve_lines({}, Receiver(options.port, options.filter).answer)

    asyncio.run(run())


if __name__ == "__main__":
    main()
