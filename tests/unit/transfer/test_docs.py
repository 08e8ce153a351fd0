"""The section on transfers of docs/protocol.md says what the code does."""

import hashlib
import re
from pathlib import Path

from broker.downloads import SLOTS
from edgefl.agent.downloads import LIMITS
from edgefl.protocol.bulk import most_blob_bytes, transfer_id_of
from edgefl.protocol.envelope import Header
from edgefl.protocol.versions import MINOR
from edgefl.protocol.wire import encode
from edgefl.transfer.intake import IntakeLimits
from edgefl.transfer.manifest import MAX_BLOB_BYTES, describe
from edgefl.transfer.messages import RefusalReason, TransferOffer
from edgefl.transfer.sender import SenderState

PAGE = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("\n## Transfers\n") : PAGE.index("\n## The plan\n")]
MEBIBYTE = 1 << 20


def rows(*columns: str) -> list[list[str]]:
    head = "| " + " | ".join(columns) + " |\n"
    (table,) = re.findall(re.escape(head) + r"\|[-|]+\|\n((?:\|.*\n)+)", SECTION)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]


def test_the_bounds_are_right() -> None:
    gateway, device = IntakeLimits(), LIMITS
    assert rows("bound", "gateway", "device") == [
        ["transfers that may send at once (slots)", str(gateway.slots), str(device.slots)],
        [
            "sizes of all that has a place",
            f"{gateway.staged_bytes // MEBIBYTE} MiB",
            f"{device.staged_bytes // MEBIBYTE} MiB",
        ],
        [
            "one blob",
            f"{gateway.blob_bytes // MEBIBYTE} MiB",
            f"{device.blob_bytes // MEBIBYTE} MiB",
        ],
        [
            "offers of one peer, waiting ones included",
            str(gateway.offers_per_peer),
            str(device.offers_per_peer),
        ],
    ]
    assert f"serves {SLOTS} devices at a time" in SECTION
    assert f"after {gateway.stall_s:g} s without a chunk" in SECTION
    assert f"may be under way: {gateway.window_chunks} chunks" in SECTION
    assert f"minor version of the protocol, now {MINOR};" in SECTION


def test_the_refusals_are_right() -> None:
    listed = {row[0]: int(row[1]) for row in rows("refusal", "number", "the sender")}
    assert listed == {reason.name: reason.value for reason in RefusalReason}


def test_every_state_of_the_sender_is_there() -> None:
    then = " ".join(row[3] for row in rows("state of the sender", "on", "it does", "then"))
    assert set(re.findall(r"[A-Z_]{4,}", then)) == {state.name for state in SenderState}


def test_the_sizes_that_small_chunks_carry_are_right() -> None:
    text = SECTION.replace(" of ", " ")
    assert f"4 KiB carry blobs up to {most_blob_bytes(4096) // 1024} KiB" in text
    for size, shown in ((8, "1.4"), (16, "5.8")):
        assert f"{most_blob_bytes(size * 1024) / MEBIBYTE:.1f}" == shown
        assert f"{size} KiB {shown} MiB" in text
    assert most_blob_bytes(64 * 1024) >= MAX_BLOB_BYTES


def test_root_and_id_are_made_as_the_page_says() -> None:
    manifest = describe(bytes(10_000), 4096)
    sizes = (10_000).to_bytes(8, "big") + (4096).to_bytes(4, "big")
    root = hashlib.sha256(b"edgefl manifest 1" + sizes + manifest.chunk_hashes).digest()
    assert manifest.root == root
    offer = TransferOffer(message_kind=4, head=b"\xa0", bulk_key=0, manifest=manifest)
    header = Header(session_id=bytes(32), round_number=2, attempt=3, sender="d1")
    context = encode([4, bytes(32), 2, 3, "d1", b"\xa0", 0])
    whole = b"edgefl transfer 1" + len(context).to_bytes(4, "big") + context + root
    assert transfer_id_of(offer, header) == hashlib.sha256(whole).digest()[:8]
