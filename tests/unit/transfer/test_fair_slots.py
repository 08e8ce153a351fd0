"""No device keeps the others from uploading: not by size, not by sending drop by drop."""

import hashlib

from broker.mailer import Mailer
from broker.uploads import Uploads, intake_limits, stage_for
from edgefl._native import Seed, SigningKey, UploadStage
from edgefl.protocol.bulk import split_bulky
from edgefl.protocol.envelope import Header, open_envelope
from edgefl.protocol.round_messages import MaskedInput
from edgefl.transfer.intake import Answer, Intake, IntakeLimits
from edgefl.transfer.manifest import Manifest, read_manifest
from edgefl.transfer.messages import RefusalReason, TransferGrant, TransferRefusal
from edgefl.transport.core_events import Publish
from edgefl.types import FleetName

CHUNK = bytes(4096)
LIMITS = IntakeLimits(slots=1, staged_bytes=64 * 4096, blob_bytes=64 * 4096)
GREEDY, MODEST = b"greedy--", b"modest--"


def a_manifest(chunks: int) -> Manifest:
    return read_manifest(4096 * chunks, 4096, hashlib.sha256(CHUNK).digest() * chunks)


def intake_of(limits: IntakeLimits = LIMITS) -> Intake:
    stage = UploadStage(limits.staged_bytes + (1 << 20), 16)
    return Intake(stage, epoch=1, limits=limits)


def packet(index: int) -> bytes:
    return b"\x01" + index.to_bytes(4, "big") + CHUNK


def windows(answers: list[Answer]) -> dict[str, int]:
    return {
        answer.peer: answer.message.window_bytes
        for answer in answers
        if isinstance(answer.message, TransferGrant)
    }


def test_whoever_sends_drop_by_drop_loses_its_slot_after_the_deadline_to_those_who_wait() -> None:
    intake = intake_of()
    intake.offer("a", GREEDY, a_manifest(64), 0.0)
    assert windows(intake.offer("b", MODEST, a_manifest(2), 1.0)) == {"b": 0}
    granted: dict[str, int] = {}
    for tick in range(1, 14):
        now_s = 10.0 * tick
        intake.chunk("a", GREEDY, packet(tick), now_s)
        granted = windows(intake.wake(now_s))
        if granted:
            assert now_s >= LIMITS.deadline_s
            break
    assert granted["b"] > 0
    for index in range(2):
        intake.chunk("b", MODEST, packet(index), 130.0)
    assert intake.is_whole("b", MODEST)


def test_whoever_nobody_waits_for_may_be_slow() -> None:
    intake = intake_of()
    intake.offer("a", GREEDY, a_manifest(64), 0.0)
    for index in range(64):
        now_s = 10.0 * index
        intake.chunk("a", GREEDY, packet(index), now_s)
        intake.wake(now_s)
    assert intake.is_whole("a", GREEDY)


def test_the_wish_to_be_woken_is_for_the_deadline_once_somebody_waits() -> None:
    intake = intake_of()
    intake.offer("a", GREEDY, a_manifest(64), 0.0)
    for index in range(12):
        intake.chunk("a", GREEDY, packet(index), 10.0 * index)
        intake.wake(10.0 * index)
    intake.offer("b", MODEST, a_manifest(2), 111.0)
    assert intake.wakes_at_s == LIMITS.deadline_s


def test_a_slow_one_that_waits_again_does_not_keep_the_room_of_those_before_it() -> None:
    intake = intake_of()
    intake.offer("a", GREEDY, a_manifest(63), 0.0)
    intake.offer("b", MODEST, a_manifest(2), 1.0)
    for tick in range(1, 13):
        intake.chunk("a", GREEDY, packet(tick), 10.0 * tick)
    # Parked, and back in the queue at once with its next chunk; the room is b's first.
    answers = [*intake.wake(120.0), *intake.chunk("a", GREEDY, packet(40), 120.5)[1]]
    assert windows(answers)["b"] > 0
    assert intake.staged_bytes <= LIMITS.staged_bytes


def test_a_transfer_that_was_forgotten_gets_grants_that_are_newer_than_its_old_ones() -> None:
    intake = intake_of()
    numbers = []
    for _ in range(3):
        (answer,) = intake.offer("a", GREEDY, a_manifest(3), 0.0)
        assert isinstance(answer.message, TransferGrant)
        numbers.append(answer.message.number)
        intake.forget("a", GREEDY)
    # Its sender would take others for late ones, and wait for ever.
    assert numbers == sorted(set(numbers))


FLEET = FleetName("home")
KEY = SigningKey.from_seed(Seed.from_bytes(bytes(32)))


def uploads_of() -> Uploads:
    limits = intake_limits(slots=4, window_bytes=1 << 20, has_endpoint=False)
    return Uploads(stage=stage_for(limits), epoch=1, mailer=Mailer(FLEET, KEY), limits=limits)


def said(effect: object) -> object:
    assert isinstance(effect, Publish)
    return open_envelope(effect.topic, effect.payload).message


def test_an_offer_above_what_a_message_can_have_is_refused_with_the_limit() -> None:
    offer = split_bulky(MaskedInput(packed=bytes(200_000), skipped=()), 65_536).offer
    header = Header(sender="d1", attempt=1, round_number=1)
    (effect,) = uploads_of().on_offer("d1", header, offer, 0.0, largest_bytes=150_000)
    refusal = said(effect)
    assert isinstance(refusal, TransferRefusal)
    assert (refusal.reason, refusal.limit_bytes) == (RefusalReason.TOO_LARGE, 150_000)


def test_what_lies_about_of_a_closed_round_makes_room() -> None:
    uploads = uploads_of()
    for attempt in (1, 2):
        offer = split_bulky(MaskedInput(packed=bytes([attempt]) * 200_000, skipped=()), 65_536)
        header = Header(sender="d1", attempt=attempt, round_number=1)
        uploads.on_offer("d1", header, offer.offer, 0.0, largest_bytes=1 << 20)
    assert uploads.active_count == 2
    uploads.keep_only(lambda device, attempt: device == "d1" and attempt == 2)
    assert uploads.active_count == 1


def test_a_freed_slot_is_given_to_the_next_at_once() -> None:
    intake = intake_of()
    intake.offer("a", GREEDY, a_manifest(1), 0.0)
    assert windows(intake.offer("b", MODEST, a_manifest(2), 0.0)) == {"b": 0}
    intake.chunk("a", GREEDY, packet(0), 0.3)
    intake.take("a", GREEDY)
    # Receipts and silences come later; nobody is to wait for those.
    assert intake.wakes_at_s == 0.3
    assert windows(intake.wake(0.3)).keys() == {"b"}
    assert intake.wakes_at_s is not None
    assert intake.wakes_at_s > 0.3
