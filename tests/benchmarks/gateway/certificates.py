"""Certificates for a gateway and one device of the measurements."""

import datetime
import ssl
from pathlib import Path

from broker.certificates import CertificateAuthority, make_authority
from tests.benchmarks.gateway.lab_fleet import FLEET, device_name

_AUTHORITY, _SERVER = "ca.crt", "server.pem"


def write_certificates(folder: Path, devices: int) -> None:
    """Write an authority, the gateway's certificate with its key, and the devices'."""
    now = datetime.datetime.now(datetime.UTC)
    pair = make_authority(FLEET, now)
    authority = CertificateAuthority(pair.certificate, pair.key)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _AUTHORITY).write_bytes(pair.certificate)
    server = authority.issue_server(["127.0.0.1"], now)
    (folder / _SERVER).write_bytes(server.certificate + server.key)
    for number in range(devices):
        device = authority.issue_client(device_name(number), now)
        (folder / f"{device_name(number)}.pem").write_bytes(device.certificate + device.key)


def server_pem(folder: Path) -> bytes:
    """Return the gateway's certificate and key."""
    return (folder / _SERVER).read_bytes()


def authority_pem(folder: Path) -> bytes:
    """Return who signs the devices' certificates."""
    return (folder / _AUTHORITY).read_bytes()


def device_tls(folder: Path, number: int) -> ssl.SSLContext:
    """Return a device's context."""
    context = ssl.create_default_context(cafile=str(folder / _AUTHORITY))
    context.load_cert_chain(folder / f"{device_name(number)}.pem")
    return context
