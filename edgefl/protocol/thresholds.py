"""The degree and the thresholds of a plan, computed alike by the aggregator and by each device."""

from functools import lru_cache

from edgefl.errors import ConfigError, EdgeflError, RemoteProtocolError
from edgefl.protocol.key_bundle import DEFAULT_MASK_KEYS
from edgefl.protocol.limits import MOST_RECORDS_A_DAY
from edgefl.protocol.plan import SessionPlan, Thresholds
from edgefl.protocol.reasons import AdversaryClass
from edgefl.protocol.sizes import GraphSizes, neighbourhood_sizes

GRINDING_BITS = (MOST_RECORDS_A_DAY * DEFAULT_MASK_KEYS - 1).bit_length()
"""A malicious gateway can choose among the graphs of this many bits of indices in a day."""
LEAST_SPARSE_BASE = 24
"""Below, a complete graph costs a device little, and stands whatever drops the floor allows."""


@lru_cache(maxsize=64)
def thresholds_for(
    *,
    adversary: AdversaryClass,
    base_size: int,
    roster_size: int,
    corrupt_permille: int,
    drop_permille: int,
    survivor_floor: int,
) -> Thresholds:
    """Return the sparsest graph that withstands the adversary, and its thresholds.

    Where no sparse graph does, and below `LEAST_SPARSE_BASE` devices, the graph is complete; then
    the neighbourhood threshold is also a strict majority of the base, in every class, and in
    MALICIOUS everybody is in the committee.

    Security:
        In MALICIOUS the corrupt devices are counted over the roster and all of them are taken to
        be in the base, because the gateway picks who is in a key epoch.

    Args:
        adversary: What the aggregator is assumed to do.
        base_size: Devices on the ring: the cohort, in MALICIOUS the whole key epoch, whose absent
            members count as dropped.
        roster_size: Devices in the roster.
        corrupt_permille: Corrupt devices in thousandths, of the roster in MALICIOUS, of the base
            in the other classes; rounded up.
        drop_permille: Devices of the base that may drop out in thousandths; rounded down.
        survivor_floor: Least survivors of the whole cohort.

    Raises:
        ConfigError: E-PLAN-CORRUPT: no graph over so few devices withstands so many corrupt ones.
            E-FLOOR-THRESHOLD: so few survivors could not be unmasked, or not sign a certificate.
    """
    counted = roster_size if adversary is AdversaryClass.MALICIOUS else base_size
    corrupt = -(-counted * corrupt_permille // 1000)
    dropped = base_size * drop_permille // 1000
    # One of each at least: no graph is to stand or fall with a single device.
    sparse = _sparse_sizes(adversary, base_size, max(corrupt, 1), max(dropped, 1))
    if sparse is None:
        return _complete(adversary, base_size, corrupt, survivor_floor)
    committee = sparse.committee
    return _with_floor(
        base_size,
        Thresholds(
            degree=sparse.degree,
            neighbourhood=sparse.threshold,
            committee=0 if committee is None else committee.members,
            certificate=0 if committee is None else committee.threshold,
            window=0 if sparse.window is None else sparse.window.alive,
            survivor_floor=survivor_floor,
        ),
    )


def check_thresholds(plan: SessionPlan, roster_size: int) -> None:
    """Check that a plan's graph and thresholds are no weaker than the ones computed here.

    Raises:
        RemoteProtocolError: E-PLAN-THRESHOLDS.
    """
    found = plan.thresholds
    try:
        least = thresholds_for(
            adversary=plan.adversary,
            base_size=base_size_of(plan),
            roster_size=roster_size,
            corrupt_permille=plan.corrupt_permille,
            drop_permille=plan.drop_permille,
            survivor_floor=found.survivor_floor,
        )
    except EdgeflError as error:
        raise RemoteProtocolError("E-PLAN-THRESHOLDS", error.expected, error.found) from error
    # A larger degree or committee asks for larger thresholds, so that neither may differ.
    is_same_size = (found.degree, found.committee) == (least.degree, least.committee)
    is_as_strict = (
        found.neighbourhood >= least.neighbourhood
        and found.certificate >= least.certificate
        and least.window <= found.window <= found.degree // 2
    )
    if not (is_same_size and is_as_strict):
        raise RemoteProtocolError(
            "E-PLAN-THRESHOLDS",
            f"degree, neighbourhood, committee, certificate, window of {least.to_list()[:5]}",
            f"{found.to_list()[:5]}",
        )


def base_size_of(plan: SessionPlan) -> int:
    """Return how many devices stand on the ring of a plan's graph."""
    return plan.epoch_size if plan.adversary is AdversaryClass.MALICIOUS else plan.size


def _sparse_sizes(
    adversary: AdversaryClass, base_size: int, corrupt: int, dropped: int
) -> GraphSizes | None:
    if base_size < LEAST_SPARSE_BASE:
        return None
    try:
        sizes = neighbourhood_sizes(base_size, corrupt, dropped, adversary, _grinding(adversary))
    except ConfigError:
        # Too few devices for drops at random; the complete graph counts exactly.
        return None
    return None if sizes.is_complete else sizes


def _complete(
    adversary: AdversaryClass, base_size: int, corrupt: int, survivor_floor: int
) -> Thresholds:
    degree = base_size - 1
    is_curious = adversary is AdversaryClass.HONEST_BUT_CURIOUS
    least = corrupt + 1 if is_curious else (degree + corrupt) // 2 + 1
    neighbourhood = max(least, base_size // 2 + 1)
    if neighbourhood > degree:
        raise ConfigError(
            "E-PLAN-CORRUPT",
            f"devices enough to outnumber {corrupt} corrupt ones, and 3 or more",
            f"{base_size} devices",
            "assume fewer corrupt devices or enrol more devices",
        )
    # Everybody signs: then the survivor floor takes care that enough are there to sign.
    is_malicious = adversary is AdversaryClass.MALICIOUS
    return _with_floor(
        base_size,
        Thresholds(
            degree=degree,
            neighbourhood=neighbourhood,
            committee=base_size if is_malicious else 0,
            certificate=(base_size + corrupt) // 2 + 1 if is_malicious else 0,
            survivor_floor=survivor_floor,
        ),
    )


def _with_floor(base_size: int, thresholds: Thresholds) -> Thresholds:
    # Nobody holds a share of its own secrets.
    least = max(thresholds.neighbourhood + 1, thresholds.certificate)
    if thresholds.survivor_floor < least:
        raise ConfigError(
            "E-FLOOR-THRESHOLD",
            f"a survivor floor of at least {least} for {base_size} devices",
            str(thresholds.survivor_floor),
            "raise the survivor floor or call fewer devices",
        )
    return thresholds


def _grinding(adversary: AdversaryClass) -> int:
    return GRINDING_BITS if adversary is AdversaryClass.MALICIOUS else 0
