"""What honest devices masked, signed and revealed in all sessions, and what must hold of it.

Each `require_` method is one promise of the protocol, named in its failure.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn
from unittest import mock

from edgefl._native import AgreementKey, Mask, Seed
from edgefl.protocol import masked_input
from edgefl.protocol.events import Masked, MaskJob
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import AdversaryClass
from edgefl.secagg.session import Session

KEY, SEED = "mask key", "self seed"

_Keystream = tuple[bytes, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskUse:
    """One keystream on one vector that left a device."""

    session_id: bytes
    device: str
    subtracts: bool
    vector: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What went into one masked vector, whether or not it was sent."""

    session: Session
    device: str
    own: int
    keystreams: tuple[tuple[bytes, int, bool], ...]


class BrokenPromise(AssertionError):
    """A promise of the protocol does not hold."""


def broken(promise: str, found: str) -> NoReturn:
    """Fail with the name of a promise."""
    raise BrokenPromise(f"{promise}: {found}")


class RoundWatch:
    """Notes of all sessions of one key epoch."""

    def __init__(self) -> None:
        self.plans: dict[bytes, SessionPlan] = {}
        self._work: dict[bytes, _Work] = {}
        self._drawn: set[bytes] = set()
        self._keys: dict[tuple[bytes, int], AgreementKey] = {}
        self._masked: defaultdict[tuple[bytes, str], set[bytes]] = defaultdict(set)
        self._uses: defaultdict[_Keystream, set[MaskUse]] = defaultdict(set)
        self._one_time_keys: defaultdict[tuple[str, bytes], set[bytes]] = defaultdict(set)
        self._revealed: defaultdict[tuple[bytes, int], defaultdict[str, set[str]]] = defaultdict(
            lambda: defaultdict(set)
        )
        self._signed: defaultdict[bytes, defaultdict[bytes, set[str]]] = defaultdict(
            lambda: defaultdict(set)
        )

    # ------------------------------------------------------------ notes

    def note_key(self, session_id: bytes, position: int, key: AgreementKey) -> None:
        """A device shared its one-time key, which its neighbours can reveal from now on."""
        self._keys[session_id, position] = key

    def run(self, job: MaskJob, device: str) -> Masked:
        """Carry out a job, and note every keystream that it expands."""
        with _noted_masks() as keystreams:
            masked = masked_input.run(job)
        drawn = {job.rounding_seed.export_bytes(), job.noise_seed.export_bytes()}
        if len(drawn) < 2 or drawn & self._drawn:
            broken("keystream is never reused", f"rounding or noise of {device}")
        self._drawn |= drawn
        self.plans[job.plan.session_id] = job.plan
        self._work[masked.packed] = _Work(
            session=job.session, device=device, own=job.own, keystreams=tuple(keystreams)
        )
        return masked

    def note_masked(self, session_id: bytes, device: str, packed: bytes) -> None:
        """A vector left a device."""
        work = self._work[packed]
        vector = hashlib.sha256(packed).digest()
        self._masked[session_id, device].add(packed)
        self._one_time_keys[device, work.session.peers[work.own].mask_key].add(session_id)
        for seed, prg, subtracts in work.keystreams:
            self._uses[seed, prg].add(
                MaskUse(session_id=session_id, device=device, subtracts=subtracts, vector=vector)
            )

    def note_revealed(self, session_id: bytes, holder: str, kinds: Mapping[int, str]) -> None:
        """Shares left a device: of each owner's position, of which of its secrets."""
        for owner, kind in kinds.items():
            self._revealed[session_id, owner][kind].add(holder)

    def note_vote(self, session_id: bytes, signer: str, statement: bytes) -> None:
        """A committee member signed a list."""
        self._signed[session_id][statement].add(signer)

    # ------------------------------------------------------------ promises

    def require_all(
        self,
        colluding_neighbours: Callable[[bytes, int], int] = lambda *_: 0,
        colluding_signers: Mapping[bytes, int] | None = None,
    ) -> None:
        """Check every promise that needs no more than these notes."""
        self.require_one_vector_per_mask()
        self.require_no_reused_keystream()
        self.require_one_session_per_key()
        self.require_one_certificate(colluding_signers or {})
        self.require_one_kind_of_share(colluding_neighbours)

    def require_no_reused_keystream(self) -> None:
        """A keystream hides one vector; that of a pair one at each end, with opposite signs."""
        for uses in self._uses.values():
            first, *others = uses
            if not others:
                continue
            (second, *more) = others
            is_pair = (
                not more
                and first.session_id == second.session_id
                and first.device != second.device
                and first.subtracts != second.subtracts
            )
            if not is_pair:
                names = sorted({use.device for use in uses})
                broken("keystream is never reused", f"{len(uses)} vectors of {names}")

    def require_one_vector_per_mask(self) -> None:
        """Rounding and noise never run twice under the masks of one session."""
        for (_, device), versions in self._masked.items():
            if len(versions) != 1:
                broken("one vector under one mask", f"{len(versions)} of {device}")

    def require_one_session_per_key(self) -> None:
        """A one-time mask key serves one session."""
        for (device, _), sessions in self._one_time_keys.items():
            if len(sessions) != 1:
                broken("one session per one-time key", f"{len(sessions)} of {device}")

    def require_one_kind_of_share(self, colluding_neighbours: Callable[[bytes, int], int]) -> None:
        """Nobody collects both secrets of a device.

        In MALICIOUS, honest devices never show both kinds at all; in the other classes each of
        them shows one, and in SEMI_MALICIOUS that suffices against a gateway with colluders.

        Args:
            colluding_neighbours: Of a session and a position in its cohort: how many holders of
                that device's shares show both kinds to the gateway. Each of them is one honest
                holder fewer, so that counting colluders elsewhere would find what cannot be.
        """
        for (session_id, owner), kinds in self._revealed.items():
            plan = self.plans[session_id]
            both = kinds[KEY] & kinds[SEED]
            if both:
                broken("never both kinds of share", f"{sorted(both)} showed both of {owner}")
            if plan.adversary is AdversaryClass.MALICIOUS and kinds[KEY] and kinds[SEED]:
                broken("never both kinds of share", f"of {owner} by different devices")
            colluders = colluding_neighbours(session_id, owner)
            least = plan.thresholds.neighbourhood - colluders
            is_open = len(kinds[KEY]) >= least and len(kinds[SEED]) >= least
            if plan.adversary is AdversaryClass.SEMI_MALICIOUS and is_open:
                broken("never both kinds of share", f"enough to open both secrets of {owner}")

    def require_one_certificate(self, colluding: Mapping[bytes, int]) -> None:
        """No two lists of one session collect a certificate each, whatever colluders sign.

        Args:
            colluding: By session, the members of its committee that sign anything.
        """
        for session_id, statements in self._signed.items():
            least = self.plans[session_id].thresholds.certificate - colluding.get(session_id, 0)
            signed = sum(len(signers) >= least for signers in statements.values())
            if signed > 1:
                broken("one certificate per attempt", f"{signed} lists")

    def require_revealed_keys_open_nothing_else(self) -> None:
        """A one-time key that was revealed gives no keystream of any other session.

        Plays a gateway that has reconstructed the key, and tries it on every other session.
        """
        works = [self._work[packed] for versions in self._masked.values() for packed in versions]
        for (session_id, owner), kinds in self._revealed.items():
            if not kinds[KEY]:
                continue
            member = self.plans[session_id].epoch_positions[owner]
            secret = self._keys[session_id, owner]
            for work in works:
                if work.session.session_id == session_id:
                    continue
                position = self.plans[work.session.session_id].position_of(member)
                if position is not None and _opens(secret, position, work):
                    broken("a revealed key opens no other round", f"member {member}")

    def holders(self, session_id: bytes) -> set[str]:
        """Return who showed any share in a session."""
        return {
            holder
            for (shown_in, _), kinds in self._revealed.items()
            if shown_in == session_id
            for holders in kinds.values()
            for holder in holders
        }


def _opens(secret: AgreementKey, owner: int, work: _Work) -> bool:
    """Tell whether a key gives a keystream that was used in a vector of another session."""
    if owner == work.own or owner not in work.session.peers:
        return False
    (seed,) = work.session.pairwise_seeds(secret, owner, [work.own])
    return seed.export_bytes() in {found for found, _, _ in work.keystreams}


@contextmanager
def _noted_masks() -> Iterator[list[tuple[bytes, int, bool]]]:
    noted: list[tuple[bytes, int, bool]] = []

    def note(seed: Seed, prg: int, subtracts: bool) -> Mask:
        noted.append((seed.export_bytes(), prg, subtracts))
        return Mask(seed, prg, subtracts)

    with mock.patch("edgefl.secagg.session.Mask", note):
        yield noted
