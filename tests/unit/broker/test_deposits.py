"""The gateway's deposits for the next key index: who is asked, what survives a restart."""

from collections.abc import Collection
from dataclasses import replace
from functools import cache
from typing import cast

from broker.deposits import DepositDesk, Readiness
from broker.events import GatewayEffect
from broker.key_epochs import KeyEpochs
from broker.mailer import Mailer
from edgefl.protocol.envelope import open_envelope
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.one_upload_messages import Deposit, DepositCall, OneUpload
from edgefl.protocol.reasons import LeaveReason
from edgefl.protocol.round_messages import Leave
from edgefl.protocol.topics import device_of
from edgefl.storage.memory import MemoryStore
from edgefl.transport.core_events import Publish
from edgefl.types import FleetName
from tests.epoch_harness import signing_key
from tests.one_upload_harness import OneUploadHarness

COHORT = 5
NEEDED = 4
ANSWER_S = 10.0
RESEND_S = 2.0


@cache
def _harness() -> OneUploadHarness:
    return OneUploadHarness(COHORT)


def _deposits() -> dict[str, Deposit]:
    """Return a real deposit of each device for index 0."""
    return dict(_harness().books[0]._deposits)


class _Epochs:
    """An open key epoch whose indices are counted; nothing else of it is used."""

    def __init__(self) -> None:
        self.keys: MemberKeys = _harness().keys
        self.members = frozenset(self.keys.devices)
        self.next_index: int | None = 0

    def take_index(self) -> int | None:
        index = self.next_index
        self.next_index = None if index is None else index + 1
        return index


class _Gateway:
    def __init__(self) -> None:
        self.store, self.epochs = MemoryStore(), _Epochs()
        self.terms = _harness().terms
        self.online = set(self.epochs.members)
        self.start()

    def start(self) -> None:
        """Start from what is on disk."""
        self.desk = DepositDesk(
            self.store.namespace("deposits"),
            mailer=Mailer(FleetName("home"), signing_key("gateway")),
            key_epochs=cast("KeyEpochs", self.epochs),
            resend_s=RESEND_S,
        )

    def prepare(self, now_s: float = 0.0, cohort: int = COHORT) -> tuple[Readiness, list[str]]:
        """Return whether a round can open, and who was asked for a deposit."""
        self.desk.settle(self.terms, cohort)
        readiness, effects = self.desk.prepare(
            self.terms, online=self.online, needed=NEEDED, answer_s=ANSWER_S, now_s=now_s
        )
        return readiness, _asked(effects)

    def receive(
        self, devices: Collection[str], cohort: frozenset[str] | None = None
    ) -> list[tuple[bool, int]]:
        """Return for each device whether its deposit is given a receipt, and the reports."""
        found = [self.desk.receive(name, 0, _deposits()[name], cohort) for name in devices]
        return [(is_settled, len(effects)) for is_settled, effects in found]


def _asked(effects: list[GatewayEffect]) -> list[str]:
    asked = []
    for effect in effects:
        assert isinstance(effect, Publish)
        assert isinstance(open_envelope(effect.topic, effect.payload).message, DepositCall)
        asked.append(str(device_of(effect.topic)))
    return asked


def test_everybody_online_is_asked_once_and_reminded() -> None:
    gateway = _Gateway()
    gone = min(gateway.online)
    gateway.online.discard(gone)
    assert gateway.prepare(0.0) == (Readiness.WAITING, sorted(gateway.online))
    assert gateway.prepare(1.0) == (Readiness.WAITING, [])
    assert gateway.desk.wakeup_s == RESEND_S
    assert gateway.prepare(RESEND_S) == (Readiness.WAITING, sorted(gateway.online))
    assert gateway.receive(gateway.online) == [(True, 0)] * NEEDED
    assert gateway.prepare(3.0) == (Readiness.READY, [])


def test_a_silent_device_is_waited_for_as_long_as_it_may_take_and_no_longer() -> None:
    gateway = _Gateway()
    gateway.prepare(0.0)
    gateway.receive(sorted(gateway.online)[:NEEDED])
    assert gateway.prepare(ANSWER_S - 0.1)[0] is Readiness.WAITING
    assert gateway.prepare(ANSWER_S) == (Readiness.READY, [])
    taken = gateway.desk.take_index(gateway.terms)
    assert taken is not None
    assert taken.deposits is not None
    assert len(taken.deposits.devices) == NEEDED


def test_refusals_are_not_waited_for() -> None:
    gateway = _Gateway()
    gateway.prepare(0.0)
    for device in gateway.online:
        gateway.desk.receive(device, 0, Leave(reason=LeaveReason.PLAN_REFUSED), None)
    assert gateway.prepare(0.5) == (Readiness.TOO_FEW, [])


def test_a_leave_of_a_round_is_no_refusal_to_deposit() -> None:
    gateway = _Gateway()
    gateway.prepare(0.0)
    for device in gateway.online:
        gateway.desk.receive(device, 7, Leave(reason=LeaveReason.PLAN_REFUSED), None)
    assert gateway.prepare(RESEND_S) == (Readiness.WAITING, sorted(gateway.online))


def test_who_deposited_and_went_away_may_come_back() -> None:
    gateway = _Gateway()
    gateway.prepare(0.0)
    gateway.receive(gateway.online)
    everybody = set(gateway.online)
    gateway.online = set(sorted(everybody)[:2])
    assert gateway.prepare(1.0)[0] is Readiness.WAITING
    gateway.online = everybody
    assert gateway.prepare(2.0) == (Readiness.READY, [])


def test_deposits_survive_a_restart_and_get_no_receipt_before_the_book_is_read() -> None:
    gateway = _Gateway()
    gateway.prepare(0.0)
    first, *others = sorted(gateway.online)
    assert gateway.receive([first]) == [(True, 0)]
    gateway.start()
    assert gateway.receive(others) == [(False, 0)] * len(others)
    assert gateway.prepare(0.0) == (Readiness.WAITING, others)
    assert gateway.receive(others) == [(True, 0)] * len(others)
    gateway.start()
    assert gateway.prepare(1.0) == (Readiness.READY, [])


def test_a_gateway_that_never_asked_gives_receipts_and_keeps_nothing() -> None:
    gateway = _Gateway()
    assert gateway.receive(gateway.online) == [(True, 0)] * COHORT
    gateway.desk.settle(None, COHORT)
    assert gateway.epochs.next_index == 0


def test_nobody_is_asked_or_taken_beyond_the_cohort() -> None:
    gateway = _Gateway()
    most = COHORT - 1
    assert gateway.prepare(0.0, most) == (Readiness.WAITING, sorted(gateway.online)[:most])
    assert gateway.receive(sorted(gateway.online)) == [(True, 0)] * most + [(True, 1)]
    assert gateway.prepare(1.0, most) == (Readiness.READY, [])


def test_only_devices_of_the_open_round_deposit_meanwhile() -> None:
    gateway = _Gateway()
    gateway.prepare(0.0)
    stranger, *inside = sorted(gateway.online)
    assert gateway.receive([stranger], frozenset(inside)) == [(True, 1)]
    assert gateway.receive(inside, frozenset(inside)) == [(True, 0)] * len(inside)


def test_a_deposit_of_a_late_upload_is_kept_and_one_for_an_earlier_index_is_not() -> None:
    gateway = _Gateway()
    gateway.prepare(0.0)
    early, late, *_ = sorted(gateway.online)
    upload = OneUpload(packed=b"", commitment=bytes(32), sealed=(), next_deposit=_deposits()[late])
    assert gateway.desk.receive(late, 1, upload, None) == (True, [])
    assert gateway.desk.count(gateway.online) == 1
    assert gateway.desk.take_index(gateway.terms) is not None
    assert gateway.receive([early]) == [(True, 0)]
    assert gateway.desk.count(gateway.online) == 0


def test_another_device_s_deposit_is_refused() -> None:
    gateway = _Gateway()
    gateway.prepare(0.0)
    one, other, *_ = sorted(gateway.online)
    is_settled, reports = gateway.desk.receive(one, 0, _deposits()[other], None)
    assert (is_settled, len(reports)) == (True, 1)
    assert gateway.desk.count(gateway.online) == 0


def test_an_index_that_was_deposited_for_serves_no_other_mode_terms_or_smaller_cohort() -> None:
    for is_restarted in (False, True):
        for terms, cohort in (
            (None, COHORT),
            (replace(_harness().terms, drop_permille=100), COHORT),
            (_harness().terms, COHORT - 1),
        ):
            gateway = _Gateway()
            gateway.prepare(0.0)
            gateway.receive(gateway.online)
            if is_restarted:
                gateway.start()
            gateway.desk.settle(terms, cohort)
            assert gateway.epochs.next_index == 1
            assert gateway.desk.count(gateway.online) == 0
            assert gateway.store.namespace("deposits").keys() == []


def test_the_same_terms_go_on_with_the_deposits_there_are() -> None:
    gateway = _Gateway()
    gateway.prepare(0.0)
    gateway.receive(gateway.online)
    gateway.start()
    gateway.desk.settle(gateway.terms, COHORT)
    assert gateway.epochs.next_index == 0
    assert gateway.desk.count(gateway.online) == COHORT


def test_damaged_rows_cost_their_own_device_only() -> None:
    gateway = _Gateway()
    gateway.prepare(0.0)
    gateway.receive(gateway.online)
    store = gateway.store.namespace("deposits")
    victim = min(gateway.online)
    store.put(f"deposit/{victim}", b"\xff")
    gateway.start()
    gateway.desk.settle(gateway.terms, COHORT)
    assert gateway.desk.count(gateway.online) == COHORT - 1
