"""Open a gateway's state folder: identity, ledger, state, core."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from broker.config import Listening
from broker.core import GatewayCore
from broker.embedded import EmbeddedBroker
from broker.endpoint import EmbeddedEndpoint
from broker.events import Reported
from broker.external import ExternalBroker
from broker.gateway_identity import load_gateway_identity, write_public_key
from broker.gateway_link import GatewayLink
from broker.http_server import HttpSettings
from broker.ledger import LedgerFile
from broker.operator_desk import OperatorDesk
from broker.runtime import GatewayRuntime, RuntimeSettings
from broker.settings import GatewaySettings
from broker.tls_authority import TlsAuthority
from broker.tls_folder import TlsFolder
from edgefl import __version__
from edgefl._native import Seed
from edgefl.errors import EnvironmentProblem
from edgefl.privacy.ledger import Ledger, LedgerEntry, Release
from edgefl.storage.base import KeyValueStore
from edgefl.storage.batch import BatchStore
from edgefl.storage.sqlite import open_sqlite
from edgefl.transport.broker_url import BrokerAddress
from edgefl.transport.tls import TlsSettings
from edgefl.types import FleetName

_LEDGER_WITNESS = "ledger-witness"


class GatewayEntropy:
    """Fresh nonces from the operating system."""

    def fresh_seed(self) -> Seed:
        """Return 32 new bytes."""
        return Seed.generate()


async def run_gateway(
    *,
    state_dir: Path,
    fleet: FleetName,
    listening: Listening,
    enrolment_key: bytes | None,
    stop_when_idle: bool,
    on_report: Callable[[Reported], None],
    names: Sequence[str] = (),
    http: HttpSettings | None = None,
    brokers: tuple[BrokerAddress, ...] = (),
    accepted: Collection[str] = (),
) -> None:
    """Run a gateway from its state folder until it is cancelled.

    Args:
        state_dir: Its folder; made if absent.
        fleet: The fleet's name.
        listening: Where its own endpoint listens.
        enrolment_key: Who signs the roster away from this gateway; None lets it sign.
        stop_when_idle: End when every task handed in has ended.
        on_report: Called with each line for the operator.
        names: Names and addresses for the server's certificate, on a gateway that `init` set up;
            empty for a first run, where every device that says hello may take part.
        http: Where the status page is served; None serves none.
        brokers: Of others, to run the fleet over; empty starts one of its own on `port`.
        accepted: Codes of what the operator knows to be unsafe about these and takes.

    Raises:
        EdgeflError: The state is damaged or in use, the port is taken, the disk is full.
    """
    _make_folder(state_dir)
    store = BatchStore(
        open_sqlite(state_dir / "gateway.sqlite", namespace="gateway"), namespace="gateway"
    )
    try:
        with _open_ledger(state_dir / "ledger.jsonl", store) as ledger:
            identity = load_gateway_identity(store)
            write_public_key(state_dir, identity.public_key)
            tls = TlsFolder(state_dir) if names else None
            core = GatewayCore(
                settings=GatewaySettings(
                    fleet=fleet,
                    signing_key=identity,
                    enrolment_key=enrolment_key,
                    authority=None if tls is None else TlsAuthority(tls),
                    least_agent_version=__version__,
                ),
                store=store,
                ledger=WitnessedLedger(ledger, store),
                entropy=GatewayEntropy(),
            )
            runtime = GatewayRuntime(
                settings=RuntimeSettings(
                    fleet=fleet,
                    state_dir=state_dir,
                    stop_when_idle=stop_when_idle,
                    http=http,
                ),
                core=core,
                link=_make_link(state_dir, fleet, listening, brokers, accepted),
                operator=OperatorDesk(
                    state_dir,
                    tls=tls,
                    fleet=fleet,
                    names=names,
                    behind_count=lambda: core.behind_count,
                ),
                commit=store.batch.commit,
                on_report=on_report,
            )
            await runtime.run()
    finally:
        store.close()


def _make_link(
    state_dir: Path,
    fleet: FleetName,
    listening: Listening,
    brokers: tuple[BrokerAddress, ...],
    accepted: Collection[str],
) -> GatewayLink:
    """Return what brings the gateway's messages."""
    if not brokers:
        port = listening.mqtt_port or 0
        return EmbeddedBroker(EmbeddedEndpoint(port=port, state_dir=state_dir / "broker"), fleet)
    tls = None
    if TlsFolder.exists(state_dir):
        folder = TlsFolder(state_dir)
        tls = TlsSettings(
            ca_file=folder.trusted_file,
            certificate_file=folder.aggregator_file,
            key_file=folder.aggregator_file,
        )
    return ExternalBroker(brokers=brokers, tls=tls, fleet=fleet, accepted=accepted)


def _make_folder(state_dir: Path) -> None:
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise EnvironmentProblem(
            "E-STATE-DIR",
            f"a folder at {state_dir}",
            error.strerror or str(error),
            "choose another --state",
        ) from error


class WitnessedLedger:
    """The ledger file, with its length and head repeated in the state database.

    A ledger that was cut back or replaced behind the gateway's back is so refused at the next
    start.
    """

    def __init__(self, file: LedgerFile, store: KeyValueStore) -> None:
        """Wrap an open ledger."""
        self._file = file
        self._store = store

    @property
    def ledger(self) -> Ledger:
        """The entries so far."""
        return self._file.ledger

    def append(self, release: Release) -> LedgerEntry:
        """Charge one release durably, then note the new head."""
        entry = self._file.append(release)
        _remember(self._store, self._file.ledger)
        return entry


def _open_ledger(path: Path, store: KeyValueStore) -> LedgerFile:
    witness = store.get(_LEDGER_WITNESS)
    if witness is None and not path.exists():
        file = LedgerFile.create(path)
        _remember(store, file.ledger)
        return file
    if witness is None:
        return LedgerFile.open(path)
    length, _, head = witness.decode().partition(" ")
    return LedgerFile.open(path, (int(length), head))


def _remember(store: KeyValueStore, ledger: Ledger) -> None:
    store.put(_LEDGER_WITNESS, f"{len(ledger)} {ledger.head}".encode())
