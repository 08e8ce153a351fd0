"""Say in the gateway's log which certificate was not taken, by which side, and why.

The endpoint tells what its TLS library says; these words are for the operator. Who refuses is half
of the message: a device with a bad certificate, or a device that does not take the gateway's.
"""

from typing import Final

_DEVICES: Final = (
    ("UnknownIssuer", "chain: no authority of this gateway signed the device's certificate"),
    ("UnknownCA", "chain: the device does not trust the authority of this gateway's certificate"),
    ("NotValidYet", "time: the device's certificate is not valid yet; check the clock here"),
    ("not valid yet", "time: the device's certificate is not valid yet; check the clock here"),
    ("Revoked", "revoked: the device's certificate was withdrawn"),
    ("InvalidPurpose", "usage: the device's certificate is not one of a device"),
    ("key usage", "usage: the device's certificate is not one of a device"),
    ("sent no certificates", "no certificate: something connected that was never enrolled"),
    ("NoCertificates", "no certificate: something connected that was never enrolled"),
)
_ALERTS: Final = (
    ("CertificateExpired", "time: to the device, this gateway's certificate is out of its dates"),
    ("UnsupportedCertificate", "usage: the device does not take this gateway's certificate"),
    ("BadCertificate", "host name: the device connects by a name that is not in the certificate"),
    ("CertificateUnknown", "the device does not take this gateway's certificate"),
)
_EXPIRED: Final = ("Expired", "expired")


def explain_refusal(detail: str) -> str:
    """Return what a refusal of the endpoint means; other refusals are returned as they are.

    Args:
        detail: As the endpoint tells it.
    """
    if not detail.startswith("TLS: "):
        return detail
    if "alert" in detail:
        known = next((text for word, text in (*_ALERTS, *_DEVICES) if word in detail), None)
        return known or detail
    known = next((text for word, text in _DEVICES if word in detail), None)
    if known is None and any(word in detail for word in _EXPIRED):
        return "time: the device's certificate has expired: it has to enrol again"
    return known or detail
