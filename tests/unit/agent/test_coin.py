"""The device's coin: fair, durable before it shows, thrown once for each draw."""

import pytest

from edgefl._native import Seed
from edgefl.agent.coin import Coin
from edgefl.errors import StorageError
from edgefl.privacy.sampling import ALWAYS, COIN_SIDES
from edgefl.protocol.reasons import RoundMode
from edgefl.protocol.round_messages import Call
from edgefl.protocol.wire import decode, encode
from edgefl.storage.memory import MemoryStore


class Counted:
    """Seeds in a fixed order, counted."""

    def __init__(self, *firsts: int) -> None:
        self.firsts = list(firsts)
        self.taken = 0

    def fresh_seed(self) -> Seed:
        self.taken += 1
        first = self.firsts.pop(0) if self.firsts else self.taken * 7919 % COIN_SIDES
        return Seed.from_bytes(first.to_bytes(2, "big") + bytes(30))


def a_call(draw: int, coin: int, *, task: str = "arm") -> Call:
    return Call(
        task=task,
        round_number=1,
        attempt=max(1, draw),
        mode=RoundMode.SECAGG,
        key_epoch=1,
        key_index=0,
        nonce=bytes(32),
        closes_in_ms=1000,
        coin=coin,
        draw=draw,
    )


def test_the_coin_has_the_probability_of_the_call() -> None:
    coin = Coin(MemoryStore(), Counted(99, 100, 101))
    assert [coin.falls_heads(a_call(draw, 100)) for draw in (1, 2, 3)] == [True, False, False]


def test_a_call_that_comes_again_is_answered_alike_also_after_a_restart() -> None:
    store, entropy = MemoryStore(), Counted(5, 60_000)
    first = Coin(store, entropy).falls_heads(a_call(1, 1000))
    assert first is True
    assert Coin(store, entropy).falls_heads(a_call(1, 1000)) is True
    assert entropy.taken == 1
    assert Coin(store, entropy).falls_heads(a_call(2, 1000)) is False


def test_an_old_draw_is_never_thrown_again() -> None:
    coin = Coin(MemoryStore(), Counted(5, 60_000, 5))
    coin.falls_heads(a_call(2, 1000))
    assert coin.falls_heads(a_call(1, ALWAYS - 1)) is False


def test_a_larger_coin_for_the_same_draw_uses_the_same_throw() -> None:
    entropy = Counted(500)
    coin = Coin(MemoryStore(), entropy)
    assert coin.falls_heads(a_call(1, 400)) is False
    assert coin.falls_heads(a_call(1, 600)) is True
    assert entropy.taken == 1


def test_where_all_take_part_nothing_is_thrown() -> None:
    store, entropy = MemoryStore(), Counted()
    assert Coin(store, entropy).falls_heads(a_call(0, ALWAYS))
    assert entropy.taken == 0
    assert store.keys() == []


def test_a_gateway_that_makes_up_tasks_fills_nothing() -> None:
    store = MemoryStore()
    coin = Coin(store, Counted())
    for number in range(1, 200):
        coin.falls_heads(a_call(number, 1000, task=f"t{number}\0{'x' * 50}"))
    assert len(store.keys()) == 64


def test_a_damaged_throw_is_an_error_and_no_new_throw() -> None:
    store, entropy = MemoryStore(), Counted(5)
    Coin(store, entropy).falls_heads(a_call(1, 1000))
    store.put(store.keys()[0], b"\x00")
    with pytest.raises(StorageError, match="E-STATE-DAMAGED"):
        Coin(store, entropy).falls_heads(a_call(1, 1000))
    assert entropy.taken == 1


def test_only_a_call_with_a_coin_names_one_on_the_wire() -> None:
    thrown = a_call(7, 1000)
    assert Call.from_body(decode(encode(dict(thrown.to_body())))) == thrown
    everybody = a_call(0, ALWAYS)
    assert max(everybody.to_body()) == 7
    assert Call.from_body(everybody.to_body()) == everybody
