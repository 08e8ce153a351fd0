"""The gateway's TLS files: made once, renewed in time, replaced with an overlap."""

import datetime
import stat
from pathlib import Path

import pytest
from cryptography import x509

from broker.certificates import expiry_of, hosts_of
from broker.tls_folder import TlsFolder
from edgefl.errors import ConfigError
from tests.authority_lab import FLEET, NOW

DAY = datetime.timedelta(days=1)
HOSTS = ["gateway.local", "127.0.0.1"]


def make(folder: Path) -> TlsFolder:
    return TlsFolder.create(folder, fleet=FLEET, hosts=HOSTS, now=NOW)


def test_keys_are_their_owners_alone(tmp_path: Path) -> None:
    make(tmp_path)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()}
    private = {name for name, mode in modes.items() if mode == 0o600}
    assert private == {"ca.pem", "server.pem", "aggregator.pem"}
    holders = {
        path.name for path in (tmp_path / "tls").iterdir() if b"PRIVATE KEY" in path.read_bytes()
    }
    assert holders == private


def test_it_is_made_once(tmp_path: Path) -> None:
    made = make(tmp_path)
    with pytest.raises(ConfigError, match="E-TLS-FOLDER-EXISTS"):
        make(tmp_path)
    assert TlsFolder(tmp_path).authority.fingerprint == made.authority.fingerprint


def test_a_name_that_is_none_leaves_no_files(tmp_path: Path) -> None:
    for name in ("*.example", "a b", "", "a/b", "x" * 300):
        with pytest.raises(ConfigError, match="E-HOST-NAME"):
            TlsFolder.create(tmp_path, fleet=FLEET, hosts=[name], now=NOW)
    assert not (tmp_path / "tls").exists()


def test_certificates_are_renewed_before_they_end_and_for_other_names(tmp_path: Path) -> None:
    tls = make(tmp_path)
    assert tls.refresh(HOSTS, NOW) == []
    assert tls.refresh(HOSTS, NOW + 200 * DAY) == []
    assert tls.refresh(HOSTS, NOW + 300 * DAY) == ["server", "aggregator"]
    assert expiry_of(tls.server_file.read_bytes()) > NOW + 600 * DAY
    assert tls.refresh([*HOSTS, "other.local"], NOW + 300 * DAY) == ["server"]
    assert set(hosts_of(tls.server_file.read_bytes())) == {*HOSTS, "other.local"}


def test_while_an_authority_is_replaced_the_server_shows_the_old_ones_certificate(
    tmp_path: Path,
) -> None:
    tls = make(tmp_path)
    old = tls.authority
    tls.rotate(fleet=FLEET, now=NOW)
    tls.refresh(HOSTS, NOW + 300 * DAY)
    again = TlsFolder(tmp_path)
    assert again.previous is not None
    assert again.previous.fingerprint == old.fingerprint
    assert issuer(again.server_file) == issuer_name(old.certificate)
    assert len(x509.load_pem_x509_certificates(again.trusted_file.read_bytes())) == 2
    with pytest.raises(ConfigError, match="E-CA-ROTATING"):
        again.rotate(fleet=FLEET, now=NOW)
    again.finish(HOSTS, NOW + 300 * DAY)
    assert issuer(again.server_file) == issuer_name(again.authority.certificate)
    assert len(x509.load_pem_x509_certificates(again.trusted_file.read_bytes())) == 1
    with pytest.raises(ConfigError, match="E-CA-NOT-ROTATING"):
        again.finish(HOSTS, NOW)


def test_a_power_cut_between_the_steps_of_a_replacement_changes_nothing(tmp_path: Path) -> None:
    tls = make(tmp_path)
    folder = tmp_path / "tls"
    (folder / "ca-previous.pem").write_bytes((folder / "ca.pem").read_bytes())
    again = TlsFolder(tmp_path)
    assert again.previous is None
    assert again.authority.fingerprint == tls.authority.fingerprint
    again.rotate(fleet=FLEET, now=NOW)
    assert TlsFolder(tmp_path).previous is not None


def test_damaged_files_are_named(tmp_path: Path) -> None:
    make(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    foreign = TlsFolder.create(other, fleet=FLEET, hosts=HOSTS, now=NOW)
    path = tmp_path / "tls" / "ca.pem"
    key = path.read_bytes().partition(b"-----END CERTIFICATE-----\n")[2]
    for content in (b"", b"no PEM", foreign.authority.certificate + key, key):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="E-CA-FILE"):
            TlsFolder(tmp_path)
    path.unlink()
    with pytest.raises(ConfigError, match="E-TLS-FOLDER"):
        TlsFolder(tmp_path)


def test_the_revocation_list_names_what_was_revoked(tmp_path: Path) -> None:
    tls = make(tmp_path)
    tls.rotate(fleet=FLEET, now=NOW)
    tls.write_revocations({5, 7}, NOW)
    content = tls.revocations_file.read_bytes()
    assert content.count(b"BEGIN X509 CRL") == 2
    for part, authority in zip(
        content.split(b"-----END X509 CRL-----\n")[:2], tls.authorities, strict=True
    ):
        crl = x509.load_pem_x509_crl(part + b"-----END X509 CRL-----\n")
        assert {entry.serial_number for entry in crl} == {5, 7}
        key = x509.load_pem_x509_certificate(authority.certificate).public_key()
        assert crl.is_signature_valid(key)


def issuer(path: Path) -> x509.Name:
    return x509.load_pem_x509_certificate(path.read_bytes()).issuer


def issuer_name(authority: bytes) -> x509.Name:
    return x509.load_pem_x509_certificate(authority).subject


@pytest.mark.parametrize("years", [-56, 74])
def test_a_clock_that_is_years_off_makes_no_certificates(tmp_path: Path, years: int) -> None:
    tls = make(tmp_path)
    before = tls.server_file.read_bytes()
    with pytest.raises(ConfigError, match="E-GATEWAY-CLOCK"):
        tls.refresh(["other.local"], NOW + years * 365 * DAY)
    assert tls.server_file.read_bytes() == before
