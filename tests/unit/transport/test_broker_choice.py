"""Which broker, version and keepalive come next, from what past connections taught."""

import pytest

from edgefl.transport.broker_choice import BrokerChoice
from edgefl.transport.broker_url import BrokerAddress, BrokerScheme, plain_broker
from edgefl.transport.settings import MqttSettings, MqttVersion
from edgefl.transport.tls import TlsSettings

DAY_S = 86_400.0


def choice(*ports: int, **changed: object) -> BrokerChoice:
    brokers = tuple(plain_broker(port) for port in ports or (1,))
    return BrokerChoice(MqttSettings(brokers=brokers, client_id="a", **changed))


def test_a_failed_address_is_followed_by_the_next_and_all_by_a_pause():
    three = choice(1, 2, 3)
    seen = []
    for _ in range(6):
        seen.append((three.address.port, three.has_tried_all))
        three.note_failed()
    assert [port for port, _ in seen] == [1, 2, 3, 1, 2, 3]
    assert [tried for _, tried in seen] == [True, False, False, True, False, False]


def test_a_link_that_stood_is_tried_at_its_address_first():
    two = choice(1, 2)
    two.note_failed()
    two.note_up()
    two.note_lost(lived_s=5.0, died_silently=False)
    assert two.address.port == 2


def test_5_comes_first_and_what_worked_stays():
    two = choice(1, 2)
    assert two.version is MqttVersion.V5
    assert two.note_version_refused()
    assert two.version is MqttVersion.V311
    two.note_failed()
    assert two.version is MqttVersion.V5  # the other address has its own past
    two.note_failed()
    assert two.version is MqttVersion.V311


def test_a_version_that_was_set_is_kept():
    fixed = choice(version=MqttVersion.V311)
    assert not fixed.note_version_refused()
    assert fixed.version is MqttVersion.V311


def test_keepalive_is_halved_by_silent_deaths_and_comes_back_after_calm_days():
    learner = choice(keepalive_s=900)
    seen = []
    for _ in range(7):
        learner.note_lost(lived_s=3000.0, died_silently=True)
        seen.append(learner.keepalive_s)
    assert seen == [450, 225, 112, 56, 30, 30, 30]
    learner.note_lost(lived_s=3000.0, died_silently=False)
    assert learner.keepalive_s == 30
    for _ in range(6):
        learner.note_lost(lived_s=DAY_S, died_silently=False)
    assert learner.keepalive_s == 900


def test_a_short_keepalive_is_never_made_longer():
    learner = choice(keepalive_s=20)
    learner.note_lost(lived_s=60.0, died_silently=True)
    assert learner.keepalive_s == 20


def test_a_client_id_without_dots_where_they_are_refused():
    two = BrokerChoice(
        MqttSettings(brokers=(plain_broker(1), plain_broker(2)), client_id="edgefl-f-a.b-1")
    )
    assert two.note_client_id_refused()
    assert two.client_id == "edgefl-f-a~b-1"
    assert not two.note_client_id_refused()
    two.note_failed()
    assert two.client_id == "edgefl-f-a.b-1"


def test_a_referral_comes_first_and_leaves_a_way_back():
    referred = choice(1, 2)
    assert referred.refer("127.0.0.1:7")
    ports = []
    for _ in range(4):
        ports.append(referred.address.port)
        referred.note_failed()
    assert ports == [7, 1, 2, 7]


@pytest.mark.parametrize("reference", ["", "example.org:1883", "a b c", "mqtts://example.org"])
def test_a_referral_never_leads_off_this_machine_without_tls(reference):
    referred = choice(1)
    assert not referred.refer(reference)
    assert referred.address.port == 1


def test_a_referral_never_gives_up_tls():
    address = BrokerAddress(scheme=BrokerScheme.MQTTS, host="a.example", port=8883)
    tls = TlsSettings(ca_file="ca.pem")
    referred = BrokerChoice(MqttSettings(brokers=(address,), client_id="a", tls=tls))
    assert not referred.refer("mqtt://127.0.0.1:1883")
    assert referred.refer("mqtt://127.0.0.1:1883 b.example:9")
    assert str(referred.address) == "mqtts://b.example:9"
