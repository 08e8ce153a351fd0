"""Topic names and filters: MQTT 3.1.1's own examples, and what must be refused."""

import pytest

from edgefl.transport.matching import MAX_TOPIC_BYTES, filter_problem, topic_matches, topic_problem

# Examples of MQTT 3.1.1, sections 4.7.1.2, 4.7.1.3 and 4.7.2.1.
MATCHES = [
    ("sport/tennis/player1/#", "sport/tennis/player1", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
    ("sport/#", "sport", True),
    ("#", "sport/tennis", True),
    ("sport/tennis/+", "sport/tennis/player1", True),
    ("sport/tennis/+", "sport/tennis/player1/ranking", False),
    ("sport/+", "sport", False),
    ("sport/+", "sport/", True),
    ("+/+", "/finance", True),
    ("/+", "/finance", True),
    ("+", "/finance", False),
    ("#", "$SYS/monitor", False),
    ("+/monitor/Clients", "$SYS/monitor/Clients", False),
    ("$SYS/#", "$SYS/monitor", True),
    ("efl/1/f/d/+/st", "efl/1/f/d/a/st", True),
    ("efl/1/f/d/+/st", "efl/1/f/d/a/q", False),
    ("a/b", "a/b/c", False),
    ("a/b/c", "a/b", False),
]


@pytest.mark.parametrize(("topic_filter", "topic", "expected"), MATCHES)
def test_examples_of_the_standard(topic_filter, topic, expected):
    assert topic_matches(topic_filter, topic) is expected


@pytest.mark.parametrize("topic", ["", "a/+", "a/#", "a\0b", "x" * (MAX_TOPIC_BYTES + 1), "\ud800"])
def test_bad_topics_are_named(topic):
    assert topic_problem(topic)


@pytest.mark.parametrize("topic_filter", ["", "a#", "a/#/b", "a+/b", "##", "a\0", "é" * 300])
def test_bad_filters_are_named(topic_filter):
    assert filter_problem(topic_filter)


@pytest.mark.parametrize("topic_filter", ["#", "+", "a/+/c/#", "/", "x" * MAX_TOPIC_BYTES])
def test_good_filters_pass(topic_filter):
    assert filter_problem(topic_filter) is None
