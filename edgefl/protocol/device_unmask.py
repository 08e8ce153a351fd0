"""What a device checks before it signs a list of survivors, and before any share leaves it.

Source: Bonawitz et al. 2017, section 6.2 (one list, signed); Bell et al. 2020, section 4 (graphs).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from edgefl._native import verify_many
from edgefl.errors import RemoteProtocolError
from edgefl.protocol.certificate import CertificateSignature, certificate_statement
from edgefl.protocol.key_epoch import OpenEpoch
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.roster_epoch import RosterEpoch
from edgefl.protocol.round_messages import SurvivorProposal, UnmaskRequest
from edgefl.protocol.session_graph import SessionGraph
from edgefl.protocol.wire import decode_bitmap


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivorLists:
    """Who is in the sum, and who shared keys and then dropped out; positions in the plan."""

    survivors: frozenset[int]
    dropped: frozenset[int]

    @classmethod
    def read(cls, plan: SessionPlan, message: SurvivorProposal | UnmaskRequest) -> "SurvivorLists":
        """Read the bitmaps of a message.

        Raises:
            WireError: One of them is no bitmap over the plan's members.
        """
        return cls(
            survivors=positions_in(message.survivors, plan.size),
            dropped=positions_in(message.dropped, plan.size),
        )


def positions_in(bitmap: bytes, size: int) -> frozenset[int]:
    """Return the positions that are set in a bitmap over `size` members.

    Raises:
        WireError: It is no such bitmap.
    """
    members = decode_bitmap(bitmap, size)
    return frozenset(position for position, is_set in enumerate(members) if is_set)


def check_lists(
    lists: SurvivorLists,
    plan: SessionPlan,
    graph: SessionGraph,
    *,
    own: int,
    sharers: Collection[int],
) -> None:
    """Check that both lists together can be true, and leave enough devices to hide among.

    Args:
        lists: What the gateway says.
        plan: The session.
        graph: Its graph.
        own: Own position.
        sharers: Positions of all that shared keys (U2), as this device was told before.

    Raises:
        RemoteProtocolError: E-UNMASK-BOTH, E-UNMASK-LISTS, E-UNMASK-SELF, E-UNMASK-FEW or
            E-UNMASK-WINDOW.
    """
    alive, gone = lists.survivors, lists.dropped
    if alive & gone:
        raise RemoteProtocolError("E-UNMASK-BOTH", "disjoint lists", "a device in both")
    if alive | gone != frozenset(sharers):
        raise RemoteProtocolError(
            "E-UNMASK-LISTS", "lists of all that shared keys", "other devices"
        )
    if own not in alive:
        raise RemoteProtocolError(
            "E-UNMASK-SELF", "this device among the survivors", "it named as dropped"
        )
    floor = plan.thresholds.survivor_floor
    if len(alive) < floor:
        # This bounds the dropped as well: both lists together are within the cohort.
        raise RemoteProtocolError("E-UNMASK-FEW", f"at least {floor} survivors", str(len(alive)))
    if plan.thresholds.committee and not graph.windows_hold(alive):
        raise RemoteProtocolError(
            "E-UNMASK-WINDOW",
            f"at least {plan.thresholds.window} survivors in every window of the ring",
            "a window with fewer",
        )


def check_committee_seat(plan: SessionPlan, graph: SessionGraph, *, own: int) -> None:
    """Check that this device was drawn to sign.

    Raises:
        RemoteProtocolError: E-CERTIFICATE-SEAT, it was not, or the session has no committee.
    """
    if plan.epoch_positions[own] not in graph.committee:
        raise RemoteProtocolError(
            "E-CERTIFICATE-SEAT", "a proposal to a member of the committee", "one to another device"
        )


def check_certificate(
    request: UnmaskRequest,
    plan: SessionPlan,
    graph: SessionGraph,
    *,
    roster: RosterEpoch,
    epoch: OpenEpoch,
) -> None:
    """Check that enough of the committee signed exactly the lists of a request.

    Security: with more than (committee + corrupt members) / 2 signatures needed, two different
    lists would need an honest member that signed both. The signers' identities come from the
    roster, so the gateway cannot make any up.

    Args:
        request: What the gateway asks.
        plan: The session.
        graph: Its graph, with the committee that the beacon draws.
        roster: The header that this device pinned for the key epoch.
        epoch: The open key epoch.

    Raises:
        RemoteProtocolError: E-CERTIFICATE-MISSING, -FEW, -SIGNER or -SIGNATURE, or
            E-ROSTER-PATH; E-CERTIFICATE-NONE where the session has none.
    """
    needed = plan.thresholds.certificate
    if not needed:
        if request.certificate is not None:
            raise RemoteProtocolError(
                "E-CERTIFICATE-NONE", "no certificate in a session without a committee", "one"
            )
        return
    if request.certificate is None:
        raise RemoteProtocolError(
            "E-CERTIFICATE-MISSING", f"a certificate of at least {needed} signatures", "none"
        )
    signatures = request.certificate.signatures
    if len(signatures) < needed:
        raise RemoteProtocolError(
            "E-CERTIFICATE-FEW", f"at least {needed} signatures", str(len(signatures))
        )
    _require_members(signatures, graph, roster, epoch)
    statement = certificate_statement(plan.session_id, request.survivors, request.dropped)
    if not all(
        verify_many(
            [signature.entry.identity_key for signature in signatures],
            [statement] * len(signatures),
            [signature.signature for signature in signatures],
        )
    ):
        raise RemoteProtocolError(
            "E-CERTIFICATE-SIGNATURE", "signatures over these lists", "one over something else"
        )


def _require_members(
    signatures: Sequence[CertificateSignature],
    graph: SessionGraph,
    roster: RosterEpoch,
    epoch: OpenEpoch,
) -> None:
    """Check that every signer has a seat; the message's own check is that none occurs twice."""
    seats = frozenset(graph.committee)
    for signature in signatures:
        if epoch.epoch_position_of(signature.roster_position) not in seats:
            raise RemoteProtocolError(
                "E-CERTIFICATE-SIGNER", "signers out of the committee", "another device"
            )
        roster.require_entry(signature.entry, signature.roster_position, signature.roster_path)
