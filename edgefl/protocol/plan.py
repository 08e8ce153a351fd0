"""The session plan: everything that a device must know and agree to before it shares a key.

The session id is the SHA-256 of the plan's deterministic CBOR, and is bound into every key, share
and signature.
"""

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache

from edgefl._native import AgreementKey, Seed, verify
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.privacy.plan import PrivacyPlan
from edgefl.protocol.messages import DIGEST_BYTES, MAX_ATTEMPT, MAX_COHORT, KeyAdvert
from edgefl.protocol.reasons import AdversaryClass, Suite
from edgefl.protocol.wire import (
    as_body,
    as_bytes,
    as_float,
    as_int,
    as_list,
    as_text,
    decode,
    encode,
)
from edgefl.types import SessionId

MAX_DIMENSION = 2**28
_PROBE_KEY = AgreementKey.from_seed(Seed.from_bytes(bytes(range(32))))
"""No secret: whether a public key is of small order does not depend on the other end's key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """How a device trains in a round."""

    local_epochs: int
    batch_size: int
    learning_rate: float

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not (
            1 <= self.local_epochs <= 10_000
            and 1 <= self.batch_size <= 65_536
            and 0 < self.learning_rate < 1e3
        ):
            raise WireError(
                "E-TRAINING-PLAN",
                "1 to 10000 epochs, batch size 1 to 65536, learning rate above 0",
                f"{self.local_epochs}, {self.batch_size}, {self.learning_rate}",
            )

    def to_list(self) -> list[int | float]:
        """Return the CBOR array."""
        return [self.local_epochs, self.batch_size, self.learning_rate]

    @classmethod
    def from_value(cls, value: object) -> "TrainingPlan":
        """Read the CBOR array."""
        if not isinstance(value, list) or len(value) != 3:
            raise WireError("E-TRAINING-PLAN", "an array of 3", type(value).__name__)
        return cls(
            local_epochs=as_int(value[0], 1, 10_000),
            batch_size=as_int(value[1], 1, 65_536),
            learning_rate=as_float(value[2]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """One attempt at one round, for a fixed cohort.

    Attributes:
        call_id: SHA-256 of the signed call that the members answered.
        members: Adverts of the cohort, ascending by device id. A member's position is its index
            here, and its Shamir point is 1 + position; neither is ever re-indexed.
        threshold: Shares needed to reconstruct one secret (t_nb).
        survivor_floor: Least survivors for which the round is released.
        dimension: Coordinates of the update, without the check coordinates.
        ledger_head: Hash of the newest row of the privacy ledger.
    """

    fleet: str
    task: str
    round_number: int
    attempt: int
    call_id: bytes
    adversary: AdversaryClass
    suite: Suite
    members: tuple[KeyAdvert, ...]
    threshold: int
    survivor_floor: int
    bundle_sha256: bytes
    parameters_sha256: bytes
    dimension: int
    training: TrainingPlan
    privacy: PrivacyPlan
    ledger_head: bytes
    _encoded: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check that the parts agree with each other."""
        devices = [member.device for member in self.members]
        if devices != sorted(set(devices)) or len(devices) < 2:
            raise WireError(
                "E-PLAN-MEMBERS", "2 or more members in ascending order", f"{len(devices)} members"
            )
        for keys in (
            [member.identity_key for member in self.members],
            [key for member in self.members for key in (member.share_key, member.mask_key)],
        ):
            if len(set(keys)) != len(keys):
                raise WireError("E-PLAN-KEYS", "distinct keys", "one key twice")
        # Below the floor: of the survivors, all but the owner hold a share of its secret.
        if not 2 <= self.threshold < self.survivor_floor <= len(devices):
            raise WireError(
                "E-PLAN-THRESHOLDS",
                "2 <= threshold < survivor floor <= cohort",
                f"{self.threshold}, {self.survivor_floor}, {len(devices)}",
            )
        if (
            self.privacy.survivor_floor != self.survivor_floor
            or self.privacy.dimension != self.dimension
        ):
            raise WireError(
                "E-PLAN-PRIVACY",
                "a privacy plan for the same survivor floor and dimension",
                f"floor {self.privacy.survivor_floor}, dimension {self.privacy.dimension}",
            )
        if len(devices) > self.privacy.n_cohort:
            raise WireError(
                "E-PLAN-PRIVACY",
                f"at most {self.privacy.n_cohort} members, as the ring was sized",
                f"{len(devices)}",
            )
        object.__setattr__(self, "_encoded", self._encode())

    @property
    def ring_bits(self) -> int:
        """Bits per coordinate on the wire."""
        return self.privacy.ring_bits

    @property
    def session_id(self) -> SessionId:
        """SHA-256 of the deterministic encoding."""
        return session_id_of(self._encoded)

    def position_of(self, device: str) -> int | None:
        """Return the position of `device` among the members."""
        return next(
            (index for index, member in enumerate(self.members) if member.device == device), None
        )

    def require_signed_adverts(self) -> None:
        """Check that every member's keys are usable and signed by its identity for this call.

        Raises:
            RemoteProtocolError: An advert was swapped, made for another call, or holds a weak key.
        """
        _require_signed_adverts(self)

    def to_bytes(self) -> bytes:
        """Return the deterministic CBOR."""
        return self._encoded

    def _encode(self) -> bytes:
        return encode(
            {
                0: self.fleet,
                1: self.task,
                2: self.round_number,
                3: self.attempt,
                4: self.call_id,
                5: int(self.adversary),
                6: int(self.suite),
                7: [member.to_list() for member in self.members],
                8: self.threshold,
                9: self.survivor_floor,
                10: self.bundle_sha256,
                11: self.parameters_sha256,
                12: self.dimension,
                13: self.training.to_list(),
                14: self.privacy.to_wire(),
                15: self.ledger_head,
            }
        )

    def __hash__(self) -> int:
        """Hash the encoding, which holds every field."""
        return hash(self._encoded)

    @classmethod
    def from_bytes(cls, payload: bytes) -> "SessionPlan":
        """Parse a plan.

        Raises:
            WireError: The bytes are not a plan that this process understands whole; unknown fields
                are refused, since a device must not agree to what it cannot read.
        """
        return _parse_plan(payload)

    @classmethod
    def _parse(cls, payload: bytes) -> "SessionPlan":
        body = as_body(decode(payload))
        if sorted(body) != list(range(16)):
            raise WireError(
                "E-PLAN-FIELDS", "fields 0 to 15", f"{len(body)} fields", "update the older side"
            )
        return cls(
            fleet=as_text(body[0], 64),
            task=as_text(body[1], 64),
            round_number=as_int(body[2], 1, MAX_ATTEMPT),
            attempt=as_int(body[3], 1, MAX_ATTEMPT),
            call_id=as_bytes(body[4], DIGEST_BYTES),
            adversary=_adversary(as_int(body[5], 0, 255)),
            suite=_suite(as_int(body[6], 0, 255)),
            members=tuple(KeyAdvert.from_value(item) for item in as_list(body[7], MAX_COHORT)),
            threshold=as_int(body[8], 2, MAX_COHORT),
            survivor_floor=as_int(body[9], 2, MAX_COHORT),
            bundle_sha256=as_bytes(body[10], DIGEST_BYTES),
            parameters_sha256=as_bytes(body[11], DIGEST_BYTES),
            dimension=as_int(body[12], 1, MAX_DIMENSION),
            training=TrainingPlan.from_value(body[13]),
            privacy=PrivacyPlan.from_wire(dict(as_body(body[14]))),
            ledger_head=as_bytes(body[15], DIGEST_BYTES),
        )


@lru_cache(maxsize=4)
def _require_signed_adverts(plan: SessionPlan) -> None:
    # Remembered for the newest plans: a simulated fleet checks one plan once, not once a device.
    for member in plan.members:
        require_sound_advert(member, plan.call_id)


def require_sound_advert(advert: KeyAdvert, call_id: bytes) -> None:
    """Check that an advert is signed by its identity for this call and that its keys are usable.

    Raises:
        RemoteProtocolError: It was swapped, made for another call, or holds a public key of small
            order, with which every neighbour's mask or seal would be known or fail.
    """
    if not verify(advert.identity_key, advert.signed_bytes(call_id), advert.signature):
        raise RemoteProtocolError(
            "E-ADVERT-SIGNATURE", "keys signed by their device for this call", "another signature"
        )
    for public_key in (advert.share_key, advert.mask_key):
        _PROBE_KEY.agree(public_key, b"", b"")


@lru_cache(maxsize=4)
def session_id_of(plan: bytes) -> SessionId:
    """Return the session id of a plan's bytes."""
    return SessionId(hashlib.sha256(plan).digest())


def _adversary(number: int) -> AdversaryClass:
    try:
        return AdversaryClass(number)
    except ValueError:
        raise WireError("E-PLAN-ADVERSARY", "a known adversary class", str(number)) from None


def _suite(number: int) -> Suite:
    try:
        return Suite(number)
    except ValueError:
        raise WireError("E-PLAN-SUITE", "a known suite", str(number)) from None


@lru_cache(maxsize=4)
def _parse_plan(payload: bytes) -> SessionPlan:
    return SessionPlan._parse(payload)  # noqa: SLF001 - the class's own parser, remembered
