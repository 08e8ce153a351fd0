"""What the aggregator has collected in one one-upload session: deposits, uploads, answers."""

from collections.abc import Iterable, Set

from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.check_ins import SessionStart
from edgefl.protocol.collection import SessionCollection
from edgefl.protocol.events import UnmaskJob
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.one_upload_deposits import DepositBook, holders_for
from edgefl.protocol.one_upload_messages import (
    CommitteeProposal,
    OneUpload,
    OneUploadAnnouncement,
)
from edgefl.protocol.one_upload_sharing import SealingKey
from edgefl.protocol.one_upload_sizes import neighbourhoods_hold
from edgefl.protocol.round_messages import RevealedShares
from edgefl.protocol.round_setup import RoundSetup
from edgefl.protocol.unmask_shares import UnmaskShares
from edgefl.protocol.vectors import add_vector, digest_of


class OneUploadCollection(SessionCollection):
    """The contributions of one session by position in its plan.

    Memory is one vector, whatever the cohort, and the sealed shares of the committee.

    Args:
        setup: The gateway's decisions.
        deposits: Deposits for the index of the round; who made them is the cohort.
        next_deposits: Where deposits that ride on uploads go; None asks for none.
    """

    def __init__(
        self, setup: RoundSetup, deposits: DepositBook, next_deposits: DepositBook | None
    ) -> None:
        """Fix the cohort and sign nothing yet."""
        super().__init__(SessionStart(setup, deposits.deposit_id, deposits.proofs))
        self._deposits = deposits
        self._next_deposits = next_deposits
        self._sharing = set(range(self.plan.size))
        self.sharers = self.members
        self._sealed_seeds: dict[int, dict[int, bytes]] = {}
        self._members = {
            position: member
            for position, member in enumerate(self.plan.epoch_positions)
            if member in frozenset(deposits.committee.members)
        }

    # ------------------------------------------------------------ who

    @property
    def shared(self) -> Set[str]:
        """Devices that can belong to this session only: whose upload arrived."""
        return self.survivors

    @property
    def committee(self) -> Set[str]:
        """Members of the committee whose upload arrived: who votes and reveals."""
        return self.names(self._members.keys() & self._inputs.positions)

    def holder_names(self, holders: Iterable[int]) -> set[str]:
        """Return the devices at some epoch positions, by which the unmasking job calls holders."""
        keys = self._deposits.keys
        return {keys.devices[holder] for holder in holders}

    def bad_sealers(self) -> set[str]:
        """Return devices of whom too few shares opened, although enough holders answered.

        Not guaranteed: a lying holder can leave a share out as well.
        """
        least = self.plan.share_threshold
        if len(self.revealers) < least:
            return set()
        by_owner = self._shares().by_owner
        return self.names(owner for owner, shares in by_owner.items() if len(shares) < least)

    # ------------------------------------------------------------ what they send

    def take_upload(self, position: int, message: OneUpload) -> bool:
        """Add a device's masked input to the sum, once; keep what it sealed; tell if it is news.

        Raises:
            RemoteProtocolError: It has another size or padding than the plan's, not one ciphertext
                per holder, a bad deposit, or is a second one.
        """
        digest = digest_of(message)
        if position in self._inputs:
            self._inputs.require_same(position, digest, "E-INPUT-TWICE")
            return False
        others = self._deposits.committee.others(self.plan.epoch_positions[position])
        if len(message.sealed) != len(others):
            raise RemoteProtocolError(
                "E-SHARES-COUNT", f"{len(others)} ciphertexts", str(len(message.sealed))
            )
        if message.next_deposit is not None and self._next_deposits is not None:
            self._next_deposits.take(self.devices[position], message.next_deposit)
        try:
            add_vector(self._total, message)
        except WireError as error:
            raise RemoteProtocolError(error.code, error.expected, error.found) from error
        self.note_input(position, message, digest)
        return True

    def note_input(self, position: int, message: DeviceMessage, digest: bytes) -> None:
        """Note what came with a masked input that is in the sum, whose vector is not looked at."""
        super().note_input(position, message, digest)
        if isinstance(message, OneUpload):
            others = self._deposits.committee.others(self.plan.epoch_positions[position])
            self._commitments[position] = message.commitment
            self._sealed_seeds[position] = dict(zip(others, message.sealed, strict=True))

    def take_revealed(self, position: int, message: RevealedShares) -> bool:
        """Take a committee member's answer, and tell whether it is news.

        What the member could not open is not in it.

        Raises:
            RemoteProtocolError: It holds a share of a stranger, or is a second answer.
        """
        if position not in self._inputs or position not in self._members:
            return False
        if any(owner >= self.plan.size for owner, _ in message.shares):
            raise RemoteProtocolError("E-REVEAL-LIST", "shares of the cohort", "of a stranger")
        digest = wire.digest(dict(message.to_body()))
        if position in self._revealed:
            self._revealed.require_same(position, digest, "E-REVEAL-TWICE")
            return False
        self._revealed.note(position, digest)
        wanted = self._shares().by_owner
        shares = [(owner, share) for owner, share in message.shares if owner in wanted]
        self._shares().take(position, shares)
        return True

    # ------------------------------------------------------------ what closes a phase

    def survivors_hold(self) -> bool:
        """Tell whether the survivors satisfy what the committee checks."""
        survivors = self._inputs.positions
        return self.graph.windows_hold(survivors) and neighbourhoods_hold(
            self.plan, self.graph, survivors
        )

    # ------------------------------------------------------------ what they are sent

    def announce_to(self, position: int) -> OneUploadAnnouncement:
        """Return the plan, with the keys that one device masks with and seals for."""
        announcement = self.announcement_to(position)
        books = [self._deposits, *([] if self._next_deposits is None else [self._next_deposits])]
        return OneUploadAnnouncement(
            plan=announcement.plan,
            peers=announcement.peers,
            holders=holders_for(self.devices[position], *books),
            asks_deposit=self._next_deposits is not None,
        )

    def proposal_to(self, position: int) -> CommitteeProposal:
        """Return who survived and who dropped out, with one committee member's shares."""
        lists, holder = self.proposal(), self.plan.epoch_positions[position]
        others = [owner for owner in range(self.plan.size) if owner != position]
        return CommitteeProposal(
            survivors=lists.survivors,
            dropped=lists.dropped,
            owners=tuple(SealingKey.of(self._start.proofs[owner].member) for owner in others),
            sealed=tuple(self._sealed_by(owner)[holder] for owner in others),
        )

    def unmask_job(self) -> UnmaskJob:
        """Return what it takes to open the sum."""
        masked_with = self._masked_with_dropped()
        return UnmaskJob(
            plan=self.plan,
            session=self._session,
            total=self._total,
            commitments={
                position: self._commitments[position] for position in self._inputs.positions
            },
            seed_shares={
                position: self._found(position) for position in sorted(self._inputs.positions)
            },
            key_shares={position: self._found(position) for position in masked_with},
            masked_with=masked_with,
            skipped={},
        )

    # ------------------------------------------------------------ helpers

    def _sealed_by(self, owner: int) -> dict[int, bytes]:
        if owner in self._inputs:
            return self._sealed_seeds[owner]
        return self._deposits.sealed_for(self.devices[owner])

    def _masked_with_dropped(self) -> dict[int, tuple[int, ...]]:
        """Return, for each dropped device that some survivor made a mask with, those survivors."""
        found = {}
        for owner in sorted(self._sharing - self._inputs.positions):
            neighbours = self.graph.neighbours(owner)
            survivors = tuple(peer for peer in neighbours if peer in self._inputs)
            if survivors:
                found[owner] = survivors
        return found

    def _found(self, owner: int) -> dict[int, bytes]:
        """Return the shares of one secret by the holder's epoch position, which gives its point."""
        shares = self._shares().by_owner[owner]
        return {self._members[holder]: share for holder, share in sorted(shares.items())}

    def _holders(self) -> dict[int, list[int]]:
        """Return the committee's survivors, for each secret that is needed."""
        needed = (*self._inputs.positions, *self._masked_with_dropped())
        holders = sorted(self._members.keys() & self._inputs.positions)
        return dict.fromkeys(sorted(needed), holders)

    def _shares(self) -> UnmaskShares:
        if self._answers is None:
            self._answers = UnmaskShares(self._holders(), self.plan.share_threshold)
        return self._answers
