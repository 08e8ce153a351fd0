"""The arithmetic of the privacy ledger: hash-chained entries, their sum, and the budget filter.

One ledger serves one fleet, over all its tasks. Each entry is charged as if every device took part.
`broker/ledger.py` keeps the lines on disk; nothing here does input or output.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgefl.errors import BudgetExhausted, LocalProtocolError, StorageError
from edgefl.privacy.accounting import (
    RDP_ORDERS,
    RdpCurve,
    compose,
    epsilon_from_rdp,
    poisson_amplified_rdp,
)
from edgefl.privacy.plan import PrivacyPlan
from edgefl.privacy.sampling import DELTA_SHARE

GENESIS_HASH = hashlib.sha256(b"edgefl/1 privacy ledger").hexdigest()
"""Previous hash of the first entry."""

_INFINITY = "inf"
_UNREADABLE = (ValueError, TypeError, KeyError, ArithmeticError, RecursionError)
_SESSION = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What is about to be learnt by the aggregator, and what it costs.

    Attributes:
        task: Task name.
        round_number: Round within the task.
        attempt: Attempt within the round; an aborted one is charged too.
        session_id: Session id in lower-case hex.
        mechanism: Noise distribution.
        z_effective: Noise multiplier that is charged.
        n_survivors: Devices in the sum.
        colluders: Devices whose noise is not counted.
        rdp: Divergence per order of `RDP_ORDERS`; infinity without noise.
        sampling_rate: With which each device threw itself into the cohort, above 0; 1 where that
            may not be claimed. It never lowers `rdp`, which is against the aggregator.
    """

    task: str
    round_number: int
    attempt: int
    session_id: str
    mechanism: str
    z_effective: float
    n_survivors: int
    colluders: int
    rdp: RdpCurve
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        """Refuse an incomplete or impossible charge."""
        if len(self.rdp) != len(RDP_ORDERS):
            raise LocalProtocolError(
                "E-LEDGER-ENTRY", f"{len(RDP_ORDERS)} divergences", str(len(self.rdp))
            )
        if any(math.isnan(value) or value < 0 for value in self.rdp):
            raise LocalProtocolError("E-LEDGER-ENTRY", "divergences of at least 0", "others")
        if type(self.sampling_rate) is not float or not 0 < self.sampling_rate <= 1:
            raise LocalProtocolError(
                "E-LEDGER-ENTRY", "a sampling rate above 0, at most 1", repr(self.sampling_rate)
            )
        counts = (self.round_number, self.attempt, self.n_survivors, self.colluders)
        if any(type(count) is not int or count < 0 for count in counts):
            raise LocalProtocolError("E-LEDGER-ENTRY", "counts of at least 0", repr(counts))
        names = (self.task, self.mechanism, self.session_id)
        if any(type(name) is not str for name in names) or not _SESSION.fullmatch(self.session_id):
            raise LocalProtocolError("E-LEDGER-ENTRY", "names, and a session id in hex", "others")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One line of the ledger.

    Attributes:
        sequence: Position, from 0.
        previous_hash: SHA-256 of the line before, in hex; `GENESIS_HASH` for the first.
        release: What was charged.
    """

    sequence: int
    previous_hash: str
    release: Release

    def to_line(self) -> str:
        """Return the canonical JSON line, without its newline."""
        release = self.release
        record = {
            "sequence": self.sequence,
            "task": release.task,
            "round": release.round_number,
            "attempt": release.attempt,
            "session_id": release.session_id,
            "mechanism": release.mechanism,
            "z_effective": release.z_effective,
            "n_survivors": release.n_survivors,
            "colluders": release.colluders,
            "orders": RDP_ORDERS,
            "rdp": [_INFINITY if math.isinf(value) else value for value in release.rdp],
            "previous_hash": self.previous_hash,
        }
        if release.sampling_rate != 1:
            record["sampling_rate"] = release.sampling_rate
        return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)

    def line_hash(self) -> str:
        """Return the SHA-256 of the line in hex: the head of the ledger once this entry is in."""
        return hashlib.sha256(self.to_line().encode()).hexdigest()

    @classmethod
    def from_line(cls, line: str) -> "LedgerEntry":
        """Read one line and insist on its canonical form.

        Raises:
            StorageError: E-LEDGER-DAMAGED.
        """
        try:
            record = json.loads(line, parse_constant=_refuse_constant)
            entry = cls(
                sequence=record["sequence"],
                previous_hash=record["previous_hash"],
                release=Release(
                    task=record["task"],
                    round_number=record["round"],
                    attempt=record["attempt"],
                    session_id=record["session_id"],
                    mechanism=record["mechanism"],
                    z_effective=record["z_effective"],
                    n_survivors=record["n_survivors"],
                    colluders=record["colluders"],
                    rdp=tuple(math.inf if v == _INFINITY else float(v) for v in record["rdp"]),
                    sampling_rate=record.get("sampling_rate", 1.0),
                ),
            )
            canonical = entry.to_line()
        except (*_UNREADABLE, LocalProtocolError) as error:
            raise _damaged("a ledger entry of this version", "another line") from error
        if canonical != line or type(entry.sequence) is not int:
            raise _damaged("an entry in canonical form", "another spelling")
        return entry


class Ledger:
    """Entries in sequence with their total; only `append`, or `propose` and `accept`, add to it."""

    __slots__ = ("_entries", "_head", "_sessions", "_total", "_total_release")

    def __init__(self) -> None:
        """Start empty."""
        self._entries: list[LedgerEntry] = []
        self._sessions: set[str] = set()
        self._head = GENESIS_HASH
        self._total: RdpCurve = (0.0,) * len(RDP_ORDERS)
        self._total_release = self._total

    @property
    def entries(self) -> Sequence[LedgerEntry]:
        """All entries, oldest first."""
        return tuple(self._entries)

    @property
    def head(self) -> str:
        """Hash of the last line; goes into every signed plan."""
        return self._head

    @property
    def total_rdp(self) -> RdpCurve:
        """Sum of all charges at `RDP_ORDERS`."""
        return self._total

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon spent so far, against the aggregator."""
        return epsilon_from_rdp(RDP_ORDERS, self._total, delta)

    def epsilon_release(self, delta: float) -> float:
        """Return the epsilon spent so far, against those who see only the released models.

        A sampled round counts at its coin's rate; `DELTA_SHARE` of delta is kept for rounds that
        were thrown away. Without sampled rounds it equals `epsilon`.
        """
        if self._total_release == self._total:
            return self.epsilon(delta)
        return epsilon_from_rdp(RDP_ORDERS, self._total_release, (1 - DELTA_SHARE) * delta)

    def admit(self, next_rdp: Sequence[float], epsilon_budget: float, delta: float) -> float:
        """Decide before a release whether the budget still holds after it.

        Args:
            next_rdp: Charge of the release at `RDP_ORDERS`.
            epsilon_budget: Epsilon that must never be crossed.
            delta: Delta of the budget.

        Returns:
            Epsilon after the release, at most the budget.

        Raises:
            BudgetExhausted: E-BUDGET.

        Privacy:
            A filter with a fixed budget is valid when each charge depends on earlier releases
            (Feldman, Zrnic 2021, arXiv:2008.11193). The running epsilon is "spent so far" and no
            claim of its own.
        """
        would_be = epsilon_from_rdp(RDP_ORDERS, compose([self._total, next_rdp]), delta)
        # Written so that NaN is refused.
        if not would_be <= epsilon_budget:
            raise BudgetExhausted(
                "E-BUDGET",
                f"at most epsilon {epsilon_budget:.4f} at delta {delta:g}",
                f"{self.epsilon(delta):.4f} spent, {would_be:.4f} after the next release",
                "stop the task; the budget of these devices is spent",
            )
        return would_be

    def propose(self, release: Release) -> LedgerEntry:
        """Return the entry that would follow without adding it, to be made durable first.

        Raises:
            LocalProtocolError: E-LEDGER-DUPLICATE, the session is in the ledger already.
        """
        if release.session_id in self._sessions:
            raise LocalProtocolError(
                "E-LEDGER-DUPLICATE", "one entry per session", f"session {release.session_id[:16]}"
            )
        return LedgerEntry(sequence=len(self._entries), previous_hash=self._head, release=release)

    def accept(self, entry: LedgerEntry) -> None:
        """Add an entry that follows the head.

        Raises:
            StorageError: E-LEDGER-DAMAGED, it does not follow.
        """
        if entry.sequence != len(self._entries):
            raise _damaged(f"entry {len(self._entries)}", f"entry {entry.sequence}")
        if entry.previous_hash != self._head:
            raise _damaged(f"entry {entry.sequence} to follow the line before", "another chain")
        if entry.release.session_id in self._sessions:
            raise _damaged("one entry per session", f"two, the second at {entry.sequence}")
        self._entries.append(entry)
        self._sessions.add(entry.release.session_id)
        self._head = entry.line_hash()
        self._total = compose([self._total, entry.release.rdp])
        seen_by_readers = poisson_amplified_rdp(entry.release.sampling_rate, entry.release.rdp)
        self._total_release = compose([self._total_release, seen_by_readers])

    def append(self, release: Release) -> LedgerEntry:
        """Propose and accept in one step, where nothing has to be durable."""
        entry = self.propose(release)
        self.accept(entry)
        return entry

    def release_of(self, session_id: str) -> Release | None:
        """Return what was charged for a session; None for one that was not."""
        if session_id not in self._sessions:
            return None
        return next(
            entry.release
            for entry in reversed(self._entries)
            if entry.release.session_id == session_id
        )

    def extends(self, length: int, head: str) -> bool:
        """Say whether this ledger continues one that had `length` entries and this head."""
        if length == 0:
            return head == GENESIS_HASH
        return length <= len(self._entries) and self._entries[length - 1].line_hash() == head


def make_release(
    plan: PrivacyPlan,
    *,
    task: str,
    round_number: int,
    attempt: int,
    session_id: bytes,
    n_survivors: int,
    sampling_rate: float = 1.0,
) -> Release:
    """Return the charge of one round.

    The charge uses the noise of `n_survivors - colluders` devices, but never more noise than the
    plan promises: extra noise of extra survivors is not claimed.

    Args:
        plan: The task's plan.
        task: Task name.
        round_number: Round within the task.
        attempt: Attempt within the round.
        session_id: 32 bytes.
        n_survivors: Devices whose masked input is in the sum.
        sampling_rate: Of the devices' own coin, where it may be claimed.

    Returns:
        The release, to be admitted, appended and fsynced before the first unmask request.

    Raises:
        PrivacyError: E-NO-HONEST-NOISE.
    """
    return Release(
        task=task,
        round_number=round_number,
        attempt=attempt,
        session_id=session_id.hex(),
        mechanism=plan.mechanism.value,
        z_effective=plan.effective_noise_multiplier(n_survivors),
        n_survivors=n_survivors,
        colluders=plan.colluders,
        rdp=plan.rdp_per_round(n_survivors),
        sampling_rate=sampling_rate,
    )


def verify(lines: Iterable[str]) -> Ledger:
    """Rebuild a ledger from its lines, checking form, sequence, hash chain and sessions.

    Args:
        lines: Lines without newline, oldest first.

    Returns:
        The ledger.

    Raises:
        StorageError: E-LEDGER-DAMAGED with the number of the first bad line.
    """
    ledger = Ledger()
    for number, line in enumerate(lines, start=1):
        try:
            ledger.accept(LedgerEntry.from_line(line))
        except StorageError as error:
            raise _damaged(error.expected, f"{error.found} in line {number}") from error
    return ledger


def _damaged(expected: str, found: str) -> StorageError:
    return StorageError(
        "E-LEDGER-DAMAGED",
        expected,
        found,
        "restore the ledger from a backup; it is never reset, as the spent budget would be lost",
    )


def _refuse_constant(name: str) -> float:
    raise ValueError(name)
