"""The core of a gateway with an authority: who was let in takes part, and who is out is out."""

import itertools
from pathlib import Path

import pytest

from broker.core import GatewayCore
from broker.enrolment_events import (
    AuthoritiesChanged,
    ClaimsChanged,
    CutSession,
    OperatorSaid,
    Order,
    OrderDone,
    RevocationsChanged,
    Verb,
)
from broker.events import EnrolmentWanted, GatewayEffect, Reported, RosterBrought
from broker.open_gateway import GatewayEntropy
from broker.settings import GatewaySettings
from broker.tls_authority import TlsAuthority
from edgefl._native import SigningKey
from edgefl.agent.device_keys import new_wish
from edgefl.protocol import topics
from edgefl.protocol.enrolment_messages import (
    CertificateIssued,
    EnrolmentAnswer,
    EnrolmentState,
    RenewalRequest,
)
from edgefl.protocol.envelope import Header, open_envelope, seal_envelope
from edgefl.protocol.roster import sign_roster
from edgefl.protocol.roster_epoch import RosterEntry
from edgefl.protocol.service_messages import Hello, Receipt, Rejection
from edgefl.storage.memory import MemoryStore
from edgefl.transport.core_events import Arrived, LinkRestored, Publish
from edgefl.types import DeviceId
from firmware_sim.gateway import MemoryLedger
from tests.authority_lab import FLEET, GATEWAY, Board, Lab, new_key

NOW_S = itertools.count(60.0, 60.0)


class Fleet:
    """A core with an authority, or without one."""

    def __init__(
        self, folder: Path, *, operator: SigningKey | None = None, has_authority: bool = True
    ) -> None:
        self.lab = Lab(folder)
        self.core = GatewayCore(
            settings=GatewaySettings(
                fleet=FLEET,
                signing_key=GATEWAY,
                least_agent_version="0.0.1",
                enrolment_key=None if operator is None else operator.public_key,
                authority=TlsAuthority(self.lab.tls) if has_authority else None,
                wall_clock_s=lambda: self.lab.now.timestamp(),
            ),
            store=MemoryStore(),
            ledger=MemoryLedger(),
            entropy=GatewayEntropy(),
        )
        self.core.handle(LinkRestored(), next(NOW_S))

    def feed(self, event: object) -> list[GatewayEffect]:
        return self.core.handle(event, next(NOW_S))

    def enrol(self, board: Board, **options: object) -> list[GatewayEffect]:
        token = self.lab.token(**{"is_preauthorised": True, **options})
        self.feed(ClaimsChanged(claims=self.lab.claims))
        topic, payload = board.request(token)
        return self.feed(Arrived(topic=topic, payload=payload))

    def hello(self, board: Board) -> list[GatewayEffect]:
        return self.say(board, Hello(identity_key=board.key.public_key, agent_version="1.0"))

    def say(self, board: Board, message: object) -> list[GatewayEffect]:
        topic = topics.uplink(FLEET, DeviceId(board.name))
        payload = seal_envelope(board.key, topic, Header(sender=board.name), message)
        return self.feed(Arrived(topic=topic, payload=payload))

    def order(self, verb: Verb, device: str) -> list[GatewayEffect]:
        return self.feed(OperatorSaid(order=Order(order_id="1", verb=verb, device=device)))


def told(effects: list[GatewayEffect], kind: type) -> list:
    published = [effect for effect in effects if isinstance(effect, Publish)]
    messages = [open_envelope(one.topic, one.payload).message for one in published]
    return [message for message in messages if isinstance(message, kind)]


def of(effects: list[GatewayEffect], kind: type) -> list:
    return [effect for effect in effects if isinstance(effect, kind)]


def test_only_a_device_that_was_let_in_is_known(tmp_path: Path) -> None:
    fleet, board = Fleet(tmp_path), Board("d1")
    (rejection,) = told(fleet.hello(board), Rejection)
    assert rejection.code == "E-NOT-ENROLLED"
    assert "edgefl agent enrol" in rejection.text
    fleet.enrol(board, is_preauthorised=False)
    (rejection,) = told(fleet.hello(board), Rejection)
    assert "devices accept" in rejection.text
    assert fleet.core.population.keys == {}
    effects = fleet.order(Verb.ACCEPT, "d1")
    (answer,) = told(effects, EnrolmentAnswer)
    assert answer.state is EnrolmentState.ACCEPTED
    assert told(fleet.hello(board), Receipt)
    assert fleet.core.population.keys == {"d1": board.key.public_key}
    # Another board in its name is none of it.
    (rejection,) = told(fleet.hello(Board("d1")), Rejection)
    assert rejection.code == "E-NOT-ENROLLED"


def test_a_revoked_device_is_forgotten_cut_off_and_refused(tmp_path: Path) -> None:
    fleet, board = Fleet(tmp_path), Board("d1")
    fleet.enrol(board)
    fleet.hello(board)
    assert "d1" in fleet.core.online
    effects = fleet.order(Verb.REVOKE, "d1")
    assert of(effects, CutSession)
    assert "d1" in of(effects, RevocationsChanged)[0].devices
    assert of(effects, OrderDone)[0].is_done
    assert "d1" not in fleet.core.online
    assert fleet.core.population.keys == {}
    (rejection,) = told(fleet.hello(board), Rejection)
    assert "revoked" in rejection.text
    # What it says otherwise is ignored, not answered.
    report = RenewalRequest(certificate_request=b"", trusted_digest=bytes(32))
    assert told(fleet.say(board, report), Receipt) == []


def test_the_next_roster_of_the_gateway_is_without_a_revoked_device(tmp_path: Path) -> None:
    fleet, boards = Fleet(tmp_path), [Board("d1"), Board("d2"), Board("d3")]
    for board in boards:
        fleet.enrol(board)
        fleet.hello(board)
    enrolment = fleet.core.key_epochs.enrolment
    enrolment.sign(fleet.core.population.keys, 0.0)
    fleet.order(Verb.REVOKE, "d2")
    assert set(enrolment.identity_keys) == {"d1", "d3"}
    assert enrolment.roster.epoch.number == 2
    # The name comes back with another board, one roster later.
    again = Board("d2")
    fleet.enrol(again)
    fleet.order(Verb.ACCEPT, "d2")  # A token alone brings no revoked name back.
    fleet.hello(again)
    enrolment.sign(fleet.core.population.keys, 0.0)
    assert enrolment.identity_keys["d2"] == again.key.public_key


def test_a_name_whose_old_key_is_still_in_the_roster_changes_in_two_steps(tmp_path: Path) -> None:
    fleet, old, new = Fleet(tmp_path), Board("d1"), Board("d1")
    fleet.enrol(old)
    fleet.hello(old)
    enrolment = fleet.core.key_epochs.enrolment
    enrolment.sign(fleet.core.population.keys, 0.0)
    # The only device: a roster cannot be empty.
    fleet.order(Verb.REVOKE, "d1")
    assert enrolment.identity_keys == {"d1": old.key.public_key}
    for board in (new, Board("d2")):
        fleet.enrol(board)
        if board is new:
            fleet.order(Verb.ACCEPT, "d1")
        fleet.hello(board)
    enrolment.sign(fleet.core.population.keys, 0.0)
    assert set(enrolment.identity_keys) == {"d2"}
    enrolment.sign(fleet.core.population.keys, 0.0)
    assert enrolment.identity_keys["d1"] == new.key.public_key


def test_the_request_to_the_operator_names_who_is_out(tmp_path: Path) -> None:
    operator = new_key()
    fleet, boards = Fleet(tmp_path, operator=operator), [Board("d1"), Board("d2")]
    for board in boards:
        fleet.enrol(board)
    for board in boards:
        fleet.hello(board)
    entries = [
        RosterEntry(device=one.name, identity_key=one.key.public_key, enrolled_day=1)
        for one in boards
    ]
    roster = sign_roster(None, FLEET, entries, operator)
    fleet.feed(RosterBrought(content=roster.to_bytes()))
    effects = fleet.order(Verb.REVOKE, "d1")
    (wanted,) = of(effects, EnrolmentWanted)
    assert wanted.leaving == ("d1",)
    assert wanted.devices == {}
    (report,) = [one for one in of(effects, Reported) if one.kind == "enrolment"]
    assert report.fields["leaving"] == ["d1"]
    fleet.feed(RosterBrought(content=sign_roster(roster, FLEET, entries[1:], operator).to_bytes()))
    # Nothing is left to ask for.
    fleet.hello(boards[1])
    assert fleet.core.key_epochs.enrolment.identity_keys == {"d2": boards[1].key.public_key}


def test_devices_renew_and_learn_of_another_authority_over_their_own_topics(
    tmp_path: Path,
) -> None:
    fleet, board = Fleet(tmp_path), Board("d1")
    fleet.enrol(board)
    fleet.hello(board)
    wish = new_wish("d1")
    request = RenewalRequest(certificate_request=wish.request, trusted_digest=bytes(32))
    effects = fleet.say(board, request)
    assert told(effects, CertificateIssued)[0].certificate
    assert told(effects, Receipt)
    fleet.lab.tls.rotate(fleet=FLEET, now=fleet.lab.now)
    (issued,) = told(fleet.feed(AuthoritiesChanged()), CertificateIssued)
    assert len(issued.authorities) == 2
    assert fleet.core.behind_count == 1


def test_without_an_authority_everybody_is_known_and_enrolment_is_refused(tmp_path: Path) -> None:
    fleet, board = Fleet(tmp_path, has_authority=False), Board("d1")
    assert told(fleet.hello(board), Receipt)
    effects = fleet.enrol(Board("d2"))
    assert told(effects, EnrolmentAnswer) == []
    assert [one.fields["code"] for one in of(effects, Reported)] == ["E-NO-ENROLMENT"]
    (done,) = of(fleet.order(Verb.ACCEPT, "d1"), OrderDone)
    assert done.code == "E-NO-ENROLMENT"


@pytest.mark.parametrize("payload", [b"", b"garbage", bytes(4096)])
def test_garbage_on_a_claims_topic_is_reported_and_nothing_else(
    tmp_path: Path, payload: bytes
) -> None:
    fleet = Fleet(tmp_path)
    token = fleet.lab.token()
    fleet.feed(ClaimsChanged(claims=fleet.lab.claims))
    effects = fleet.feed(Arrived(topic=topics.claim_uplink(FLEET, token.claim), payload=payload))
    assert [effect.kind for effect in of(effects, Reported)] == ["refused"]
    assert of(effects, Publish) == []
