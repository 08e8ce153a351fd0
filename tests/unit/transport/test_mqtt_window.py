"""What the broker says about messages and subscriptions is heeded: pause, set aside, ask again."""

from types import SimpleNamespace

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from edgefl.transport.mqtt5 import BrokerLimits
from edgefl.transport.mqtt_subscriptions import Subscriptions
from edgefl.transport.mqtt_window import SendingWindow
from edgefl.transport.outbox import Outbox, Outgoing


class Paho:
    """Takes what the link says, as paho's client does."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes, object]] = []
        self.asked: list[list[str]] = []

    def publish(self, topic, payload, qos, retain, properties=None):
        assert (qos, retain) == (1, False)
        self.published.append((topic, payload, properties))
        return SimpleNamespace(mid=len(self.published))

    def subscribe(self, filters):
        self.asked.append([name for name, _ in filters])
        return 0, len(self.asked)


def puback(value: int) -> ReasonCode:
    return ReasonCode(PacketTypes.PUBACK, identifier=value)


@pytest.fixture
def paho() -> Paho:
    return Paho()


@pytest.fixture
def outbox() -> Outbox:
    box = Outbox(max_messages=10, max_bytes=1000)
    for number in range(3):
        box.put(Outgoing(topic=f"t{number}", payload=b"x", retain=False))
    return box


def window_of(paho: Paho, outbox: Outbox, **changed: object) -> SendingWindow:
    return SendingWindow(
        paho,
        outbox,
        **{"size": 2, "size_bytes": 100, "speaks_5": True, "broker": "mqtt://b", **changed},
    )


def test_no_more_goes_out_than_the_window_holds(paho, outbox):
    window = window_of(paho, outbox)
    assert window.pump(0.0)
    assert [topic for topic, _, _ in paho.published] == ["t0", "t1"]
    assert not window.pump(0.0)
    assert window.take_answer(1, puback(0), 0.0)
    window.pump(0.0)
    assert len(paho.published) == 3


def test_no_more_bytes_are_under_way_than_a_cut_may_cost(paho):
    box = Outbox(max_messages=10, max_bytes=1000)
    for number, size_bytes in enumerate((60, 40, 1, 150, 1)):
        box.put(Outgoing(topic=f"t{number}", payload=bytes(size_bytes), retain=False))
    window = window_of(paho, box, size=8)
    window.pump(0.0)
    assert [topic for topic, _, _ in paho.published] == ["t0", "t1"]
    assert window.take_answer(1, puback(0), 0.0)
    window.pump(0.0)
    assert len(paho.published) == 3
    for packet_id in (2, 3):
        window.take_answer(packet_id, puback(0), 0.0)
    window.pump(0.0)  # the large one goes by itself
    assert [topic for topic, _, _ in paho.published[3:]] == ["t3"]
    assert [message.topic for message in window.take_unacknowledged()] == ["t3"]
    window.pump(0.0)
    assert len(paho.published) == 5


def test_the_brokers_receive_maximum_narrows_it(paho, outbox):
    window = window_of(paho, outbox)
    window.apply(BrokerLimits(receive_maximum=1))
    window.pump(0.0)
    assert len(paho.published) == 1


def test_a_broker_without_room_gets_the_message_again_and_ever_later(paho, outbox):
    window = window_of(paho, outbox, size=1)
    pauses = []
    now = 0.0
    for sent in range(1, 7):
        window.pump(now)
        assert paho.published[-1][0] == "t0"
        assert not window.take_answer(sent, puback(0x97), now)
        assert window.held_until is not None
        pauses.append(window.held_until - now)
        assert not window.pump(window.held_until - 0.01)
        now = window.held_until
    assert pauses == [1, 2, 4, 8, 16, 30]
    window.pump(now)
    window.take_answer(7, puback(0), now)
    window.pump(now)
    assert paho.published[-1][0] == "t1"
    assert outbox.refused_count == 0


@pytest.mark.parametrize("reason", [0x87, 0x99])
def test_what_the_broker_will_never_take_is_set_aside_and_named(paho, outbox, reason, caplog):
    window = window_of(paho, outbox, size=1)
    window.pump(0.0)
    assert window.take_answer(1, puback(reason), 0.0)
    assert outbox.refused_count == 1
    assert "topic=t0" in caplog.text
    window.pump(0.0)
    assert paho.published[-1][0] == "t1"


def test_what_has_expired_is_not_sent_and_the_rest_of_its_time_goes_along(paho):
    box = Outbox(max_messages=10, max_bytes=1000)
    for topic, expires_at_s in (("old", 5.0), ("new", 20.0), ("for-ever", None)):
        box.put(Outgoing(topic=topic, payload=b"", retain=False, expires_at_s=expires_at_s))
    window_of(paho, box, size=9).pump(8.0)
    sent = {topic: getattr(properties, "MessageExpiryInterval", None)
            for topic, _, properties in paho.published}  # fmt: skip
    assert sent == {"new": 12, "for-ever": None}
    assert box.expired_count == 1
    assert dict(paho.published[0][2].UserProperty) == {"schema": "efl/1"}


def test_3_1_1_has_no_properties(paho, outbox):
    window_of(paho, outbox, speaks_5=False).pump(0.0)
    assert [properties for _, _, properties in paho.published] == [None, None]


def test_a_refused_subscription_is_asked_for_again_after_a_while(paho, caplog):
    subscriptions = Subscriptions(paho, ["a", "b"], speaks_5=True)
    subscriptions.ask(0.0)
    assert subscriptions.unanswered_since == 0.0
    granted = ReasonCode(PacketTypes.SUBACK, identifier=1)
    refused = ReasonCode(PacketTypes.SUBACK, identifier=0x87)
    subscriptions.take_answer(1, [granted, refused], 1.0)
    assert subscriptions.unanswered_since is None
    assert "refused a subscription: b" in caplog.text
    subscriptions.ask(30.0)
    assert paho.asked == [["a", "b"]]
    subscriptions.ask(31.0)
    assert paho.asked == [["a", "b"], ["b"]]


def test_new_filters_are_asked_for_once_and_eight_at_a_time(paho):
    filters = [str(number) for number in range(10)]
    subscriptions = Subscriptions(paho, filters, speaks_5=False)
    subscriptions.ask(0.0)
    filters.append("late")
    subscriptions.ask(0.0)
    subscriptions.ask(0.0)
    assert [len(asked) for asked in paho.asked] == [8, 2, 1]
