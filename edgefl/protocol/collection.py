"""What the aggregator has collected in one session: shares, the masked sum, answers."""

from collections.abc import Collection, Iterable

import numpy as np

from edgefl.errors import RemoteProtocolError
from edgefl.protocol import wire
from edgefl.protocol.events import UnmaskJob
from edgefl.protocol.masked_input import session_of
from edgefl.protocol.messages import (
    MaskedInput,
    RevealedShares,
    RoutedShares,
    SharedKeys,
    UnmaskRequest,
)
from edgefl.protocol.plan import SessionPlan
from edgefl.secagg.masking import add_packed


class SessionCollection:
    """The contributions of one session by position in its plan.

    Each `take_` accepts the same bytes again and refuses others. Memory is one vector, whatever
    the cohort.

    Args:
        plan: The session plan.
    """

    def __init__(self, plan: SessionPlan) -> None:
        """Start with nothing."""
        self.plan = plan
        self._session = session_of(plan)
        self._shared: dict[int, SharedKeys] = {}
        self._input_digests: dict[int, bytes] = {}
        self._revealed: dict[int, RevealedShares] = {}
        self._total = np.zeros(self._session.length, dtype=np.uint32)

    @property
    def sharers(self) -> set[str]:
        """Devices whose shares arrived."""
        return self._devices(self._shared)

    @property
    def survivors(self) -> set[str]:
        """Devices whose masked input is in the sum."""
        return self._devices(self._input_digests)

    @property
    def revealers(self) -> set[str]:
        """Devices that answered the unmask request."""
        return self._devices(self._revealed)

    def take_shared_keys(self, position: int, message: SharedKeys) -> None:
        """Take a device's sealed shares.

        Raises:
            RemoteProtocolError: They are not one for each neighbour, or a second set.
        """
        sizes_fit = all(
            (len(sealed) == 0) == (index == position) for index, sealed in enumerate(message.sealed)
        )
        if len(message.sealed) != len(self.plan.members) or not sizes_fit:
            raise RemoteProtocolError(
                "E-SHARES-COUNT", "one ciphertext per neighbour", "another number"
            )
        if self._shared.setdefault(position, message) != message:
            raise RemoteProtocolError(
                "E-SHARES-TWICE", "one set of shares per session", "a second one"
            )

    def take_masked_input(self, position: int, message: MaskedInput) -> None:
        """Add a device's masked input to the sum, once.

        Raises:
            RemoteProtocolError: It has another size or padding than the plan's, or is a second one.
        """
        if position not in self._shared:
            return
        digest = wire.digest(message.packed)
        known = self._input_digests.get(position)
        if known is None:
            add_packed(self._total, message.packed, self.plan.ring_bits)
            self._input_digests[position] = digest
        elif known != digest:
            raise RemoteProtocolError(
                "E-INPUT-TWICE", "one masked input per session", "a second one"
            )

    def take_revealed(self, position: int, message: RevealedShares) -> None:
        """Take a survivor's answer.

        Raises:
            RemoteProtocolError: It is not one share of every neighbour, or a second answer.
        """
        if position not in self._input_digests:
            return
        if [owner for owner, _ in message.shares] != sorted(set(self._shared) - {position}):
            raise RemoteProtocolError(
                "E-REVEAL-LIST", "one share of every neighbour", "another list"
            )
        if self._revealed.setdefault(position, message) != message:
            raise RemoteProtocolError("E-REVEAL-TWICE", "one answer per session", "a second one")

    def routed_to(self, position: int) -> RoutedShares:
        """Return the ciphertexts meant for one device."""
        return RoutedShares(
            sharers=self._bitmap(self._shared.keys()),
            sealed=tuple(
                b"" if owner == position else self._shared[owner].sealed[position]
                for owner in sorted(self._shared)
            ),
        )

    def unmask_request(self) -> UnmaskRequest:
        """Return who is in the sum and who dropped out after sharing."""
        return UnmaskRequest(
            survivors=self._bitmap(self._input_digests.keys()),
            dropped=self._bitmap(self._shared.keys() - self._input_digests.keys()),
        )

    def unmask_job(self) -> UnmaskJob:
        """Return what it takes to open the sum."""
        shares: dict[int, dict[int, bytes]] = {position: {} for position in self._shared}
        for holder, message in self._revealed.items():
            for owner, share in message.shares:
                shares[owner][holder] = share
        survivors = sorted(self._input_digests)
        return UnmaskJob(
            plan=self.plan,
            session=self._session,
            total=self._total,
            commitments={position: self._shared[position].commitment for position in survivors},
            seed_shares={position: shares[position] for position in survivors},
            key_shares={
                position: shares[position] for position in sorted(set(shares) - set(survivors))
            },
        )

    def _devices(self, positions: Iterable[int]) -> set[str]:
        return {self.plan.members[position].device for position in positions}

    def _bitmap(self, positions: Collection[int]) -> bytes:
        return wire.encode_bitmap([index in positions for index in range(len(self.plan.members))])
