"""A link that stands and brings nothing is made anew, less often while that is no help."""

import itertools

from edgefl.agent.hearing import Hearing, first_hearing
from edgefl.transport.backoff import Backoff

STEP_S = 10.0


def hearing() -> Hearing:
    return Hearing(Backoff(first_s=100.0, cap_s=400.0, draw=lambda: 1.0))


def deaf_at(
    ear: Hearing, until_s: float, *, is_linked: bool = True, awaits_answer: bool = True
) -> list[float]:
    """Ask every ten seconds; return when a new link was wanted."""
    times = itertools.takewhile(lambda now_s: now_s <= until_s, itertools.count(0.0, STEP_S))
    return [
        now_s
        for now_s in times
        if ear.is_deaf(now_s, is_linked=is_linked, awaits_answer=awaits_answer)
    ]


def test_it_connects_anew_less_and_less_often() -> None:
    # Each time of patience begins when it is asked next, a step later.
    assert deaf_at(hearing(), 1600) == [100, 310, 720, 1130, 1540]


def test_who_waits_for_nothing_or_has_no_link_is_not_deaf() -> None:
    assert deaf_at(hearing(), 1600, awaits_answer=False) == []
    assert deaf_at(hearing(), 1600, is_linked=False) == []


def test_what_comes_begins_the_time_anew() -> None:
    ear = hearing()
    assert not ear.is_deaf(0.0, is_linked=True, awaits_answer=True)
    ear.heard()
    assert not ear.is_deaf(100.0, is_linked=True, awaits_answer=True)
    assert ear.is_deaf(200.0, is_linked=True, awaits_answer=True)


def test_an_answer_makes_the_next_patience_short_again() -> None:
    ear = hearing()
    assert deaf_at(ear, 310) == [100, 310]
    ear.is_deaf(320.0, is_linked=True, awaits_answer=False)
    assert not ear.is_deaf(330.0, is_linked=True, awaits_answer=True)
    assert ear.is_deaf(430.0, is_linked=True, awaits_answer=True)


def test_who_has_never_heard_of_a_gateway_tries_again_soon() -> None:
    times = deaf_at(first_hearing(lambda: 0.0), 2000)
    assert times[0] <= 20
    assert times[-1] - times[-2] >= 290
