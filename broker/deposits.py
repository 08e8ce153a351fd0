"""The gateway's deposits for the next key index, in the one-upload mode: asked for, kept durably.

A receipt for a deposit is given once it is on disk: a device deposits once for an index, ever. Who
has deposited when a round opens is its cohort, all of it.
"""

from collections.abc import Collection, Set
from dataclasses import dataclass
from enum import Enum

from broker.events import GatewayEffect
from broker.key_epochs import KeyEpochs
from broker.mailer import Mailer
from broker.reports import refused_report
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.aggregator import AggregatorRound
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.one_upload_aggregator import OneUploadAggregator
from edgefl.protocol.one_upload_deposits import DepositBook
from edgefl.protocol.one_upload_messages import Deposit, OneUpload
from edgefl.protocol.one_upload_sizes import DepositTerms
from edgefl.protocol.reasons import RoundMode
from edgefl.protocol.round_messages import Leave
from edgefl.protocol.round_setup import RoundSetup
from edgefl.storage.base import KeyValueStore

_BOOK = "book"
_DEPOSIT = "deposit/"

TOO_FEW_DEPOSITS = (
    "TOO_FEW_DEPOSITS (a device takes part in the experimental one-upload mode only where its "
    "policy file says allow_experimental = true)"
)


class Readiness(Enum):
    """Whether a one-upload round can open."""

    READY = "ready"
    WAITING = "waiting"
    TOO_FEW = "too-few"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundIndex:
    """A key index that is used up for a round, with the deposits for it in the one-upload mode.

    Attributes:
        deposits: For this index; None in the other mode.
        next_deposits: Where deposits for the next index go; None after the last one.
    """

    key_index: int
    deposits: DepositBook | None = None
    next_deposits: DepositBook | None = None

    @property
    def mode(self) -> RoundMode:
        """The mode of its round."""
        return RoundMode.SECAGG if self.deposits is None else RoundMode.ONE_UPLOAD

    def machine(
        self, setup: RoundSetup, *, offline: frozenset[str], now_s: float
    ) -> AggregatorRound:
        """Return the round's machine, which keeps a journal."""
        if self.deposits is None:
            return AggregatorRound(setup=setup, offline=offline, now_s=now_s, keeps_journal=True)
        return OneUploadAggregator(
            setup=setup,
            deposits=self.deposits,
            next_deposits=self.next_deposits,
            offline=offline,
            now_s=now_s,
            keeps_journal=True,
        )


class DepositDesk:
    """Deposits for the next key index.

    Args:
        store: A durable namespace of its own.
        mailer: Addresses the messages.
        key_epochs: The fleet's key epochs, whose indices deposits are for.
        resend_s: How often a device is asked again.
    """

    def __init__(
        self, store: KeyValueStore, *, mailer: Mailer, key_epochs: KeyEpochs, resend_s: float
    ) -> None:
        """Start without a book; a stored one is read when a round needs it."""
        self._store = store
        self._mailer = mailer
        self._key_epochs = key_epochs
        self._resend_s = resend_s
        self._book: DepositBook | None = None
        self._most = 0
        self._asked_at_s: dict[str, float] = {}
        self._refused: set[str] = set()
        self._first_s: dict[str, float] = {}
        self._begun_s: float | None = None
        self._news_s = 0.0
        self.wakeup_s: float | None = None

    # ------------------------------------------------------------ before a round

    def settle(self, terms: DepositTerms | None, cohort: int) -> None:
        """Give up the next index where it was deposited for, and the next round cannot use that.

        Devices refuse an index for anything but what they deposited it for.

        Args:
            terms: Of the next round; None for one of the other mode.
            cohort: Most devices in it.

        Raises:
            ConfigError: E-PLAN-CORRUPT, no committee withstands the terms.
        """
        self._most, self.wakeup_s = cohort, None
        keys, index, book = self._key_epochs.keys, self._key_epochs.next_index, self._book
        if keys is None or index is None:
            self._forget()
            return
        if book is not None and book.keys is keys and book.key_index == index:
            if book.terms != terms or len(book.devices) > cohort:
                self.give_up_index()
            return
        stored, note = self._store.get(_BOOK), _note(keys, index)
        if book is not None or stored is None or not stored.startswith(note):
            self._forget()
            return
        if terms is None or not self._restore(DepositBook(keys, index, terms), stored, note):
            self.give_up_index()

    def prepare(
        self,
        terms: DepositTerms,
        *,
        online: Collection[str],
        needed: int,
        answer_s: float,
        now_s: float,
    ) -> tuple[Readiness, list[GatewayEffect]]:
        """Ask members that are online for the deposits that are missing.

        Args:
            terms: What they are told.
            online: Devices that are online.
            needed: Least depositors that must be online.
            answer_s: How long they have.
            now_s: The time.

        Returns:
            Whether the round can open, and what to do.

        Raises:
            ConfigError: E-PLAN-CORRUPT, no committee withstands the terms.
        """
        book = self._open_book(terms)
        if book is None:
            return Readiness.WAITING, []
        present, members = set(online), self._key_epochs.members - self._refused
        room = max(0, self._most - len(book.devices))
        missing = sorted((members & present) - book.devices)[:room]
        self._first_s.update({d: now_s for d in missing if d not in self._first_s})
        waited = [device for device in missing if now_s < self._first_s[device] + answer_s]
        self._begun_s = now_s if self._begun_s is None else self._begun_s
        is_enough = len(book.devices & present) >= needed
        if is_enough and not (waited and now_s < self._begun_s + answer_s):
            return Readiness.READY, []
        if waited:
            self._news_s = now_s
            return Readiness.WAITING, self._ask(book, waited, now_s, now_s + answer_s)
        self.wakeup_s = self._news_s + answer_s
        is_hopeless = len(book.devices | (members - present)) < needed
        if is_hopeless or now_s >= self.wakeup_s:
            return Readiness.TOO_FEW, []
        return Readiness.WAITING, []  # Those who went away may come back.

    def _ask(
        self, book: DepositBook, waited: list[str], now_s: float, until_s: float
    ) -> list[GatewayEffect]:
        due = [
            device
            for device in waited
            if now_s >= self._asked_at_s.get(device, -self._resend_s) + self._resend_s
        ]
        self._asked_at_s.update(dict.fromkeys(due, now_s))
        again_s = min(self._asked_at_s[device] for device in waited) + self._resend_s
        self.wakeup_s = min(again_s, until_s)
        return [self._mailer.to_device(device, book.call_to(device)) for device in due]

    def count(self, online: Collection[str]) -> int:
        """Return how many devices that are online have deposited."""
        return 0 if self._book is None else len(self._book.devices & set(online))

    def give_up_index(self) -> None:
        """Use up the next index without a round."""
        self._key_epochs.take_index()
        self._forget()

    def take_index(self, terms: DepositTerms | None) -> RoundIndex | None:
        """Use up the next index for a round; from now on deposits are for the one after it.

        Args:
            terms: Of a one-upload round; None for one of the other mode.

        Returns:
            None where there is no index left, or nobody was asked for deposits.
        """
        book = self._book
        if terms is not None and book is None:
            return None
        index = self._key_epochs.take_index()
        if index is None or book is None:
            return None if index is None else RoundIndex(key_index=index)
        self._forget()
        next_deposits = self._open_book(book.terms)
        return RoundIndex(key_index=index, deposits=book, next_deposits=next_deposits)

    def resume_index(
        self, terms: DepositTerms | None, key_index: int, deposits: bytes | None, most: int
    ) -> RoundIndex:
        """Return an index that an earlier life of the gateway has used up for the open round.

        Args:
            terms: Of a one-upload round; None for one of the other mode.
            key_index: The index.
            deposits: For it, as `DepositBook.to_bytes` gave them; None in the other mode.
            most: Most devices in a round.

        Raises:
            EdgeflError: There is no key epoch, or the deposits are of another one.
        """
        keys = self._key_epochs.keys
        if terms is None or deposits is None or keys is None:
            return RoundIndex(key_index=key_index)
        self.settle(terms, most)
        book = DepositBook(keys, key_index, terms)
        book.restore(deposits)
        return RoundIndex(key_index=key_index, deposits=book, next_deposits=self._open_book(terms))

    # ------------------------------------------------------------ what devices send

    def receive(
        self, device: str, attempt: int, message: DeviceMessage, cohort: Set[str] | None
    ) -> tuple[bool, list[GatewayEffect]]:
        """Take the deposit in a message, or note that there will be none.

        Also from an upload that comes too late for its round: the deposit is for the next one.

        Args:
            device: Who sent it.
            attempt: Of the message; 0 outside of a round.
            message: Any message.
            cohort: Devices of the round that is open: nobody else is asked meanwhile.

        Returns:
            Whether a receipt may be given, and what to do.
        """
        deposit = message.next_deposit if isinstance(message, OneUpload) else message
        if isinstance(message, Leave) and attempt == 0:
            self._refused.add(device)
        if not isinstance(deposit, Deposit):
            return True, []
        if self._book is None:
            # After a restart it may be for a book that is not read yet: it is sent again.
            return self._store.get(_BOOK) is None, []
        try:
            self._take(self._book, device, deposit, cohort)
        except RemoteProtocolError as error:
            return True, [refused_report(error.code, device)]
        return True, []

    def _take(
        self, book: DepositBook, device: str, message: Deposit, cohort: Set[str] | None
    ) -> None:
        if message.key_index != book.key_index or device in book.devices:
            return  # Late: of no use any more; or sent again.
        if len(book.devices) >= self._most or not (cohort is None or device in cohort):
            raise RemoteProtocolError(
                "E-DEPOSIT-UNASKED", "a deposit that was asked for", "one more"
            )
        book.take(device, message)
        self._store.put(_DEPOSIT + device, wire.encode(dict(message.to_body())))

    # ------------------------------------------------------------ helpers

    def _open_book(self, terms: DepositTerms) -> DepositBook | None:
        """Return the book of the next index; note it before anybody can deposit in it."""
        keys, index = self._key_epochs.keys, self._key_epochs.next_index
        if keys is None or index is None:
            return None
        if self._book is None:
            book = DepositBook(keys, index, terms)
            self._store.put(_BOOK, _note(keys, index) + book.deposit_id)
            self._book = book
        return self._book

    def _restore(self, book: DepositBook, stored: bytes, note: bytes) -> bool:
        """Read the stored deposits into the book of the next round, if they are for it."""
        if stored != note + book.deposit_id:
            return False
        for key in self._store.keys(_DEPOSIT):
            try:
                body = wire.as_body(wire.decode(self._store.get(key) or b""))
                book.take(key.removeprefix(_DEPOSIT), Deposit.from_body(body))
            except (WireError, RemoteProtocolError):
                continue  # This device has no part in the round of this index.
        self._book = book
        return len(book.devices) <= self._most

    def _forget(self) -> None:
        self._book = None
        self._asked_at_s, self._first_s, self._refused = {}, {}, set()
        self._begun_s = self.wakeup_s = None
        stored = [key for key in (_BOOK, *self._store.keys(_DEPOSIT)) if self._store.get(key)]
        if stored:
            self._store.put_many(dict.fromkeys(stored))


def _note(keys: MemberKeys, index: int) -> bytes:
    """Return the part of the stored note that names the index; the deposit id follows it."""
    return keys.epoch.record.digest + index.to_bytes(4, "big")
