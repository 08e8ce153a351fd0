"""Reconstruct many shared secrets at once, and survive holders whose shares are wrong.

What comes out is compared with what the owner published, so a wrong share can spoil a result but
never pass for one. Source: Shamir 1979; the comparison is Bonawitz et al. 2017, figure 4, round 4.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from edgefl._native import Seed, combine_many, combine_shares
from edgefl.errors import ShareError

MOST_LIARS = 2
_MOST_TRIES = 20_000
"""Combinations that are tried in one call; each costs well below a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSecret:
    """One secret to reconstruct.

    Attributes:
        owner: Position of the device whose secret it is.
        shares: Share by the holder's position; a holder's point is 1 + its position.
        is_right: Compares a candidate with what the owner published.
    """

    owner: int
    shares: Mapping[int, bytes] = field(repr=False)
    is_right: Callable[[Seed], bool] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconstruction:
    """The secrets that were found.

    Attributes:
        secrets: By owner.
        missing: Owners of whom no choice of shares gave the published secret.
        liars: Holders whose shares were wrong although others sufficed.
    """

    secrets: dict[int, Seed] = field(repr=False)
    missing: tuple[int, ...]
    liars: tuple[int, ...]


def reconstruct(shared: Sequence[SharedSecret], threshold: int) -> Reconstruction:
    """Reconstruct every secret, with the first `threshold` shares or else with others.

    Up to `MOST_LIARS` wrong shares of a secret are survived where as many spare ones are there;
    the work for all of them together is bounded.

    Args:
        shared: The secrets, at most one per owner.
        threshold: Shares that a secret takes.
    """
    found = _first_choices(shared, threshold)
    search = _Search(threshold)
    for secret in shared:
        if secret.owner not in found:
            candidate = search.find(secret)
            if candidate is not None:
                found[secret.owner] = candidate
    missing = tuple(secret.owner for secret in shared if secret.owner not in found)
    return Reconstruction(secrets=found, missing=missing, liars=tuple(sorted(search.liars)))


def _first_choices(shared: Sequence[SharedSecret], threshold: int) -> dict[int, Seed]:
    """Combine the shares of the lowest holders, once for all secrets that have the same ones."""
    groups: defaultdict[tuple[int, ...], list[SharedSecret]] = defaultdict(list)
    for secret in shared:
        holders = tuple(sorted(secret.shares)[:threshold])
        if len(holders) == threshold:
            groups[holders].append(secret)
    return {
        secret.owner: candidate
        for holders, members in groups.items()
        for secret, candidate in zip(members, _combine(holders, members), strict=True)
        if candidate is not None and secret.is_right(candidate)
    }


def _combine(holders: tuple[int, ...], members: Sequence[SharedSecret]) -> list[Seed | None]:
    shares = [[secret.shares[holder] for holder in holders] for secret in members]
    try:
        return combine_many([1 + holder for holder in holders], shares, len(holders))
    except ShareError:
        # Some share has no valid form; each secret is looked at by itself.
        return [None] * len(members)


class _Search:
    """Looks for right shares among wrong ones; remembers who lied, and how often it tried.

    Args:
        threshold: Shares that a secret takes.
    """

    def __init__(self, threshold: int) -> None:
        self.liars: set[int] = set()
        self._threshold = threshold
        self._tries_left = _MOST_TRIES

    def find(self, secret: SharedSecret) -> Seed | None:
        """Return the secret, if some choice of shares gives it."""
        malformed = {
            holder for holder, share in secret.shares.items() if not _is_well_formed(share)
        }
        self.liars |= malformed
        holders = [holder for holder in sorted(secret.shares) if holder not in malformed]
        for left_out in self._suspicions(holders):
            kept = [holder for holder in holders if holder not in left_out]
            candidate = self._try(secret, kept[: self._threshold])
            if candidate is not None:
                self._accuse(secret, kept, left_out)
                return candidate
        return None

    def _suspicions(self, holders: Sequence[int]) -> Iterator[frozenset[int]]:
        """Yield sets of holders to leave out: nobody, known liars, then one and two of them."""
        yield frozenset()
        yield frozenset(self.liars.intersection(holders))
        spare = len(holders) - self._threshold
        for count in range(1, min(MOST_LIARS, spare) + 1):
            # Leaving out more than these would only repeat an earlier choice.
            first = holders[: self._threshold + count]
            yield from map(frozenset, combinations(first, count))

    def _try(self, secret: SharedSecret, holders: Sequence[int]) -> Seed | None:
        if len(holders) < self._threshold or self._tries_left <= 0:
            return None
        self._tries_left -= 1
        try:
            candidate = combine_shares(
                [(1 + holder, secret.shares[holder]) for holder in holders], self._threshold
            )
        except ShareError:
            return None
        return candidate if secret.is_right(candidate) else None

    def _accuse(self, secret: SharedSecret, kept: Sequence[int], left_out: frozenset[int]) -> None:
        """Name those whose share does not fit to the ones that gave the secret.

        Two liars together can make a right secret out of wrong shares, to which no honest share
        fits. So nobody is named unless another holder's share confirms them, or only those that
        were left out do not fit.
        """
        base, others = kept[: self._threshold], (*kept[self._threshold :], *left_out)
        if len(others) > self._tries_left:
            return
        misfits = {holder for holder in others if self._try(secret, (*base[1:], holder)) is None}
        if misfits <= left_out or len(misfits) < len(others):
            self.liars |= misfits


def _is_well_formed(share: bytes) -> bool:
    try:
        combine_shares([(1, share)], 1)
    except ShareError as error:
        # Of the right form, but too large to be a secret by itself.
        return error.code == "E-SHARE-SECRET"
    return True
