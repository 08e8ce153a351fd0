"""What the gateway sends in chunks: a bounded number of devices at a time, whoever asks.

A model part is held once, whatever the number of devices that fetch it. Where the gateway is its
devices' MQTT server, chunks are cut from it only as a device acknowledges those before: then the
offer asks for a large window, so that a device has little to say on the way.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from broker.events import Json, Reported, SendChunks, StopChunks
from edgefl._native import SigningKey
from edgefl.errors import ConfigError
from edgefl.protocol import topics
from edgefl.protocol.bulk import BulkyMessage, split_bulky, transfer_id_of
from edgefl.protocol.envelope import Header, seal_envelope
from edgefl.protocol.messages import AggregatorMessage
from edgefl.protocol.service_messages import Blob
from edgefl.transfer.manifest import (
    DEFAULT_CHUNK_BYTES,
    MAX_CHUNK_BYTES,
    MIN_CHUNK_BYTES,
    Manifest,
    describe,
)
from edgefl.transfer.messages import MAX_WINDOW_BYTES, TransferAnswer
from edgefl.transfer.packets import DOWN_HEAD_BYTES, PACKET_BYTES, pack_chunk_down
from edgefl.transfer.sender import GiveUpReason, SendChunk, Sender, SenderState, Step
from edgefl.transport.core_events import Publish
from edgefl.types import DeviceId, FleetName

SLOTS = 32
"""Devices that are sent chunks at the same time; the others have their grant honoured later.

With 4 chunks of 64 KiB under way to each at most 8 MiB wait to be sent, whatever the fleet.
"""
EXPIRY_S = 60.0
"""For what a device that was away for longer is told anew, or asks for again."""
_MOST_PER_DEVICE = 8
_MOST_UNANSWERED = 4
_MOST_MANIFESTS = 8
_MOST_WHOLE_SENDS = 3

DownEffect = Publish | SendChunks | StopChunks


@dataclass(slots=True, kw_only=True)
class _Download:
    parts: BulkyMessage = field(repr=False)
    offer: Publish = field(repr=False)
    sender: Sender
    unanswered: int = 0
    is_streamed: bool = False
    # Chunks that were counted: of a stream that was cut, nobody here knows how much had gone out.
    counted: set[int] = field(default_factory=set)

    @property
    def is_sending(self) -> bool:
        return self.sender.state is SenderState.SENDING


class Downloads:
    """Every transfer to devices.

    Args:
        fleet: The fleet's name.
        signing_key: The gateway's identity.
        count: Told the device and size of each packet.
        slots: Devices that are sent chunks at the same time.
        chunk_bytes: Largest chunk, where the broker and the device take it.
        streams_chunks: Whether the link carries out `SendChunks`; it gets packets otherwise.
    """

    def __init__(
        self,
        fleet: FleetName,
        signing_key: SigningKey,
        *,
        count: Callable[[str, int], None],
        slots: int = SLOTS,
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        streams_chunks: bool = False,
    ) -> None:
        """Begin with nothing."""
        self._streams_chunks = streams_chunks
        self._count = count
        self._fleet = fleet
        self._key = signing_key
        self._slots = slots
        self._downloads: dict[tuple[str, bytes], _Download] = {}
        # Who has a slot; the others that were granted a window wait here, in order.
        self._active: dict[tuple[str, bytes], None] = {}
        self._queue: dict[tuple[str, bytes], None] = {}
        # All but those in the queue: only these may be due.
        self._watched: dict[tuple[str, bytes], _Download] = {}
        self._manifests: dict[tuple[int, int], tuple[bytes, Manifest]] = {}
        self._chunk_bytes_of: dict[str, int] = {}
        # How often the same large message went to a device as a whole.
        self._whole_sends: dict[str, dict[int, int]] = {}
        self._reports: list[Reported] = []
        self._wanted_chunk_bytes = self._most_chunk_bytes = chunk_bytes

    @property
    def wakeup_s(self) -> float | None:
        """When `wake` is wanted."""
        wishes = [download.sender.wakes_at_s for download in self._watched.values()]
        return min((wish for wish in wishes if wish is not None), default=None)

    @property
    def active_count(self) -> int:
        """How many devices are sent chunks now."""
        return len(self._active)

    @property
    def most_chunk_bytes(self) -> int:
        """Largest chunk that travels on this gateway's broker."""
        return self._most_chunk_bytes

    def on_link(self, max_packet_bytes: int | None, now_s: float) -> None:
        """Note a new link, and the largest packet that its broker passes."""
        for download in self._downloads.values():
            download.sender.on_link_up(now_s)
        self._active.clear()
        self._queue.clear()
        self._watched = dict(self._downloads)
        if max_packet_bytes is not None:
            most_bytes = min(self._wanted_chunk_bytes, max_packet_bytes - PACKET_BYTES)
            self._most_chunk_bytes = max(MIN_CHUNK_BYTES, most_bytes)

    def note_chunk_bytes(self, device: str, chunk_bytes: int) -> None:
        """Note the largest chunk that a device wants; what was found to be too large stays so."""
        known = self._chunk_bytes_of.get(device, MAX_CHUNK_BYTES)
        self._chunk_bytes_of[device] = min(known, chunk_bytes)

    def chunk_bytes_for(self, device: str) -> int:
        """Return the largest packet's content for a device."""
        wanted = self._chunk_bytes_of.get(device, DEFAULT_CHUNK_BYTES)
        return min(wanted, self._most_chunk_bytes)

    # ------------------------------------------------------------ sending

    def is_swallowed(self, device: str, payload: bytes) -> bool:
        """Tell whether a message goes to a device as a whole again and again, without effect.

        Then it is to be offered, in chunks of half its size: something on the way may swallow
        packets of that size. If the device was only slow, an offer costs less than the message.
        """
        if len(payload) <= MIN_CHUNK_BYTES:
            return False
        counts = self._whole_sends.setdefault(device, {})
        key = hash(payload)
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= _MOST_WHOLE_SENDS:
            while len(counts) > _MOST_PER_DEVICE:
                del counts[next(iter(counts))]
            return False
        self._shrink(device, len(payload))
        return True

    def offer(
        self, device: str, message: AggregatorMessage, header: Header, now_s: float
    ) -> Publish:
        """Return the offer of a message that does not fit into one packet."""
        chunk_bytes = self.chunk_bytes_for(device)
        parts = split_bulky(message, chunk_bytes, self._manifest_of(message, chunk_bytes))
        if self._streams_chunks:
            asking = replace(parts.offer, window_bytes=MAX_WINDOW_BYTES)
            parts = replace(parts, offer=asking)
        place = (device, transfer_id_of(parts.offer, header))
        known = self._downloads.get(place)
        if known is not None and known.sender.is_open:
            self._count(device, len(known.offer.payload))
            return known.offer
        topic = topics.downlink(self._fleet, DeviceId(device))
        payload = seal_envelope(self._key, topic, header, parts.offer)
        offer = Publish(topic=topic, payload=payload, expiry_s=EXPIRY_S)
        self._count(device, len(payload))
        sender = Sender(parts.offer.manifest, now_s)
        sender.due(now_s)  # The offer goes out as this method's result.
        self._make_room_for(device)
        download = _Download(parts=parts, offer=offer, sender=sender)
        self._downloads[place] = self._watched[place] = download
        return offer

    def on_hello(self, device: str, now_s: float) -> list[DownEffect]:
        """Offer once more what a device was being sent: it may have forgotten what it granted."""
        out: list[DownEffect] = []
        for place, download in list(self._downloads.items()):
            if place[0] == device:
                download.sender = Sender(download.parts.offer.manifest, now_s)
                self._active.pop(place, None)
                self._queue.pop(place, None)
                self._watched[place] = download
                out += self._carry_out(place, download, download.sender.due(now_s))
        return out

    def on_answer(self, device: str, answer: TransferAnswer, now_s: float) -> list[DownEffect]:
        """Take what a device says about a transfer to it."""
        place = (device, answer.transfer_id)
        download = self._downloads.get(place)
        if download is None:
            return []
        download.unanswered = 0
        download.sender.on_answer(answer, now_s)
        if not download.sender.is_open:
            self._on_over(device, download)
            self._forget(place)
            # Also where it is done: whoever says so early is not sent the rest all the same.
            return [*self._stop(place, download), *self._fill_slots(now_s)]
        if not download.is_sending:
            self._active.pop(place, None)
        elif place in self._active:
            return self._carry_out(place, download, download.sender.due(now_s))
        else:
            self._queue.setdefault(place)
            self._watched.pop(place, None)
        return self._fill_slots(now_s)

    def report_unsendable(self, device: str, error: ConfigError) -> None:
        """Note a message that does not fit into packets as small as the broker's."""
        fields: dict[str, Json] = {"device": device, "code": error.code, "expected": error.expected}
        self._reports.append(
            Reported(kind="transfer-impossible", fields={**fields, "found": error.found})
        )

    def take_reports(self) -> list[Reported]:
        """Return what the operator is to know, once."""
        reports, self._reports = self._reports, []
        return reports

    def gone(self, device: str) -> None:
        """Forget what a device that is gone was to be sent: it will ask, or be reminded."""
        self._whole_sends.pop(device, None)
        self._chunk_bytes_of.pop(device, None)
        for place in [place for place in self._downloads if place[0] == device]:
            self._forget(place)

    def wake(self, now_s: float) -> list[DownEffect]:
        """Offer again what was not answered, a few times; then send what there are slots for."""
        out: list[DownEffect] = []
        for place, download in list(self._watched.items()):
            steps = download.sender.due(now_s)
            if not download.is_sending:
                self._active.pop(place, None)
            if any(not isinstance(step, SendChunk) for step in steps):
                download.unanswered += 1
            if download.unanswered > _MOST_UNANSWERED:
                self._forget(place)
                out += self._stop(place, download)
                continue
            out += self._carry_out(place, download, steps)
        return [*out, *self._fill_slots(now_s)]

    # ------------------------------------------------------------ helpers

    def _fill_slots(self, now_s: float) -> list[DownEffect]:
        """Give out free slots, and send to those who get one what their windows allow."""
        out: list[DownEffect] = []
        while self._queue and len(self._active) < self._slots:
            place = next(iter(self._queue))
            del self._queue[place]
            download = self._watched[place] = self._downloads[place]
            if download.is_sending:
                self._active[place] = None
                download.sender.on_turn(now_s)
                out += self._carry_out(place, download, download.sender.due(now_s))
        return out

    def _carry_out(
        self, place: tuple[str, bytes], download: _Download, steps: list[Step]
    ) -> list[DownEffect]:
        indices = tuple(step.index for step in steps if isinstance(step, SendChunk))
        out: list[DownEffect] = []
        if len(indices) < len(steps):
            # What the device lacks is its next word: nothing may go out on an older one.
            out += [*self._stop(place, download), download.offer]
            self._count(place[0], len(download.offer.payload))
        if indices:
            self._count_chunks(place[0], download, indices)
            out += self._chunks(place, download, indices)
        return out

    def _count_chunks(self, device: str, download: _Download, indices: tuple[int, ...]) -> None:
        """Count chunks as sent: each time, but once in a stream, which may end before its turn."""
        sent = set(indices) - download.counted
        if self._streams_chunks:
            download.counted |= sent
        size_bytes = sum(map(download.parts.offer.manifest.size_of_chunk, sent))
        if sent:
            self._count(device, size_bytes + DOWN_HEAD_BYTES * len(sent))

    def _chunks(
        self, place: tuple[str, bytes], download: _Download, indices: tuple[int, ...]
    ) -> list[DownEffect]:
        if not self._streams_chunks:
            return [self._chunk(place, download, index) for index in indices]
        download.is_streamed = True
        return [
            SendChunks(
                topic=self._topic_of(place),
                transfer_id=place[1],
                blob=download.parts.blob,
                chunk_bytes=download.parts.offer.manifest.chunk_bytes,
                indices=indices,
                expiry_s=EXPIRY_S,
            )
        ]

    def _chunk(self, place: tuple[str, bytes], download: _Download, index: int) -> Publish:
        manifest = download.parts.offer.manifest
        start = index * manifest.chunk_bytes
        data = memoryview(download.parts.blob)[start : start + manifest.size_of_chunk(index)]
        payload = pack_chunk_down(place[1], index, data)
        return Publish(topic=self._topic_of(place), payload=payload, expiry_s=EXPIRY_S)

    def _stop(self, place: tuple[str, bytes], download: _Download) -> list[DownEffect]:
        was_streamed, download.is_streamed = download.is_streamed, False
        if not was_streamed:
            return []
        return [StopChunks(topic=self._topic_of(place), transfer_id=place[1])]

    def _topic_of(self, place: tuple[str, bytes]) -> str:
        return topics.downlink(self._fleet, DeviceId(place[0]))

    def _manifest_of(self, message: AggregatorMessage, chunk_bytes: int) -> Manifest | None:
        """Return the manifest of a model part, hashed once for all devices."""
        if not isinstance(message, Blob) or len(message.content) < chunk_bytes:
            return None
        key = (id(message.content), chunk_bytes)
        known = self._manifests.get(key)
        if known is None:
            while len(self._manifests) >= _MOST_MANIFESTS:
                del self._manifests[next(iter(self._manifests))]
            # The content is held beside its manifest, so that no other can get its address.
            known = self._manifests[key] = message.content, describe(message.content, chunk_bytes)
        return known[1]

    def _make_room_for(self, device: str) -> None:
        held = [place for place in self._downloads if place[0] == device]
        for place in held[: max(0, len(held) - _MOST_PER_DEVICE + 1)]:
            self._forget(place)

    def _on_over(self, device: str, download: _Download) -> None:
        sender, manifest = download.sender, download.parts.offer.manifest
        if sender.reason is GiveUpReason.CHUNKS_LOST:
            self._shrink(device, manifest.chunk_bytes)
        elif sender.reason is not None:
            self._reports.append(
                Reported(
                    kind="transfer-refused",
                    fields={
                        "device": device,
                        "reason": sender.reason.value,
                        "size_bytes": manifest.size_bytes,
                        "limit_bytes": sender.limit_bytes,
                    },
                )
            )

    def _shrink(self, device: str, swallowed_bytes: int) -> None:
        least = max(MIN_CHUNK_BYTES, swallowed_bytes // 2)
        self._chunk_bytes_of[device] = min(self.chunk_bytes_for(device), least)
        self._reports.append(
            Reported(
                kind="packets-swallowed",
                fields={
                    "device": device,
                    "size_bytes": swallowed_bytes,
                    "next_bytes": self._chunk_bytes_of[device],
                },
            )
        )

    def _forget(self, place: tuple[str, bytes]) -> None:
        self._downloads.pop(place, None)
        self._watched.pop(place, None)
        self._active.pop(place, None)
        self._queue.pop(place, None)
