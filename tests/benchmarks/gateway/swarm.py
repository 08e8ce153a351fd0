"""Thousands of devices in one process, driven by lines of JSON.

Towards our endpoint they use the agent's own transfers; towards a broker of others they publish the
same chunks with the same window, and count what comes.
"""

import argparse
import asyncio
import time
from collections.abc import Coroutine, Iterable
from pathlib import Path

from edgefl._native import UploadStage
from edgefl.agent.downloads import LIMITS, STAGE_BYTES
from edgefl.protocol import topics
from edgefl.transfer.manifest import chunks_of
from edgefl.transfer.packets import pack_chunk
from tests.benchmarks.gateway.certificates import device_tls
from tests.benchmarks.gateway.lab_device import LabDevice
from tests.benchmarks.gateway.lab_fleet import (
    CHUNK_BYTES,
    FLEET,
    SLOTS,
    WINDOW_CHUNKS,
    client_id,
    device_name,
    packed_vector,
)
from tests.benchmarks.peers.line_server import Json, serve_lines
from tests.benchmarks.peers.mqtt_wire import MqttWire, connect

_CONNECTING = 64
"""Devices that connect at the same time."""
_MOST_ATTEMPTS = 60
_BACK_OFF_S = 0.5
_MODEL_FILTER = f"efl/1/{FLEET}/m/x/+"


def model_topic(index: int) -> str:
    """Return the topic of a retained chunk of a model, for brokers of others."""
    return f"efl/1/{FLEET}/m/x/{index}"


class Swarm:
    """All devices of one run.

    Args:
        port: Of the server.
        tls_folder: Where the devices' certificates are, for a port with TLS.
    """

    def __init__(self, port: int, tls_folder: Path | None = None) -> None:
        """Connect nobody yet."""
        self._port = port
        self._tls_folder = tls_folder
        self._devices: list[LabDevice] = []
        self._wires: list[MqttWire] = []
        self._late_s: list[float] = []
        self._payloads: dict[int, int] = {}
        self._publisher: MqttWire | None = None

    async def answer(self, operation: str, arguments: dict[str, Json]) -> dict[str, Json]:
        """Do one thing."""
        numbers = {name: int(str(value)) for name, value in arguments.items() if name != "sha256"}
        if operation == "open":
            return await self._open(numbers["count"])
        if operation == "upload":
            return await self._upload(numbers["size_bytes"], numbers["attempt"])
        if operation == "fetch":
            sha256 = bytes.fromhex(str(arguments["sha256"]))
            return await self._gather(device.fetch(sha256) for device in self._devices)
        if operation == "connect":
            return await self._connect(numbers["count"], numbers.get("first", 0))
        if operation == "publish":
            return await self._publish(numbers["size_bytes"])
        if operation == "retain":
            return await self._retain(numbers["size_bytes"])
        if operation == "receive":
            return await self._receive(numbers["size_bytes"], numbers["parallel"])
        if operation == "call":
            return await self._call()
        if operation == "heard":
            return self._heard()
        return self._leave(politely=operation == "leave")

    # ------------------------------------------------------------ our endpoint

    async def _open(self, count: int) -> dict[str, Json]:
        turn = asyncio.Semaphore(_CONNECTING)

        async def one(number: int) -> None:
            device = LabDevice(number, UploadStage(STAGE_BYTES, LIMITS.offers_per_peer))
            async with turn:
                await device.open(self._port)
            self._devices.append(device)

        return await self._gather(map(one, range(count)))

    async def _upload(self, size_bytes: int, attempt: int) -> dict[str, Json]:
        packed = packed_vector(size_bytes)
        return await self._gather(device.upload(packed, attempt) for device in self._devices)

    @staticmethod
    async def _gather(works: Iterable[Coroutine[None, None, None]]) -> dict[str, Json]:
        started_s = time.monotonic()
        await asyncio.gather(*works)
        return {"wall_s": time.monotonic() - started_s, "cpu_s": time.process_time()}

    # ------------------------------------------------------------ any server

    async def _connect(self, count: int, first: int) -> dict[str, Json]:
        """Connect devices that sleep: a session that stays, a will, three subscriptions."""
        turn = asyncio.Semaphore(_CONNECTING)

        async def one(number: int) -> None:
            async with turn:
                for _ in range(_MOST_ATTEMPTS):
                    try:
                        await self._connect_one(number)
                    except ConnectionError:
                        # All come from one address, of which the endpoint takes so many a second.
                        await asyncio.sleep(_BACK_OFF_S)
                    else:
                        return
                raise TimeoutError(f"device {number} is not let in")

        return await self._gather(one(number) for number in range(first, first + count))

    async def _connect_one(self, number: int) -> None:
        name = device_name(number)
        folder = self._tls_folder
        wire = await connect(
            self._port,
            client_id(number),
            is_clean=False,
            will=(topics.status(FLEET, name), b"offline"),
            on_message=self._on_message,
            tls=None if folder is None else device_tls(folder, number),
        )
        await wire.subscribe(
            (topics.downlink(FLEET, name), topics.calls(FLEET), topics.aggregator(FLEET))
        )
        await (await wire.publish(topics.status(FLEET, name), b"online", retain=True))
        self._wires.append(wire)

    async def _publish(self, size_bytes: int) -> dict[str, Json]:
        """Publish every device's chunks, so many devices at a time as our gateway grants."""
        packets = [
            pack_chunk(index, chunk)
            for index, chunk in enumerate(chunks_of(packed_vector(size_bytes), CHUNK_BYTES))
        ]
        turn = asyncio.Semaphore(SLOTS)

        async def one(number: int, wire: MqttWire) -> None:
            topic = topics.upload(FLEET, device_name(number), f"{number:016x}")
            async with turn:
                waiting: list[asyncio.Future[None]] = []
                for packet in packets:
                    waiting.append(await wire.publish(topic, packet))
                    if len(waiting) >= WINDOW_CHUNKS:
                        await waiting.pop(0)
                await asyncio.gather(*waiting)

        return await self._gather(one(n, wire) for n, wire in enumerate(self._wires))

    async def _retain(self, size_bytes: int) -> dict[str, Json]:
        """Publish a model as retained chunks."""
        publisher = self._publisher = await connect(self._port, "publisher")
        for index, chunk in enumerate(chunks_of(bytes(size_bytes), CHUNK_BYTES)):
            await (await publisher.publish(model_topic(index), bytes(chunk), retain=True))
        return {}

    async def _receive(self, size_bytes: int, parallel: int) -> dict[str, Json]:
        """Let every device subscribe to the retained chunks, so many at a time."""
        turn = asyncio.Semaphore(parallel)

        async def one(wire: MqttWire) -> None:
            before = wire.received_bytes
            async with turn:
                await wire.subscribe((_MODEL_FILTER,))
                while wire.received_bytes < before + size_bytes:  # noqa: ASYNC110 - bytes tell nobody
                    await asyncio.sleep(0.005)

        return await self._gather(map(one, self._wires))

    async def _call(self) -> dict[str, Json]:
        """Publish a call as an aggregator behind a broker does."""
        if self._publisher is None:
            self._publisher = await connect(self._port, "aggregator")
        await self._publisher.publish(topics.calls(FLEET), str(time.monotonic_ns()).encode())
        return {}

    def _on_message(self, topic: str, payload: bytes) -> None:
        if topic == topics.calls(FLEET):
            self._late_s.append((time.monotonic_ns() - int(payload)) / 1e9)

    def _heard(self) -> dict[str, Json]:
        late_s, self._late_s = self._late_s, []
        lost = sum(wire.is_lost for wire in self._wires)
        present = sum(wire.session_present for wire in self._wires)
        return {"late_s": [*sorted(late_s)], "lost": lost, "present": present}

    def _leave(self, *, politely: bool) -> dict[str, Json]:
        for wire in self._wires:
            if politely:
                wire.leave()
            else:
                wire.vanish()
        for device in self._devices:
            device.close()
        self._wires.clear()
        self._devices.clear()
        return {}


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tls-folder", type=Path)
    options = parser.parse_args()

    async def run() -> None:
        await serve_lines({}, Swarm(options.port, options.tls_folder).answer)

    asyncio.run(run())


if __name__ == "__main__":
    main()
