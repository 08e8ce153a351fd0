"""Shares that survivors reveal, by owner, and whether they suffice."""

from collections.abc import Collection, Iterable, Mapping, Sequence

SPARE_SHARES = 2
"""Shares beyond the threshold that are waited for: as many lying holders are survived."""


class UnmaskShares:
    """Shares of every secret that is needed, as they arrive.

    Args:
        holders: Survivors that hold a share, by owner.
        threshold: Shares that reconstruct a secret.
    """

    def __init__(self, holders: Mapping[int, Sequence[int]], threshold: int) -> None:
        """Start with no share."""
        self._holders = holders
        self._threshold = threshold
        self._answered: set[int] = set()
        self._wanting = set(holders)
        self.by_owner: dict[int, dict[int, bytes]] = {owner: {} for owner in holders}

    def take(self, holder: int, shares: Iterable[tuple[int, bytes]]) -> None:
        """Keep one holder's shares of all owners."""
        self._answered.add(holder)
        for owner, share in shares:
            found = self.by_owner[owner]
            found[holder] = share
            if len(found) >= self._threshold + SPARE_SHARES:
                self._wanting.discard(owner)

    def are_ample(self, silent: Collection[int]) -> bool:
        """Tell whether each secret has spare shares, or has all that will come.

        Args:
            silent: Holders that are not waited for.
        """
        return all(
            holder in self._answered or holder in silent
            for owner in self._wanting
            for holder in self._holders[owner]
        )

    def suffice(self) -> bool:
        """Tell whether each secret can be reconstructed."""
        return all(len(shares) >= self._threshold for shares in self.by_owner.values())
