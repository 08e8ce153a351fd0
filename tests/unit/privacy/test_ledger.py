"""Ledger arithmetic: totals, the budget filter, and damage to any line."""

import json
import math
from dataclasses import replace

import pytest

from edgefl.errors import BudgetExhausted, LocalProtocolError, PrivacyError, StorageError
from edgefl.privacy.accounting import (
    RDP_ORDERS,
    compose,
    epsilon_from_rdp,
    gaussian_rdp,
    poisson_amplified_rdp,
)
from edgefl.privacy.ledger import (
    GENESIS_HASH,
    Ledger,
    LedgerEntry,
    Release,
    make_release,
    verify,
)
from edgefl.privacy.plan import PrivacyPlan, make_privacy_plan


def demo_plan(**changes: object) -> PrivacyPlan:
    choices = {
        "clip_norm": 1.0,
        "noise_multiplier": 0.1,
        "n_cohort": 16,
        "survivor_floor": 10,
        "colluders": 1,
        "dimension": 1900,
        "delta": 1e-5,
        "epsilon_budget": 1250.0,
        "rounds": 20,
        "ring_bits": 16,
    }
    return make_privacy_plan(**{**choices, **changes})


def release(number: int, rdp: tuple[float, ...] | None = None) -> Release:
    return Release(
        task="arm",
        round_number=number,
        attempt=0,
        session_id=f"{number:064x}",
        mechanism="skellam",
        z_effective=1.0,
        n_survivors=10,
        colluders=1,
        rdp=gaussian_rdp(1.0) if rdp is None else rdp,
    )


def ledger_of(count: int) -> Ledger:
    ledger = Ledger()
    for number in range(count):
        ledger.append(release(number))
    return ledger


def lines_of(ledger: Ledger) -> list[str]:
    return [entry.to_line() for entry in ledger.entries]


def test_total_is_the_sum_and_epsilon_its_conversion() -> None:
    ledger = ledger_of(5)
    expected = compose([gaussian_rdp(1.0)] * 5)
    assert ledger.total_rdp == pytest.approx(expected)
    assert ledger.epsilon(1e-5) == pytest.approx(epsilon_from_rdp(RDP_ORDERS, expected, 1e-5))
    assert Ledger().epsilon(1e-5) == 0.0


def test_planned_rounds_cost_what_the_plan_declared() -> None:
    plan, ledger = demo_plan(), Ledger()
    for number in range(20):
        ledger.append(
            make_release(
                plan,
                task="arm",
                round_number=number,
                attempt=0,
                session_id=bytes([number]) * 32,
                n_survivors=10 + number % 7,
            )
        )
    assert ledger.epsilon(plan.delta) == pytest.approx(plan.epsilon_declared, rel=1e-9)


def test_budget_stops_before_it_is_crossed() -> None:
    plan, ledger = demo_plan(epsilon_budget=300.0), Ledger()

    def run_rounds() -> None:
        for number in range(20):
            charge = make_release(
                plan,
                task="arm",
                round_number=number,
                attempt=0,
                session_id=bytes([number]) * 32,
                n_survivors=16,
            )
            after = ledger.admit(charge.rdp, plan.epsilon_budget, plan.delta)
            ledger.append(charge)
            assert ledger.epsilon(plan.delta) == pytest.approx(after)

    with pytest.raises(BudgetExhausted) as caught:
        run_rounds()
    assert 0 < len(ledger) < 20
    assert ledger.epsilon(plan.delta) <= 300.0 < plan.epsilon_after(len(ledger) + 1)
    text = str(caught.value)
    assert caught.value.code == "E-BUDGET"
    assert f"{ledger.epsilon(plan.delta):.4f} spent" in text
    assert f"{plan.epsilon_after(len(ledger) + 1):.4f} after" in text
    assert "300.0000" in text


def test_budget_that_is_met_exactly_is_admitted() -> None:
    ledger = ledger_of(1)
    exact = epsilon_from_rdp(RDP_ORDERS, compose([gaussian_rdp(1.0)] * 2), 1e-5)
    assert ledger.admit(gaussian_rdp(1.0), exact, 1e-5) == exact
    with pytest.raises(BudgetExhausted):
        ledger.admit(gaussian_rdp(1.0), math.nextafter(exact, 0), 1e-5)
    with pytest.raises(BudgetExhausted):
        ledger.admit(gaussian_rdp(1.0), math.nan, 1e-5)


def test_release_without_noise_needs_an_infinite_budget() -> None:
    plan = demo_plan(noise_multiplier=0.0, epsilon_budget=math.inf)
    charge = make_release(
        plan, task="arm", round_number=0, attempt=0, session_id=bytes(32), n_survivors=10
    )
    ledger = Ledger()
    with pytest.raises(BudgetExhausted):
        ledger.admit(charge.rdp, 1e300, 1e-5)
    assert ledger.admit(charge.rdp, math.inf, 1e-5) == math.inf
    ledger.append(charge)
    assert verify(lines_of(ledger)).epsilon(1e-5) == math.inf


def test_charge_uses_the_noise_of_honest_survivors() -> None:
    plan = demo_plan()

    def charge(n_survivors: int) -> Release:
        return make_release(
            plan,
            task="arm",
            round_number=0,
            attempt=0,
            session_id=bytes(32),
            n_survivors=n_survivors,
        )

    assert charge(16).rdp == charge(10).rdp
    assert charge(10).z_effective == pytest.approx(0.1)
    assert charge(7).z_effective == pytest.approx(0.1 * math.sqrt(6 / 9))
    assert all(few > many for few, many in zip(charge(7).rdp, charge(10).rdp, strict=True))
    with pytest.raises(PrivacyError, match="E-NO-HONEST-NOISE"):
        charge(1)


def test_lines_rebuild_the_same_ledger() -> None:
    ledger = ledger_of(4)
    again = verify(lines_of(ledger))
    assert again.entries == ledger.entries
    assert again.head == ledger.head
    assert again.total_rdp == ledger.total_rdp


def test_head_starts_at_genesis_and_moves() -> None:
    heads = [ledger_of(count).head for count in range(4)]
    assert heads[0] == GENESIS_HASH
    assert len(set(heads)) == 4


def test_proposal_does_not_count_until_accepted() -> None:
    ledger = Ledger()
    entry = ledger.propose(release(0))
    assert len(ledger) == 0
    ledger.accept(entry)
    assert len(ledger) == 1
    with pytest.raises(StorageError):
        ledger.accept(entry)


def test_session_is_charged_once() -> None:
    ledger = ledger_of(1)
    with pytest.raises(LocalProtocolError, match="E-LEDGER-DUPLICATE"):
        ledger.append(release(0))


def changed(line: str, key: str, value: object) -> str:
    record = json.loads(line)
    record[key] = value
    return json.dumps(record, sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rdp", [0.0] * len(RDP_ORDERS)),
        ("rdp", [0.0]),
        ("rdp", ["nan"] * len(RDP_ORDERS)),
        ("rdp", None),
        ("n_survivors", 100),
        ("n_survivors", -1),
        ("n_survivors", True),
        ("sequence", 7),
        ("sequence", True),
        ("previous_hash", GENESIS_HASH),
        ("session_id", f"{0:064x}"),
        ("session_id", "zz"),
        ("session_id", ["x"]),
        ("task", 5),
        ("orders", [2.0]),
        ("unknown", 1),
    ],
)
def test_changed_line_is_damage(key: str, value: object) -> None:
    lines = lines_of(ledger_of(3))
    lines[1] = changed(lines[1], key, value)
    with pytest.raises(StorageError, match="E-LEDGER-DAMAGED") as caught:
        verify(lines)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "line", ["", "{}", "[]", "5", "nonsense", "[" * 100_000, '{"sequence":NaN}']
)
def test_other_line_is_damage(line: str) -> None:
    with pytest.raises(StorageError, match=r"E-LEDGER-DAMAGED.* in line 3"):
        verify([*lines_of(ledger_of(2)), line])


def test_other_spelling_of_the_same_entry_is_damage() -> None:
    (line,) = lines_of(ledger_of(1))
    with pytest.raises(StorageError):
        verify([line.replace(",", ", ")])
    with pytest.raises(StorageError):
        verify([changed(line, "rdp", [str(value) for value in json.loads(line)["rdp"]])])


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_removed_line_is_damage(missing: int) -> None:
    lines = lines_of(ledger_of(4))
    del lines[missing]
    with pytest.raises(StorageError):
        verify(lines)


def test_swapped_and_doubled_lines_are_damage() -> None:
    lines = lines_of(ledger_of(3))
    for bad in ([lines[1], lines[0], lines[2]], [*lines, lines[2]], [lines[0], lines[0]]):
        with pytest.raises(StorageError):
            verify(bad)


def test_witness_notices_truncation_and_rewriting() -> None:
    ledger = ledger_of(3)
    assert ledger.extends(0, GENESIS_HASH)
    assert ledger.extends(2, ledger_of(2).head)
    assert ledger.extends(3, ledger.head)
    assert not ledger.extends(3, ledger_of(2).head)
    assert not ledger_of(2).extends(3, ledger.head)
    assert not ledger.extends(0, ledger.head)


@pytest.mark.parametrize(
    "changes",
    [
        {"rdp": (1.0,)},
        {"rdp": (math.nan,) * len(RDP_ORDERS)},
        {"rdp": (-1.0,) * len(RDP_ORDERS)},
        {"attempt": -1},
        {"n_survivors": 2.0},
        {"session_id": "AB" * 32},
        {"task": None},
    ],
)
def test_impossible_release_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(LocalProtocolError, match="E-LEDGER-ENTRY"):
        replace(release(0), **changes)


def test_entry_survives_its_line() -> None:
    entry = LedgerEntry(sequence=0, previous_hash=GENESIS_HASH, release=release(3))
    assert LedgerEntry.from_line(entry.to_line()) == entry


def sampled(number: int, rate: float) -> Release:
    return replace(release(number), sampling_rate=rate)


def test_a_sampled_round_costs_the_aggregators_view_in_full_and_readers_less() -> None:
    plain, ledger = ledger_of(5), Ledger()
    for number in range(5):
        ledger.append(sampled(number, 0.01))
    assert ledger.epsilon(1e-5) == plain.epsilon(1e-5)
    assert ledger.epsilon_release(1e-5) < plain.epsilon(1e-5) / 4
    curve = poisson_amplified_rdp(0.01, gaussian_rdp(1.0))
    expected = epsilon_from_rdp(RDP_ORDERS, compose([curve] * 5), 0.99e-5)
    assert ledger.epsilon_release(1e-5) == pytest.approx(expected, rel=1e-12)


def test_without_sampling_both_views_cost_the_same() -> None:
    ledger = ledger_of(3)
    assert ledger.epsilon_release(1e-5) == ledger.epsilon(1e-5)


def test_a_sampled_row_is_read_back_and_a_plain_one_names_no_rate() -> None:
    ledger = Ledger()
    ledger.append(sampled(1, 0.25))
    ledger.append(release(2))
    again = verify(lines_of(ledger))
    assert [entry.release.sampling_rate for entry in again.entries] == [0.25, 1.0]
    assert "sampling_rate" not in lines_of(ledger)[1]


@pytest.mark.parametrize("rate", [0.0, -0.5, 1.5, math.nan, 1, True])
def test_an_impossible_rate_is_refused(rate: float) -> None:
    with pytest.raises(LocalProtocolError, match="E-LEDGER-ENTRY"):
        sampled(1, rate)
