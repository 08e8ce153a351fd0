"""docs/protocol.md derives and signs what the code does: each key and label, from the page's words.

The page's arrays are evaluated with a second implementation of HKDF and X25519.
"""

import hashlib
import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cbor2

from edgefl._native import AgreementKey, Seed
from edgefl.privacy.rotation import rotation_seed
from edgefl.protocol import wire
from edgefl.protocol.certificate import certificate_statement
from edgefl.protocol.enrolment_messages import claimed_bytes
from edgefl.protocol.envelope import Header, open_envelope, seal_envelope
from edgefl.protocol.epoch_room import draw_order
from edgefl.protocol.key_bundle import share_secret_of
from edgefl.protocol.key_epoch import commit_gateway_nonce, commit_nonce, hash_bundles
from edgefl.protocol.mask_keys import MaskKeyBatch
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.one_upload_sizes import DepositTerms, deposit_id_of
from edgefl.protocol.own_keys import nonce_of
from edgefl.protocol.reasons import AdversaryClass, RoundMode
from edgefl.protocol.round_messages import Call
from edgefl.protocol.service_messages import Receipt
from edgefl.protocol.session_keys import call_id_of
from edgefl.secagg.session import PeerKeys, Session
from tests.epoch_harness import FLEET, signing_key
from tests.key_schedule import hkdf, public_key, x25519
from tests.round_boards import opened_epoch

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
_LABELLED = ("edgefl/protocol", "edgefl/secagg", "edgefl/privacy/rotation.py")


def _table(head: str) -> list[list[str]]:
    lines = PAGE[PAGE.index(f"\n{head}") + 1 :].splitlines()[2:]
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def _values(cell: str, words: dict[str, Any]) -> list[Any]:
    """Return what a bracket's words stand for; text in quotes stands for itself."""
    return [
        word.strip('"') if word.startswith('"') else words[word]
        for word in cell.strip("[]").split(", ")
    ]


def _evaluated(cell: str, words: dict[str, Any]) -> bytes:
    if cell == "empty":
        return b""
    if cell.startswith("["):
        return cbor2.dumps(_values(cell, words), canonical=True)
    return cell.strip('"').encode() if cell.startswith('"') else words[cell]


# ------------------------------------------------------------ the key schedule


@dataclass(frozen=True)
class Pair:
    """Two devices with known secrets in one session."""

    own_secret: bytes = bytes(range(32))
    peer_secret: bytes = bytes(range(32, 64))
    self_seed: bytes = bytes(range(64, 96))
    session_id: bytes = b"\x05" * 32

    def words(self) -> dict[str, Any]:
        return {
            "fleet": FLEET,
            "device": "d00",
            "key epoch": 7,
            "key index": 3,
            "session id": self.session_id,
            "round": 11,
            "attempt": 13,
            "owner": 2,
            "holder": 5,
            "low": b"\x01" * 32,
            "high": b"\x02" * 32,
            "prg": 1,
            "length": 2052,
            "ring bits": 20,
            "lane bits": 32,
        }

    def session(self, own_keys: PeerKeys, peer_keys: PeerKeys) -> Session:
        return Session(
            session_id=self.session_id,
            round_number=11,
            attempt=13,
            length=2052,
            ring_bits=20,
            allows_aes=False,
            peers={2: own_keys, 5: peer_keys},
        )


def _from_the_page(pair: Pair) -> dict[str, bytes]:
    """Derive every secret of the page's table, in its order."""
    words, found = pair.words(), {}
    sources = {"epoch secret": pair.own_secret, "self seed": pair.self_seed}
    peer = {}
    for name, source, salt, info in _table("| secret | from | salt | info |"):
        derived = [_evaluated(salt, words), _evaluated(info, words)]
        if source.startswith("X25519 of the "):
            key = source.removeprefix("X25519 of the ").removesuffix("s")
            secret = x25519(found[key], public_key(peer[key]))
        else:
            secret = sources[source]
        found[name] = sources[name] = hkdf(secret, *derived)
        if source == "epoch secret":
            theirs = {**words, "device": "d01"}
            peer[name] = hkdf(pair.peer_secret, _evaluated(salt, theirs), _evaluated(info, theirs))
    return found


def _from_the_code(pair: Pair) -> dict[str, bytes]:
    mine, theirs = Seed.from_bytes(pair.own_secret), Seed.from_bytes(pair.peer_secret)
    own = {"fleet": FLEET, "device": "d00", "key_epoch": 7}
    peer = {**own, "device": "d01"}
    share_key = share_secret_of(mine, **own)  # type: ignore[arg-type]
    mask_key = _mask_key(mine, own)
    session = pair.session(
        PeerKeys(
            share_key=share_key.public_key,
            mask_key=mask_key.public_key,
            bundle_sha256=b"\x01" * 32,
            has_aes=True,
        ),
        PeerKeys(
            share_key=share_secret_of(theirs, **peer).public_key,  # type: ignore[arg-type]
            mask_key=_mask_key(theirs, peer).public_key,
            bundle_sha256=b"\x02" * 32,
            has_aes=True,
        ),
    )
    share_pair = share_key.agree(session.peers[5].share_key, b"", session.share_pair_info(2, 5))
    (pairwise,) = session.pairwise_seeds(mask_key, 2, [5])
    return {
        "share key": share_key.export_seed().export_bytes(),
        "mask key": mask_key.export_seed().export_bytes(),
        "nonce": nonce_of(mine, FLEET, "d00", 7),
        "share pair": share_pair.export_bytes(),
        "seal key": share_pair.derive(pair.session_id, session.seal_context(2, 5)).export_bytes(),
        "pairwise mask": pairwise.export_bytes(),
        "self mask": Seed.from_bytes(pair.self_seed)
        .derive(pair.session_id, session._info("self mask", 1))
        .export_bytes(),
    }


def _mask_key(secret: Seed, who: dict[str, Any]) -> AgreementKey:
    return MaskKeyBatch.from_epoch_secret(secret, **who, count=4).secret(3)


def test_the_key_schedule_is_right() -> None:
    pair = Pair()
    assert _from_the_page(pair) == _from_the_code(pair)


# ------------------------------------------------------------ labels


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _words_and_results(keys: MemberKeys) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what the page's words stand for, and what the code signs or hashes."""
    record, header = keys.epoch.record, keys.roster.epoch
    bundle = keys.bundle_of(keys.devices[2])
    nonce, session_id, alive, gone = bytes(range(32)), b"\x05" * 32, b"\x0f", b"\x10"
    opened = keys.opened_message
    call = Call(
        task="count",
        round_number=1,
        attempt=2,
        mode=RoundMode.SECAGG,
        key_epoch=1,
        key_index=3,
        nonce=nonce,
        closes_in_ms=1,
    )
    topic, message = "topic", Receipt(digest=nonce)
    envelope_header = Header(session_id=session_id, round_number=1, attempt=2, sender="d00")
    payload = seal_envelope(signing_key("d00"), topic, envelope_header, message)
    terms = DepositTerms(adversary=AdversaryClass.MALICIOUS, corrupt_permille=50, drop_permille=100)
    bundles = [keys.bundle_of(device) for device in keys.devices]
    words = {
        "version": 1,
        "kind": message.kind,
        "topic": topic,
        "session id": session_id,
        "round": 1,
        "attempt": 2,
        "sender": "d00",
        "body": wire.encode(message.to_body()),
        "fleet": FLEET,
        "number": header.number,
        "root": header.root,
        "size": header.size,
        "enrolled by day": header.to_list()[4],
        "previous hash": header.previous_hash,
        "device": bundle.device,
        "identity key": bundle.identity_key,
        "key epoch": bundle.key_epoch,
        "roster hash": bundle.roster_hash,
        "share key": bundle.share_key,
        "mask root": bundle.mask_root,
        "mask key count": bundle.mask_key_count,
        "prgs": bundle.prgs,
        "nonce commitment": bundle.nonce_commitment,
        "survivors": alive,
        "dropped": gone,
        "roster position": 2,
        "nonce": nonce,
        "bundle hashes joined": b"".join(one.digest for one in bundles),
        "record hash": record.digest,
        "nonces joined": b"".join(opened.nonces),
        "gateway's nonce": opened.gateway_nonce,
        "beacon": keys.epoch.beacon,
        "key index": (3).to_bytes(4, "big"),
        "body of the call": dict(call.to_body()),
        "claim": "claim-1",
        "certificate request": b"request",
        "adversary": 3,
        "corrupt permille": 50,
        "drop permille": 100,
    }
    results = {
        "signature of an envelope": open_envelope(topic, payload).signed,
        "signature of a roster header": header.signed_bytes(),
        "signature of a bundle": bundle.signed_bytes(FLEET),
        "signature of a vote": certificate_statement(session_id, alive, gone),
        "signature with a claim's key": claimed_bytes(
            fleet=FLEET,
            claim="claim-1",
            device=bundle.device,
            identity_key=bundle.identity_key,
            certificate_request=b"request",
        ),
        "nonce commitment": commit_nonce(FLEET, 1, 2, nonce),
        "gateway commitment": commit_gateway_nonce(FLEET, 1, nonce),
        "bundles hash": hash_bundles(bundles),
        "beacon": keys.epoch.beacon,
        "graph seed": keys.epoch.graph_seed(3),
        "committee seed": keys.epoch.committee_seed(3),
        "order of a draw for a key epoch without room for all": draw_order(1, bundle.device),
        "call id": call_id_of(FLEET, call),
        "deposit id, one upload": deposit_id_of(keys.epoch, 3, terms),
    }
    return words, results


def test_what_is_signed_and_hashed_is_right() -> None:
    keys, _ = opened_epoch(16)
    words, results = _words_and_results(keys)
    listed = {what: cell for what, cell in _table("| what | content |") if cell.startswith("[")}
    assert set(listed) == set(results)
    for what, cell in listed.items():
        content = _evaluated(cell, words)
        expected = content if what.startswith("signature") else _sha256(content)
        assert results[what] == expected, what


def test_the_joined_hashes_are_right() -> None:
    (commitment, rotation) = [
        cell for _, cell in _table("| what | content |") if cell.startswith("SHA-256(")
    ]
    session_id, seed = b"\x05" * 32, bytes(range(32))
    assert commitment == (
        'SHA-256("edgefl/1 seed commitment", length of the session id as 8 bytes little-endian, '
        "session id, self seed), joined"
    )
    joined = b"edgefl/1 seed commitment" + (32).to_bytes(8, "little") + session_id + seed
    assert Seed.from_bytes(seed).commitment(session_id) == _sha256(joined)
    assert rotation == 'SHA-256("edgefl/1 rotation", session id), joined'
    assert rotation_seed(session_id) == _sha256(b"edgefl/1 rotation" + session_id)


def test_every_label_is_on_the_page() -> None:
    sources = [
        path
        for place in _LABELLED
        for path in ([ROOT / place] if place.endswith(".py") else (ROOT / place).glob("*.py"))
    ]
    sources.append(ROOT / "rust" / "edgefl-core" / "src" / "secret.rs")
    labels = {
        label
        for path in sources
        for label in re.findall(r'"(edgefl/1[^"]*)"', path.read_text(encoding="utf-8"))
    }
    assert len(labels) > 15
    assert labels == set(re.findall(r'["`](edgefl/1[^"`]*)["`]', PAGE))
