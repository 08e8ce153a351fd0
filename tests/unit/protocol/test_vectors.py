"""The vector of a masked input counts the same, in one piece or from where its chunks arrived."""

import hashlib
from dataclasses import replace

import pytest

from edgefl._native import MAX_CHUNK_BYTES, RingSum, StagedBlob, UploadStage
from edgefl.protocol.bulk import is_input_offer, join_staged, split_bulky
from edgefl.protocol.one_upload_messages import OneUpload
from edgefl.protocol.round_journal import without_vector
from edgefl.protocol.round_messages import MaskedInput
from edgefl.protocol.service_messages import Blob
from edgefl.protocol.vectors import add_vector, digest_of
from edgefl.transfer.manifest import chunks_of, describe
from edgefl.transfer.packets import pack_chunk

CHUNK_BYTES = 4096
PACKED = bytes(range(256)) * 40
INPUTS = (
    MaskedInput(packed=PACKED, skipped=((3, bytes(32)),)),
    OneUpload(packed=PACKED, commitment=bytes(32), sealed=(), next_deposit=None),
)


def staged(blob: bytes, chunk_bytes: int = CHUNK_BYTES) -> StagedBlob:
    stage = UploadStage(1 << 20, 1)
    stage.open("d/x", len(blob), chunk_bytes, describe(blob, chunk_bytes).chunk_hashes)
    for index, chunk in enumerate(chunks_of(blob, chunk_bytes)):
        stage.accept("d/x", pack_chunk(index, chunk))
    return stage.take_out("d/x")


@pytest.mark.parametrize("message", INPUTS)
def test_an_input_is_named_and_added_the_same_way_however_it_came(message) -> None:
    offer = split_bulky(message, CHUNK_BYTES).offer
    assert is_input_offer(offer)
    joined = join_staged(offer, staged(PACKED))
    assert joined == replace(message, packed=b"", staged=joined.staged)
    assert digest_of(joined) == digest_of(message)
    assert digest_of(message) != digest_of(replace(message, packed=PACKED[::-1]))
    assert without_vector(joined) == without_vector(message)
    count = len(PACKED) * 8 // 20
    sums = [RingSum(count, 20) for _ in range(2)]
    add_vector(sums[0], joined)
    add_vector(sums[1], message)
    assert sums[0].to_packed() == sums[1].to_packed() == PACKED


def test_a_vector_that_never_travels_whole_is_named_by_its_manifest() -> None:
    large = bytes(MAX_CHUNK_BYTES + 1)
    other = large[:-1] + b"\x01"
    names = {staged(blob, 65_536).name for blob in (large, other)}
    assert len(names) == 2
    assert hashlib.sha256(large).digest() not in names


def test_other_bulk_is_no_vector() -> None:
    assert not is_input_offer(split_bulky(Blob(content=PACKED), CHUNK_BYTES).offer)
