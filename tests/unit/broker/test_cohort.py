"""Who is called where there are more members than a round takes."""

import hashlib
from collections import Counter

from broker.deposits import RoundIndex

MEMBERS = {f"d{index:02d}" for index in range(20)}


def called(nonce: bytes, online: set[str] = MEMBERS, most: int = 5) -> frozenset[str]:
    return RoundIndex(key_index=0).cohort(MEMBERS, online, most, nonce=nonce)


def test_all_members_get_their_turn() -> None:
    nonces = [hashlib.sha256(bytes([index])).digest() for index in range(200)]
    turns = Counter(device for nonce in nonces for device in called(nonce))
    assert all(len(called(nonce)) == 5 for nonce in nonces)
    # Each of 20 has a quarter of 200 turns, with a standard deviation of about 6.
    assert set(turns) == MEMBERS
    assert all(20 < count < 80 for count in turns.values())


def test_one_nonce_gives_one_cohort() -> None:
    assert called(b"nonce") == called(b"nonce")


def test_those_online_come_first() -> None:
    online = {"d03", "d11", "d19"}
    assert online < called(b"nonce", online)
    assert len(called(b"nonce", online)) == 5
