"""What a device checks before it deposits shares or agrees to a plan, in the one-upload mode."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgefl.errors import RemoteProtocolError
from edgefl.protocol.device_plan import own_position, require_distinct, require_neighbours
from edgefl.protocol.one_upload_messages import DepositCall, OneUploadAnnouncement
from edgefl.protocol.one_upload_sharing import SealingKey
from edgefl.protocol.one_upload_sizes import (
    Committee,
    DepositTerms,
    check_one_upload_thresholds,
    committee_of,
    deposit_id_of,
)
from edgefl.protocol.own_keys import OwnKeys
from edgefl.protocol.peer_proof import MemberProof, PeerProof
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.policy import DevicePolicy, check_ages, check_floors
from edgefl.protocol.reasons import AdversaryClass, RoundMode
from edgefl.protocol.session_graph import SessionGraph
from edgefl.protocol.session_keys import peer_keys
from edgefl.protocol.thresholds import base_size_of
from edgefl.secagg.session import PeerKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerTerms:
    """What a device judges deposits and plans by, besides its key epoch.

    Attributes:
        policy: The owner's floors.
        gateway_enrols: The roster is signed by the gateway's own identity key.
        today: Days since 1970-01-01; 0 where the device does not know the date.
    """

    policy: DevicePolicy
    gateway_enrols: bool
    today: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedPlan:
    """A plan that passed all checks, with the keys that came with it.

    Attributes:
        peers: What is used of this device and its neighbours, by position in the plan.
        holders: Sealing keys of both committees, by epoch position.
    """

    plan: SessionPlan
    peers: dict[int, PeerKeys]
    holders: dict[int, SealingKey]


def accept_deposit_call(
    call: DepositCall, terms: OwnerTerms, keys: OwnKeys
) -> tuple[Committee, dict[int, SealingKey]]:
    """Check what a device is asked to deposit, and with whom.

    Returns:
        The committee of the index, and the sealing keys of its other members by epoch position.

    Raises:
        RemoteProtocolError: E-CALL-EPOCH, E-KEY-INDEX-RANGE, E-KEY-INDEX-USED, E-PLAN-POLICY,
            E-PLAN-ENROLMENT, E-PLAN-YOUNG, or a holder is not who the beacon says.
        ConfigError: No committee withstands the terms.
    """
    opened = keys.open_epoch
    if call.key_epoch != opened.key_epoch:
        raise RemoteProtocolError(
            "E-CALL-EPOCH",
            f"a call in the open key epoch {opened.key_epoch}",
            f"one in {call.key_epoch}",
        )
    if call.key_index >= keys.bundle.mask_key_count:
        raise RemoteProtocolError(
            "E-KEY-INDEX-RANGE",
            f"a key index below {keys.bundle.mask_key_count}",
            str(call.key_index),
        )
    if keys.use_of(call.key_index) is not None:
        # Deposited once, maybe, and the record of what was sent is gone.
        raise RemoteProtocolError(
            "E-KEY-INDEX-USED", "a key index that was never used", str(call.key_index)
        )
    _require_terms(call.terms, terms)
    committee = committee_of(call.terms, opened, call.key_index)
    holders = _require_holders(call.holders, [committee], keys)
    _require_old_enough(call.holders, terms, keys)
    return committee, holders


def accept_announcement(
    announcement: OneUploadAnnouncement, terms: OwnerTerms, keys: OwnKeys
) -> AcceptedPlan:
    """Check an announced plan, cheap checks first.

    No claim may rest on a cohort drawn at random, which this mode's deposits give away:
    `check_floors` computes epsilon without any such help and refuses a smaller one.

    Raises:
        WireError: The plan cannot be read whole.
        RemoteProtocolError: The plan is for another deposit than this device's, or is below a
            floor; a neighbour or holder is missing, is another device or has other keys than it
            published.
    """
    plan = SessionPlan.from_bytes(announcement.plan)
    own = own_position(plan, keys)
    _require_deposited(plan, keys)
    check_floors(
        plan,
        terms.policy,
        base_size=base_size_of(plan),
        own_prgs=keys.bundle.prgs,
        gateway_enrols=terms.gateway_enrols,
    )
    check_one_upload_thresholds(plan, keys.roster_epoch.size)
    graph = SessionGraph.of(plan, keys.open_epoch)
    proofs = require_neighbours(announcement.peers, plan, keys.open_epoch, graph.neighbours(own))
    for proof in proofs.values():
        keys.require_peer(proof, plan.key_index)
    own_mask_key = keys.mask_proof(plan.key_index)
    require_distinct(proofs.values(), keys, own_mask_key)
    committees = [
        committee_of(DepositTerms.of_plan(plan), keys.open_epoch, index)
        for index in _indices(plan, keys, asks_deposit=announcement.asks_deposit)
    ]
    holders = _require_holders(announcement.holders, committees, keys)
    _require_old_enough(proofs.values(), terms, keys)
    _require_old_enough(announcement.holders, terms, keys)
    peers = {
        position: peer_keys(proof.bundle, proof.mask_key) for position, proof in proofs.items()
    }
    return AcceptedPlan(
        plan=plan, peers={own: peer_keys(keys.bundle, own_mask_key)} | peers, holders=holders
    )


def require_same_deposit(plan: SessionPlan, keys: OwnKeys) -> None:
    """Check that a plan is for what this device deposited, under the same terms.

    Raises:
        RemoteProtocolError: E-PLAN-CALL, E-PLAN-DEPOSIT.
    """
    deposit_id = deposit_id_of(keys.open_epoch, plan.key_index, DepositTerms.of_plan(plan))
    is_known = plan.mode is RoundMode.ONE_UPLOAD and plan.fleet == keys.fleet
    if not is_known or plan.call_id != deposit_id:
        raise RemoteProtocolError(
            "E-PLAN-CALL", "a one-upload plan over the deposits of its index", "another plan"
        )
    use = keys.use_of(plan.key_index)
    if use is None or use.call_id != deposit_id:
        raise RemoteProtocolError(
            "E-PLAN-DEPOSIT",
            "a plan for an index that this device deposited under the same terms",
            "an index never used" if use is None else "an index that serves something else",
        )


def _require_deposited(plan: SessionPlan, keys: OwnKeys) -> None:
    require_same_deposit(plan, keys)
    use = keys.use_of(plan.key_index)
    if use is not None and use.session_id is not None:
        # Masked with once, maybe, and the record of what was sent is gone.
        raise RemoteProtocolError(
            "E-KEY-INDEX-USED", "a key index without a session", str(plan.key_index)
        )


def _require_terms(found: DepositTerms, terms: OwnerTerms) -> None:
    policy = terms.policy
    if terms.gateway_enrols and found.adversary is not AdversaryClass.HONEST_BUT_CURIOUS:
        raise RemoteProtocolError(
            "E-PLAN-ENROLMENT",
            "class HONEST_BUT_CURIOUS where the gateway's own key signs the roster",
            found.adversary.name,
            "sign the roster with an enrolment key that the gateway does not hold",
        )
    is_accepted = (
        policy.allows_experimental
        and found.adversary in policy.adversary_classes
        and found.corrupt_permille >= policy.least_corrupt_permille
        and found.drop_permille >= policy.least_drop_permille
    )
    if not is_accepted:
        raise RemoteProtocolError(
            "E-PLAN-POLICY",
            "terms that the owner's floors allow, experimental modes among them",
            f"one-upload, {found.adversary.name}, {found.corrupt_permille} thousandths corrupt,"
            f" {found.drop_permille} dropped",
            "change the task or the device's policy",
        )


def _indices(plan: SessionPlan, keys: OwnKeys, *, asks_deposit: bool) -> tuple[int, ...]:
    """Return the indices whose committees this device seals for."""
    if not asks_deposit:
        return (plan.key_index,)
    if plan.key_index + 1 >= keys.bundle.mask_key_count:
        raise RemoteProtocolError(
            "E-KEY-INDEX-RANGE",
            f"a deposit for an index below {keys.bundle.mask_key_count}",
            str(plan.key_index + 1),
        )
    return plan.key_index, plan.key_index + 1


def _require_holders(
    proofs: Sequence[MemberProof], committees: Iterable[Committee], keys: OwnKeys
) -> dict[int, SealingKey]:
    """Check that the proofs are of the members of the committees that the beacon gives."""
    found = {keys.require_member(proof): SealingKey.of(proof) for proof in proofs}
    expected = {
        member for committee in committees for member in committee.others(keys.epoch_position)
    }
    if set(found) != expected:
        raise RemoteProtocolError(
            "E-PLAN-HOLDERS",
            f"proofs of the {len(expected)} holders that the beacon gives",
            f"{len(found)}, not all of them",
        )
    used = [keys.bundle.share_key, *(key.share_key for key in found.values())]
    if len(set(used)) != len(used):
        raise RemoteProtocolError("E-PLAN-KEYS", "a different key for each device", "one key twice")
    return found


def _require_old_enough(
    proofs: Iterable[MemberProof | PeerProof], terms: OwnerTerms, keys: OwnKeys
) -> None:
    check_ages(
        terms.policy,
        keys.roster_epoch,
        [proof.entry.enrolled_day for proof in proofs],
        today=terms.today,
    )
