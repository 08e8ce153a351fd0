"""Open a gateway's state folder: identity, ledger, state, core."""

import datetime
import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from broker.config import Limits, Listening
from broker.core import GatewayCore
from broker.endpoint_link import EndpointLink
from broker.events import Reported
from broker.external import ExternalBroker
from broker.gateway_identity import load_gateway_identity, write_public_key
from broker.gateway_link import GatewayLink
from broker.gateway_state import GatewayState, make_state_folder, skip_what_may_be_used
from broker.http_server import HttpSettings
from broker.ledger_store import LEDGER_FILE, LedgerCopy, WitnessedLedger, open_ledger
from broker.operator_desk import OperatorDesk
from broker.runtime import GatewayRuntime, RuntimeSettings
from broker.settings import GatewaySettings
from broker.tls_authority import TlsAuthority
from broker.tls_folder import TlsFolder
from broker.uploads import intake_limits, stage_for
from edgefl import __version__
from edgefl._native import Seed
from edgefl.transport.broker_url import BrokerAddress
from edgefl.transport.tls import TlsSettings
from edgefl.types import FleetName

_LOGGER = logging.getLogger(__name__)


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
    limits: Limits | None = None,
    http: HttpSettings | None = None,
    brokers: tuple[BrokerAddress, ...] = (),
    accepted: Collection[str] = (),
    moved_to: tuple[str, ...] = (),
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
        limits: Bounds of its own endpoint; None takes the usual ones.
        http: Where the status page is served; None serves none.
        brokers: Of others, to run the fleet over; empty uses its own endpoint.
        accepted: Codes of what the operator knows to be unsafe about these and takes.
        moved_to: URLs by which devices shall reach this gateway from now on.

    Raises:
        EdgeflError: The state is damaged or in use, the port is taken, the disk is full.
    """
    make_state_folder(state_dir)
    state = GatewayState(state_dir)
    store, is_older = state.store, state.aside is not None
    mended = [] if state.mended is None else [state.mended]
    try:
        copy = LedgerCopy(store)
        with open_ledger(
            state_dir / LEDGER_FILE, copy, is_state_older=is_older, on_mended=mended.append
        ) as ledger:
            skip_what_may_be_used(store, ledger.ledger, is_older=is_older)
            identity = load_gateway_identity(store)
            write_public_key(state_dir, identity.public_key)
            tls = _open_tls(state_dir, names) if names else None
            bounds = limits or Limits()
            uploads = intake_limits(
                slots=bounds.upload_slots,
                window_bytes=bounds.upload_window_bytes,
                has_endpoint=not brokers,
            )
            stage = stage_for(uploads)
            core = GatewayCore(
                settings=GatewaySettings(
                    fleet=fleet,
                    signing_key=identity,
                    enrolment_key=enrolment_key,
                    authority=None if tls is None else TlsAuthority(tls),
                    least_agent_version=__version__,
                    uploads=uploads,
                    chunk_bytes=bounds.chunk_bytes,
                    moved_to=moved_to,
                    streams_chunks=not brokers,
                ),
                store=store,
                ledger=WitnessedLedger(ledger, copy),
                entropy=GatewayEntropy(),
                stage=stage,
            )
            if brokers:
                link: GatewayLink = _external_link(state_dir, fleet, brokers, accepted)
            else:
                link = EndpointLink(
                    fleet=fleet,
                    listening=listening,
                    topics=core.topics,
                    stage=stage,
                    tls=tls,
                    max_connections=bounds.connections,
                    known_count=len(core.population.keys),
                )
            runtime = GatewayRuntime(
                settings=RuntimeSettings(
                    fleet=fleet,
                    state_dir=state_dir,
                    stop_when_idle=stop_when_idle,
                    http=http,
                    mended=tuple(mended),
                ),
                core=core,
                link=link,
                operator=OperatorDesk(
                    state_dir,
                    tls=tls,
                    fleet=fleet,
                    names=names,
                    behind_count=lambda: core.behind_count,
                ),
                commit=state.commit,
                has_changes=lambda: state.has_changes,
                on_report=on_report,
            )
            await runtime.run()
    finally:
        state.close()


def _open_tls(state_dir: Path, names: Sequence[str]) -> TlsFolder:
    """Return the authority, after what is lost of the files beside it was made again."""
    tls = TlsFolder(state_dir)
    renewed = tls.refresh(names, datetime.datetime.now(tz=datetime.UTC))
    if renewed:
        _LOGGER.info("certificates made anew: %s", ", ".join(renewed))
    return tls


def _external_link(
    state_dir: Path,
    fleet: FleetName,
    brokers: tuple[BrokerAddress, ...],
    accepted: Collection[str],
) -> ExternalBroker:
    tls = None
    if TlsFolder.exists(state_dir):
        folder = TlsFolder(state_dir)
        tls = TlsSettings(
            ca_file=folder.trusted_file,
            certificate_file=folder.aggregator_file,
            key_file=folder.aggregator_file,
        )
    return ExternalBroker(brokers=brokers, tls=tls, fleet=fleet, accepted=accepted)
