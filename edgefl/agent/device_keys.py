"""A device's keys for TLS, of P-256, and the requests for their certificates.

Imported only to enrol or to renew: a round needs none of it. The identity key, which signs what a
device says, is another one.
"""

from dataclasses import dataclass
from dataclasses import field as attribute

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from edgefl.errors import RemoteProtocolError, StorageError

_END = b"-----END PRIVATE KEY-----\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateWish:
    """A key that has no certificate yet.

    Attributes:
        request: PKCS #10, DER.
        key: PEM, not encrypted.
    """

    request: bytes
    key: bytes = attribute(repr=False)

    def to_pem(self) -> bytes:
        """Return both for a file."""
        request = x509.load_der_x509_csr(self.request)
        return self.key + request.public_bytes(serialization.Encoding.PEM)

    @classmethod
    def from_pem(cls, content: bytes) -> "CertificateWish":
        """Read both from a file.

        Raises:
            StorageError: E-KEY-FILE, it is damaged.
        """
        key, end, request = content.partition(_END)
        try:
            parsed = x509.load_pem_x509_csr(request)
            _load_key(key + end)
        except (ValueError, TypeError):
            raise StorageError("E-KEY-FILE", "a key with its request", "other content") from None
        return cls(request=parsed.public_bytes(serialization.Encoding.DER), key=key + end)


def new_wish(device: str) -> CertificateWish:
    """Make a key and the request for a certificate in a device's name."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, device)])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return CertificateWish(
        request=request.public_bytes(serialization.Encoding.DER),
        key=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def certified(
    wish: CertificateWish, certificate: bytes, authorities: tuple[bytes, ...], device: str
) -> bytes:
    """Return certificate and key for a file, after checking that they are what was asked for.

    Args:
        wish: The key.
        certificate: DER, from the gateway.
        authorities: DER; the first must have signed it.
        device: Whose it must be.

    Raises:
        RemoteProtocolError: E-CERTIFICATE, it is for another name or key, or signed by another.
    """
    try:
        made = x509.load_der_x509_certificate(certificate)
        issuer = x509.load_der_x509_certificate(authorities[0])
        made.verify_directly_issued_by(issuer)
        names = [part.value for part in made.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        is_ours = _public(made.public_key()) == _public(_load_key(wish.key).public_key())
    except (ValueError, TypeError, IndexError, InvalidSignature):
        raise _bad_certificate("one of another authority, or damaged") from None
    if names != [device] or not is_ours:
        raise _bad_certificate("one for another name or key")
    return made.public_bytes(serialization.Encoding.PEM) + wish.key


def sign_with(key: bytes, content: bytes) -> bytes:
    """Sign with a claim's key (PKCS #8, DER).

    Raises:
        StorageError: E-KEY-FILE, it is no such key.
    """
    try:
        loaded = serialization.load_der_private_key(key, password=None)
    except (ValueError, TypeError):
        loaded = None
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise StorageError("E-KEY-FILE", "a token with a key of P-256", "another key")
    return loaded.sign(content, ec.ECDSA(hashes.SHA256()))


def claim_pem(certificate: bytes, key: bytes) -> bytes:
    """Return a claim's certificate and key (DER) for a file.

    Raises:
        StorageError: E-KEY-FILE, they are damaged.
    """
    try:
        made = x509.load_der_x509_certificate(certificate)
        loaded = serialization.load_der_private_key(key, password=None)
    except (ValueError, TypeError):
        raise StorageError("E-KEY-FILE", "a token with a certificate", "a damaged one") from None
    return made.public_bytes(serialization.Encoding.PEM) + loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def to_pem(authorities: tuple[bytes, ...]) -> bytes:
    """Return authorities (DER) for a file.

    Raises:
        RemoteProtocolError: E-CERTIFICATE, one is damaged, or there is none.
    """
    try:
        loaded = [x509.load_der_x509_certificate(one) for one in authorities]
    except ValueError:
        raise _bad_certificate("a damaged authority") from None
    if not loaded:
        raise _bad_certificate("no authority")
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in loaded)


def from_pem(content: bytes) -> tuple[bytes, ...]:
    """Return the certificates of a file (DER).

    Raises:
        StorageError: E-KEY-FILE, there is none.
    """
    try:
        loaded = x509.load_pem_x509_certificates(content)
    except ValueError:
        raise StorageError("E-KEY-FILE", "certificates", "other content") from None
    return tuple(one.public_bytes(serialization.Encoding.DER) for one in loaded)


def life_of(certificate: bytes) -> tuple[float, float]:
    """Return from when to when a certificate (PEM) is valid, in seconds since 1970.

    Raises:
        StorageError: E-KEY-FILE, it is none.
    """
    try:
        made = x509.load_pem_x509_certificate(certificate)
    except ValueError:
        raise StorageError("E-KEY-FILE", "a certificate", "other content") from None
    return made.not_valid_before_utc.timestamp(), made.not_valid_after_utc.timestamp()


def is_issued_by(certificate: bytes, authority: bytes) -> bool:
    """Tell whether a certificate (PEM) is one of an authority's (DER)."""
    try:
        issuer = x509.load_der_x509_certificate(authority)
        x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    loaded = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise TypeError("another kind of key")
    return loaded


def _public(key: object) -> bytes:
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise TypeError("another kind of key")
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _bad_certificate(found: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        "E-CERTIFICATE",
        "a certificate for this device's key, by an authority of this gateway",
        found,
        "enrol again, with a new token",
    )
