"""Orders of the operator to a gateway, as files in its state folder.

Whoever can write there is the operator: there is no password. A running gateway takes an order
within half a second and writes beside it what became of it; one that does not run takes it at its
next start, and the command says so.
"""

import json
import logging
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.enrolment_events import Order, OrderDone, Verb
from edgefl.errors import ConfigError, EnvironmentProblem, StorageError
from edgefl.protocol.topics import is_name
from edgefl.storage.files import read_file, replace_file

_LOGGER = logging.getLogger(__name__)

FOLDER: Final = "orders"
_ROTATE, _FINISH = "ca-rotate", "ca-finish"
_MAX_ORDERS: Final = 10_000
_MAX_FILE_BYTES: Final = 4096
_ANSWER_LIFE_S: Final = 3600.0
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityOrder:
    """An order about the gateway's certificate authority.

    Attributes:
        order_id: Names the order in its answer.
        begins: Begin to replace it, or end that.
        is_forced: End it though some boards are not known to trust the new one.
    """

    order_id: str
    begins: bool
    is_forced: bool = False


class OrderFolder:
    """The folder, from either side.

    Args:
        state_dir: The gateway's folder.
    """

    def __init__(self, state_dir: Path) -> None:
        """Touch nothing yet."""
        self._folder = state_dir / FOLDER

    # ------------------------------------------------------------ the command's side

    def give(self, verb: Verb, device: str, fingerprint: str | None = None) -> str:
        """Write an order about a board; return its id.

        Raises:
            EnvironmentProblem: E-ORDER, it cannot be written.
        """
        return self._write({"verb": verb.value, "device": device, "fingerprint": fingerprint})

    def give_authority_order(self, *, begins: bool, is_forced: bool = False) -> str:
        """Write an order about the authority; return its id.

        Raises:
            EnvironmentProblem: E-ORDER, it cannot be written.
        """
        return self._write({"verb": _ROTATE if begins else _FINISH, "forced": is_forced})

    def wait(self, order_id: str, timeout_s: float) -> OrderDone | None:
        """Wait for what became of an order; None where nobody took it within the time."""
        path = self._folder / f"{order_id}.done"
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            try:
                fields = json.loads(read_file(path, _MAX_FILE_BYTES))
                path.unlink(missing_ok=True)
            except FileNotFoundError:
                time.sleep(_LOOK_S)
                continue
            except (OSError, ValueError):
                return None
            return OrderDone(
                order_id=order_id,
                is_done=bool(fields.get("is_done")),
                code=str(fields.get("code", "")),
                text=str(fields.get("text", "")),
            )
        return None

    def _write(self, fields: dict[str, str | bool | None]) -> str:
        order_id = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = (json.dumps(fields) + "\n").encode()
            replace_file(self._folder / f"{order_id}.json", content, mode=0o600)
        except OSError as error:
            raise EnvironmentProblem(
                "E-ORDER",
                f"a folder {self._folder} that can be written",
                error.strerror or str(error),
                "run this as the user whose gateway it is",
            ) from error
        return order_id

    # ------------------------------------------------------------ the gateway's side

    def take(self) -> list[Order | AuthorityOrder]:
        """Return the orders that are there, oldest first; each stays until it is answered."""
        try:
            names = sorted(path.name for path in self._folder.glob("*.json"))[:_MAX_ORDERS]
        except OSError:
            return []
        orders = [self._read(name) for name in names]
        return [order for order in orders if order is not None]

    def answer(self, done: OrderDone) -> None:
        """Say what became of an order.

        Raises:
            StorageError: E-ORDER, the folder cannot be written.
        """
        fields = {"is_done": done.is_done, "code": done.code, "text": done.text}
        try:
            content = (json.dumps(fields) + "\n").encode()
            replace_file(self._folder / f"{done.order_id}.done", content, mode=0o600)
            (self._folder / f"{done.order_id}.json").unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                "E-ORDER", f"{self._folder}, which can be written", error.strerror or str(error)
            ) from error

    def forget_old_answers(self, now_s: float) -> None:
        """Remove answers that nobody came for.

        Args:
            now_s: Seconds since 1970.
        """
        for path in self._folder.glob("*.done"):
            try:
                if path.stat().st_mtime < now_s - _ANSWER_LIFE_S:
                    path.unlink()
            except OSError:
                continue

    def _read(self, name: str) -> Order | AuthorityOrder | None:
        path = self._folder / name
        order_id = name.removesuffix(".json")
        try:
            fields = json.loads(read_file(path, _MAX_FILE_BYTES))
            return _parse(order_id, fields)
        except (OSError, ValueError, TypeError, AttributeError, KeyError, ConfigError):
            _LOGGER.warning("an order that cannot be read is set aside: %s", path)
            path.rename(path.with_suffix(".unreadable"))
            return None


def _parse(order_id: str, fields: dict[str, object]) -> Order | AuthorityOrder:
    verb = str(fields["verb"])
    if verb in (_ROTATE, _FINISH):
        is_forced = fields.get("forced") is True
        return AuthorityOrder(order_id=order_id, begins=verb == _ROTATE, is_forced=is_forced)
    device, shown = fields["device"], fields.get("fingerprint")
    if not isinstance(device, str) or not is_name(device):
        raise ConfigError("E-DEVICE-ID", "a device's name", repr(device)[:80])
    return Order(
        order_id=order_id,
        verb=Verb(verb),
        device=device,
        fingerprint=None if shown is None else str(shown),
    )
