"""TLS for links to a broker: one strict context, and words for what is wrong with a certificate.

There is no setting that turns verification off. A board whose clock is wrong waits for the time; it
does not look away.
"""

import datetime
import os
import ssl
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from edgefl.errors import ConfigError, TransportError


class TlsProblem(StrEnum):
    """Which check of a TLS connection failed."""

    HOST_NAME = "host-name"  # the certificate is for other names
    CHAIN = "chain"  # no authority that this side trusts has signed it
    TIME = "time"  # not valid yet, or no more
    USAGE = "usage"  # made for something else, for example a client's at a server
    REVOKED = "revoked"  # withdrawn by its authority
    REFUSED_BY_PEER = "refused-by-peer"  # the other side does not take our certificate
    NO_TLS = "no-tls"  # what answers there does not speak TLS
    OTHER = "other"  # anything else


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFailure:
    """Why a TLS connection did not come about.

    Attributes:
        problem: Which check failed.
        detail: One phrase for the log, without secrets.
        advice: What to do.
    """

    problem: TlsProblem
    detail: str
    advice: str

    def to_error(self, peer: str) -> TransportError:
        """Return the error for a command that gives up, or a library that does not want to wait."""
        code = f"E-TLS-{self.problem.name.replace('_', '-')}"
        return TransportError(code, f"a trusted TLS connection to {peer}", self.detail, self.advice)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """What this side shows and trusts. Key and certificate may be in one file.

    Attributes:
        ca_file: PEM with the authorities that the other side's certificate may come from.
        certificate_file: PEM with this side's own certificate; None shows none.
        key_file: PEM with its key, readable by its owner only.
        server_name: Name that the server's certificate must be for, where that is not the host.
    """

    ca_file: Path
    certificate_file: Path | None = None
    key_file: Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        """Check that certificate and key come together."""
        if (self.certificate_file is None) != (self.key_file is None):
            raise ConfigError(
                "E-TLS-FILES", "a certificate together with its key", "one without the other"
            )

    def context(self) -> ssl.SSLContext:
        """Return a fresh context, with the files as they are now.

        Security: TLS 1.2 or newer; chain, host name, dates and purpose are always checked.

        Raises:
            ConfigError: A file is missing or is no PEM, certificate and key do not fit together,
                or others can read the key.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
        try:
            context.load_verify_locations(cafile=self.ca_file)
        except (ssl.SSLError, OSError) as error:
            raise _file_problem(self.ca_file, "certificates of authorities", error) from None
        if self.certificate_file is not None and self.key_file is not None:
            require_private(self.key_file)
            try:
                context.load_cert_chain(self.certificate_file, self.key_file, _no_password)
            except (ssl.SSLError, OSError) as error:
                what = "a certificate with its key"
                raise _file_problem(self.certificate_file, what, error) from None
        return context


def require_private(path: Path) -> None:
    """Refuse a key that others can read.

    Raises:
        ConfigError: E-KEY-MODE, or E-TLS-FILE where there is none.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise _file_problem(path, "a key", error) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and os.name == "posix":
        raise ConfigError(
            "E-KEY-MODE",
            "a key that its owner alone can read",
            f"{path} with mode {mode:03o}",
            f"chmod 600 {path}",
        )


# Source: OpenSSL, x509_vfy.h (X509_V_ERR_...), the same numbers since 1.1.0.
_TIME_CODES: Final = frozenset({9, 10, 13, 14})
_CHAIN_CODES: Final = frozenset({2, 7, 18, 19, 20, 21, 22, 24, 25, 27, 29, 30, 85, 86, 87, 89, 92})
_HOST_CODES: Final = frozenset({62, 64})
_USAGE_CODE: Final = 26
_REVOKED_CODE: Final = 23

_PEER_WORDS: Final = (
    ("CERTIFICATE_REQUIRED", "it wants a certificate, and this side has none"),
    ("CERTIFICATE_EXPIRED", "it says that this side's certificate is out of date"),
    ("CERTIFICATE_REVOKED", "it says that this side's certificate was revoked"),
    ("UNKNOWN_CA", "it does not know the authority that signed this side's certificate"),
    ("UNSUPPORTED_CERTIFICATE", "it says that this side's certificate is for another use"),
    ("BAD_CERTIFICATE", "it says that this side's certificate is not usable"),
    ("CERTIFICATE_UNKNOWN", "it says that this side's certificate is not usable"),
    ("ACCESS_DENIED", "it denies access to this side's certificate"),
)
_NO_TLS_WORDS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER", "UNKNOWN_PROTOCOL")


def failure_of(error: OSError, *, host: str) -> TlsFailure | None:
    """Put an error of a TLS connection into words; None where TLS is not the cause.

    Args:
        error: What connecting, reading or writing raised.
        host: The host that was connected to, or the name that its certificate must have.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _bad_server(error, host)
    if not isinstance(error, ssl.SSLError):
        return None
    words = f"{error.reason or ''} {error}".upper().replace(" ", "_")
    for word, detail in _PEER_WORDS:
        if word in words:
            return TlsFailure(
                problem=TlsProblem.REFUSED_BY_PEER,
                detail=f"{host} refuses this side: {detail}",
                advice="enrol this device again (edgefl agent enrol), or ask the operator",
            )
    if any(word in words for word in _NO_TLS_WORDS):
        return TlsFailure(
            problem=TlsProblem.NO_TLS,
            detail=f"what answers at {host} does not speak TLS",
            advice="check port and scheme: mqtts and wss are for TLS ports",
        )
    if "EOF" in words:
        return TlsFailure(
            problem=TlsProblem.OTHER,
            detail=f"{host} ended the TLS connection without a reason; it may not take this side's "
            "certificate",
            advice="the gateway's log may say more",
        )
    said = " ".join(str(error).split())[:160]
    return TlsFailure(problem=TlsProblem.OTHER, detail=f"TLS failed: {said}", advice="")


def _bad_server(error: ssl.SSLCertVerificationError, host: str) -> TlsFailure:
    code, said = error.verify_code, error.verify_message.rstrip(".")
    if code in _HOST_CODES:
        return TlsFailure(
            problem=TlsProblem.HOST_NAME,
            detail=f"host name: the certificate shown at {host} is for other names",
            advice="connect by a name that the gateway was set up with, or add this one there "
            "(names in gateway.toml)",
        )
    if code in _TIME_CODES:
        clock = datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds")
        return TlsFailure(
            problem=TlsProblem.TIME,
            detail=f"time: the certificate of {host} is out of its dates ({said}); the clock here "
            f"says {clock}",
            advice="set the clock if it is wrong; else the gateway's certificate needs renewal",
        )
    if code == _USAGE_CODE:
        return TlsFailure(
            problem=TlsProblem.USAGE,
            detail=f"usage: the certificate of {host} is not one of a server",
            advice="something else than the gateway answers there, or it has the wrong files",
        )
    if code == _REVOKED_CODE:
        return TlsFailure(
            problem=TlsProblem.REVOKED,
            detail=f"revoked: the certificate of {host} was withdrawn",
            advice="ask the gateway's operator",
        )
    if code in _CHAIN_CODES:
        return TlsFailure(
            problem=TlsProblem.CHAIN,
            detail=f"chain: no authority that this side trusts signed the certificate of {host} "
            f"({said})",
            advice="it is another gateway, or one that was set up anew: enrol this device there",
        )
    return TlsFailure(
        problem=TlsProblem.OTHER,
        detail=f"the certificate of {host} cannot be used ({said})",
        advice="ask the gateway's operator",
    )


def _no_password() -> str:
    """Answer for a key with a password, where OpenSSL would ask at the terminal and wait."""
    return ""


def _file_problem(path: Path, what: str, error: OSError) -> ConfigError:
    found = "other content" if isinstance(error, ssl.SSLError) else error.strerror or "no file"
    return ConfigError(
        "E-TLS-FILE", f"{what} in {path}", found, "enrol again, or bring back a copy"
    )
