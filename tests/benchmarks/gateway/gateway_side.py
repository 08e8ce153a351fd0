"""The gateway's side of transfers in a process of its own, driven by lines of JSON.

It is made of the gateway's parts: endpoint, batches with one transaction each, uploads, downloads,
the sum. What is left out is a round's cryptography and its phases, which have figures of their own.
Signatures of offers and answers are checked; a vector's last receipt follows once the sum is
stored, as the gateway does it.
"""

import argparse
import asyncio
import hashlib
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from broker.endpoint_notices import EndpointNotices
from broker.endpoint_transport import EndpointTransport
from broker.event_batches import EventBatches
from broker.events import GatewayEffect, SendChunks, StopChunks, UploadMoved
from broker.gateway_state import GatewayState
from broker.mailer import Mailer
from broker.sum_pause import sum_pause_s
from broker.uploads import Uploads, intake_limits, stage_for
from edgefl._native import MqttEndpoint, RingSum
from edgefl.protocol import topics
from edgefl.protocol.envelope import open_envelope, require_device_message
from edgefl.protocol.round_messages import MaskedInput
from edgefl.protocol.service_messages import Blob, GetBlob
from edgefl.protocol.vectors import add_vector, digest_of
from edgefl.transfer.manifest import MAX_BLOB_BYTES
from edgefl.transfer.messages import MAX_WINDOW_BYTES, TRANSFER_ANSWERS, TransferOffer
from edgefl.transport.base import Inbound
from edgefl.transport.core_events import Acknowledge, Arrived, Publish
from tests.benchmarks.gateway import own_figures
from tests.benchmarks.gateway.certificates import authority_pem, server_pem
from tests.benchmarks.gateway.lab_fleet import (
    FLEET,
    RING_BITS,
    SLOTS,
    coordinates,
    device_name,
    signing_key,
)
from tests.benchmarks.peers.line_server import Json, serve_lines


class GatewaySide:
    """Uploads into a sum, downloads of one part, and calls.

    Args:
        devices: How many there are.
        tls_folder: Where certificates are; None listens without TLS.
    """

    def __init__(self, devices: int, tls_folder: Path | None) -> None:
        """Listen."""
        limits = intake_limits(slots=SLOTS, window_bytes=MAX_WINDOW_BYTES, has_endpoint=True)
        stage = stage_for(limits)
        self._endpoint = MqttEndpoint(
            FLEET,
            mqtt="127.0.0.1:0",
            stage=stage,
            max_connections=20_000,
            max_sessions=40_000,
            mqtts=None if tls_folder is None else "127.0.0.1:0",
            client_authorities=None if tls_folder is None else authority_pem(tls_folder),
            certificate_chain=None if tls_folder is None else server_pem(tls_folder),
            private_key=None if tls_folder is None else server_pem(tls_folder),
        )
        self._endpoint.subscribe(topics.of_aggregator(FLEET))
        self.ports = self._endpoint.start()
        self._notices = EndpointNotices()
        self._transport = EndpointTransport(self._endpoint, self._notices.take)
        self._mailer = Mailer(FLEET, signing_key(-1), streams_chunks=True)
        self._keys = {device_name(n): signing_key(n).public_key for n in range(devices)}
        self._uploads = Uploads(stage=stage, epoch=1, mailer=self._mailer, limits=limits)
        self._events = EventBatches(time.monotonic)
        self._disk = ThreadPoolExecutor(max_workers=1)
        self._state = GatewayState(Path(tempfile.mkdtemp(prefix="gateway-side")))
        self._devices = devices
        self._held: list[GatewayEffect] = []
        self._sum_due_s: float | None = None
        self._sum_bytes = 0
        self._members: list[str] = []
        self._digests: dict[str, bytes] = {}
        self._sum: RingSum | None = None
        self._blobs: dict[bytes, bytes] = {}

    async def run(self) -> None:
        """Serve until the caller closes the pipe."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(work())
                for work in (self._read_transport, self._read_notices, self._work)
            ]
            await serve_lines({"ports": dict(self.ports)}, self._answer)
            for task in tasks:
                task.cancel()
        self._endpoint.close()

    # ------------------------------------------------------------ what the caller wants

    async def _answer(self, operation: str, arguments: dict[str, Json]) -> dict[str, Json]:
        if operation == "figures":
            return {**own_figures.cpu_and_memory(), "members": len(self._members)}
        if operation == "begin":
            own_figures.forget_peak()
            self._sum_bytes = int(str(arguments["size_bytes"]))
            self._sum = RingSum(coordinates(self._sum_bytes), RING_BITS)
            self._members = []
            return {**own_figures.cpu_and_memory()}
        if operation == "sum":
            packed = b"" if self._sum is None else self._sum.to_packed()
            return {"sha256": hashlib.sha256(packed).hexdigest()}
        if operation == "model":
            content = own_figures.random_bytes(int(str(arguments["size_bytes"])))
            digest = hashlib.sha256(content).digest()
            self._blobs = {digest: content}
            own_figures.forget_peak()
            return {"sha256": digest.hex(), **own_figures.cpu_and_memory()}
        if operation == "call":
            payload = str(time.monotonic_ns()).encode()
            await self._transport.publish(topics.calls(FLEET), payload, expiry_s=60)
            return {}
        return {"stats": dict(self._endpoint.stats())}

    # ------------------------------------------------------------ the gateway's loop

    async def _read_transport(self) -> None:
        await self._transport.start()
        async for event in self._transport.events():
            if isinstance(event, Inbound):
                await self._events.put(
                    Arrived(topic=event.topic, payload=event.payload, ticket=event.ticket)
                )

    async def _read_notices(self) -> None:
        async for notice in self._notices.read():
            if isinstance(notice, UploadMoved):
                await self._events.put(notice)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            effects: list[GatewayEffect] = []
            for event in await self._events.next(self._wakeup_s()):
                now_s = time.monotonic()
                self._mailer.at(now_s)
                if isinstance(event, Arrived):
                    effects += self._on_arrived(event, now_s)
                elif isinstance(event, UploadMoved):
                    effects += self._on_moved(event, now_s)
                else:
                    effects += self._uploads.wake(now_s)
                    effects += self._mailer.downloads.wake(now_s)
            effects += self._store_sum(time.monotonic())
            if self._state.has_changes:
                await loop.run_in_executor(self._disk, self._state.commit)
            for effect in effects:
                if isinstance(effect, Publish):
                    await self._transport.publish(
                        effect.topic, effect.payload, expiry_s=effect.expiry_s
                    )
                elif isinstance(effect, SendChunks):
                    self._transport.send_chunks(effect)
                elif isinstance(effect, StopChunks):
                    self._transport.stop_chunks(effect)
            self._transport.acknowledge([e.ticket for e in effects if isinstance(e, Acknowledge)])

    def _wakeup_s(self) -> float | None:
        wishes = [self._uploads.wakeup_s, self._mailer.downloads.wakeup_s]
        wishes.append(self._sum_due_s)
        return min((wish for wish in wishes if wish is not None), default=None)

    def _on_arrived(self, event: Arrived, now_s: float) -> list[GatewayEffect]:
        safe = [] if event.ticket is None else [Acknowledge(ticket=event.ticket)]
        if not event.topic.endswith("/q"):
            return [*safe]
        device = topics.device_of(event.topic)
        envelope = open_envelope(event.topic, event.payload)
        message = require_device_message(envelope.message)
        envelope.require_signed_by(self._keys[device])
        if isinstance(message, TransferOffer):
            if self._uploads.is_done(device, envelope.header, message):
                self._held += self._uploads.say_done(device, envelope.header, message)
                return [*safe]
            granted = self._uploads.on_offer(
                device, envelope.header, message, now_s, largest_bytes=MAX_BLOB_BYTES
            )
            return [*granted, *safe]
        if isinstance(message, TRANSFER_ANSWERS):
            return [*self._mailer.downloads.on_answer(device, message, now_s), *safe]
        if isinstance(message, GetBlob):
            blob = Blob(content=self._blobs[message.sha256])
            return [self._mailer.to_device(device, blob), *safe]
        return [*safe]

    def _on_moved(self, event: UploadMoved, now_s: float) -> list[GatewayEffect]:
        effects = self._uploads.on_moved(event.device, event.transfer_id, now_s)
        whole, more = self._uploads.take_whole(event.device, event.transfer_id)
        if whole is not None and isinstance(whole.message, MaskedInput) and self._sum is not None:
            self._digests[whole.device] = digest_of(whole.message)
            add_vector(self._sum, whole.message)
            self._members.append(whole.device)
            self._held += self._uploads.settle(whole)
        return [*effects, *more]

    def _store_sum(self, now_s: float) -> list[GatewayEffect]:
        """Put sum and members into the batch, and let their receipts go with it.

        When a pause is over, or all are in it, which ends the phase.
        """
        if not self._held or self._sum is None:
            return []
        if self._sum_due_s is None:
            self._sum_due_s = now_s + sum_pause_s(self._sum_bytes)
        if now_s < self._sum_due_s and len(self._members) < self._devices:
            return []
        self._sum_due_s = None
        names = "\n".join(self._members).encode()
        self._state.store.put_many({"sum": self._sum.to_packed(), "members": names})
        held, self._held = self._held, []
        return held


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--tls-folder", type=Path)
    options = parser.parse_args()

    async def run() -> None:
        await GatewaySide(options.devices, options.tls_folder).run()

    asyncio.run(run())


if __name__ == "__main__":
    main()
