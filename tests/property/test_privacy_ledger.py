"""Any ledger can be rebuilt from its lines, and one changed byte is noticed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.errors import BudgetExhausted, StorageError
from edgefl.privacy.accounting import RDP_ORDERS
from edgefl.privacy.ledger import Ledger, Release, verify

DIVERGENCES = st.floats(min_value=0, max_value=1e6) | st.just(math.inf)
CHARGES = st.tuples(*(DIVERGENCES for _ in RDP_ORDERS))


def release(number: int, rdp: tuple[float, ...]) -> Release:
    return Release(
        task="arm",
        round_number=number,
        attempt=0,
        session_id=f"{number:064x}",
        mechanism="skellam",
        z_effective=0.1,
        n_survivors=10,
        colluders=1,
        rdp=rdp,
    )


def ledger_of(charges: list[tuple[float, ...]]) -> Ledger:
    ledger = Ledger()
    for number, rdp in enumerate(charges):
        ledger.append(release(number, rdp))
    return ledger


@given(st.lists(CHARGES, max_size=3))
def test_lines_rebuild_the_ledger(charges: list[tuple[float, ...]]) -> None:
    ledger = ledger_of(charges)
    again = verify(entry.to_line() for entry in ledger.entries)
    assert again.head == ledger.head
    assert again.total_rdp == ledger.total_rdp


@given(st.lists(CHARGES, max_size=4), st.floats(0.1, 1e5), st.floats(1e-12, 0.1))
def test_filter_never_lets_the_total_pass_the_budget(
    charges: list[tuple[float, ...]], budget: float, delta: float
) -> None:
    ledger = Ledger()
    for number, charge in enumerate(charges):
        try:
            ledger.admit(charge, budget, delta)
        except BudgetExhausted:
            continue
        ledger.append(release(number, charge))
    assert ledger.epsilon(delta) <= budget


LEDGER = ledger_of([tuple(order / 3 for order in RDP_ORDERS)] * 3)
TEXT = "".join(entry.to_line() + "\n" for entry in LEDGER.entries)
LAST_LINE = len(TEXT) - len(LEDGER.entries[-1].to_line()) - 1


@given(st.integers(0, LAST_LINE - 1), st.characters(max_codepoint=126, min_codepoint=32))
def test_one_changed_character_before_the_last_line_is_noticed(place: int, char: str) -> None:
    if TEXT[place] == char:
        return
    text = TEXT[:place] + char + TEXT[place + 1 :]
    with pytest.raises(StorageError):
        verify(text.split("\n")[:-1])
