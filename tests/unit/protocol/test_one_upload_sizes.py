"""Committee and thresholds of the one-upload mode: design figures, rules, what is refused."""

import dataclasses

import pytest

from edgefl.errors import ConfigError, RemoteProtocolError
from edgefl.protocol.one_upload_sizes import (
    DepositTerms,
    check_one_upload_thresholds,
    committee_of,
    committee_sizes_for,
    deposit_id_of,
    one_upload_thresholds,
)
from edgefl.protocol.reasons import AdversaryClass
from tests.one_upload_harness import OneUploadHarness

CURIOUS, SEMI, MALICIOUS = AdversaryClass


def terms(
    adversary: AdversaryClass = SEMI, corrupt_permille: int = 0, drop_permille: int = 0
) -> DepositTerms:
    return DepositTerms(
        adversary=adversary, corrupt_permille=corrupt_permille, drop_permille=drop_permille
    )


@pytest.mark.parametrize(
    ("corrupt", "dropped", "members", "threshold"),
    [(50, 50, 36, 26), (50, 100, 53, 36), (100, 100, 69, 49), (50, 300, 238, 137)],
)
def test_the_design_figures_for_a_thousand_devices(
    corrupt: int, dropped: int, members: int, threshold: int
) -> None:
    """Source: table "Degree and threshold" of the design, committees at n = 1000."""
    found = committee_sizes_for(terms(SEMI, corrupt, dropped), epoch_size=1000, roster_size=1000)
    assert (found.members, found.threshold) == (members, threshold)


def test_a_malicious_gateway_chooses_among_indices_and_meets_a_larger_committee() -> None:
    fair = committee_sizes_for(terms(SEMI, 100, 100), epoch_size=1000, roster_size=1000)
    grinding = committee_sizes_for(terms(MALICIOUS, 100, 100), epoch_size=1000, roster_size=1000)
    assert grinding.threshold > fair.threshold
    assert grinding.members > fair.members


def test_corrupt_devices_are_counted_over_the_roster_in_malicious() -> None:
    picked = committee_sizes_for(terms(MALICIOUS, 50, 50), epoch_size=100, roster_size=400)
    whole = committee_sizes_for(terms(MALICIOUS, 50, 50), epoch_size=100, roster_size=100)
    assert picked.threshold > whole.threshold


def test_in_a_small_fleet_everybody_holds_shares() -> None:
    found = committee_sizes_for(terms(MALICIOUS, 100), epoch_size=10, roster_size=10)
    assert (found.members, found.threshold) == (10, 6)


def test_too_many_corrupt_devices_have_no_committee() -> None:
    with pytest.raises(ConfigError) as caught:
        committee_sizes_for(terms(MALICIOUS, 500), epoch_size=6, roster_size=20)
    assert caught.value.code == "E-PLAN-CORRUPT"


@pytest.mark.parametrize("adversary", AdversaryClass)
def test_every_class_has_a_committee_and_liars_meet_windows(adversary: AdversaryClass) -> None:
    found = one_upload_thresholds(
        terms(adversary, 50, 100),
        epoch_size=100,
        cohort_size=90,
        roster_size=100,
        survivor_floor=60,
    )
    assert 2 * found.certificate > found.committee > 0
    assert (found.window > 0) == (adversary is not CURIOUS)


def test_a_floor_below_a_committee_of_everybody_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        one_upload_thresholds(
            terms(CURIOUS, 300), epoch_size=20, cohort_size=20, roster_size=20, survivor_floor=12
        )
    assert caught.value.code == "E-FLOOR-THRESHOLD"


def test_a_larger_committee_holds_the_smaller_one() -> None:
    """Terms only ever add holders, so a deposit under other terms reaches no stranger."""
    epoch = OneUploadHarness(24).keys.epoch
    small = committee_of(terms(SEMI), epoch, 3)
    large = committee_of(terms(SEMI, 100, 100), epoch, 3)
    assert set(small.members) < set(large.members)


def test_an_index_has_a_committee_of_its_own() -> None:
    epoch = OneUploadHarness(24).keys.epoch
    assert len({committee_of(terms(), epoch, index).members for index in range(8)}) > 1


def test_a_deposit_id_names_index_and_terms() -> None:
    epoch = OneUploadHarness(8).keys.epoch
    ids = {
        deposit_id_of(epoch, 1, terms()),
        deposit_id_of(epoch, 2, terms()),
        deposit_id_of(epoch, 1, terms(MALICIOUS)),
        deposit_id_of(epoch, 1, terms(SEMI, 1, 0)),
        deposit_id_of(epoch, 1, terms(SEMI, 0, 1)),
    }
    assert len(ids) == 5


@pytest.mark.parametrize(
    ("field", "change"),
    [("degree", -2), ("degree", 2), ("committee", -1), ("certificate", -1), ("neighbourhood", -1)],
)
def test_a_device_accepts_no_other_thresholds(field: str, change: int) -> None:
    plan = OneUploadHarness(24, corrupt_permille=50, drop_permille=100).aggregator.plan
    assert plan is not None
    check_one_upload_thresholds(plan, 24)
    changed = dataclasses.replace(
        plan.thresholds, **{field: getattr(plan.thresholds, field) + change}
    )
    with pytest.raises(RemoteProtocolError) as caught:
        check_one_upload_thresholds(dataclasses.replace(plan, thresholds=changed), 24)
    assert caught.value.code == "E-PLAN-THRESHOLDS"
