"""A device's certificate over its life: renewed in time, moved to another authority."""

import datetime
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509

from edgefl.agent.device_keys import certified, to_pem
from edgefl.agent.enrolled import TlsFiles
from edgefl.agent.renewal import CertificateKeeper
from edgefl.errors import RemoteProtocolError
from edgefl.protocol.enrolment_messages import CertificateIssued, RenewalRequest, digest_of
from edgefl.protocol.envelope import open_envelope
from edgefl.transport.core_events import Publish
from tests.authority_lab import FLEET, Board, Lab

DAY = datetime.timedelta(days=1)


class Home:
    """A gateway's desk, and an enrolled device."""

    def __init__(self, folder: Path) -> None:
        self.lab = Lab(folder / "gateway")
        self.files = TlsFiles(state_dir=folder / "device")
        board, token = Board("d1"), self.lab.token(is_preauthorised=True)
        answer = self.lab.ask(board, token)
        self.files.write(self.files.trusted, to_pem(answer.authorities))
        self.files.write(
            self.files.device, certified(board.wish, answer.certificate, answer.authorities, "d1")
        )
        self.keeper = CertificateKeeper(self.files, "d1", lambda: self.lab.now.timestamp())

    def ask(self, request: RenewalRequest) -> CertificateIssued | None:
        """Return what the gateway answers."""
        sent = [e for e in self.lab.desk.on_renewal("d1", request) if isinstance(e, Publish)]
        if not sent:
            return None
        return open_envelope(sent[0].topic, sent[0].payload).message

    @property
    def certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.files.device.read_bytes())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_certificate_is_renewed_after_two_thirds_of_its_life(home: Home) -> None:
    assert home.keeper.wanted() is None
    home.lab.now += 240 * DAY
    assert home.keeper.wanted() is None
    home.lab.now += 10 * DAY
    request = home.keeper.wanted()
    assert request is not None
    # The same one, also after a restart, until the answer comes.
    again = CertificateKeeper(home.files, "d1", lambda: home.lab.now.timestamp())
    assert again.wanted() == request
    before = home.certificate
    assert home.keeper.take(home.ask(request)).certificate_request == b""
    assert home.certificate.serial_number != before.serial_number
    assert home.certificate.not_valid_after_utc > home.lab.now + 300 * DAY
    home.files.settings.context()
    assert home.keeper.wanted() is None
    assert not home.files.request.exists()


def test_an_answer_that_comes_twice_or_unasked_changes_nothing(home: Home) -> None:
    home.lab.now += 250 * DAY
    answer = home.ask(home.keeper.wanted())
    home.keeper.take(answer)
    before = home.files.device.read_bytes()
    home.keeper.take(answer)
    assert home.files.device.read_bytes() == before


def test_a_certificate_for_another_key_or_name_is_refused(home: Home) -> None:
    home.lab.now += 250 * DAY
    home.keeper.wanted()
    other = home.lab.ask(Board("d2"), home.lab.token(is_preauthorised=True))
    before = home.files.device.read_bytes()
    for certificate in (other.certificate, b"garbage"):
        message = CertificateIssued(certificate=certificate, authorities=other.authorities)
        with pytest.raises(RemoteProtocolError, match="E-CERTIFICATE"):
            home.keeper.take(message)
    with pytest.raises(RemoteProtocolError, match="E-CERTIFICATE"):
        home.keeper.take(CertificateIssued(certificate=b"", authorities=()))
    with pytest.raises(RemoteProtocolError, match="E-CERTIFICATE"):
        home.keeper.take(CertificateIssued(certificate=b"", authorities=(b"garbage",)))
    assert home.files.device.read_bytes() == before


def test_a_device_follows_its_gateway_to_another_authority_and_forgets_the_old_one(
    home: Home,
) -> None:
    lab = home.lab
    lab.tls.rotate(fleet=FLEET, now=lab.now)
    (told,) = [e for e in lab.desk.on_authorities(["d1"]) if isinstance(e, Publish)]
    request = home.keeper.take(open_envelope(told.topic, told.payload).message)
    assert request is not None
    assert request.certificate_request
    report = home.keeper.take(home.ask(request))
    assert report.certificate_request == b""
    assert lab.desk.behind_count() == 1
    assert home.ask(report) is None
    assert lab.tls.authority.has_issued(_der(home.certificate))
    assert lab.desk.behind_count() == 0
    # Both are trusted until the gateway's operator ends the replacement.
    assert home.files.trusted.read_bytes().count(b"BEGIN CERTIFICATE") == 2
    lab.tls.finish(["localhost"], lab.now)
    (told,) = [e for e in lab.desk.on_authorities(["d1"]) if isinstance(e, Publish)]
    report = home.keeper.take(open_envelope(told.topic, told.payload).message)
    assert report == RenewalRequest(
        certificate_request=b"", trusted_digest=digest_of(lab.tls.trusted)
    )
    assert home.ask(report) is None
    assert lab.desk.behind_count() == 0
    assert home.files.trusted.read_bytes().count(b"BEGIN CERTIFICATE") == 1


def test_an_agent_with_nothing_to_renew_does_not_load_the_library(home: Home) -> None:
    home.keeper.wanted()  # Notes how long the certificate lives.
    script = (
        "import sys; from pathlib import Path\n"
        "from edgefl.agent.enrolled import TlsFiles\n"
        "from edgefl.agent.renewal import CertificateKeeper\n"
        f"files = TlsFiles(state_dir=Path({str(home.files.state_dir)!r}))\n"
        f"keeper = CertificateKeeper(files, 'd1', lambda: {home.lab.now.timestamp()})\n"
        "assert keeper.wanted() is None\n"
        "assert 'cryptography' not in sys.modules, 'loaded'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def _der(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.DER)
