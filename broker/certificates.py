"""The gateway's certificate authority: its own certificates, the devices', claims', and revocation.

Certificates guard the transport alone. What a device says in rounds is signed by its identity key
under the roster, so this authority, which has to stay on the gateway to let devices in, cannot
speak for a device.
Keys are P-256; every certificate is dated back a day, for clocks that are a little wrong.
"""

import datetime
import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker.device_authority import Issued
from edgefl.errors import ConfigError, RemoteProtocolError
from edgefl.protocol.topics import is_name

MAX_CSR_BYTES: Final = 2048
_BACK_DATED: Final = datetime.timedelta(days=1)
_AUTHORITY_LIFE: Final = datetime.timedelta(days=3650)
_LEAF_LIFE: Final = datetime.timedelta(days=365)
_CRL_LIFE: Final = datetime.timedelta(days=3650)
"""Brokers refuse everybody once a list is out of date, and only revocations make a new one."""
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]+)*\.?")
_MAX_HOST_CHARS: Final = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate with its key, as PEM.

    Attributes:
        certificate: The certificate, of the gateway, a claim or an authority.
        key: PKCS #8, not encrypted.
    """

    certificate: bytes
    key: bytes = field(repr=False)
    serial: int
    expires_s: int


class CertificateAuthority:
    """One authority with its key.

    Args:
        certificate: PEM.
        key: PEM.

    Raises:
        ConfigError: E-CA-FILE, they are damaged or do not belong together.
    """

    def __init__(self, certificate: bytes, key: bytes) -> None:
        """Read both."""
        try:
            self._certificate = x509.load_pem_x509_certificate(certificate)
            loaded = serialization.load_pem_private_key(key, password=None)
        except (ValueError, TypeError):
            raise _bad_files("text that is no certificate or no key") from None
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise _bad_files("a key of another kind")
        if _spki(loaded.public_key()) != _spki_of(self._certificate):
            raise _bad_files("a key that belongs to another certificate")
        self._key = loaded

    def __repr__(self) -> str:
        """Hide the key."""
        return f"CertificateAuthority({self.fingerprint})"

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate, PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def certificate_der(self) -> bytes:
        """The same in DER."""
        return self._certificate.public_bytes(serialization.Encoding.DER)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, 16 hex digits in groups."""
        digits = self._certificate.fingerprint(hashes.SHA256()).hex()[:16]
        return "-".join(digits[index : index + 4] for index in range(0, 16, 4))

    def issue_device(self, request: bytes, device: str, now: datetime.datetime) -> Issued:
        """Make a device's certificate.

        Args:
            request: PKCS #10, DER, from the device.
            device: Whom it must be for.
            now: The time, with its zone.

        Raises:
            RemoteProtocolError: The request is for another name or key, or damaged.
        """
        public_key = read_request(request, device)
        return self._issue(public_key, device, now, now + _LEAF_LIFE, _client_usage())

    def issue_claim(self, name: str, now: datetime.datetime, until: datetime.datetime) -> KeyPair:
        """Make the certificate and key of a claim token."""
        return self._issue_pair(name, now, until, _client_usage())

    def issue_client(self, name: str, now: datetime.datetime) -> KeyPair:
        """Make the certificate and key with which the gateway connects to a broker."""
        return self._issue_pair(name, now, now + _LEAF_LIFE, _client_usage())

    def issue_server(
        self, hosts: Sequence[str], now: datetime.datetime, *, is_node: bool = False
    ) -> KeyPair:
        """Make a server certificate, of the gateway or of a broker.

        Args:
            hosts: Names and addresses that devices connect to.
            now: The time, with its zone.
            is_node: It is for a node of a cluster, which is a client of the other nodes too.

        Raises:
            ConfigError: E-HOST-NAME, a host is none.
        """
        alternatives = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH]
        if is_node:
            usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        usage = x509.ExtendedKeyUsage(usages)
        return self._issue_pair("edgefl gateway", now, now + _LEAF_LIFE, usage, alternatives)

    def revocation_list(self, serials: Collection[int], now: datetime.datetime) -> bytes:
        """Return the list of revoked certificates, PEM, for brokers that take one."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(now - _BACK_DATED)
            .next_update(now + _CRL_LIFE)
            .add_extension(x509.CRLNumber(int(now.timestamp())), critical=False)
            .add_extension(self._authority_id(), critical=False)
        )
        for serial in sorted(serials):
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            builder = builder.add_revoked_certificate(entry.build())
        made = builder.sign(self._key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM)

    def has_issued(self, certificate: bytes) -> bool:
        """Tell whether a certificate (DER) is one of this authority's."""
        try:
            x509.load_der_x509_certificate(certificate).verify_directly_issued_by(self._certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    def _issue_pair(
        self,
        name: str,
        now: datetime.datetime,
        until: datetime.datetime,
        usage: x509.ExtendedKeyUsage,
        alternatives: x509.SubjectAlternativeName | None = None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._issue(key.public_key(), name, now, until, usage, alternatives)
        return KeyPair(
            certificate=der_to_pem(made.certificate),
            key=_pem_of(key),
            serial=made.serial,
            expires_s=made.expires_s,
        )

    def _issue(
        self,
        public_key: ec.EllipticCurvePublicKey,
        name: str,
        now: datetime.datetime,
        until: datetime.datetime,
        usage: x509.ExtendedKeyUsage,
        alternatives: x509.SubjectAlternativeName | None = None,
    ) -> Issued:
        serial = x509.random_serial_number()
        until = min(until, self._certificate.not_valid_after_utc).replace(microsecond=0)
        builder = (
            _certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), public_key)
            .issuer_name(self._certificate.subject)
            .serial_number(serial)
            .not_valid_before(now - _BACK_DATED)
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(usage, critical=False)
            .add_extension(self._authority_id(), critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        made = builder.sign(self._key, hashes.SHA256())
        der = made.public_bytes(serialization.Encoding.DER)
        return Issued(certificate=der, serial=serial, expires_s=int(until.timestamp()))

    def require_clock(self, now: datetime.datetime) -> None:
        """Refuse a time at which nobody could use a certificate of this authority.

        Raises:
            ConfigError: E-GATEWAY-CLOCK.
        """
        begins, ends = self._certificate.not_valid_before_utc, self._certificate.not_valid_after_utc
        if not begins <= now < ends:
            raise ConfigError(
                "E-GATEWAY-CLOCK",
                f"a clock between {begins:%Y-%m-%d} and {ends:%Y-%m-%d}, while this gateway's "
                "authority is valid",
                f"{now:%Y-%m-%d %H:%M} UTC",
                "set this machine's clock; where it is right, set up a new gateway",
            )

    def _authority_id(self) -> x509.AuthorityKeyIdentifier:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())


def make_authority(fleet: str, now: datetime.datetime) -> KeyPair:
    """Make a new authority. Its name holds a random part, so that an old and a new one differ.

    Args:
        fleet: The fleet's name.
        now: The time, with its zone.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, f"edgefl fleet {fleet}"[:64]),
            x509.NameAttribute(NameOID.COMMON_NAME, f"edgefl authority {serial & 0xFFFFFFFF:08x}"),
        ]
    )
    until = (now + _AUTHORITY_LIFE).replace(microsecond=0)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = (
        _certificate(subject, key.public_key())
        .issuer_name(subject)
        .serial_number(serial)
        .not_valid_before(now - _BACK_DATED)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return KeyPair(
        certificate=made.public_bytes(serialization.Encoding.PEM),
        key=_pem_of(key),
        serial=serial,
        expires_s=int(until.timestamp()),
    )


def read_request(request: bytes, device: str) -> ec.EllipticCurvePublicKey:
    """Check a device's certificate request, whatever bytes it is, and return its key.

    Args:
        request: PKCS #10, DER.
        device: Whom it must be for.

    Raises:
        RemoteProtocolError: E-CSR, it is damaged; E-CSR-NAME, it is for another name, or asks for
            more than a name; E-CSR-KEY, its key is not of P-256.
    """
    if len(request) > MAX_CSR_BYTES:
        raise RemoteProtocolError(
            "E-CSR", f"at most {MAX_CSR_BYTES} bytes", f"{len(request)} bytes"
        )
    try:
        parsed = x509.load_der_x509_csr(request)
        is_signed = parsed.is_signature_valid
        public_key = parsed.public_key()
        names = [(part.oid, part.value) for part in parsed.subject]
        extensions = len(parsed.extensions) + len(parsed.attributes)
    except Exception:  # noqa: BLE001 - whatever a parser says to a stranger's bytes
        raise RemoteProtocolError("E-CSR", "a certificate request", "other bytes") from None
    if not isinstance(public_key, ec.EllipticCurvePublicKey) or not isinstance(
        public_key.curve, ec.SECP256R1
    ):
        raise RemoteProtocolError("E-CSR-KEY", "a key of curve P-256", "a key of another kind")
    if not is_signed:
        raise RemoteProtocolError("E-CSR", "a request signed with its own key", "another signature")
    if names != [(NameOID.COMMON_NAME, device)] or not is_name(device) or extensions > 0:
        raise RemoteProtocolError(
            "E-CSR-NAME", f"a request for the name {device} and nothing else", "another one"
        )
    return public_key


def verify_with_certificate(certificate: bytes, signature: bytes, content: bytes) -> bool:
    """Tell whether the holder of a certificate's key (DER, P-256) signed this content."""
    try:
        public_key = x509.load_der_x509_certificate(certificate).public_key()
        if not isinstance(public_key, ec.EllipticCurvePublicKey):
            return False
        public_key.verify(signature, content, ec.ECDSA(hashes.SHA256()))
    except (ValueError, InvalidSignature):
        return False
    return True


def der_to_pem(certificate: bytes) -> bytes:
    """Return a certificate as PEM."""
    loaded = x509.load_der_x509_certificate(certificate)
    return loaded.public_bytes(serialization.Encoding.PEM)


def pem_to_der(certificate: bytes) -> bytes:
    """Return the first certificate of a PEM file as DER.

    Raises:
        ConfigError: E-CA-FILE, there is none.
    """
    try:
        loaded = x509.load_pem_x509_certificate(certificate)
    except ValueError:
        raise _bad_files("text that is no certificate") from None
    return loaded.public_bytes(serialization.Encoding.DER)


def key_to_der(key: bytes) -> bytes:
    """Return a PEM key as PKCS #8 DER."""
    loaded = serialization.load_pem_private_key(key, password=None)
    return loaded.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def expiry_of(certificate: bytes) -> datetime.datetime:
    """Return until when a certificate (PEM) is valid.

    Raises:
        ConfigError: E-CA-FILE, it is none.
    """
    try:
        return x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    except ValueError:
        raise _bad_files("text that is no certificate") from None


def hosts_of(certificate: bytes) -> tuple[str, ...]:
    """Return the names and addresses that a server certificate (PEM) is for."""
    loaded = x509.load_pem_x509_certificate(certificate)
    try:
        names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names)


def _certificate(
    subject: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    identifier = x509.SubjectKeyIdentifier.from_public_key(public_key)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public_key)
        .add_extension(identifier, critical=False)
    )


def _client_usage() -> x509.ExtendedKeyUsage:
    return x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if len(host) > _MAX_HOST_CHARS or _HOST.fullmatch(host) is None:
            raise ConfigError(
                "E-HOST-NAME", "a host name or an address, without wildcards", repr(host[:80])
            ) from None
        return x509.DNSName(host)


def _spki(public_key: ec.EllipticCurvePublicKey) -> bytes:
    return public_key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _spki_of(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _bad_files(found: str) -> ConfigError:
    return ConfigError(
        "E-CA-FILE",
        "the authority's certificate and key as 'edgefl gateway init' made them",
        found,
        "bring back a copy of the tls folder, or set the gateway up anew",
    )
