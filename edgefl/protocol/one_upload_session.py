"""What a device derives from a one-upload plan and its key epoch: place, graph, committee, keys."""

from collections.abc import Mapping

from edgefl._native import Seed
from edgefl.errors import RemoteProtocolError
from edgefl.protocol.device_plan import own_position
from edgefl.protocol.device_unmask import SurvivorLists, check_lists
from edgefl.protocol.one_upload_messages import CommitteeProposal, Deposit
from edgefl.protocol.one_upload_sharing import (
    CommitteeChannels,
    SealedSecret,
    SealedShare,
    SealingKey,
    ShareContext,
    ShareKind,
)
from edgefl.protocol.one_upload_sizes import (
    Committee,
    DepositTerms,
    committee_of,
    neighbourhoods_hold,
)
from edgefl.protocol.own_keys import OwnKeys
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.round_messages import SurvivorProposal, UnmaskRequest
from edgefl.protocol.session_graph import SessionGraph
from edgefl.protocol.session_keys import session_of
from edgefl.secagg.session import PeerKeys


class OneUploadSession:
    """One device's view of one session; holds nothing that must outlive a restart.

    Args:
        plan: The accepted plan.
        peers: What is used of this device and its neighbours, by position.
        keys: The device's own keys.

    Raises:
        RemoteProtocolError: The plan is not over this device's open key epoch.
    """

    def __init__(self, plan: SessionPlan, peers: Mapping[int, PeerKeys], keys: OwnKeys) -> None:
        """Draw graph and committee."""
        self.plan = plan
        self.own = own_position(plan, keys)
        self.graph = SessionGraph.of(plan, keys.open_epoch)
        self.neighbours = self.graph.neighbours(self.own)
        self.session = session_of(plan, peers)
        self.committee = self.committee_of(keys, plan.key_index)
        self._channels = CommitteeChannels(keys)

    def committee_of(self, keys: OwnKeys, key_index: int) -> Committee:
        """Return the committee of an index under the terms of this plan."""
        return committee_of(DepositTerms.of_plan(self.plan), keys.open_epoch, key_index)

    def share_self_seed(
        self, self_seed: Seed, holders: Mapping[int, SealingKey], sharing_seed: Seed
    ) -> SealedSecret:
        """Seal shares of this session's self seed for its committee."""
        context = self._context(ShareKind.SELF_SEED)
        return self._channels.share(self_seed, self.committee, holders, context, sharing_seed)

    def read_lists(self, message: CommitteeProposal | UnmaskRequest) -> SurvivorLists:
        """Read who survived and who dropped out, and check it as in the other mode.

        Everybody in the plan has deposited, so both lists together are the cohort.

        Raises:
            WireError: A list is no bitmap over the plan's members.
            RemoteProtocolError: What `device_unmask.check_lists` raises, or E-UNMASK-NEIGHBOURS.
        """
        lists = SurvivorLists.read(
            self.plan, SurvivorProposal(survivors=message.survivors, dropped=message.dropped)
        )
        cohort = range(self.plan.size)
        check_lists(lists, self.plan, self.graph, own=self.own, sharers=cohort)
        if not neighbourhoods_hold(self.plan, self.graph, lists.survivors):
            raise RemoteProtocolError(
                "E-UNMASK-NEIGHBOURS",
                f"at least {self.plan.thresholds.neighbourhood} surviving neighbours of each",
                "a survivor with fewer",
            )
        return lists

    def require_one_each(self, message: CommitteeProposal) -> None:
        """Check that a proposal brings one ciphertext of each other member of the plan.

        Raises:
            RemoteProtocolError: E-PROPOSAL-COUNT.
        """
        expected, found = self.plan.size - 1, (len(message.owners), len(message.sealed))
        if found != (expected, expected):
            raise RemoteProtocolError(
                "E-PROPOSAL-COUNT", f"{expected} keys and ciphertexts", f"{found[0]}, {found[1]}"
            )

    def shares_for(
        self, lists: SurvivorLists, message: CommitteeProposal, own_share: bytes
    ) -> tuple[tuple[int, bytes], ...]:
        """Return one share of each member of the plan, of exactly one of its two secrets.

        Which kind opens is fixed by the context: of a survivor that of its self seed, of a dropped
        device that of its mask key, whatever the gateway has sent. What does not open is left out.

        Raises:
            RemoteProtocolError: E-PUBLIC-KEY, the gateway sent a key of small order.
        """
        others = [position for position in range(self.plan.size) if position != self.own]
        positions = {self.plan.epoch_positions[position]: position for position in others}
        opened = self._channels.open_all(
            {
                self.plan.epoch_positions[position]: SealedShare(
                    owner_key=key,
                    context=self._context(
                        ShareKind.SELF_SEED if position in lists.survivors else ShareKind.MASK_KEY
                    ),
                    sealed=sealed,
                )
                for position, key, sealed in zip(
                    others, message.owners, message.sealed, strict=True
                )
            }
        )
        found = {positions[owner]: share for owner, share in opened.items()}
        return tuple(sorted((found | {self.own: own_share}).items()))

    def _context(self, kind: ShareKind) -> ShareContext:
        is_deposit = kind is ShareKind.MASK_KEY
        return ShareContext(
            key_index=self.plan.key_index,
            kind=kind,
            session_id=b"" if is_deposit else self.plan.session_id,
        )


def make_deposit(
    keys: OwnKeys,
    key_index: int,
    committee: Committee,
    holders: Mapping[int, SealingKey],
    sharing_seed: Seed,
) -> Deposit:
    """Seal shares of the one-time mask key of a reserved index for the committee of the index."""
    shared = CommitteeChannels(keys).share(
        keys.mask_secret(key_index).export_seed(),
        committee,
        holders,
        ShareContext(key_index=key_index, kind=ShareKind.MASK_KEY),
        sharing_seed,
    )
    # The own share is not kept: a member answers lists only that call it a survivor.
    return Deposit(mask_key=keys.mask_proof(key_index), sealed=shared.sealed)
