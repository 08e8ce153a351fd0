"""What a device checks before it agrees to a session plan: whose it is, who takes part, its floors.

Everything that the gateway could have chosen to its own advantage is recomputed: the thresholds
from the fractions, the graph from the beacon, identities and keys from roster and bundles.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from edgefl.errors import RemoteProtocolError
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.key_bundle import MaskKeyProof
from edgefl.protocol.key_epoch import OpenEpoch
from edgefl.protocol.own_keys import OwnKeys
from edgefl.protocol.peer_proof import PeerProof
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.policy import DevicePolicy, check_ages, check_floors
from edgefl.protocol.reasons import RoundMode
from edgefl.protocol.round_messages import Call, PlanAnnouncement
from edgefl.protocol.session_graph import SessionGraph
from edgefl.protocol.session_keys import call_id_of, peer_keys
from edgefl.protocol.thresholds import base_size_of, check_thresholds
from edgefl.secagg.session import PeerKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTerms:
    """What a device judges a plan by, besides its key epoch.

    Attributes:
        call: The call that it answered.
        gateway_enrols: The roster is signed by the gateway's own identity key.
        today: Days since 1970-01-01; 0 where the device does not know the date.
    """

    call: Call
    policy: DevicePolicy
    gateway_enrols: bool
    today: int

    @classmethod
    def of(
        cls, call: Call, policy: DevicePolicy, epoch: DeviceEpoch, gateway_key: bytes, today: int
    ) -> "PlanTerms":
        """Put the terms together; `gateway_key` is the gateway's identity key, as pinned."""
        return cls(
            call=call,
            policy=policy,
            gateway_enrols=epoch.enrolment_key == gateway_key,
            today=today,
        )


def require_answerable(call: Call, keys: OwnKeys) -> None:
    """Check that a call is for the open key epoch, and for a key without a session.

    Raises:
        RemoteProtocolError: E-CALL-EPOCH, E-CALL-MODE or E-KEY-INDEX-USED.
    """
    if keys.open_epoch.key_epoch != call.key_epoch:
        raise RemoteProtocolError(
            "E-CALL-EPOCH",
            f"a call in the open key epoch {keys.open_epoch.key_epoch}",
            f"one in {call.key_epoch}",
        )
    if call.mode is not RoundMode.SECAGG:
        raise RemoteProtocolError("E-CALL-MODE", RoundMode.SECAGG.name, call.mode.name)
    use = keys.use_of(call.key_index)
    if use is not None and use.session_id is not None:
        # Masked with once, maybe, and the record of what was sent is gone.
        raise RemoteProtocolError(
            "E-KEY-INDEX-USED", "a key index without a session", str(call.key_index)
        )


def accept_plan(
    announcement: PlanAnnouncement, terms: PlanTerms, keys: OwnKeys
) -> tuple[SessionPlan, dict[int, PeerKeys]]:
    """Check an announced plan, cheap checks first.

    Args:
        announcement: The plan, and the proofs of this device's neighbours.
        terms: What this device judges by.
        keys: The keys that this device answered the call with.

    Returns:
        The plan, and what is used of this device and its neighbours, by position.

    Raises:
        WireError: The plan cannot be read whole.
        RemoteProtocolError: The plan is another call's, epoch's or device's; it is below a floor;
            a neighbour is missing, is another device or has other keys than it published.
    """
    plan = SessionPlan.from_bytes(announcement.plan)
    _require_call(plan, terms.call, keys.fleet)
    own = own_position(plan, keys)
    check_floors(
        plan,
        terms.policy,
        base_size=base_size_of(plan),
        own_prgs=keys.bundle.prgs,
        gateway_enrols=terms.gateway_enrols,
    )
    check_thresholds(plan, keys.roster_epoch.size)
    graph = SessionGraph.of(plan, keys.open_epoch)
    proofs = require_neighbours(announcement.peers, plan, keys.open_epoch, graph.neighbours(own))
    for proof in proofs.values():
        keys.require_peer(proof, plan.key_index)
    own_mask_key = keys.mask_proof(plan.key_index)
    require_distinct(proofs.values(), keys, own_mask_key)
    check_ages(
        terms.policy,
        keys.roster_epoch,
        [proof.entry.enrolled_day for proof in proofs.values()],
        today=terms.today,
    )
    peers = {
        position: peer_keys(proof.bundle, proof.mask_key) for position, proof in proofs.items()
    }
    return plan, {own: peer_keys(keys.bundle, own_mask_key)} | peers


def own_position(plan: SessionPlan, keys: OwnKeys) -> int:
    """Return the device's own position in a plan over its own open key epoch.

    Raises:
        RemoteProtocolError: E-PLAN-EPOCH, E-PLAN-SELF.
    """
    record = keys.open_epoch.record
    expected = (record.key_epoch, record.digest, len(record.positions))
    if (plan.key_epoch, plan.record_sha256, plan.epoch_size) != expected:
        raise RemoteProtocolError(
            "E-PLAN-EPOCH", f"key epoch {record.key_epoch} and its record", "another one"
        )
    own = plan.position_of(keys.epoch_position)
    if own is None:
        raise RemoteProtocolError("E-PLAN-SELF", "this device in the cohort", "a cohort without it")
    return own


def _require_call(plan: SessionPlan, call: Call, fleet: str) -> None:
    asked = (call.task, call.round_number, call.attempt, call.mode, call.key_epoch, call.key_index)
    found = (plan.task, plan.round_number, plan.attempt, plan.mode, plan.key_epoch, plan.key_index)
    if plan.call_id != call_id_of(fleet, call) or plan.fleet != fleet or asked != found:
        raise RemoteProtocolError(
            "E-PLAN-CALL", "a plan for the call that this device answered", "another call"
        )


def require_neighbours(
    peers: Iterable[tuple[int, PeerProof]],
    plan: SessionPlan,
    opened: OpenEpoch,
    neighbours: tuple[int, ...],
) -> dict[int, PeerProof]:
    """Check that there is one proof for each neighbour in the graph, of the member that it is.

    Raises:
        RemoteProtocolError: E-PLAN-NEIGHBOURS or E-PLAN-NEIGHBOUR.
    """
    proofs = dict(peers)
    if tuple(proofs) != neighbours:
        raise RemoteProtocolError(
            "E-PLAN-NEIGHBOURS",
            f"proofs of the {len(neighbours)} neighbours that the beacon gives",
            f"{len(proofs)}, not all of them",
        )
    for position, proof in proofs.items():
        member = opened.epoch_position_of(proof.roster_position)
        if member != plan.epoch_positions[position]:
            raise RemoteProtocolError(
                "E-PLAN-NEIGHBOUR", f"the member at position {position}", "another device"
            )
    return proofs


def require_distinct(
    proofs: Iterable[PeerProof], keys: OwnKeys, own_mask_key: MaskKeyProof
) -> None:
    """Refuse a key that occurs twice: one party would hold several places, or the own one.

    Raises:
        RemoteProtocolError: E-PLAN-KEYS.
    """
    found = [keys.bundle.identity_key, keys.bundle.share_key, own_mask_key.key]
    for proof in proofs:
        found += [proof.entry.identity_key, proof.bundle.share_key, proof.mask_key.key]
    if len(set(found)) != len(found):
        raise RemoteProtocolError("E-PLAN-KEYS", "a different key for each device", "one key twice")
