"""The store of arriving uploads as Python sees it; its rules are tested in rust/edgefl-core."""

import hashlib
import os
import pickle
import threading

import numpy as np
import pytest

from edgefl import _native
from edgefl._native import RingSum, UploadStage
from edgefl.errors import ConfigError, WireError

CHUNK_BYTES = 65_536


def chunks_of(blob: bytes, chunk_bytes: int = CHUNK_BYTES) -> list[bytes]:
    return [blob[start : start + chunk_bytes] for start in range(0, len(blob), chunk_bytes)]


def hashes_of(blob: bytes, chunk_bytes: int = CHUNK_BYTES) -> bytes:
    return b"".join(hashlib.sha256(chunk).digest() for chunk in chunks_of(blob, chunk_bytes))


def packet(index: int, data: bytes) -> bytes:
    return b"\x01" + index.to_bytes(4, "big") + data


def refusal(call) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    return caught.value.code


def test_a_blob_arrives_out_of_order_and_is_taken_once():
    blob = os.urandom(250_000)
    stage = UploadStage(1 << 20, 2)
    stage.open("dev/1", len(blob), CHUNK_BYTES, hashes_of(blob))
    chunks = chunks_of(blob)
    assert stage.held_bytes == len(blob) + 4 * 32
    verdicts = [stage.accept("dev/1", packet(index, chunks[index])) for index in (3, 0, 3, 2)]
    assert verdicts == ["stored", "stored", "duplicate", "stored"]
    assert (stage.missing("dev/1"), stage.missing_count("dev/1")) == (b"\x02", 1)
    assert refusal(lambda: stage.read("dev/1")) == "E-STAGE-INCOMPLETE"
    assert stage.accept("dev/1", packet(1, chunks[1])) == "whole"
    assert stage.read("dev/1") == blob
    assert stage.keys() == ["dev/1"]
    assert stage.take("dev/1") == blob
    assert refusal(lambda: stage.take("dev/1")) == "E-STAGE-KEY"
    assert (stage.held_bytes, stage.keys(), stage.discard("dev/1")) == (0, [], False)


def test_a_vector_is_added_from_where_it_arrived():
    count = 60_000
    values = np.arange(count, dtype=np.uint32) % (1 << 20)
    packed = _native.pack(values, 20)
    stage = UploadStage(1 << 20, 2)
    stage.open("dev/1", len(packed), CHUNK_BYTES, hashes_of(packed))
    for index, chunk in enumerate(chunks_of(packed)):
        stage.accept("dev/1", packet(index, chunk))
    staged = stage.take_out("dev/1")
    assert (len(staged), staged.to_bytes(), len(staged.name)) == (len(packed), packed, 32)
    assert (stage.held_bytes, refusal(lambda: stage.take_out("dev/1"))) == (0, "E-STAGE-KEY")
    total = RingSum(count, 20)
    total.add_staged(staged)
    total.add_packed(packed)
    assert total.to_packed() == _native.pack((2 * values) % (1 << 20), 20)
    with pytest.raises(WireError, match="E-PACKED-LENGTH"):
        RingSum(count + 8, 20).add_staged(staged)
    with pytest.raises(TypeError):
        pickle.dumps(staged)


def test_every_wrong_packet_is_named_and_changes_nothing():
    blob = bytes(CHUNK_BYTES + 5)
    stage = UploadStage(1 << 20, 2)
    stage.open("dev/1", len(blob), CHUNK_BYTES, hashes_of(blob))
    wrong = {
        "wrong-hash": packet(1, b"12345"),
        "wrong-size": packet(1, b"1234"),
        "no-such-chunk": packet(2, b"12345"),
        "malformed": b"\x02\0\0\0\0data",
    }
    assert {name: stage.accept("dev/1", data) for name, data in wrong.items()} == {
        name: name for name in wrong
    }
    assert stage.accept("dev/2", packet(0, b"x")) == "no-such-transfer"
    assert stage.accept("dev/1", packet(1, bytes(_native.MAX_CHUNK_BYTES + 1))) == "malformed"
    assert stage.missing_count("dev/1") == 2


def test_manifests_and_bounds_are_refused_with_their_codes():
    stage = UploadStage(100, 2)
    digest = bytes(32)
    assert refusal(lambda: stage.open("a", 69, 69, digest)) == "E-STAGE-FULL"
    assert refusal(lambda: stage.open("a", 5, 4, digest)) == "E-STAGE-MANIFEST"
    assert refusal(lambda: stage.open("", 4, 4, digest)) == "E-STAGE-KEY"
    stage.open("a", 4, 4, digest)
    stage.open("a", 4, 4, digest)
    assert refusal(lambda: stage.open("a", 4, 4, b"\1" * 32)) == "E-STAGE-KEY"
    assert refusal(lambda: stage.missing("b")) == "E-STAGE-KEY"
    with pytest.raises(OverflowError):
        stage.open("b", -1, 4, digest)


def test_threads_fill_many_blobs_at_once():
    blobs = {f"dev{number}/x": os.urandom(40_000) for number in range(16)}
    stage = UploadStage(1 << 20, 16)
    for key, blob in blobs.items():
        stage.open(key, len(blob), 4096, hashes_of(blob, 4096))
    wholes: list[str] = []

    def send() -> None:
        for key, blob in blobs.items():
            for index, chunk in enumerate(chunks_of(blob, 4096)):
                if stage.accept(key, packet(index, chunk)) == "whole":
                    wholes.append(key)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(wholes) == sorted(blobs)
    assert {key: stage.take(key) for key in stage.keys()} == blobs  # noqa: SIM118 - no mapping


def test_it_can_be_neither_copied_nor_read_by_repr():
    stage = UploadStage(100, 1)
    assert repr(stage) == "<UploadStage>"
    with pytest.raises(TypeError):
        pickle.dumps(stage)
