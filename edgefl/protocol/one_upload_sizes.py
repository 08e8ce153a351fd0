"""Committee, thresholds and deposit ids of the one-upload mode, computed alike by both sides.

The committee of a key index is drawn over all members of the key epoch, because shares are
deposited with it before it is known who takes part. Its size must follow from the terms alone.
"""

from collections.abc import Set
from dataclasses import dataclass, replace
from functools import lru_cache

from edgefl.errors import ConfigError, EdgeflError, RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.graph import committee
from edgefl.protocol.key_epoch import OpenEpoch
from edgefl.protocol.plan import SessionPlan, Thresholds
from edgefl.protocol.reasons import AdversaryClass
from edgefl.protocol.session_graph import SessionGraph
from edgefl.protocol.sizes import CommitteeSizes, committee_sizes
from edgefl.protocol.thresholds import (
    GRINDING_BITS,
    LEAST_SPARSE_BASE,
    thresholds_for,
)
from edgefl.protocol.wire import WireValue, as_int

_MAX_PERMILLE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class DepositTerms:
    """What a device must know before it entrusts shares to a committee.

    Attributes:
        adversary: What the aggregator is assumed to do.
        corrupt_permille: Devices that may be corrupt, in thousandths; of the roster in MALICIOUS,
            of the key epoch in the other classes.
        drop_permille: Members of the key epoch that may fail to answer, in thousandths.
    """

    adversary: AdversaryClass
    corrupt_permille: int
    drop_permille: int

    @classmethod
    def of_plan(cls, plan: SessionPlan) -> "DepositTerms":
        """Return the terms of a plan."""
        return cls(
            adversary=plan.adversary,
            corrupt_permille=plan.corrupt_permille,
            drop_permille=plan.drop_permille,
        )

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array."""
        return [int(self.adversary), self.corrupt_permille, self.drop_permille]

    @classmethod
    def from_value(cls, value: WireValue) -> "DepositTerms":
        """Read the CBOR array."""
        parts = wire.as_list(value, 3)
        if len(parts) != 3:
            raise WireError("E-WIRE-TERMS", "an array of 3", f"{len(parts)} parts")
        return cls(
            adversary=AdversaryClass(as_int(parts[0], 1, len(AdversaryClass))),
            corrupt_permille=as_int(parts[1], 0, _MAX_PERMILLE),
            drop_permille=as_int(parts[2], 0, 1000),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Committee:
    """Who holds the shares of one key index.

    Attributes:
        members: Epoch positions, ascending; a member's Shamir point is 1 + its epoch position.
        threshold: Shares that open a secret, and signatures that make a certificate.
    """

    members: tuple[int, ...]
    threshold: int

    def points(self) -> list[int]:
        """Return the members' Shamir points, ascending."""
        return [1 + member for member in self.members]

    def others(self, epoch_position: int) -> tuple[int, ...]:
        """Return the members but one."""
        return tuple(member for member in self.members if member != epoch_position)


def committee_of(terms: DepositTerms, epoch: OpenEpoch, key_index: int) -> Committee:
    """Draw the committee of a key index.

    Raises:
        ConfigError: E-PLAN-CORRUPT, so many corrupt devices that no committee withstands them.
    """
    sizes = committee_sizes_for(terms, epoch_size=epoch.size, roster_size=epoch.record.roster_size)
    return Committee(
        members=committee(epoch.size, epoch.committee_seed(key_index), sizes.members),
        threshold=sizes.threshold,
    )


@lru_cache(maxsize=64)
def committee_sizes_for(
    terms: DepositTerms, *, epoch_size: int, roster_size: int
) -> CommitteeSizes:
    """Return the smallest committee that withstands the terms; everybody in small fleets.

    Security: 2 t > members + corrupt members, except with 2^-40. A secret and the other secret of
    its owner would take t shares each, of which an honest member gives one, so both are never
    opened; two lists would take t signatures each, of which an honest member gives one.

    Raises:
        ConfigError: E-PLAN-CORRUPT.
    """
    is_malicious = terms.adversary is AdversaryClass.MALICIOUS
    counted = roster_size if is_malicious else epoch_size
    corrupt = -(-counted * terms.corrupt_permille // 1000)
    dropped = epoch_size * terms.drop_permille // 1000
    if epoch_size >= LEAST_SPARSE_BASE:
        try:
            return committee_sizes(
                epoch_size, max(corrupt, 1), max(dropped, 1), GRINDING_BITS if is_malicious else 0
            )
        except ConfigError:
            # Too many for a drawn committee; with everybody in it the count is exact.
            pass
    threshold = (epoch_size + corrupt) // 2 + 1
    if threshold > epoch_size:
        raise ConfigError(
            "E-PLAN-CORRUPT",
            f"devices enough to outnumber {corrupt} corrupt ones",
            f"{epoch_size} devices",
            "assume fewer corrupt devices or enrol more devices",
        )
    return CommitteeSizes(members=epoch_size, threshold=threshold)


def one_upload_thresholds(
    terms: DepositTerms, *, epoch_size: int, cohort_size: int, roster_size: int, survivor_floor: int
) -> Thresholds:
    """Return the graph of `thresholds_for` with a committee, which every class has in this mode.

    Neighbours hold no shares here, so that the neighbourhood threshold is no longer kept by who can
    answer: the committee checks that each survivor has as many surviving neighbours
    (`neighbourhoods_hold`). For the same reason a gateway that lies about who dropped out is met
    with the graph and the windows of MALICIOUS in SEMI_MALICIOUS too: in the other mode, dropping
    all neighbours of a device would leave nobody to unmask it; a committee could still do it.

    Raises:
        ConfigError: E-PLAN-CORRUPT or E-FLOOR-THRESHOLD.
    """
    is_over_epoch = terms.adversary is AdversaryClass.MALICIOUS
    is_curious = terms.adversary is AdversaryClass.HONEST_BUT_CURIOUS
    base = thresholds_for(
        adversary=terms.adversary if is_curious else AdversaryClass.MALICIOUS,
        base_size=epoch_size if is_over_epoch else cohort_size,
        roster_size=roster_size if is_over_epoch else cohort_size,
        corrupt_permille=terms.corrupt_permille,
        drop_permille=terms.drop_permille,
        survivor_floor=survivor_floor,
    )
    sizes = committee_sizes_for(terms, epoch_size=epoch_size, roster_size=roster_size)
    if sizes.members == epoch_size and survivor_floor < sizes.threshold:
        raise ConfigError(
            "E-FLOOR-THRESHOLD",
            f"a survivor floor of at least {sizes.threshold} for a committee of everybody",
            str(survivor_floor),
            "raise the survivor floor",
        )
    return replace(base, committee=sizes.members, certificate=sizes.threshold)


def check_one_upload_thresholds(plan: SessionPlan, roster_size: int) -> None:
    """Check that a plan's graph, committee and thresholds are exactly the ones computed here.

    Raises:
        RemoteProtocolError: E-PLAN-THRESHOLDS.
    """
    try:
        expected = one_upload_thresholds(
            DepositTerms.of_plan(plan),
            epoch_size=plan.epoch_size,
            cohort_size=plan.size,
            roster_size=roster_size,
            survivor_floor=plan.thresholds.survivor_floor,
        )
    except EdgeflError as error:
        raise RemoteProtocolError("E-PLAN-THRESHOLDS", error.expected, error.found) from error
    if plan.thresholds != expected:
        raise RemoteProtocolError(
            "E-PLAN-THRESHOLDS",
            f"degree, neighbourhood, committee, certificate, window of {expected.to_list()[:5]}",
            f"{plan.thresholds.to_list()[:5]}",
        )


def neighbourhoods_hold(plan: SessionPlan, graph: SessionGraph, survivors: Set[int]) -> bool:
    """Tell whether each survivor has enough surviving neighbours to be hidden among.

    As many as the neighbourhood threshold are more than the corrupt ones among them, except with
    2^-41. In a complete graph the survivor floor says it already.

    Args:
        plan: The session.
        graph: Its graph.
        survivors: Positions in the plan.
    """
    least = plan.thresholds.neighbourhood
    return all(
        sum(peer in survivors for peer in graph.neighbours(position)) >= least
        for position in survivors
    )


def deposit_id_of(epoch: OpenEpoch, key_index: int, terms: DepositTerms) -> bytes:
    """Return what a key index is reserved for when its secret is deposited.

    It stands for the call in this mode: the committee follows from it, so a plan with other terms
    than those of the deposit names another id, and no call of the other mode ever has such an id.
    """
    return wire.digest(
        ["edgefl/1 deposit", epoch.record.digest, key_index.to_bytes(4, "big"), *terms.to_list()]
    )
