"""What the gateway's log says about certificates: four kinds, four messages, on both sides."""

import pytest

from broker.console import format_report
from broker.events import Reported
from broker.tls_words import explain_refusal

# As rustls 0.23 prints its errors; the real ones are met in tests/integration/test_enrolment.py.
TOLD = {
    "TLS: invalid peer certificate: UnknownIssuer": "chain: no authority",
    "TLS: invalid peer certificate: Expired": "time: the device's certificate has expired",
    "TLS: invalid peer certificate: certificate expired: verification time 1 (UNIX), but": "time: ",
    "TLS: invalid peer certificate: certificate not valid yet: verification": "time: ",
    "TLS: invalid peer certificate: InvalidPurpose": "usage: ",
    "TLS: invalid peer certificate: certificate does not allow extended key usage for": "usage: ",
    "TLS: peer sent no certificates": "no certificate: ",
    "TLS: received fatal alert: BadCertificate": "host name: ",
    "TLS: received fatal alert: UnknownCA": "chain: the device does not trust",
    "TLS: received fatal alert: CertificateExpired": "time: to the device",
    "TLS: received fatal alert: UnsupportedCertificate": "usage: the device does not take",
}


@pytest.mark.parametrize("detail", TOLD)
def test_refusals_are_explained(detail: str) -> None:
    assert explain_refusal(detail).startswith(TOLD[detail])


@pytest.mark.parametrize("detail", ["the CONNECT cannot be read", "TLS: tls handshake eof", ""])
def test_what_is_no_certificates_fault_is_said_as_it_is(detail: str) -> None:
    assert explain_refusal(detail) == detail


def test_the_four_kinds_differ() -> None:
    said = {explain_refusal(detail) for detail in TOLD}
    assert len(said) >= 8


def test_the_console_says_who_and_why() -> None:
    fields = {"address": "192.0.2.7:41000", "detail": "TLS: peer sent no certificates", "code": 135}
    line = format_report(Reported(kind="mqtt-refused", fields=fields))
    assert "a stranger at 192.0.2.7:41000: no certificate" in line
    twice = {"identity": "d1", "old_address": "192.0.2.7:1", "new_address": "192.0.2.8:2"}
    line = format_report(Reported(kind="mqtt-taken-over", fields=twice))
    assert all(word in line for word in ("d1", "192.0.2.7:1", "192.0.2.8:2", "one identity"))
    more = {"more": 7, "within_s": 60}
    assert "7 more" in format_report(Reported(kind="mqtt-refused", fields=more))
    assert "7 more" in format_report(Reported(kind="mqtt-taken-over", fields=more))


@pytest.mark.parametrize(
    ("code", "words"), [(130, "not allow"), (0x9F, "reason code 0x9F"), (None, "no reason told")]
)
def test_a_refusal_without_details_is_no_bare_number(code: int | None, words: str) -> None:
    fields = {"client_id": "d1", "address": "192.0.2.7:41000", "code": code}
    assert words in format_report(Reported(kind="mqtt-refused", fields=fields))
