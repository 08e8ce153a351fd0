"""Set a gateway up once: identity, certificate authority, settings; each step may be repeated."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.config import CONFIG_FILE, GatewayConfig, config_text, load_config
from broker.gateway_identity import load_gateway_identity, write_public_key
from broker.gateway_state import make_state_folder
from broker.tls_folder import TlsFolder
from edgefl.errors import ConfigError, StorageError
from edgefl.protocol.topics import parse_fleet
from edgefl.storage.files import replace_file
from edgefl.storage.sqlite import open_sqlite

MAX_NAMES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUp:
    """A gateway that was set up.

    Attributes:
        gateway_key: Its identity, by which devices know it.
        authority: Fingerprint of its certificate authority.
    """

    state_dir: Path
    config: GatewayConfig
    gateway_key: bytes
    authority: str


def set_up_gateway(
    state_dir: Path,
    *,
    fleet: str,
    names: Sequence[str],
    enrolment_key: bytes | None,
    now: datetime.datetime,
) -> SetUp:
    """Make what a gateway needs to let devices in over TLS.

    Args:
        state_dir: Its folder; made if absent. One that a first run has used keeps its identity,
            tasks and ledger; its devices have to enrol.
        fleet: The fleet's name.
        names: Names and addresses that boards reach it by.
        enrolment_key: Who signs the roster away from it; None lets it sign.
        now: The time, with its zone.

    Raises:
        ConfigError: E-GATEWAY-EXISTS, it was set up before; or a name is none.
        EdgeflError: The folder cannot be written, or a gateway runs in it.
    """
    path = state_dir / CONFIG_FILE
    if path.exists():
        raise ConfigError(
            "E-GATEWAY-EXISTS",
            "a folder without a gateway",
            f"{path} is there",
            f"edit it, or choose another --state; its enrolled devices trust {state_dir}",
        )
    parse_fleet(fleet)
    if not 1 <= len(names) <= MAX_NAMES:
        raise ConfigError("E-HOST-NAME", f"1 to {MAX_NAMES} names", f"{len(names)}")
    make_state_folder(state_dir)
    store = open_sqlite(state_dir / "gateway.sqlite", namespace="gateway")
    try:
        key = load_gateway_identity(store).public_key
    finally:
        store.close()
    write_public_key(state_dir, key)
    if TlsFolder.exists(state_dir):  # An earlier set-up was interrupted.
        tls = TlsFolder(state_dir)
        tls.refresh(names, now)
    else:
        tls = TlsFolder.create(state_dir, fleet=fleet, hosts=names, now=now)
    text = config_text(
        fleet=fleet,
        names=names,
        enrolment_key=None if enrolment_key is None else enrolment_key.hex(),
    )
    try:
        replace_file(path, text.encode(), mode=0o644)
    except OSError as error:
        raise StorageError(
            "E-GATEWAY-CONFIG", f"{path}, which can be written", error.strerror or str(error)
        ) from error
    config = load_config(state_dir)
    if config is None:
        raise StorageError("E-GATEWAY-CONFIG", f"{path} as it was written", "no file")
    return SetUp(
        state_dir=state_dir,
        config=config,
        gateway_key=key,
        authority=tls.authority.fingerprint,
    )
