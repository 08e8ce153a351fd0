"""The device's letter box and the gateway's downloads: sizes, slots, reminders, lost packets."""

import hashlib
from types import SimpleNamespace

import pytest

from broker.downloads import Downloads
from broker.events import Reported
from broker.mailer import Mailer
from broker.uploads import Uploads, intake_limits, stage_for
from edgefl._native import Seed, SigningKey, UploadStage
from edgefl.agent.downloads import STAGE_BYTES, WholeMessage
from edgefl.agent.downloads import Downloads as DeviceDownloads
from edgefl.agent.events import AgentEffect, Noticed
from edgefl.agent.outbox import Outbox
from edgefl.agent.parts import ModelParts
from edgefl.agent.pen import Pen
from edgefl.agent.post import Post
from edgefl.agent.settings import AgentSettings
from edgefl.errors import WireError
from edgefl.protocol import topics
from edgefl.protocol.bulk import join_bulky, most_blob_bytes, split_bulky, transfer_id_of
from edgefl.protocol.envelope import Header, open_envelope
from edgefl.protocol.events import TrainJob
from edgefl.protocol.identity import DeviceIdentity
from edgefl.protocol.messages import Message
from edgefl.protocol.round_messages import MaskedInput, RoutedShares, SharedKeys
from edgefl.protocol.service_messages import Blob
from edgefl.training.bundle import read_bundle
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model
from edgefl.transfer.manifest import DEFAULT_CHUNK_BYTES, MAX_BLOB_BYTES, MIN_CHUNK_BYTES
from edgefl.transfer.messages import (
    RefusalReason,
    TransferGrant,
    TransferOffer,
    TransferProgress,
    TransferRefusal,
)
from edgefl.transfer.packets import read_down
from edgefl.transport.core_events import Publish
from edgefl.types import DeviceId, FleetName
from tests.round_boards import POLICY

FLEET, DEVICE = FleetName("home"), DeviceId("d1")
GATEWAY, BOARD = (SigningKey.from_seed(Seed.from_bytes(bytes([n]) * 32)) for n in (1, 2))
PLACE = Header(session_id=bytes(32), round_number=1, attempt=7, sender=DEVICE)
VECTOR = MaskedInput(packed=bytes(range(256)) * 1000)
BLOB = Blob(content=bytes(range(256)) * 1200)


def pen() -> Pen:
    identity = DeviceIdentity(device=DEVICE, signing_key=BOARD)
    return Pen(AgentSettings(fleet=FLEET, identity=identity, policy=POLICY, agent_version="1"))


def letter_box() -> Post:
    return Post(fleet=FLEET, pen=pen(), outbox=Outbox())


def published(effects: list[AgentEffect]) -> list[Publish]:
    return [effect for effect in effects if isinstance(effect, Publish)]


def message_of(publish: Publish) -> Message:
    return open_envelope(publish.topic, publish.payload).message


def grant_for(offer: Publish, number: int = 1, **changed: object) -> TransferGrant:
    envelope = open_envelope(offer.topic, offer.payload)
    message = envelope.message
    assert isinstance(message, TransferOffer)
    count = message.manifest.chunk_count
    fields: dict[str, object] = {
        "transfer_id": transfer_id_of(message, envelope.header),
        "epoch": 1,
        "number": number,
        "window_bytes": 4 * message.manifest.chunk_bytes,
        "deadline_ms": 60_000,
        "missing": ((1 << count) - 1).to_bytes((count + 7) // 8, "little"),
    }
    return TransferGrant(**{**fields, **changed})  # type: ignore[arg-type]


def done_for(offer: Publish) -> TransferProgress:
    grant = grant_for(offer)
    return TransferProgress(
        transfer_id=grant.transfer_id,
        epoch=1,
        number=1,
        missing=bytes(len(grant.missing)),
        is_done=True,
    )


# ------------------------------------------------------------ large messages in two parts


@pytest.mark.parametrize(
    "message",
    [
        VECTOR,
        BLOB,
        SharedKeys(commitment=bytes(32), sealed=(bytes(120),) * 900),
        RoutedShares(sharers=b"\xff" * 100, sealed=(bytes(120),) * 900),
        MaskedInput(packed=VECTOR.packed, skipped=tuple((n, bytes(32)) for n in range(3000))),
    ],
)
def test_a_large_message_comes_back_from_its_parts(message: Message) -> None:
    parted = split_bulky(message, DEFAULT_CHUNK_BYTES)
    assert join_bulky(parted.offer, parted.blob) == message


def test_the_vector_itself_is_the_blob_and_is_not_copied() -> None:
    parted = split_bulky(VECTOR, DEFAULT_CHUNK_BYTES)
    assert parted.blob is VECTOR.packed
    assert parted.offer.bulk_key == 0


@pytest.mark.parametrize(
    "offer",
    [
        TransferOffer(message_kind=4, head=b"\xa1\x00\x41x", bulk_key=0, manifest=None),  # type: ignore[arg-type]
        TransferOffer(message_kind=4, head=b"\xa0", bulk_key=1, manifest=None),  # type: ignore[arg-type]
        TransferOffer(message_kind=3, head=b"\xa0", bulk_key=0, manifest=None),  # type: ignore[arg-type]
        TransferOffer(message_kind=40, head=b"\xa0", bulk_key=None, manifest=None),  # type: ignore[arg-type]
        TransferOffer(message_kind=1, head=b"\xa0", bulk_key=None, manifest=None),  # type: ignore[arg-type]
        TransferOffer(message_kind=99, head=b"\xa0", bulk_key=None, manifest=None),  # type: ignore[arg-type]
        TransferOffer(message_kind=4, head=b"\xff", bulk_key=0, manifest=None),  # type: ignore[arg-type]
    ],
)
def test_parts_that_do_not_belong_together_are_refused(offer: TransferOffer) -> None:
    with pytest.raises(WireError):
        join_bulky(offer, b"\xa0")


def test_an_offer_of_the_largest_blob_fits_into_one_packet() -> None:
    assert most_blob_bytes(DEFAULT_CHUNK_BYTES) >= MAX_BLOB_BYTES
    blob = bytes(most_blob_bytes(MIN_CHUNK_BYTES))
    (offer,) = published(letter_of(blob, MIN_CHUNK_BYTES))
    assert len(offer.payload) <= MIN_CHUNK_BYTES


def letter_of(blob: bytes, chunk_bytes: int) -> list[AgentEffect]:
    post = letter_box()
    post.on_link(0.0, chunk_bytes + 1024)
    return post.send("round", MaskedInput(packed=blob), PLACE, 0.0)


# ------------------------------------------------------------ the device's letter box


def test_a_message_above_the_broker_s_packets_is_named_and_stops_nothing() -> None:
    (notice,) = letter_of(bytes(most_blob_bytes(MIN_CHUNK_BYTES) + 1), MIN_CHUNK_BYTES)
    assert isinstance(notice, Noticed)
    assert notice.error.code == "E-TRANSFER-LIST"


def test_the_same_message_again_goes_on_and_another_one_replaces_it() -> None:
    post = letter_box()
    (offer,) = published(post.send("round", VECTOR, PLACE, 0.0))
    assert post.send("round", VECTOR, PLACE, 0.1) == []
    _, effects = post.on_answer(grant_for(offer), 0.2)
    assert len(effects) == 4
    assert post.send("round", VECTOR, PLACE, 0.3) == []
    (other,) = published(post.send("round", MaskedInput(packed=BLOB.content), PLACE, 0.4))
    assert other.payload != offer.payload
    assert post.on_answer(grant_for(offer, 2), 0.5) == (None, [])
    assert post.stale_answers == 1


def test_a_message_is_received_by_its_last_receipt_only() -> None:
    post = letter_box()
    (offer,) = published(post.send("round", VECTOR, PLACE, 0.0))
    digest = post.digest_of("round")
    assert not post.is_empty
    assert post.on_answer(grant_for(offer, missing=bytes(1)), 0.1) == (None, [])
    assert not post.is_empty
    assert post.on_answer(done_for(offer), 0.2) == (digest, [])
    assert post.is_empty
    assert post.send("round", VECTOR, PLACE, 0.3) == []


def test_a_gateway_that_has_started_anew_is_asked_whether_it_has_the_message() -> None:
    post = letter_box()
    post.on_gateway(1, DEFAULT_CHUNK_BYTES, 0.0)
    (offer,) = published(post.send("round", VECTOR, PLACE, 0.0))
    post.on_answer(done_for(offer), 0.1)
    assert post.send("round", VECTOR, PLACE, 0.2) == []
    post.on_gateway(2, DEFAULT_CHUNK_BYTES, 0.3)
    assert published(post.send("round", VECTOR, PLACE, 0.4)) == [offer]


def test_a_refusal_by_size_names_size_and_limit() -> None:
    post = letter_box()
    (offer,) = published(post.send("round", VECTOR, PLACE, 0.0))
    refusal = TransferRefusal(
        transfer_id=grant_for(offer).transfer_id, reason=RefusalReason.TOO_LARGE, limit_bytes=9
    )
    _, (notice,) = post.on_answer(refusal, 0.1)
    assert isinstance(notice, Noticed)
    assert notice.error.code == "E-TRANSFER-SIZE"
    assert "at most 9 bytes" in str(notice.error)
    assert f"{len(VECTOR.packed)} bytes" in str(notice.error)


def test_chunks_that_vanish_are_tried_smaller_and_at_last_given_up_by_name() -> None:
    post, now_s, number, notices = letter_box(), 0.0, 0, []
    effects = post.send("round", VECTOR, PLACE, now_s)
    for _ in range(200):
        offers = [publish for publish in published(effects) if publish.topic.endswith("/q")]
        notices += [effect for effect in effects if isinstance(effect, Noticed)]
        if offers:
            number += 1
            _, effects = post.on_answer(grant_for(offers[-1], number), now_s)
        else:
            now_s += 31.0
            effects = post.due(now_s)
        if post.is_empty:
            break
    notices += [effect for effect in effects if isinstance(effect, Noticed)]
    assert {notice.error.code for notice in notices} == {"E-TRANSFER-LOST"}
    assert len(notices) == 5  # 64, 32, 16, 8 and 4 KiB
    assert post.is_empty
    assert str(len(VECTOR.packed)) in str(notices[-1].error)


def test_a_small_message_that_is_swallowed_goes_in_chunks_where_others_are_answered() -> None:
    post = letter_box()
    message = SharedKeys(commitment=bytes(32), sealed=(bytes(120),) * 100)
    (whole,) = published(post.send("round", message, PLACE, 0.0))
    for now_s in (3.0, 8.0, 17.0):
        assert published(post.due(now_s)) == [whole]
    post.settle(b"the digest of another message")
    notice, offer = post.due(40.0)[-2:]
    assert isinstance(notice, Noticed)
    assert isinstance(offer, Publish)
    assert isinstance(message_of(offer), TransferOffer)


# ------------------------------------------------------------ the gateway's downloads


class Board:
    """A device at the other end of the gateway's mailer."""

    def __init__(self, name: str = DEVICE) -> None:
        self.name = name
        self.downloads = DeviceDownloads(stage=UploadStage(STAGE_BYTES, 8), pen=pen())
        self.whole: list[WholeMessage] = []

    def hear(self, publish: Publish, now_s: float) -> list[Message]:
        packet = read_down(publish.payload)
        if packet is not None:
            whole, effects = self.downloads.on_chunk(packet, now_s)
        else:
            envelope = open_envelope(publish.topic, publish.payload)
            assert isinstance(envelope.message, TransferOffer)
            whole, effects = self.downloads.on_offer(envelope.header, envelope.message, now_s)
        self.whole += [] if whole is None else [whole]
        return [message_of(effect) for effect in published(effects)]


def deliver(downloads: Downloads, board: Board, waiting: list[Publish], now_s: float = 0.0) -> int:
    """Carry everything to and fro; return how many chunk packets were sent."""
    chunks = 0
    while waiting:
        publish = waiting.pop(0)
        chunks += read_down(publish.payload) is not None
        for answer in board.hear(publish, now_s):
            waiting += downloads.on_answer(board.name, answer, now_s)  # type: ignore[arg-type]
    return chunks


def test_a_model_part_arrives_once_and_is_hashed_once_for_all() -> None:
    mailer, boards = Mailer(FLEET, GATEWAY), [Board(f"d{n}") for n in range(3)]
    for board in boards:
        offer = mailer.to_device(board.name, BLOB)
        assert len(offer.payload) < 1000
        assert deliver(mailer.downloads, board, [offer]) == 5
        assert [whole.message for whole in board.whole] == [BLOB]
    assert len(mailer.downloads._manifests) == 1
    total = mailer.total_bytes()
    assert len(BLOB.content) < total.down / 3 < 1.02 * len(BLOB.content)


def test_only_so_many_devices_are_sent_chunks_at_a_time() -> None:
    counted: list[int] = []
    downloads = Downloads(FLEET, GATEWAY, count=lambda _, size: counted.append(size), slots=2)
    boards = [Board(f"d{n}") for n in range(5)]
    first: list[tuple[Board, list[Publish]]] = []
    for board in boards:
        offer = downloads.offer(board.name, BLOB, Header(sender="aggregator"), 0.0)
        (grant,) = board.hear(offer, 0.0)
        first.append((board, downloads.on_answer(board.name, grant, 0.0)))  # type: ignore[arg-type]
    assert [len(chunks) for _, chunks in first] == [4, 4, 0, 0, 0]
    assert downloads.active_count == 2
    waiting = {board.name: chunks for board, chunks in first}
    by_name = {board.name: board for board in boards}
    for _ in range(100):
        name = next((name for name, chunks in waiting.items() if chunks), None)
        if name is None:
            break
        for answer in by_name[name].hear(waiting[name].pop(0), 0.0):
            for publish in downloads.on_answer(name, answer, 0.0):  # type: ignore[arg-type]
                waiting[publish.topic.split("/")[4]].append(publish)
        assert downloads.active_count <= 2
    assert all(len(board.whole) == 1 for board in boards)


def test_a_reminder_of_what_arrived_costs_an_offer_and_is_heard_again() -> None:
    mailer, board = Mailer(FLEET, GATEWAY), Board()
    shares = RoutedShares(sharers=b"\xff" * 100, sealed=(bytes(120),) * 900)
    header = Header(session_id=bytes(32), round_number=1, attempt=7, sender="aggregator")
    deliver(mailer.downloads, board, [mailer.to_device(DEVICE, shares, header)])
    chunks = deliver(mailer.downloads, board, [mailer.to_device(DEVICE, shares, header)])
    assert chunks == 0
    assert [whole.message for whole in board.whole] == [shares, shares]
    assert {whole.header for whole in board.whole} == {header}


def test_a_reminder_in_mid_transfer_sends_nothing_twice() -> None:
    mailer, board = Mailer(FLEET, GATEWAY), Board()
    offer = mailer.to_device(DEVICE, BLOB)
    (grant,) = board.hear(offer, 0.0)
    chunks = mailer.downloads.on_answer(DEVICE, grant, 0.0)  # type: ignore[arg-type]
    again = mailer.to_device(DEVICE, BLOB)
    assert again.payload == offer.payload
    total = len(chunks)
    total += deliver(mailer.downloads, board, [*chunks, again]) - len(chunks)
    assert total == 5


def test_a_device_that_has_started_anew_is_offered_everything_again() -> None:
    mailer, board = Mailer(FLEET, GATEWAY), Board()
    (grant,) = board.hear(mailer.to_device(DEVICE, BLOB), 0.0)
    mailer.downloads.on_answer(DEVICE, grant, 0.0)  # type: ignore[arg-type]
    restarted = Board()
    offers = mailer.downloads.on_hello(DEVICE, 1.0)
    assert deliver(mailer.downloads, restarted, offers, 1.0) == 5
    assert [whole.message for whole in restarted.whole] == [BLOB]


def test_a_download_that_nobody_answers_is_forgotten() -> None:
    mailer = Mailer(FLEET, GATEWAY)
    mailer.to_device(DEVICE, BLOB)
    offers = sum(len(mailer.downloads.wake(float(now_s))) for now_s in range(300))
    assert offers == 4
    assert mailer.downloads.wakeup_s is None


def test_a_model_above_the_broker_s_packets_is_reported_and_stops_nothing() -> None:
    mailer = Mailer(FLEET, GATEWAY)
    mailer.downloads.on_link(MIN_CHUNK_BYTES + 1024, 0.0)
    large = Blob(content=bytes(most_blob_bytes(MIN_CHUNK_BYTES) + 1))
    message = message_of(mailer.to_device(DEVICE, large))
    assert isinstance(message, TransferRefusal)
    (report,) = mailer.downloads.take_reports()
    assert isinstance(report, Reported)
    assert report.fields["code"] == "E-TRANSFER-LIST"


def test_what_a_device_refuses_for_its_size_is_reported_with_both_numbers() -> None:
    mailer = Mailer(FLEET, GATEWAY)
    offer = mailer.to_device(DEVICE, BLOB)
    refusal = TransferRefusal(
        transfer_id=grant_for(offer).transfer_id, reason=RefusalReason.TOO_LARGE, limit_bytes=5
    )
    mailer.downloads.on_answer(DEVICE, refusal, 0.0)
    (report,) = mailer.downloads.take_reports()
    assert (report.fields["size_bytes"], report.fields["limit_bytes"]) == (len(BLOB.content), 5)


# ------------------------------------------------------------ the gateway's uploads


def test_a_blob_that_is_no_message_is_refused_once_it_is_whole() -> None:
    limits = intake_limits(slots=4, window_bytes=1 << 20, has_endpoint=False)
    uploads = Uploads(
        stage=stage_for(limits), epoch=3, mailer=Mailer(FLEET, GATEWAY), limits=limits
    )
    parted = split_bulky(VECTOR, DEFAULT_CHUNK_BYTES)
    lying = TransferOffer(
        message_kind=SharedKeys.kind, head=b"\xa0", bulk_key=None, manifest=parted.offer.manifest
    )
    transfer_id = transfer_id_of(lying, PLACE)
    uploads.on_offer(DEVICE, PLACE, lying, 0.0, largest_bytes=1 << 20)
    for index in range(parted.offer.manifest.chunk_count):
        start = index * DEFAULT_CHUNK_BYTES
        packet = (
            b"\x01" + index.to_bytes(4, "big") + parted.blob[start : start + DEFAULT_CHUNK_BYTES]
        )
        uploads.on_chunk(DEVICE, transfer_id, packet, 0.0)
    whole, (effect,) = uploads.take_whole(DEVICE, transfer_id)
    assert whole is None
    assert isinstance(effect, Publish)
    message = message_of(effect)
    assert isinstance(message, TransferRefusal)
    assert message.reason is RefusalReason.BROKEN
    assert uploads.active_count == 0


def test_a_chunk_topic_names_device_and_transfer_or_is_none() -> None:
    topic = topics.upload(FLEET, DEVICE, "0011223344556677")
    assert topics.upload_of(topic) == (DEVICE, bytes.fromhex("0011223344556677"))
    for other in (topic[:-1], topic + "8", topic.upper(), topics.uplink(FLEET, DEVICE), "", "a/b"):
        assert topics.upload_of(other) is None


def test_the_bundle_s_own_parameters_are_not_fetched_again() -> None:
    bundle = compile_bundle(demo_model(1)).bundle_bytes
    first = read_bundle(bundle).initial_params.astype("<f4").tobytes()
    other = bytes(len(first))

    def job(parameters: bytes) -> TrainJob:
        hashes = [hashlib.sha256(content).digest() for content in (bundle, parameters)]
        plan = SimpleNamespace(bundle_sha256=hashes[0], parameters_sha256=hashes[1])
        return TrainJob(plan=plan)  # type: ignore[arg-type]

    parts = ModelParts()
    assert parts.missing(job(first)) == job(first).plan.bundle_sha256
    assert parts.take(bundle)[1] == job(first)
    assert parts.missing(job(first)) is None
    assert parts.of(job(first)) == (bundle, first)
    # The parameters of later rounds are not the bundle's.
    assert parts.missing(job(other)) == job(other).plan.parameters_sha256
