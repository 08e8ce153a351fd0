"""The shell's side of enrolment: tokens and orders from files, revocations to the link and a file.

It runs in the gateway's process, beside the core; only the core decides.
"""

import datetime
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from broker.claims import FOLDER, Claim, read_claims
from broker.enrolment_events import (
    AuthoritiesChanged,
    ClaimsChanged,
    CutSession,
    EnrolmentEffect,
    EnrolmentEvent,
    OperatorSaid,
    Order,
    OrderDone,
    RevocationsChanged,
)
from broker.orders import AuthorityOrder, OrderFolder
from broker.session_control import SessionControl
from broker.tls_folder import TlsFolder
from edgefl.errors import ConfigError, EdgeflError

_LOGGER = logging.getLogger(__name__)

_REFRESH: Final = datetime.timedelta(hours=6)
_TOKEN_LOOK_S: Final = 0.2


class OperatorDesk:
    """Reads what the operator wants, and carries out what the core wants of the shell.

    Args:
        state_dir: The gateway's folder.
        tls: Its TLS files; None for a gateway that was never set up by `init`.
        fleet: The fleet's name.
        names: Names and addresses for the server's certificate.
        behind_count: Returns how many boards are not known to trust the present authorities.
        now: The time, with its zone.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        tls: TlsFolder | None,
        fleet: str,
        names: Sequence[str],
        behind_count: Callable[[], int],
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(tz=datetime.UTC),
    ) -> None:
        """Read nothing yet."""
        self._state_dir = state_dir
        self._tls = tls
        self._fleet = fleet
        self._names = names
        self._behind_count = behind_count
        self._now = now
        self._orders = OrderFolder(state_dir)
        self._claims: dict[str, Claim] | None = None
        self._claims_seen: object = None
        self._taken: set[str] = set()
        self._wanted_at_s = -math.inf
        self._refresh_at: datetime.datetime | None = None
        self._control: SessionControl | None = None
        self._revoked: RevocationsChanged | None = None

    def use(self, link: object) -> None:
        """Take the link whose clients are to be refused, if it is one that can."""
        self._control = link if isinstance(link, SessionControl) else None
        if self._revoked is not None:
            self._tell(self._revoked)

    # ------------------------------------------------------------ from files

    def wants_look(self, claim: str, now_s: float) -> bool:
        """Tell whether to look at once: a script may come with a token that it has made just now.

        Only so often: all messages wait meanwhile, and over a broker without access rules anybody
        can name tokens that do not exist.

        Args:
            claim: The token's name.
            now_s: Seconds of a clock that never goes back.
        """
        is_known = self._claims is not None and claim in self._claims
        if is_known or now_s < self._wanted_at_s + _TOKEN_LOOK_S:
            return False
        self._wanted_at_s = now_s
        return True

    def look(self) -> list[EnrolmentEvent]:
        """Return what is new; blocks for the disk."""
        events: list[EnrolmentEvent] = []
        claims = self._read_claims()
        if claims is not None:
            events.append(ClaimsChanged(claims=claims))
        for order in self._orders.take():
            if order.order_id in self._taken:
                continue
            self._taken.add(order.order_id)
            if isinstance(order, Order):
                events.append(OperatorSaid(order=order))
            else:
                events += self._on_authority_order(order)
        self._refresh_if_due()
        return events

    def _read_claims(self) -> dict[str, Claim] | None:
        """Return the tokens if they changed, or if one has ended since."""
        folder = self._state_dir / FOLDER
        now_s = self._now().timestamp()
        try:
            files = tuple(
                (path.name, path.stat().st_mtime_ns) for path in sorted(folder.glob("claim-*.json"))
            )
        except OSError:
            files = ()
        ended = (
            ()
            if self._claims is None
            else tuple(name for name, claim in self._claims.items() if claim.expires_s <= now_s)
        )
        if self._claims is not None and (files, ended) == self._claims_seen:
            return None
        self._claims_seen = (files, ended)
        self._claims = read_claims(self._state_dir)
        return self._claims

    # ------------------------------------------------------------ authority and certificates

    def _on_authority_order(self, order: AuthorityOrder) -> list[EnrolmentEvent]:
        try:
            text = self._change_authority(order)
        except EdgeflError as error:
            self._answer(order.order_id, error.code, f"{error.found}; {error.advice}")
            return []
        self._answer(order.order_id, "", text)
        self._show_certificates()
        return [AuthoritiesChanged()]

    def _change_authority(self, order: AuthorityOrder) -> str:
        tls, now = self._required_tls(), self._now()
        # A crash may have come between an order's work and its answer.
        is_replacing = tls.previous is not None
        is_done = tls.last_order == order.order_id and is_replacing is order.begins
        if order.begins:
            if not is_done:
                tls.note_order(order.order_id)
                tls.rotate(fleet=self._fleet, now=now)
            tls.refresh(self._names, now)
            self._write_revocations()
            return (
                f"authority {tls.authority.fingerprint} replaces the one before: devices learn it "
                "at their next connection; 'edgefl gateway ca finish' when all have"
            )
        if not is_done:
            self._finish(tls, order, now)
        self._write_revocations()
        return f"authority {tls.authority.fingerprint} is the only one now"

    def _finish(self, tls: TlsFolder, order: AuthorityOrder, now: datetime.datetime) -> None:
        behind = self._behind_count()
        if behind > 0 and not order.is_forced:
            raise ConfigError(
                "E-CA-BEHIND",
                "a fleet that trusts the new authority",
                f"{behind} devices have not been heard since",
                "wait for them, or --force: they would have to enrol again",
            )
        tls.note_order(order.order_id)
        tls.finish(self._names, now)

    def _required_tls(self) -> TlsFolder:
        if self._tls is None:
            raise ConfigError(
                "E-TLS-FOLDER",
                "a gateway with an authority",
                "one that was never set up",
                "edgefl gateway init",
            )
        return self._tls

    def _refresh_if_due(self) -> None:
        """Renew the gateway's own certificates before they end."""
        now = self._now()
        if self._refresh_at is not None and now < self._refresh_at:
            return
        self._refresh_at = now + _REFRESH
        self._orders.forget_old_answers(now.timestamp())
        if self._tls is None:
            return
        try:
            renewed = self._tls.refresh(self._names, now)
        except ConfigError as error:
            # Rounds need no clock: what was made before is shown until it ends.
            _LOGGER.error("certificates were not made anew: %s", error)
            return
        if renewed:
            _LOGGER.info("certificates made anew: %s", ", ".join(renewed))
            self._show_certificates()

    def _show_certificates(self) -> None:
        if self._control is not None and self._tls is not None:
            content = self._tls.server_file.read_bytes()
            self._control.set_certificates(content, content, self._tls.trusted_file.read_bytes())

    # ------------------------------------------------------------ from the core

    def carry_out(self, effect: EnrolmentEffect) -> None:
        """Carry out what the core wants; its decision is durable by now.

        Raises:
            StorageError: A file cannot be written.
        """
        if isinstance(effect, OrderDone):
            self._taken.discard(effect.order_id)
            self._orders.answer(effect)
        elif isinstance(effect, CutSession):
            if self._control is not None:
                self._control.disconnect(effect.device, effect.reason)
        elif effect != self._revoked:
            self._revoked = effect
            self._write_revocations()
            self._tell(effect)

    def _write_revocations(self) -> None:
        if self._tls is not None:
            serials = frozenset() if self._revoked is None else self._revoked.serials
            self._tls.write_revocations(serials, self._now())

    def _tell(self, revoked: RevocationsChanged) -> None:
        if self._control is not None:
            serials = [f"{serial:x}" for serial in sorted(revoked.serials)]
            self._control.set_revoked(serials, sorted(revoked.devices))

    def _answer(self, order_id: str, code: str, text: str) -> None:
        self._taken.discard(order_id)
        self._orders.answer(OrderDone(order_id=order_id, is_done=not code, code=code, text=text))
