"""A claim token: one line of text with which a board may ask a gateway to let it in.

It holds the authorities to trust, the gateway's addresses and key, and a certificate with its key
that opens the two topics of one claim and nothing else. It is a secret while it is valid.
"""

import base64
import binascii
import hashlib
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Final

from edgefl.errors import ConfigError, WireError
from edgefl.protocol.enrolment_messages import MAX_CERTIFICATE_BYTES, read_authorities
from edgefl.protocol.limits import KEY_BYTES
from edgefl.protocol.topics import is_claim, is_name
from edgefl.protocol.wire import (
    as_body,
    as_bytes,
    as_int,
    as_list,
    as_text,
    decode,
    encode,
    field,
)

HEAD: Final = "efl1."
MAX_TOKEN_CHARS: Final = 16 * 1024
_CHECK_BYTES: Final = 4
_MAX_GATEWAYS: Final = 16
_MAX_URL_CHARS: Final = 512
_MAX_KEY_BYTES: Final = 512
_MAX_TIME_S: Final = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimToken:
    """What a token says.

    Attributes:
        claim: Its name, which is the name in its certificate.
        gateways: URLs, in order of preference.
        authorities: Certificates to trust the gateway by, DER.
        certificate: The claim's, DER.
        key: The claim's key, PKCS #8, DER.
        gateway_key: The gateway's identity, Ed25519, by which its answers are known.
        enrolment_key: Who signs the roster away from the gateway; None where the gateway does.
        expires_s: Seconds since 1970 after which the gateway takes it no more.
    """

    fleet: str
    claim: str
    gateways: tuple[str, ...]
    authorities: tuple[bytes, ...]
    certificate: bytes
    key: bytes = attribute(repr=False)
    gateway_key: bytes
    enrolment_key: bytes | None
    expires_s: int

    def to_text(self) -> str:
        """Return the token as one line."""
        content = encode(
            {
                0: self.fleet,
                1: self.claim,
                2: list(self.gateways),
                3: list(self.authorities),
                4: self.certificate,
                5: self.key,
                6: self.gateway_key,
                7: self.enrolment_key,
                8: self.expires_s,
            }
        )
        return HEAD + base64.urlsafe_b64encode(_check(content) + content).decode().rstrip("=")

    @classmethod
    def from_text(cls, text: str) -> "ClaimToken":
        """Read a token.

        Raises:
            ConfigError: E-TOKEN, it is none, or was cut or changed on its way.
        """
        word = "".join(text.split())
        if not word.startswith(HEAD) or len(word) > MAX_TOKEN_CHARS:
            raise _bad(f"{len(word)} characters of another form")
        digits = word.removeprefix(HEAD).encode(errors="replace")
        try:
            packed = base64.b64decode(digits + b"=" * (-len(digits) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise _bad("a token with foreign characters") from None
        check, content = packed[:_CHECK_BYTES], packed[_CHECK_BYTES:]
        if check != _check(content):
            raise _bad("a token that was cut off or changed on its way")
        try:
            return cls._from_content(content)
        except WireError as error:
            raise _bad(f"a token with {error.found} in it") from None

    @classmethod
    def _from_content(cls, content: bytes) -> "ClaimToken":
        body = as_body(decode(content))
        enrolment_key = field(body, 7)
        fleet, claim = as_text(field(body, 0), 64), as_text(field(body, 1), 64)
        if not is_name(fleet) or not is_claim(claim):
            raise WireError("E-WIRE-TEXT", "names of a fleet and a claim", "other names")
        gateways = as_list(field(body, 2), _MAX_GATEWAYS)
        return cls(
            fleet=fleet,
            claim=claim,
            gateways=tuple(as_text(item, _MAX_URL_CHARS) for item in gateways),
            authorities=read_authorities(field(body, 3)),
            certificate=as_bytes(field(body, 4), max_bytes=MAX_CERTIFICATE_BYTES),
            key=as_bytes(field(body, 5), max_bytes=_MAX_KEY_BYTES),
            gateway_key=as_bytes(field(body, 6), KEY_BYTES),
            enrolment_key=None if enrolment_key is None else as_bytes(enrolment_key, KEY_BYTES),
            expires_s=as_int(field(body, 8), 0, _MAX_TIME_S),
        )


def _check(content: bytes) -> bytes:
    """Return some bytes that tell damage from a whole token; no protection from people."""
    return hashlib.sha256(b"edgefl/1 token" + content).digest()[:_CHECK_BYTES]


def _bad(found: str) -> ConfigError:
    return ConfigError(
        "E-TOKEN",
        "a token as 'edgefl gateway token new' prints it, or a file with one",
        found,
        "copy it whole, as one line, or have a new one made",
    )
