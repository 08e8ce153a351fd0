"""Key bundles: signed by one identity for one fleet, and a batch of keys that only they prove."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from edgefl._native import Seed
from edgefl.errors import LocalProtocolError, RemoteProtocolError, WireError
from edgefl.protocol.key_bundle import (
    MAX_MASK_KEYS,
    KeyBundle,
    MaskKeyProof,
    prg_bitmask,
    share_secret_of,
)
from edgefl.protocol.mask_keys import MaskKeyBatch
from edgefl.protocol.merkle import MerkleTree
from edgefl.protocol.wire import WireValue, decode, encode
from tests.epoch_harness import FLEET, CountedSeeds, signing_key

SECRET = CountedSeeds(b"epoch secret").fresh_seed()
SMALL_ORDER = json.loads(
    (Path(__file__).parents[2] / "vectors" / "small_order_x25519.json").read_text()
)


def batch_of(
    secret: Seed = SECRET, *, fleet: str = FLEET, device: str = "d00", key_epoch: int = 1
) -> MaskKeyBatch:
    return MaskKeyBatch.from_epoch_secret(
        secret, fleet=fleet, device=device, key_epoch=key_epoch, count=8
    )


def unsigned_bundle(batch: MaskKeyBatch) -> KeyBundle:
    return KeyBundle(
        device="d00",
        identity_key=signing_key("d00").public_key,
        key_epoch=1,
        roster_hash=b"r" * 32,
        share_key=share_secret_of(SECRET, fleet=FLEET, device="d00", key_epoch=1).public_key,
        mask_root=batch.root,
        mask_key_count=batch.count,
        prgs=prg_bitmask(2),
        nonce_commitment=b"n" * 32,
        signature=bytes(64),
    )


BATCH = batch_of()
BUNDLE = unsigned_bundle(BATCH).signed_by(FLEET, signing_key("d00"))


def small_order_keys() -> list[bytes]:
    return [bytes.fromhex(digits) for digits in SMALL_ORDER["public_keys"]]


# ---------------------------------------------------------------- the bundle


def test_a_signed_bundle_passes_and_comes_back_as_it_was() -> None:
    BUNDLE.require_signed(FLEET)
    value: WireValue = decode(encode(BUNDLE.to_list()))
    assert KeyBundle.from_value(value) == BUNDLE
    assert KeyBundle.from_value(value).digest == BUNDLE.digest


@pytest.mark.parametrize(
    "changes",
    [
        {"device": "d01"},
        {"identity_key": signing_key("d01").public_key},
        {"key_epoch": 2},
        {"roster_hash": bytes(32)},
        {"share_key": bytes([9]) + bytes(31)},
        {"mask_root": bytes(32)},
        {"mask_key_count": 4},
        {"prgs": 1},
        {"nonce_commitment": bytes(32)},
        {"signature": bytes(64)},
    ],
)
def test_a_swapped_or_downgraded_field_is_refused(changes: dict[str, object]) -> None:
    swapped = replace(BUNDLE, **changes)
    assert swapped.digest != BUNDLE.digest
    for _ in range(2):  # refusals are not remembered as passes
        with pytest.raises(RemoteProtocolError, match="E-BUNDLE-SIGNATURE"):
            swapped.require_signed(FLEET)


def test_a_bundle_of_another_fleet_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="E-BUNDLE-SIGNATURE"):
        BUNDLE.require_signed("another-fleet")


@pytest.mark.parametrize("key", small_order_keys())
def test_keys_of_small_order_are_refused_though_signed(key: bytes) -> None:
    bundle = replace(unsigned_bundle(BATCH), share_key=key).signed_by(FLEET, signing_key("d00"))
    with pytest.raises(RemoteProtocolError, match="E-PUBLIC-KEY"):
        bundle.require_signed(FLEET)
    tree = MerkleTree([encode([index, key]) for index in range(8)])
    proof = MaskKeyProof(index=3, key=key, path=tree.path(3))
    with pytest.raises(RemoteProtocolError, match="E-PUBLIC-KEY"):
        proof.require_in(replace(BUNDLE, mask_root=tree.root))


def test_a_bundle_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = replace(BUNDLE, nonce_commitment=b"o" * 32).signed_by(FLEET, signing_key("d00"))
    bundle.require_signed(FLEET)

    def fail(*_: bytes) -> bool:
        raise AssertionError("verified again")

    monkeypatch.setattr("edgefl.protocol.key_bundle.verify", fail)
    KeyBundle.from_value(bundle.to_list()).require_signed(FLEET)
    with pytest.raises(AssertionError, match="verified again"):
        bundle.require_signed("another-fleet")


@pytest.mark.parametrize("count", [0, 3, 63, MAX_MASK_KEYS * 2, -1])
def test_batches_of_other_sizes_are_refused(count: int) -> None:
    with pytest.raises(WireError, match="E-MASK-KEY-COUNT"):
        replace(BUNDLE, mask_key_count=count)
    with pytest.raises(WireError, match="E-MASK-KEY-COUNT"):
        MaskKeyBatch.from_epoch_secret(SECRET, fleet=FLEET, device="d", key_epoch=1, count=count)


def test_declared_prgs() -> None:
    assert BUNDLE.declares(1)
    assert BUNDLE.declares(2)
    assert not any(BUNDLE.declares(prg) for prg in (-1, 0, 3, 4))
    plain = replace(BUNDLE, prgs=prg_bitmask())
    assert plain.declares(1)
    assert not plain.declares(2)
    with pytest.raises(WireError, match="E-BUNDLE-PRGS"):
        replace(BUNDLE, prgs=2)


# ---------------------------------------------------------------- mask keys


def test_each_key_is_proved_at_its_own_index() -> None:
    for index in range(BATCH.count):
        proof = BATCH.proof(index)
        proof.require_in(BUNDLE)
        assert proof.key == BATCH.secret(index).public_key
        assert MaskKeyProof.from_value(decode(encode(proof.to_list()))) == proof


@pytest.mark.parametrize(
    "changes", [{"index": 4}, {"index": 1000}, {"path": ()}, {"key": b"k" * 32}]
)
def test_a_key_at_another_index_is_not_proved(changes: dict[str, object]) -> None:
    proof = replace(BATCH.proof(3), **changes)
    with pytest.raises(RemoteProtocolError, match="E-MASK-KEY-PATH"):
        proof.require_in(BUNDLE)


def test_every_key_is_of_one_secret_fleet_device_epoch_and_index() -> None:
    batches = [
        BATCH,
        batch_of(CountedSeeds(b"other").fresh_seed()),
        batch_of(fleet="other"),
        batch_of(device="d01"),
        batch_of(key_epoch=2),
    ]
    keys = {batch.proof(index).key for batch in batches for index in range(8)}
    assert len(keys) == 40
    assert share_secret_of(SECRET, fleet=FLEET, device="d00", key_epoch=1).public_key not in keys
    assert batch_of().root == BATCH.root


@pytest.mark.parametrize("index", [-1, 8])
def test_there_are_no_further_keys(index: int) -> None:
    with pytest.raises(LocalProtocolError, match="E-MASK-KEY-INDEX"):
        BATCH.secret(index)


def test_secrets_do_not_show() -> None:
    assert SECRET.export_bytes().hex() not in repr(BATCH) + repr(BATCH.secret(0))
