"""The key schedule a second time, in plain Python, to make and to check tests/vectors/v1.

Slow and not constant-time. Source: RFC 7748, section 5 (X25519); RFC 5869 (HKDF-SHA256);
docs/protocol.md for the contexts. Run as a module it prints the vectors.
"""

import hashlib
import hmac
import json
import sys
from typing import Any

import cbor2

PRIME = 2**255 - 19


def x25519(secret: bytes, public: bytes) -> bytes:
    """Return the shared secret of a clamped secret and a public u-coordinate."""
    scalar = int.from_bytes(secret, "little") & ~7 & (2**255 - 1) | 2**254
    scalar &= 2**255 - 1
    u = int.from_bytes(public, "little") & (2**255 - 1)
    low, high = (1, 0), (u, 1)
    for bit in reversed(range(255)):
        is_set = scalar >> bit & 1
        if is_set:
            low, high = high, low
        low, high = _ladder_step(u, low, high)
        if is_set:
            low, high = high, low
    return (low[0] * pow(low[1], PRIME - 2, PRIME) % PRIME).to_bytes(32, "little")


def _ladder_step(
    u: int, low: tuple[int, int], high: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    a, b = low[0] + low[1], low[0] - low[1]
    c, d = high[0] + high[1], high[0] - high[1]
    aa, bb, da, cb = a * a, b * b, d * a, c * b
    e = aa - bb
    doubled = (aa * bb % PRIME, e * (aa + 121665 * e) % PRIME)
    added = ((da + cb) ** 2 % PRIME, u * (da - cb) ** 2 % PRIME)
    return doubled, added


def public_key(secret: bytes) -> bytes:
    return x25519(secret, (9).to_bytes(32, "little"))


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """Return 32 bytes of HKDF-SHA256."""
    extracted = hmac.digest(salt or bytes(32), secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


def cbor(value: object) -> bytes:
    return cbor2.dumps(value, canonical=True)


def outputs(case: dict[str, Any]) -> dict[str, str]:
    """Return what follows from a case's inputs; binary values in hex, as the inputs."""
    mine, theirs = bytes.fromhex(case["epoch_secret"]), bytes.fromhex(case["peer_epoch_secret"])
    own = [case["fleet"], case["device"], case["key_epoch"]]
    peer = [case["fleet"], case["peer"], case["key_epoch"]]
    mask_label, share_label = b"edgefl/1 mask key", b"edgefl/1 share key"
    mask_seed = hkdf(mine, mask_label, cbor([*own, case["key_index"]]))
    peer_mask_key = public_key(hkdf(theirs, mask_label, cbor([*peer, case["key_index"]])))
    share_seed = hkdf(mine, share_label, cbor(own))
    peer_share_key = public_key(hkdf(theirs, share_label, cbor(peer)))
    session_id, self_seed = bytes.fromhex(case["session_id"]), bytes.fromhex(case["self_seed"])
    bundles = [bytes.fromhex(case["bundle_sha256"]), bytes.fromhex(case["peer_bundle_sha256"])]
    is_low = case["position"] < case["peer_position"]
    low_first = bundles if is_low else bundles[::-1]
    attempt = [case["round_number"], case["attempt"]]
    shape = [case["length"], case["ring_bits"], 16 if case["ring_bits"] <= 16 else 32]
    pair_prg = 2 if case["has_aes"] and case["peer_has_aes"] else 1
    pair = ["edgefl/1", "pairwise mask", pair_prg, *attempt, *low_first, *shape]
    own_mask = ["edgefl/1", "self mask", 2 if case["has_aes"] else 1, *attempt, *shape]
    share_pair = hkdf(
        x25519(share_seed, peer_share_key), b"", cbor(["edgefl/1", "share pair", *low_first])
    )
    sealing = ["edgefl/1", "share", session_id, *attempt, case["position"], case["peer_position"]]
    context = b"edgefl/1 seed commitment" + (32).to_bytes(8, "little") + session_id
    found = {
        "mask_key": public_key(mask_seed),
        "share_key": public_key(share_seed),
        "nonce": hkdf(mine, b"edgefl/1 nonce", cbor(own)),
        "pairwise_seed": hkdf(x25519(mask_seed, peer_mask_key), session_id, cbor(pair)),
        "self_mask_seed": hkdf(self_seed, session_id, cbor(own_mask)),
        "share_pair_secret": share_pair,
        "seal_key": hkdf(share_pair, session_id, cbor(sealing)),
        "seal_context": cbor(sealing),
        "commitment": hashlib.sha256(context + self_seed).digest(),
    }
    return {name: value.hex() for name, value in found.items()}


CHANGES: dict[str, object] = {
    "fleet": "other",
    "device": "d09",
    "peer": "d08",
    "key_epoch": 8,
    "key_index": 4,
    "epoch_secret": "11" * 32,
    "peer_epoch_secret": "12" * 32,
    "session_id": "13" * 32,
    "self_seed": "14" * 32,
    "bundle_sha256": "15" * 32,
    "peer_bundle_sha256": "16" * 32,
    "position": 7,
    "peer_position": 9,
    "round_number": 4,
    "attempt": 6,
    "length": 25,
    "ring_bits": 16,
    "has_aes": False,
    "peer_has_aes": False,
}
"""One other value for each input."""


def cases() -> list[dict[str, Any]]:
    """Return inputs: a pair from both ends, and one in the narrow ring without AES."""
    first: dict[str, Any] = {
        "fleet": "hall-4",
        "device": "d02",
        "peer": "d05",
        "key_epoch": 7,
        "key_index": 3,
        "epoch_secret": bytes(range(32)).hex(),
        "peer_epoch_secret": bytes(range(32, 64)).hex(),
        "session_id": bytes(range(64, 96)).hex(),
        "self_seed": bytes(range(96, 128)).hex(),
        "bundle_sha256": bytes(range(128, 160)).hex(),
        "peer_bundle_sha256": bytes(range(160, 192)).hex(),
        "position": 2,
        "peer_position": 4,
        "round_number": 3,
        "attempt": 5,
        "length": 24,
        "ring_bits": 20,
        "has_aes": True,
        "peer_has_aes": True,
    }
    other_end = first | {
        "device": "d05",
        "peer": "d02",
        "epoch_secret": first["peer_epoch_secret"],
        "peer_epoch_secret": first["epoch_secret"],
        "bundle_sha256": first["peer_bundle_sha256"],
        "peer_bundle_sha256": first["bundle_sha256"],
        "position": 4,
        "peer_position": 2,
    }
    return [first, other_end, first | {"ring_bits": 12, "has_aes": False, "key_index": 0}]


def vectors() -> dict[str, Any]:
    """Return the content of key_schedule.json."""
    found = [{"inputs": case, "outputs": outputs(case)} for case in cases()]
    changed = [
        {
            "change": {name: value},
            "differs": sorted(
                key
                for key, output in outputs(cases()[0] | {name: value}).items()
                if output != found[0]["outputs"][key]
            ),
        }
        for name, value in CHANGES.items()
    ]
    return {
        "source": "made by tests/key_schedule.py, a second implementation; not a standard",
        "fields": "byte strings in hex; seal_key is that of the ciphertext from device to peer",
        "cases": found,
        "negative": changed,
        "refused_peer_keys": ["00" * 32, "01" + "00" * 31, "ed" + "ff" * 30 + "7f"],
    }


if __name__ == "__main__":
    json.dump(vectors(), sys.stdout, indent=1)
    sys.stdout.write("\n")
