"""An endpoint in the test's own process, with certificates and a gateway's side that answers."""

import datetime
import select
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker.certificates import CertificateAuthority, make_authority
from edgefl._native import MqttEndpoint, UploadStage

FLEET = "lab"
PATIENCE_S = 10.0


class Certificates:
    """One authority, and files for whom it signs."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._now = datetime.datetime.now(datetime.UTC)
        pair = make_authority(FLEET, self._now)
        self._authority = CertificateAuthority(pair.certificate, pair.key)
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(pair.certificate)
        self.server = self._authority.issue_server(["127.0.0.1", "localhost"], self._now)

    def device(self, name: str) -> tuple[Path, Path]:
        """Return the files with a device's certificate and key."""
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        if not certificate.exists():
            pair = self._authority.issue_client(name, self._now)
            certificate.write_bytes(pair.certificate)
            key.write_bytes(pair.key)
        return certificate, key


class Lab:
    """The endpoint, and what a gateway sees of it.

    Everything that comes on `d/DEVICE/q` goes back to `d/DEVICE/c`.
    """

    def __init__(self, endpoint: MqttEndpoint, certificates: Certificates) -> None:
        self.endpoint = endpoint
        self.certificates = certificates
        self.ports: dict[str, int] = endpoint.start()
        self.events: list[Any] = []
        self.is_acknowledging = True
        self._is_over = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        endpoint.subscribe([f"efl/1/{FLEET}/#"])
        self._thread.start()

    def close(self) -> None:
        self._is_over = True
        self._thread.join(PATIENCE_S)
        self.endpoint.close()

    def of_kind(self, kind: str) -> list[Any]:
        return [event for event in list(self.events) if event.kind == kind]

    def wait_for(self, condition: Callable[[Any], bool], what: str) -> Any:
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            for event in list(self.events):
                if condition(event):
                    return event
            time.sleep(0.01)
        raise AssertionError(f"{what} did not happen; the last events: {self.events[-5:]}")

    def _serve(self) -> None:
        while not self._is_over:
            if not select.select([self.endpoint.fileno()], [], [], 0.1)[0]:
                continue
            for event in self.endpoint.take_events(256):
                self.events.append(event)
                if event.kind == "message":
                    self._answer(event)

    def _answer(self, event: Any) -> None:
        if event.ticket is not None and self.is_acknowledging:
            self.endpoint.acknowledge([event.ticket])
        # After the PUBACK: some clients' TLS objects to what comes once they have said goodbye.
        if event.topic.endswith("/q"):
            self.endpoint.publish(event.topic[:-1] + "c", event.payload)


def is_tls(listener: str) -> bool:
    return listener in {"mqtts", "wss"}


def context_of(served: Lab, name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(served.certificates.ca_file))
    context.load_cert_chain(*served.certificates.device(name))
    return context


@contextmanager
def lab(folder: Path, stage: UploadStage | None = None, **limits: int) -> Iterator[Lab]:
    """Run an endpoint with all four listeners."""
    certificates = Certificates(folder / "certificates")
    endpoint = MqttEndpoint(
        FLEET,
        mqtt="127.0.0.1:0",
        ws="127.0.0.1:0",
        mqtts="127.0.0.1:0",
        wss="127.0.0.1:0",
        client_authorities=certificates.ca_file.read_bytes(),
        certificate_chain=certificates.server.certificate,
        private_key=certificates.server.key,
        stage=stage,
        **limits,
    )
    running = Lab(endpoint, certificates)
    try:
        yield running
    finally:
        running.close()
