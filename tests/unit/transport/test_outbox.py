"""The outbox keeps its bounds, drops the oldest, and knows when all is settled."""

import pytest

from edgefl.errors import ConfigError
from edgefl.transport.backoff import Backoff
from edgefl.transport.outbox import Outbox, Outgoing


def message(name: str, size_bytes: int = 1) -> Outgoing:
    return Outgoing(topic=name, payload=bytes(size_bytes), retain=False)


def topics(outbox: Outbox) -> list[str]:
    names = []
    while (taken := outbox.take()) is not None:
        names.append(taken.topic)
    return names


def test_the_oldest_goes_when_there_are_too_many():
    outbox = Outbox(max_messages=3, max_bytes=1000)
    assert [outbox.put(message(name)) for name in "abcde"] == [0, 0, 0, 1, 1]
    assert outbox.dropped_count == 2
    assert topics(outbox) == ["c", "d", "e"]


def test_the_oldest_go_when_they_are_too_large():
    outbox = Outbox(max_messages=10, max_bytes=100)
    outbox.put(message("a", 40))
    outbox.put(message("b", 40))
    assert not outbox.has_room(40)
    assert outbox.put(message("c", 90)) == 2
    assert topics(outbox) == ["c"]


def test_one_message_beyond_the_bound_still_passes():
    outbox = Outbox(max_messages=2, max_bytes=10)
    assert outbox.has_room(1000)
    outbox.put(message("large", 1000))
    assert topics(outbox) == ["large"]


def test_given_back_messages_come_first_in_their_order():
    outbox = Outbox(max_messages=10, max_bytes=100)
    for name in "abc":
        outbox.put(message(name))
    taken = [outbox.take(), outbox.take()]
    outbox.give_back([one for one in taken if one is not None])
    assert topics(outbox) == ["a", "b", "c"]


def test_giving_back_keeps_the_bound_and_counts():
    outbox = Outbox(max_messages=2, max_bytes=100)
    outbox.put(message("a"))
    first = outbox.take()
    outbox.put(message("b"))
    outbox.put(message("c"))
    assert first is not None
    assert outbox.give_back([first]) == 1
    assert topics(outbox) == ["b", "c"]


def test_settled_means_acknowledged_not_only_taken():
    outbox = Outbox(max_messages=2, max_bytes=100)
    assert outbox.is_settled
    outbox.put(message("a"))
    assert not outbox.is_settled
    outbox.take()
    assert not outbox.is_settled
    outbox.settle()
    assert outbox.is_settled


def test_payloads_stay_out_of_the_repr():
    secret = Outgoing(topic="t", payload=b"masked update", retain=False)
    assert "masked" not in repr(secret)


@pytest.mark.parametrize("bounds", [(0, 1), (1, 0)])
def test_bounds_below_one_are_refused(bounds):
    with pytest.raises(ConfigError, match="E-OUTBOX"):
        Outbox(max_messages=bounds[0], max_bytes=bounds[1])


def test_backoff_doubles_to_its_cap_and_begins_again():
    backoff = Backoff(first_s=0.1, cap_s=0.5, draw=lambda: 0.999999)
    assert [round(backoff.next_delay_s(), 3) for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    backoff.reset()
    assert round(backoff.next_delay_s(), 3) == 0.1


def test_after_ten_minutes_pauses_grow_to_a_minute():
    backoff = Backoff(first_s=0.1, cap_s=2.0, draw=lambda: 0.5, later_cap_s=60.0)
    waited_s, pauses = 0.0, []
    while waited_s < 600:
        pauses.append(backoff.next_delay_s())
        waited_s += pauses[-1]
    assert max(pauses) == 1.5
    assert [backoff.next_delay_s() for _ in range(7)] == [3.0, 6.0, 12.0, 24.0, 45.0, 45.0, 45.0]
    backoff.reset()
    assert backoff.next_delay_s() < 0.1, "a link that stood begins anew"
    assert max(backoff.next_delay_s() for _ in range(20)) == 1.5


def test_backoff_jitter_stays_within_half_and_whole():
    low = Backoff(first_s=1.0, cap_s=1.0, draw=lambda: 0.0)
    assert low.next_delay_s() == 0.5


@pytest.mark.parametrize(("first_s", "cap_s"), [(0.0, 1.0), (2.0, 1.0), (1.0, float("nan"))])
def test_backoff_refuses_nonsense(first_s, cap_s):
    with pytest.raises(ConfigError, match="E-BACKOFF"):
        Backoff(first_s=first_s, cap_s=cap_s, draw=lambda: 0.5)
