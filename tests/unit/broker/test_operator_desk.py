"""The shell's side of enrolment: what files bring, and what is done with the core's decisions."""

import datetime
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.claims import keep_claim, read_claims, revoke_claim
from broker.enrolment_events import (
    AuthoritiesChanged,
    ClaimsChanged,
    CutSession,
    OperatorSaid,
    OrderDone,
    RevocationsChanged,
    Verb,
)
from broker.operator_desk import OperatorDesk
from broker.orders import OrderFolder
from broker.tls_folder import TlsFolder
from tests.authority_lab import FLEET, NOW, Lab

HOSTS = ["localhost"]


class Link:
    """A link that remembers what it was told."""

    def __init__(self) -> None:
        self.revoked: list[tuple[list[str], list[str]]] = []
        self.cut: list[str] = []
        self.shown: list[bytes] = []

    def set_revoked(self, serials: Sequence[str], identities: Sequence[str]) -> None:
        self.revoked.append((list(serials), list(identities)))

    def disconnect(self, identity: str, reason: str) -> None:
        self.cut.append(f"{identity}: {reason}")

    def set_certificates(self, chain: bytes, key: bytes, authorities: bytes) -> None:
        assert chain == key
        self.shown.append(authorities)


class Place:
    def __init__(self, folder: Path, *, has_tls: bool = True) -> None:
        self.lab = Lab(folder)
        self.folder = folder
        self.behind = 0
        self.now = NOW
        self.link = Link()
        self.desk = OperatorDesk(
            folder,
            tls=TlsFolder(folder) if has_tls else None,
            fleet=FLEET,
            names=HOSTS,
            behind_count=lambda: self.behind,
            now=lambda: self.now,
        )
        self.desk.use(self.link)

    def claim(self) -> str:
        token = self.lab.token()
        keep_claim(self.folder, self.lab.claims[token.claim])
        return token.claim

    def answer(self, order_id: str) -> OrderDone:
        done = OrderFolder(self.folder).wait(order_id, 0.5)
        assert done is not None
        return done


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def claims_in(events: list) -> list[set[str]]:
    return [set(event.claims) for event in events if isinstance(event, ClaimsChanged)]


def test_tokens_are_told_when_they_change_or_end(place: Place) -> None:
    name = place.claim()
    assert claims_in(place.desk.look()) == [{name}]
    assert place.desk.look() == []
    revoke_claim(place.folder, name)
    (event,) = place.desk.look()
    assert event.claims[name].is_revoked
    other = place.claim()
    assert claims_in(place.desk.look()) == [{name, other}]
    place.now += datetime.timedelta(hours=25)
    assert claims_in(place.desk.look()) == [{name, other}]
    assert place.desk.look() == []
    assert set(read_claims(place.folder)) == {name, other}


def test_an_order_reaches_the_core_once_and_its_answer_the_command(place: Place) -> None:
    order_id = OrderFolder(place.folder).give(Verb.ACCEPT, "d1")
    orders = [event for event in place.desk.look() if isinstance(event, OperatorSaid)]
    assert [event.order.device for event in orders] == ["d1"]
    assert place.desk.look() == []
    place.desk.carry_out(OrderDone(order_id=order_id, is_done=True, code="", text="done"))
    assert place.answer(order_id).text == "done"
    # Until it is answered it is taken up again by a gateway that was killed.
    order_id = OrderFolder(place.folder).give(Verb.REVOKE, "d1")
    place.desk.look()
    again = Place(place.folder)
    assert [event.order.verb for event in again.desk.look() if isinstance(event, OperatorSaid)] == [
        Verb.REVOKE
    ]


def test_answers_that_nobody_came_for_are_removed(place: Place) -> None:
    order_id = OrderFolder(place.folder).give(Verb.ACCEPT, "d1")
    place.desk.look()
    place.desk.carry_out(OrderDone(order_id=order_id, is_done=True, code="", text="done"))
    path = place.folder / "orders" / f"{order_id}.done"
    os.utime(path, (NOW.timestamp(), NOW.timestamp()))
    place.now += datetime.timedelta(hours=7)
    place.desk.look()
    assert not path.exists()


def test_revocations_go_to_link_and_file_and_to_a_later_link(place: Place) -> None:
    revoked = RevocationsChanged(serials=frozenset({255, 16}), devices=frozenset({"d1"}))
    place.desk.carry_out(revoked)
    place.desk.carry_out(revoked)
    assert place.link.revoked == [(["10", "ff"], ["d1"])]
    place.desk.carry_out(CutSession(device="d1", reason="why"))
    assert place.link.cut == ["d1: why"]
    later = Link()
    place.desk.use(later)
    assert later.revoked == place.link.revoked
    place.desk.use(object())  # A link that cannot: the file is all there is.
    place.desk.carry_out(CutSession(device="d2", reason="why"))


def test_the_authority_is_replaced_when_all_devices_have_moved(place: Place) -> None:
    place.desk.look()
    orders = OrderFolder(place.folder)
    begun = orders.give_authority_order(begins=True)
    assert place.desk.look() == [AuthoritiesChanged()]
    assert place.answer(begun).is_done
    assert place.link.shown[-1].count(b"BEGIN CERTIFICATE") == 2
    place.behind = 3
    refused = orders.give_authority_order(begins=False)
    assert place.desk.look() == []
    answer = place.answer(refused)
    assert (answer.is_done, answer.code) == (False, "E-CA-BEHIND")
    assert "3 devices" in answer.text
    forced = orders.give_authority_order(begins=False, is_forced=True)
    assert place.desk.look() == [AuthoritiesChanged()]
    assert place.answer(forced).is_done
    assert place.link.shown[-1].count(b"BEGIN CERTIFICATE") == 1
    assert TlsFolder(place.folder).previous is None


def test_certificates_are_renewed_while_the_gateway_runs(place: Place) -> None:
    place.desk.look()
    assert place.link.shown == []
    before = TlsFolder(place.folder).server_file.read_bytes()
    place.now += datetime.timedelta(days=300)
    place.desk.look()
    assert len(place.link.shown) == 1
    assert TlsFolder(place.folder).server_file.read_bytes() != before


def test_a_gateway_that_was_never_set_up_has_no_authority_to_replace(tmp_path: Path) -> None:
    place = Place(tmp_path, has_tls=False)
    order_id = OrderFolder(place.folder).give_authority_order(begins=True)
    place.desk.look()
    assert place.answer(order_id).code == "E-TLS-FOLDER"


def test_an_order_that_was_done_before_a_crash_is_not_done_again(tmp_path: Path) -> None:
    """The crash came after the authority was changed and before that was answered."""
    for begins in (True, False):
        place = Place(tmp_path)
        order_id = OrderFolder(tmp_path).give_authority_order(begins=begins)
        place.desk.look()
        assert place.answer(order_id).is_done
        authority = TlsFolder(tmp_path).authority.fingerprint
        name = "ca-rotate" if begins else "ca-finish"
        content = json.dumps({"verb": name, "forced": False})
        (tmp_path / "orders" / f"{order_id}.json").write_text(content)

        again = Place(tmp_path)
        again.desk.look()

        done = again.answer(order_id)
        assert (done.is_done, done.code) == (True, "")
        assert TlsFolder(tmp_path).authority.fingerprint == authority
        assert (TlsFolder(tmp_path).previous is None) is not begins


def test_a_clock_that_jumps_ends_no_gateway(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.desk.look()
    place.now += datetime.timedelta(days=74 * 365)
    place.desk.look()
    assert "E-GATEWAY-CLOCK" in caplog.text
    assert place.link.shown == []


def test_unknown_tokens_are_looked_for_at_once_but_only_so_often(tmp_path: Path) -> None:
    place = Place(tmp_path)
    claim = place.claim()
    wants = [place.desk.wants_look("stranger", now_s) for now_s in (0.0, 0.1, 0.19, 0.2, 0.3)]
    assert wants == [True, False, False, True, False]
    assert place.desk.wants_look(claim, 1.0)
    place.desk.look()
    assert not place.desk.wants_look(claim, 2.0)
