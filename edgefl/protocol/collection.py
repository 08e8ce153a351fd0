"""What the aggregator has collected in one session: shares, the masked sum, answers."""

from collections.abc import Collection, Iterable, Set

from edgefl._native import RingSum, Seed
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.certificate import SurvivorCertificate
from edgefl.protocol.check_ins import SessionStart
from edgefl.protocol.digest_book import DigestBook
from edgefl.protocol.events import UnmaskJob
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.peer_proof import PeerProof
from edgefl.protocol.reasons import AdversaryClass
from edgefl.protocol.round_messages import (
    MaskedInput,
    PlanAnnouncement,
    RevealedShares,
    RoutedShares,
    SharedKeys,
    SurvivorProposal,
    UnmaskRequest,
)
from edgefl.protocol.unmask_shares import UnmaskShares
from edgefl.protocol.vectors import add_vector, digest_of


class SessionCollection:
    """The contributions of one session by position in its plan.

    Each `take_` accepts the same bytes again and refuses others. Memory is one vector, whatever
    the cohort, and the sealed shares until they are no longer asked for.

    Args:
        start: The session.

    Attributes:
        plan: The session plan.
        graph: Who shares with whom.
        sharers: Devices that masks are made with (U2), once SHARE_KEYS is closed.
        cut_off: Devices that shared and are left out, because too few of their neighbours did.
    """

    def __init__(self, start: SessionStart) -> None:
        """Start with nothing."""
        self.plan = start.plan
        self.graph = start.graph
        self._start = start
        self._positions = {name: position for position, name in enumerate(start.devices)}
        self._session = start.keys()
        self._shared = DigestBook(start.devices)
        self._commitments: dict[int, bytes] = {}
        self._sealed: dict[tuple[int, int], bytes] = {}
        self._sharing: set[int] = set()
        self.sharers: Set[str] = frozenset()
        self.cut_off: Set[str] = frozenset()
        self._inputs = DigestBook(start.devices)
        self._skipped: dict[tuple[int, int], bytes] = {}
        self._revealed = DigestBook(start.devices)
        self._answers: UnmaskShares | None = None
        self._total = RingSum(self.plan.privacy.vector_length, self.plan.ring_bits)

    # ------------------------------------------------------------ who

    @property
    def devices(self) -> tuple[str, ...]:
        """All members, by position."""
        return self._start.devices

    @property
    def members(self) -> Set[str]:
        """All members."""
        return self._positions.keys()

    @property
    def shared(self) -> Set[str]:
        """Devices whose shares arrived."""
        return self._shared.devices

    @property
    def survivors(self) -> Set[str]:
        """Devices whose masked input is in the sum."""
        return self._inputs.devices

    @property
    def revealers(self) -> Set[str]:
        """Devices that answered the unmask request."""
        return self._revealed.devices

    @property
    def skipped_edges(self) -> int:
        """Pairs of neighbours of whom at least one left out the other."""
        return len({frozenset(pair) for pair in self._skipped})

    def position_of(self, device: str) -> int | None:
        """Return a member's position in the plan."""
        return self._positions.get(device)

    def names(self, positions: Iterable[int]) -> set[str]:
        """Return the devices at some positions."""
        return {self._start.devices[position] for position in positions}

    def holder_names(self, holders: Iterable[int]) -> set[str]:
        """Return the devices that the unmasking job calls by some numbers: their positions."""
        return self.names(holders)

    # ------------------------------------------------------------ what they send

    def take_shared_keys(self, position: int, message: SharedKeys) -> bool:
        """Take a device's sealed shares, and return whether they are news.

        Raises:
            RemoteProtocolError: They are not one for each neighbour, or a second set.
        """
        neighbours = self.graph.neighbours(position)
        if len(message.sealed) != len(neighbours):
            raise RemoteProtocolError(
                "E-SHARES-COUNT",
                f"{len(neighbours)} ciphertexts, one per neighbour",
                f"{len(message.sealed)}",
            )
        digest = wire.digest(dict(message.to_body()))
        if position in self._shared:
            self._shared.require_same(position, digest, "E-SHARES-TWICE")
            return False
        self._shared.note(position, digest)
        self._commitments[position] = message.commitment
        for neighbour, sealed in zip(neighbours, message.sealed, strict=True):
            self._sealed[position, neighbour] = sealed
        return True

    def take_masked_input(self, position: int, message: MaskedInput) -> bool:
        """Add a device's masked input to the sum, once, and return whether it is news.

        Raises:
            RemoteProtocolError: It has another size or padding than the plan's, leaves out masks
                that it may not, or is a second one.
        """
        if position not in self._sharing:
            return False
        digest = digest_of(message)
        if position in self._inputs:
            self._inputs.require_same(position, digest, "E-INPUT-TWICE")
            return False
        self._require_may_skip(position, [peer for peer, _ in message.skipped])
        try:
            add_vector(self._total, message)
        except WireError as error:
            raise RemoteProtocolError(error.code, error.expected, error.found) from error
        self.note_input(position, message, digest)
        return True

    def note_input(self, position: int, message: DeviceMessage, digest: bytes) -> None:
        """Note what came with a masked input that is in the sum, whose vector is not looked at."""
        self._inputs.note(position, digest)
        if isinstance(message, MaskedInput):
            self._skipped.update({(position, peer): seed for peer, seed in message.skipped})

    def input_digest(self, position: int) -> bytes:
        """Return the digest of a masked input that is in the sum."""
        return self._inputs.digest_of(position)

    def packed_total(self) -> bytes:
        """Return the sum so far, packed as the inputs are."""
        return self._total.to_packed()

    def restore_total(self, packed: bytes) -> None:
        """Take the sum of an earlier life.

        Raises:
            WireError: It is of another plan.
        """
        self._total.add_packed(packed)

    def take_revealed(self, position: int, message: RevealedShares) -> bool:
        """Take a survivor's answer, and return whether it is news.

        Raises:
            RemoteProtocolError: It is not one share of each neighbour that masks were made with, or
                a second answer.
        """
        if position not in self._inputs:
            return False
        if [owner for owner, _ in message.shares] != self._masked_with(position):
            raise RemoteProtocolError(
                "E-REVEAL-LIST", "one share of every neighbour", "another list"
            )
        digest = wire.digest(dict(message.to_body()))
        if position in self._revealed:
            self._revealed.require_same(position, digest, "E-REVEAL-TWICE")
            return False
        self._revealed.note(position, digest)
        self._shares().take(position, message.shares)
        return True

    # ------------------------------------------------------------ what closes a phase

    def fix_sharers(self) -> None:
        """Fix who makes masks with whom (U2): whose neighbourhood can still reconstruct."""
        remaining = set(self._shared.positions)
        least = self.plan.thresholds.neighbourhood
        lost: set[int] | None = None
        while lost is None or lost:
            # Leaving out one device can take its neighbours below the threshold.
            lost = {
                position
                for position in remaining
                if len(remaining.intersection(self.graph.neighbours(position))) < least
            }
            remaining -= lost
        self._sharing = remaining
        self.sharers = self.names(remaining)
        self.cut_off = self.shared - self.sharers

    def members_hold(self) -> bool:
        """Tell whether the cohort satisfies the window rule, under which the absent are dropped."""
        return self.graph.windows_hold(range(self.plan.size))

    def sharers_hold(self) -> bool:
        """Tell whether the sharers satisfy the plan's floor and window rule."""
        floor = self.plan.thresholds.survivor_floor
        return len(self._sharing) >= floor and self.graph.windows_hold(self._sharing)

    def survivors_hold(self) -> bool:
        """Tell whether the survivors satisfy the window rule and reconstruct all that is needed."""
        return self.graph.windows_hold(self._inputs.positions) and not self.lost_neighbourhoods()

    def voters(self) -> dict[int, PeerProof]:
        """Return the committee members that survived, by position."""
        committee = set(self.graph.committee)
        return {
            position: self._start.proofs[position]
            for position in sorted(self._inputs.positions)
            if self.plan.epoch_positions[position] in committee
        }

    def lost_neighbourhoods(self) -> set[str]:
        """Return the devices whose needed secret the survivors cannot reconstruct."""
        least = self.plan.thresholds.neighbourhood
        return self.names(
            owner for owner, holders in self._holders().items() if len(holders) < least
        )

    def has_ample_shares(self, silent: Collection[int]) -> bool:
        """Tell whether spare shares of every needed secret are there, or no more will come.

        Args:
            silent: Positions that are not waited for.
        """
        return self._shares().are_ample(silent)

    def has_enough_shares(self) -> bool:
        """Tell whether every needed secret can be reconstructed."""
        return self._shares().suffice()

    # ------------------------------------------------------------ what they are sent

    def announcement_to(self, position: int) -> PlanAnnouncement:
        """Return the plan, with the keys of one device's neighbours."""
        return self._start.announcement_to(position)

    def routed_to(self, position: int) -> RoutedShares:
        """Return the ciphertexts meant for one device."""
        return RoutedShares(
            sharers=self._bitmap(self._sharing),
            sealed=tuple(
                self._sealed[owner, position]
                for owner in self.graph.neighbours(position)
                if owner in self._sharing
            ),
        )

    def forget_sealed_shares(self) -> None:
        """Let go of the ciphertexts; nobody is sent any after MASKED_INPUT."""
        self._sealed.clear()

    def proposal(self) -> SurvivorProposal:
        """Return who survived and who dropped out after sharing."""
        return SurvivorProposal(
            survivors=self._bitmap(self._inputs.positions),
            dropped=self._bitmap(self._sharing - self._inputs.positions),
        )

    def unmask_request(self, certificate: SurvivorCertificate | None) -> UnmaskRequest:
        """Return the same with the committee's signatures."""
        lists = self.proposal()
        return UnmaskRequest(
            survivors=lists.survivors, dropped=lists.dropped, certificate=certificate
        )

    def unmask_job(self) -> UnmaskJob:
        """Return what it takes to open the sum."""
        holders = self._holders()
        survivors = sorted(self._inputs.positions)
        dropped = sorted(holders.keys() - self._inputs.positions)
        by_owner = self._shares().by_owner
        return UnmaskJob(
            plan=self.plan,
            session=self._session,
            total=self._total,
            commitments={position: self._commitments[position] for position in survivors},
            seed_shares={position: by_owner[position] for position in survivors},
            key_shares={position: by_owner[position] for position in dropped},
            masked_with={position: tuple(holders[position]) for position in dropped},
            skipped={
                (one, other): Seed.from_bytes(seed)
                for (one, other), seed in sorted(self._skipped.items())
                if other in self._inputs and (other, one) not in self._skipped
            },
        )

    # ------------------------------------------------------------ helpers

    def _require_may_skip(self, position: int, skipped: list[int]) -> None:
        if not skipped:
            return
        if self.plan.adversary is not AdversaryClass.HONEST_BUT_CURIOUS:
            raise RemoteProtocolError(
                "E-INPUT-SKIPPED", "masks with every neighbour", f"{len(skipped)} left out"
            )
        neighbours = self._sharing.intersection(self.graph.neighbours(position))
        most = len(neighbours) - self.plan.thresholds.neighbourhood
        if not neighbours.issuperset(skipped) or len(skipped) > most:
            raise RemoteProtocolError(
                "E-INPUT-SKIPPED", f"at most {most} neighbours left out", f"{len(skipped)}"
            )

    def _masked_with(self, position: int) -> list[int]:
        """Return the neighbours whose ciphertexts a survivor opened, ascending."""
        return [
            peer
            for peer in self.graph.neighbours(position)
            if peer in self._sharing and (position, peer) not in self._skipped
        ]

    def _holders(self) -> dict[int, list[int]]:
        """Return the survivors that hold a share of each secret that is needed.

        The self seed of every survivor is, and the mask key of a dropped device that some survivor
        made a mask with.
        """
        holders: dict[int, list[int]] = {position: [] for position in self._inputs.positions}
        for survivor in sorted(self._inputs.positions):
            for owner in self._masked_with(survivor):
                holders.setdefault(owner, []).append(survivor)
        return holders

    def _shares(self) -> UnmaskShares:
        if self._answers is None:
            self._answers = UnmaskShares(self._holders(), self.plan.thresholds.neighbourhood)
        return self._answers

    def _bitmap(self, positions: Collection[int]) -> bytes:
        return wire.encode_bitmap([index in positions for index in range(self.plan.size)])
