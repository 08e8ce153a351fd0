"""Make claim tokens; what is kept of them is in `claims.py`."""

import datetime
import secrets
from collections.abc import Iterable
from typing import Final

from broker.certificates import CertificateAuthority, key_to_der, pem_to_der
from broker.claims import Claim
from edgefl.protocol.claim_token import ClaimToken
from edgefl.protocol.topics import CLAIM_PREFIX

_NAME_BYTES: Final = 5


def make_token(
    authority: CertificateAuthority,
    *,
    fleet: str,
    gateways: tuple[str, ...],
    trusted: tuple[bytes, ...],
    gateway_key: bytes,
    enrolment_key: bytes | None,
    uses: int,
    life: datetime.timedelta,
    now: datetime.datetime,
    is_preauthorised: bool = False,
    fingerprints: Iterable[str] = (),
) -> tuple[ClaimToken, Claim]:
    """Make a token, and what the gateway has to keep of it.

    Args:
        authority: Signs the claim's certificate.
        fleet: The fleet's name.
        gateways: URLs by which boards reach the gateway.
        trusted: Authorities that boards shall trust, DER.
        gateway_key: The gateway's identity.
        enrolment_key: Who signs the roster away from the gateway; None where the gateway does.
        uses: How many boards it may let in.
        life: How long it is valid.
        now: The time, with its zone.
        is_preauthorised: Accept whoever comes with it.
        fingerprints: Accept boards with these identity keys.
    """
    name = CLAIM_PREFIX + secrets.token_hex(_NAME_BYTES)
    authority.require_clock(now)
    pair = authority.issue_claim(name, now, now + life)
    certificate = pem_to_der(pair.certificate)
    token = ClaimToken(
        fleet=fleet,
        claim=name,
        gateways=gateways,
        authorities=trusted,
        certificate=certificate,
        key=key_to_der(pair.key),
        gateway_key=gateway_key,
        enrolment_key=enrolment_key,
        expires_s=pair.expires_s,
    )
    claim = Claim(
        claim=name,
        certificate=certificate.hex(),
        serial=f"{pair.serial:x}",
        uses=uses,
        expires_s=pair.expires_s,
        created_s=int(now.timestamp()),
        is_preauthorised=is_preauthorised,
        fingerprints=tuple(fingerprints),
    )
    return token, claim
