"""Who is let in, who is not, and what a stranger with a token can and cannot do."""

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from broker import enrolments
from broker.enrolment_events import CutSession, Order, OrderDone, RevocationsChanged, Verb
from broker.enrolments import Admission
from edgefl.agent.device_keys import certified, new_wish
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import topics
from edgefl.protocol.enrolment_messages import (
    CertificateIssued,
    EnrolmentState,
    RenewalRequest,
    digest_of,
)
from edgefl.protocol.envelope import open_envelope
from edgefl.protocol.roster_epoch import fingerprint
from edgefl.transport.core_events import Publish
from tests.authority_lab import FLEET, Board, Lab, answer_in

HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def order(lab: Lab, verb: Verb, device: str, shown: str | None = None) -> list:
    return lab.desk.on_order(Order(order_id="1", verb=verb, device=device, fingerprint=shown))


def done(effects: list) -> OrderDone:
    (found,) = [effect for effect in effects if isinstance(effect, OrderDone)]
    return found


def certificate_of(answer: object) -> x509.Certificate:
    return x509.load_der_x509_certificate(answer.certificate)


def test_a_board_waits_and_is_accepted(lab: Lab) -> None:
    board, token = Board("d1"), lab.token()
    assert lab.ask(board, token).state is EnrolmentState.PENDING
    assert lab.desk.refusal_of("d1", board.key.public_key) is not None
    effects = order(lab, Verb.ACCEPT, "d1", fingerprint(board.key.public_key))
    assert done(effects).is_done
    answer = answer_in(effects)
    assert answer.state is EnrolmentState.ACCEPTED
    assert certified(board.wish, answer.certificate, answer.authorities, "d1")
    assert lab.desk.refusal_of("d1", board.key.public_key) is None
    made = certificate_of(answer)
    assert made.subject.rfc4514_string() == "CN=d1"
    assert made.not_valid_before_utc < lab.now - datetime.timedelta(hours=23)


def test_the_same_request_gets_the_same_certificate_and_a_new_key_another_one(lab: Lab) -> None:
    board, token = Board("d1"), lab.token(is_preauthorised=True)
    first = lab.ask(board, token)
    assert lab.ask(board, token).certificate == first.certificate
    board.wish = None
    second = lab.ask(board, token)
    assert second.certificate != first.certificate
    # The key that was lost may be in other hands.
    assert lab.desk.revocations().serials == {certificate_of(first).serial_number}


def test_what_was_decided_survives_a_restart(lab: Lab, tmp_path: Path) -> None:
    board, other, token = Board("d1"), Board("d2"), lab.token(uses=2)
    lab.ask(board, token)
    lab.ask(other, token)
    order(lab, Verb.ACCEPT, "d1")
    order(lab, Verb.REVOKE, "d1")
    again = Lab(tmp_path, lab.store)
    assert again.desk.revocations().serials == lab.desk.revocations().serials
    assert again.desk.revocations().devices == {"d1"}
    assert again.desk.enrolments.get("d2").admission is Admission.PENDING
    assert again.desk.enrolments.pending_count == 1
    assert again.desk.enrolments.used(token.claim) == {"d1", "d2"}


def test_a_rejected_board_is_told_so_and_frees_its_use(lab: Lab) -> None:
    board, token = Board("d1"), lab.token(uses=1)
    lab.ask(board, token)
    effects = order(lab, Verb.REJECT, "d1")
    assert answer_in(effects).state is EnrolmentState.REJECTED
    assert lab.ask(board, token).state is EnrolmentState.REJECTED
    # Another board may have the name and the use now.
    assert lab.ask(Board("d1"), token).state is EnrolmentState.PENDING


def test_a_revoked_board_is_out_and_its_certificates_with_it(lab: Lab) -> None:
    board, token = Board("d1"), lab.token(uses=2, is_preauthorised=True)
    answer = lab.ask(board, token)
    effects = order(lab, Verb.REVOKE, "d1")
    assert CutSession(device="d1", reason="revoked by the operator") in effects
    (revoked,) = [effect for effect in effects if isinstance(effect, RevocationsChanged)]
    assert revoked.serials == {certificate_of(answer).serial_number}
    assert revoked.devices == {"d1"}
    assert "revoked" in lab.desk.refusal_of("d1", board.key.public_key)
    assert lab.ask(board, token).state is EnrolmentState.REJECTED
    assert done(order(lab, Verb.ACCEPT, "d1")).code == "E-DEVICE-REVOKED"
    # A new board may take the name. It may be the old one, set up anew by whoever stole it with
    # its token, so the operator decides.
    assert lab.ask(Board("d1"), token).state is EnrolmentState.PENDING
    assert lab.desk.revocations().devices == frozenset()


def test_a_key_that_the_operator_has_listed_takes_a_revoked_name_at_once(lab: Lab) -> None:
    lab.ask(Board("d1"), lab.token(is_preauthorised=True))
    order(lab, Verb.REVOKE, "d1")
    board = Board("d1")
    token = lab.token(fingerprints=[fingerprint(board.key.public_key)])
    assert lab.ask(board, token).state is EnrolmentState.ACCEPTED


def test_links_are_told_when_a_name_that_was_put_out_is_given_away(lab: Lab) -> None:
    token = lab.token(uses=1)
    lab.ask(Board("d1"), token)
    order(lab, Verb.REVOKE, "d1")
    topic, payload = Board("d1").request(token)
    effects = lab.desk.on_request(token.claim, topic, payload)
    (told,) = [effect for effect in effects if isinstance(effect, RevocationsChanged)]
    assert told.devices == frozenset()


@pytest.mark.parametrize("verb", list(Verb))
def test_orders_about_unknown_boards_are_refused(lab: Lab, verb: Verb) -> None:
    assert done(order(lab, verb, "d9")).code == "E-NO-DEVICE"


def test_an_order_about_another_board_of_that_name_is_refused(lab: Lab) -> None:
    board = Board("d1")
    lab.ask(board, lab.token())
    shown = fingerprint(Board("d1").key.public_key)
    assert done(order(lab, Verb.ACCEPT, "d1", shown)).code == "E-FINGERPRINT"
    assert lab.desk.enrolments.get("d1").admission is Admission.PENDING


def test_only_the_board_with_the_preauthorised_key_is_let_in_at_once(lab: Lab) -> None:
    board = Board("d1")
    token = lab.token(uses=2, fingerprints=[fingerprint(board.key.public_key)])
    assert lab.ask(Board("d2"), token).state is EnrolmentState.PENDING
    assert lab.ask(board, token).state is EnrolmentState.ACCEPTED


# ---------------------------------------------------------------- tokens


def reason(lab: Lab, board: Board, token: object, **changed: object) -> str:
    answer = lab.ask(board, token, **changed)
    assert answer.state is EnrolmentState.REJECTED
    assert answer.certificate == b""
    return answer.reason.partition(":")[0]


def test_a_token_lets_in_as_many_boards_as_it_says(lab: Lab) -> None:
    token = lab.token(uses=2)
    for name in ("d1", "d2"):
        assert lab.ask(Board(name), token).state is EnrolmentState.PENDING
    assert reason(lab, Board("d3"), token) == "E-CLAIM-USED"
    order(lab, Verb.ACCEPT, "d1")
    order(lab, Verb.REVOKE, "d1")
    assert reason(lab, Board("d3"), token) == "E-CLAIM-USED"


def test_tokens_that_ended_were_revoked_or_are_unknown_let_nobody_in(lab: Lab) -> None:
    token = lab.token()
    lab.now += 25 * HOUR
    assert reason(lab, Board("d1"), token) == "E-CLAIM-EXPIRED"
    assert token.claim in lab.desk.revocations().devices
    del lab.claims[token.claim]
    lab.desk.on_claims(lab.claims)
    assert reason(lab, Board("d1"), token) == "E-CLAIM"


def test_boards_that_wait_are_bounded(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.enrolment_desk.MAX_PENDING", 3)
    token = lab.token(uses=10)
    for index in range(3):
        lab.ask(Board(f"d{index}"), token)
    assert reason(lab, Board("d3"), token) == "E-ENROL-PENDING"
    order(lab, Verb.ACCEPT, "d0")
    assert lab.ask(Board("d3"), token).state is EnrolmentState.PENDING


# ---------------------------------------------------------------- strangers


def test_a_stranger_without_the_tokens_key_gets_nowhere(lab: Lab) -> None:
    token, other = lab.token(), lab.token()
    board = Board("d1")
    # Signed with another token's key, and a request that was made for another token.
    assert reason(lab, board, other, claim=token.claim) == "E-CLAIM-SIGNATURE"
    assert reason(lab, board, token, claim_signature=b"\x30\x00") == "E-CLAIM-SIGNATURE"
    assert reason(lab, board, token, device="d2") == "E-CLAIM-SIGNATURE"
    assert reason(lab, board, token, fleet="other") == "E-CLAIM-SIGNATURE"


def test_a_replayed_request_changes_nothing_and_one_on_another_topic_is_refused(lab: Lab) -> None:
    board, token, other = Board("d1"), lab.token(), lab.token()
    topic, payload = board.request(token)
    lab.desk.on_request(token.claim, topic, payload)
    before = lab.desk.enrolments.records
    lab.desk.on_request(token.claim, topic, payload)
    assert lab.desk.enrolments.records == before
    moved = topics.claim_uplink(FLEET, other.claim)
    answer = answer_in(lab.desk.on_request(other.claim, moved, payload))
    assert answer.state is EnrolmentState.REJECTED
    assert answer.reason.startswith("E-SIGNATURE")


def test_nobody_takes_a_name_or_a_key_that_is_in_use(lab: Lab) -> None:
    board, token = Board("d1"), lab.token(uses=5)
    lab.ask(board, token)
    assert reason(lab, Board("d1"), token) == "E-ENROL-NAME-TAKEN"
    order(lab, Verb.ACCEPT, "d1")
    assert reason(lab, Board("d1"), token) == "E-ENROL-NAME-TAKEN"
    assert reason(lab, Board("d2", board.key), token) == "E-ENROL-KEY-TWICE"


@pytest.mark.parametrize(
    "name", ["aggregator", "claim-abc", "D1", "d/1", "+", "#", "*.d1", "d1\n", "", "-d", "x" * 65]
)
def test_no_board_gets_a_certificate_for_a_name_that_is_none(lab: Lab, name: str) -> None:
    token = lab.token(is_preauthorised=True)
    board = Board(name, wish=new_wish("d1"))
    topic, payload = board.request(token)
    try:
        answer = answer_in(lab.desk.on_request(token.claim, topic, payload))
    except (WireError, RemoteProtocolError):
        return
    assert answer.state is EnrolmentState.REJECTED
    assert lab.desk.enrolments.records == ()


def csr(*names: x509.NameAttribute, key: object = None, **extensions: object) -> bytes:
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names))
    for extension in extensions.values():
        made = made.add_extension(extension, critical=False)
    signed = made.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.DER)


def named(text: str) -> x509.NameAttribute:
    return x509.NameAttribute(NameOID.COMMON_NAME, text)


BAD_REQUESTS = {
    "another name": (csr(named("d2")), "E-CSR-NAME"),
    "upper case": (csr(named("D1")), "E-CSR-NAME"),
    "two names": (csr(named("d1"), named("aggregator")), "E-CSR-NAME"),
    "no name": (csr(), "E-CSR-NAME"),
    "an organisation": (
        csr(named("d1"), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "x")),
        "E-CSR-NAME",
    ),
    "alternative names": (
        csr(named("d1"), san=x509.SubjectAlternativeName([x509.DNSName("aggregator")])),
        "E-CSR-NAME",
    ),
    "a right to sign": (
        csr(named("d1"), ca=x509.BasicConstraints(ca=True, path_length=None)),
        "E-CSR-NAME",
    ),
    "another curve": (csr(named("d1"), key=ec.generate_private_key(ec.SECP384R1())), "E-CSR-KEY"),
    "another algorithm": (csr(named("d1"), key=rsa.generate_private_key(65537, 2048)), "E-CSR-KEY"),
    "garbage": (b"\x30\x03\x02\x01\x00", "E-CSR"),
    "nothing": (b"", "E-CSR"),
}


@pytest.mark.parametrize(("request_der", "code"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_certificate_requests_that_ask_for_more_are_refused(
    lab: Lab, request_der: bytes, code: str
) -> None:
    token = lab.token(is_preauthorised=True)
    assert reason(lab, Board("d1"), token, certificate_request=request_der) == code
    assert lab.desk.enrolments.records == ()


def test_a_request_whose_signature_is_another_keys_is_refused(lab: Lab) -> None:
    whole = bytearray(new_wish("d1").request)
    whole[-1] ^= 1
    token = lab.token(is_preauthorised=True)
    assert reason(lab, Board("d1"), token, certificate_request=bytes(whole)) == "E-CSR"


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_bytes_on_a_claims_topic_raise_anything_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lab, token = _fuzzed(tmp_path_factory)
    topic, payload = topics.claim_uplink(FLEET, token.claim), _PAYLOADS[0]
    drawn = data.draw(
        st.one_of(
            st.binary(max_size=300),
            st.tuples(st.integers(0, 599), st.integers(1, 255)).map(
                lambda change: _changed(payload, *change)
            ),
        )
    )
    try:
        answer = answer_in(lab.desk.on_request(token.claim, topic, drawn))
    except (WireError, RemoteProtocolError):
        return
    assert answer.state is EnrolmentState.REJECTED


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_bytes_of_a_certificate_request_raise_anything_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lab, token = _fuzzed(tmp_path_factory)
    whole = _WISH.request
    change = data.draw(st.tuples(st.integers(0, 599), st.integers(1, 255)))
    changed = _changed(whole, *change)
    answer = lab.ask(Board("d1"), token, certificate_request=changed)
    # DER has a spare bit: a signature that ends in 0 may say that its last bit is none. What was
    # signed is the same then, to the byte.
    is_same = answer.state is not EnrolmentState.REJECTED and _signed_part(changed) == _signed_part(
        whole
    )
    assert is_same or answer.state is EnrolmentState.REJECTED


def _signed_part(request: bytes) -> bytes:
    return x509.load_der_x509_csr(request).tbs_certrequest_bytes


_WISH = new_wish("d1")
_PAYLOADS: list[bytes] = []
_FUZZED: list[tuple[Lab, object]] = []


def _fuzzed(factory: pytest.TempPathFactory) -> tuple[Lab, object]:
    if not _FUZZED:
        lab = Lab(factory.mktemp("fuzz"))
        token = lab.token(is_preauthorised=True, uses=1000)
        _FUZZED.append((lab, token))
        _PAYLOADS.append(Board("d1", wish=_WISH).request(token)[1])
    return _FUZZED[0]


def _changed(content: bytes, index: int, mask: int) -> bytes:
    place = index % len(content)
    return content[:place] + bytes([content[place] ^ mask]) + content[place + 1 :]


# ---------------------------------------------------------------- renewal, other authorities


def issued_in(effects: list) -> CertificateIssued:
    (published,) = [effect for effect in effects if isinstance(effect, Publish)]
    message = open_envelope(published.topic, published.payload).message
    assert isinstance(message, CertificateIssued)
    return message


def test_a_board_renews_its_certificate_and_repeats_cost_nothing(lab: Lab) -> None:
    board, token = Board("d1"), lab.token(is_preauthorised=True)
    first = lab.ask(board, token)
    lab.now += datetime.timedelta(days=250)
    wish = new_wish("d1")
    digest = digest_of(first.authorities)
    request = RenewalRequest(certificate_request=wish.request, trusted_digest=digest)
    second = issued_in(lab.desk.on_renewal("d1", request))
    assert certified(wish, second.certificate, second.authorities, "d1")
    assert issued_in(lab.desk.on_renewal("d1", request)).certificate == second.certificate
    # Both are valid until the first ends; both are withdrawn with the board.
    assert lab.desk.revocations().serials == frozenset()
    order(lab, Verb.REVOKE, "d1")
    assert len(lab.desk.revocations().serials) == 2


def test_boards_that_are_out_renew_nothing(lab: Lab) -> None:
    board, token = Board("d1"), lab.token(is_preauthorised=True)
    lab.ask(board, token)
    order(lab, Verb.REVOKE, "d1")
    request = RenewalRequest(certificate_request=new_wish("d1").request, trusted_digest=bytes(32))
    assert lab.desk.on_renewal("d1", request) == []
    assert lab.desk.on_renewal("d2", request) == []


def test_renewal_in_anothers_name_is_refused(lab: Lab) -> None:
    lab.ask(Board("d1"), lab.token(is_preauthorised=True))
    request = RenewalRequest(certificate_request=new_wish("d2").request, trusted_digest=bytes(32))
    with pytest.raises(RemoteProtocolError, match="E-CSR-NAME"):
        lab.desk.on_renewal("d1", request)


def test_certificates_of_one_board_are_bounded_and_so_is_their_rate(lab: Lab) -> None:
    lab.ask(Board("d1"), lab.token(is_preauthorised=True))

    def renew() -> None:
        wish = new_wish("d1")
        lab.desk.on_renewal(
            "d1", RenewalRequest(certificate_request=wish.request, trusted_digest=bytes(32))
        )

    for _ in range(enrolments.MAX_CERTIFICATES - 1):
        renew()
    # A board that asked without end would push others' entries off the revocation list.
    with pytest.raises(RemoteProtocolError, match="E-RENEWALS"):
        renew()
    assert lab.desk.revocations().serials == frozenset()
    lab.now += 24 * HOUR
    renew()
    record = lab.desk.enrolments.get("d1")
    assert len(record.issued) == enrolments.MAX_CERTIFICATES
    assert len(lab.desk.revocations().serials) == 1


def test_boards_learn_a_new_authority_and_move_to_it(lab: Lab) -> None:
    board, token = Board("d1"), lab.token(is_preauthorised=True)
    first = lab.ask(board, token)
    old = lab.tls.authority
    lab.tls.rotate(fleet=FLEET, now=lab.now)
    told = issued_in(lab.desk.on_authorities(["d1"]))
    assert told.certificate == b""
    assert told.authorities == (lab.tls.authority.certificate_der, old.certificate_der)
    assert lab.desk.behind_count() == 1
    # It is told again at each hello until it says that it knows.
    assert issued_in(lab.desk.on_hello("d1")) == told
    wish = new_wish("d1")
    request = RenewalRequest(
        certificate_request=wish.request, trusted_digest=digest_of(told.authorities)
    )
    second = issued_in(lab.desk.on_renewal("d1", request))
    assert certified(wish, second.certificate, second.authorities, "d1")
    assert lab.tls.authority.has_issued(second.certificate)
    assert old.has_issued(first.certificate)
    # Who has asked may not have got it: it counts when it says so.
    assert lab.desk.behind_count() == 1
    report = RenewalRequest(certificate_request=b"", trusted_digest=digest_of(told.authorities))
    assert lab.desk.on_renewal("d1", report) == []
    assert lab.desk.behind_count() == 0
    assert lab.desk.on_hello("d1") == []


def test_a_board_that_enrols_again_and_again_is_held_back(lab: Lab) -> None:
    """Each time all of its certificates are withdrawn, which fills the revocation list."""
    board, token = Board("d1"), lab.token(is_preauthorised=True)
    for _ in range(enrolments.MAX_CERTIFICATES):
        board.wish = None
        assert lab.ask(board, token).state is EnrolmentState.ACCEPTED
    board.wish = None
    refused = lab.ask(board, token)
    assert refused.state is EnrolmentState.REJECTED
    assert "E-RENEWALS" in refused.reason
    assert lab.desk.enrolments.get("d1").admission is Admission.ACCEPTED
    assert len(lab.desk.revocations().serials) == enrolments.MAX_CERTIFICATES - 1
    lab.now += 24 * HOUR
    assert lab.ask(board, lab.token(is_preauthorised=True)).state is EnrolmentState.ACCEPTED


def test_boards_push_nobody_off_the_revocation_list_and_the_operator_finds_room(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrolments, "_MAX_REVOKED", 4)
    monkeypatch.setattr(enrolments, "_KEPT_FOR_OPERATOR", 2)
    token = lab.token(uses=4, is_preauthorised=True)
    board = Board("d1")
    for _ in range(3):
        board.wish = None
        lab.ask(board, token)
    revoked = lab.desk.revocations().serials
    assert len(revoked) == 2
    board.wish = None
    assert "E-REVOCATIONS" in lab.ask(board, token).reason
    assert lab.desk.revocations().serials == revoked
    lab.ask(Board("d2"), token)
    assert done(order(lab, Verb.REVOKE, "d2")).is_done
    assert revoked < lab.desk.revocations().serials


def test_while_the_gateways_clock_is_wrong_a_board_is_told_so_and_nothing_ends(lab: Lab) -> None:
    token = lab.token(is_preauthorised=True, life=datetime.timedelta(days=365))
    right, lab.now = lab.now, lab.now - datetime.timedelta(days=20_000)
    assert "E-GATEWAY-CLOCK" in lab.ask(Board("d1"), token).reason
    lab.now = right
    assert lab.ask(Board("d1"), token).state is EnrolmentState.ACCEPTED
