"""Each derived key equals that of a second implementation, and each input matters."""

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from edgefl._native import AgreementKey, Seed
from edgefl.errors import RemoteProtocolError
from edgefl.protocol.key_bundle import share_secret_of
from edgefl.protocol.mask_keys import MaskKeyBatch
from edgefl.protocol.own_keys import nonce_of
from edgefl.secagg import session as session_module
from edgefl.secagg.session import PeerKeys, Session
from tests import key_schedule

VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors" / "v1" / "key_schedule.json").read_text()
)


def derived(case: dict[str, Any]) -> dict[str, str]:
    """Derive everything with the product's own code."""
    mine = Seed.from_bytes(bytes.fromhex(case["epoch_secret"]))
    theirs = Seed.from_bytes(bytes.fromhex(case["peer_epoch_secret"]))
    fleet, number = case["fleet"], case["key_epoch"]
    own = {"fleet": fleet, "device": case["device"], "key_epoch": number}
    peer = {"fleet": fleet, "device": case["peer"], "key_epoch": number}
    mask_key = MaskKeyBatch.from_epoch_secret(mine, **own, count=8).secret(case["key_index"])
    peer_mask_key = MaskKeyBatch.from_epoch_secret(theirs, **peer, count=8).secret(
        case["key_index"]
    )
    share_key, peer_share_key = share_secret_of(mine, **own), share_secret_of(theirs, **peer)
    position, peer_position = case["position"], case["peer_position"]
    session = Session(
        session_id=bytes.fromhex(case["session_id"]),
        round_number=case["round_number"],
        attempt=case["attempt"],
        length=case["length"],
        ring_bits=case["ring_bits"],
        allows_aes=True,
        peers={
            position: PeerKeys(
                share_key=share_key.public_key,
                mask_key=mask_key.public_key,
                bundle_sha256=bytes.fromhex(case["bundle_sha256"]),
                has_aes=case["has_aes"],
            ),
            peer_position: PeerKeys(
                share_key=peer_share_key.public_key,
                mask_key=peer_mask_key.public_key,
                bundle_sha256=bytes.fromhex(case["peer_bundle_sha256"]),
                has_aes=case["peer_has_aes"],
            ),
        },
    )
    (pairwise,) = session.pairwise_seeds(mask_key, position, [peer_position])
    self_seed = Seed.from_bytes(bytes.fromhex(case["self_seed"]))
    share_pair = share_key.agree(
        peer_share_key.public_key, b"", session.share_pair_info(position, peer_position)
    )
    context = session.seal_context(position, peer_position)
    return {
        "mask_key": mask_key.public_key.hex(),
        "share_key": share_key.public_key.hex(),
        "nonce": nonce_of(mine, fleet, case["device"], number).hex(),
        "pairwise_seed": pairwise.export_bytes().hex(),
        "self_mask_seed": _self_mask_seed(session, self_seed, position).export_bytes().hex(),
        "share_pair_secret": share_pair.export_bytes().hex(),
        "seal_key": share_pair.derive(session.session_id, context).export_bytes().hex(),
        "seal_context": context.hex(),
        "commitment": self_seed.commitment(session.session_id).hex(),
    }


def _self_mask_seed(session: Session, self_seed: Seed, position: int) -> Seed:
    """Return what the self mask is expanded from; the mask itself does not show it."""
    with mock.patch.object(session_module, "Mask") as mask:
        session.self_mask(self_seed, position)
    seed = mask.call_args.args[0]
    assert isinstance(seed, Seed)
    return seed


def test_the_vectors_are_those_of_the_second_implementation() -> None:
    assert key_schedule.vectors() == VECTORS


@pytest.mark.parametrize("case", VECTORS["cases"])
def test_every_derived_key(case: dict[str, Any]) -> None:
    assert derived(case["inputs"]) == case["outputs"]


def test_both_ends_of_a_pair_agree() -> None:
    one, other, _ = (case["outputs"] for case in VECTORS["cases"])
    assert one["pairwise_seed"] == other["pairwise_seed"]
    assert one["share_pair_secret"] == other["share_pair_secret"]
    # Each direction seals with a key of its own.
    assert one["seal_key"] != other["seal_key"]


@pytest.mark.parametrize("negative", VECTORS["negative"])
def test_another_input_gives_other_keys(negative: dict[str, Any]) -> None:
    case = VECTORS["cases"][0]
    found = derived(case["inputs"] | negative["change"])
    differing = sorted(key for key, value in found.items() if value != case["outputs"][key])
    assert differing == negative["differs"]
    assert differing


def test_every_input_of_a_pairwise_mask_is_among_them() -> None:
    changing = {
        name
        for negative in VECTORS["negative"]
        for name in negative["change"]
        if "pairwise_seed" in negative["differs"]
    }
    # Of the positions only which is lower counts, and this change keeps that.
    assert changing == set(VECTORS["cases"][0]["inputs"]) - {"self_seed", "peer_position"}


@pytest.mark.parametrize("key", VECTORS["refused_peer_keys"])
def test_peer_keys_of_small_order_are_refused(key: str) -> None:
    secret = AgreementKey.from_seed(Seed.from_bytes(bytes(range(32))))
    with pytest.raises(RemoteProtocolError, match="E-PUBLIC-KEY"):
        secret.agree(bytes.fromhex(key), b"", b"")
