"""The session plan: everything that a device must know and agree to before it shares a key.

The session id is the SHA-256 of the plan's deterministic CBOR, and is bound into every key, share
and signature. A plan names no device: its cohort is a bitmap over the members of a key epoch, whose
record it names by hash.
"""

import hashlib
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import TypeVar

from edgefl.errors import WireError
from edgefl.privacy.plan import PrivacyPlan
from edgefl.protocol.limits import (
    DIGEST_BYTES,
    MAX_ATTEMPT,
    MAX_COHORT,
    MAX_KEY_EPOCH,
    MAX_MASK_KEYS,
)
from edgefl.protocol.reasons import ALL_PRGS, AdversaryClass, Prg, RoundMode
from edgefl.protocol.wire import (
    as_body,
    as_bytes,
    as_float,
    as_int,
    as_list,
    as_text,
    decode,
    decode_bitmap,
    encode,
)
from edgefl.types import SessionId

MAX_DIMENSION = 2**28
_PLAN_FIELDS = 21
_MAX_PERMILLE = 500
_Choice = TypeVar("_Choice", bound=IntEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """How a device trains in a round.

    Attributes:
        local_epochs: Passes over its examples.
        batch_size: Rows of a step.
        learning_rate: Of a step.
        prox_mu: FedProx: weight of the distance from the received model; 0 turns it off.
        max_gradient_norm: L2 bound of a step's gradient; 0 for none.
        example_clip: L2 bound of each example's gradient; 0 for bundles that do not clip examples.

    Source: Li et al., "Federated Optimization in Heterogeneous Networks", arXiv:1812.06127,
    section 3.2 (prox_mu).
    """

    local_epochs: int
    batch_size: int
    learning_rate: float
    prox_mu: float = 0.0
    max_gradient_norm: float = 0.0
    example_clip: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not (
            1 <= self.local_epochs <= 10_000
            and 1 <= self.batch_size <= 65_536
            and 0 < self.learning_rate < 1e3
            and all(0 <= value < 1e6 for value in self._bounds)
        ):
            raise WireError(
                "E-TRAINING-PLAN",
                "1 to 10000 epochs, batch size 1 to 65536, learning rate above 0, FedProx mu and "
                "bounds of gradients from 0 to below a million",
                ", ".join(str(value) for value in self.to_list()),
            )

    @property
    def _bounds(self) -> tuple[float, float, float]:
        return (self.prox_mu, self.max_gradient_norm, self.example_clip)

    def to_list(self) -> list[int | float]:
        """Return the CBOR array."""
        return [self.local_epochs, self.batch_size, self.learning_rate, *self._bounds]

    @classmethod
    def from_value(cls, value: object) -> "TrainingPlan":
        """Read the CBOR array."""
        if not isinstance(value, list) or len(value) != 6:
            raise WireError("E-TRAINING-PLAN", "an array of 6", type(value).__name__)
        return cls(
            local_epochs=as_int(value[0], 1, 10_000),
            batch_size=as_int(value[1], 1, 65_536),
            learning_rate=as_float(value[2]),
            prox_mu=as_float(value[3]),
            max_gradient_norm=as_float(value[4]),
            example_clip=as_float(value[5]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The sizes of the graph and the committee, and the three thresholds, which are different.

    Attributes:
        degree: Neighbours of a device (k), itself not counted; the base of the graph less one
            where the graph is complete.
        neighbourhood: Shares within a neighbourhood that reconstruct a secret (t_nb).
        committee: Members that sign the survivor certificate (m); 0 where there is none.
        certificate: Signatures that make the certificate (t_c); 0 where there is none.
        window: Least survivors among any degree / 2 neighbouring positions of the ring, which
            committee members check; 0 where there is no certificate.
        survivor_floor: Least survivors of the whole cohort for which the round is released.
    """

    degree: int
    neighbourhood: int
    committee: int = 0
    certificate: int = 0
    window: int = 0
    survivor_floor: int

    def __post_init__(self) -> None:
        """Check what must hold in every class."""
        if not 2 <= self.neighbourhood <= self.degree <= MAX_COHORT:
            raise WireError(
                "E-PLAN-THRESHOLDS",
                "2 <= neighbourhood threshold <= degree",
                f"{self.neighbourhood}, {self.degree}",
            )
        if not (self.certificate <= self.committee and self.survivor_floor >= 2):
            raise WireError(
                "E-PLAN-THRESHOLDS",
                "a certificate threshold up to the committee, a survivor floor of 2 or more",
                f"{self.certificate}, {self.committee}, {self.survivor_floor}",
            )

    def to_list(self) -> list[int]:
        """Return the CBOR array."""
        return [
            self.degree,
            self.neighbourhood,
            self.committee,
            self.certificate,
            self.window,
            self.survivor_floor,
        ]

    @classmethod
    def from_value(cls, value: object) -> "Thresholds":
        """Read the CBOR array."""
        if not isinstance(value, list) or len(value) != 6:
            raise WireError("E-PLAN-THRESHOLDS", "an array of 6", type(value).__name__)
        numbers = [as_int(item, 0, MAX_COHORT) for item in value]
        return cls(
            degree=numbers[0],
            neighbourhood=numbers[1],
            committee=numbers[2],
            certificate=numbers[3],
            window=numbers[4],
            survivor_floor=numbers[5],
        )


@dataclass(frozen=True, kw_only=True)
class SessionPlan:
    """One attempt at one round, for a fixed cohort.

    Attributes:
        call_id: SHA-256 of the signed call that the members answered.
        prgs: Set of PRGs that pairs and devices may choose from, by `Prg.bit`.
        record_sha256: Hash of the key epoch's record, which binds the roster and the beacon.
        key_index: The one-time mask key that every member uses.
        epoch_size: Members of the key epoch.
        cohort: Bitmap over them (U1). A member's position is its rank in it, and its Shamir point
            is 1 + position; neither is ever re-indexed.
        corrupt_permille: Devices of the roster that may be corrupt, in thousandths.
        drop_permille: Devices of the cohort that may drop out, in thousandths.
        dimension: Coordinates of the update.
        ledger_head: Hash of the newest row of the privacy ledger.
    """

    fleet: str
    task: str
    round_number: int
    attempt: int
    call_id: bytes
    mode: RoundMode
    adversary: AdversaryClass
    prgs: int
    key_epoch: int
    record_sha256: bytes
    key_index: int
    epoch_size: int
    cohort: bytes
    thresholds: Thresholds
    corrupt_permille: int
    drop_permille: int
    bundle_sha256: bytes
    parameters_sha256: bytes
    dimension: int
    training: TrainingPlan
    privacy: PrivacyPlan
    ledger_head: bytes
    _encoded: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check that the parts agree with each other."""
        size, floor = self.size, self.thresholds.survivor_floor
        if not 2 <= floor <= size:
            raise WireError(
                "E-PLAN-COHORT", f"a cohort of at least the floor, {floor}", f"{size} members"
            )
        if not self.prgs & Prg.CHACHA20.bit or self.prgs & ~ALL_PRGS:
            raise WireError("E-PLAN-PRGS", "a known set of PRGs with ChaCha20", str(self.prgs))
        if self.privacy.survivor_floor != floor or self.privacy.dimension != self.dimension:
            raise WireError(
                "E-PLAN-PRIVACY",
                "a privacy plan for the same survivor floor and dimension",
                f"floor {self.privacy.survivor_floor}, dimension {self.privacy.dimension}",
            )
        if size > self.privacy.n_cohort:
            raise WireError(
                "E-PLAN-PRIVACY",
                f"at most {self.privacy.n_cohort} members, as the ring was sized",
                f"{size}",
            )
        object.__setattr__(self, "_encoded", self._encode())

    @cached_property
    def epoch_positions(self) -> tuple[int, ...]:
        """The member's position in the key epoch, by its position in the plan."""
        members = decode_bitmap(self.cohort, self.epoch_size)
        return tuple(position for position, is_member in enumerate(members) if is_member)

    @property
    def size(self) -> int:
        """Members of the cohort."""
        return len(self.epoch_positions)

    @property
    def share_threshold(self) -> int:
        """Shares that open a secret, held by a neighbourhood or, in ONE_UPLOAD, a committee."""
        if self.mode is RoundMode.ONE_UPLOAD:
            return self.thresholds.certificate
        return self.thresholds.neighbourhood

    @property
    def vector_bytes(self) -> int:
        """Size of a masked vector, and of the sum, as they are packed."""
        return (self.privacy.vector_length * self.ring_bits + 7) // 8

    @property
    def ring_bits(self) -> int:
        """Bits per coordinate on the wire."""
        return self.privacy.ring_bits

    @property
    def session_id(self) -> SessionId:
        """SHA-256 of the deterministic encoding."""
        return session_id_of(self._encoded)

    def position_of(self, epoch_position: int) -> int | None:
        """Return the position in the plan of a member of the key epoch."""
        return self._positions.get(epoch_position)

    @cached_property
    def _positions(self) -> dict[int, int]:
        return {epoch: position for position, epoch in enumerate(self.epoch_positions)}

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
                5: int(self.mode),
                6: int(self.adversary),
                7: self.prgs,
                8: self.key_epoch,
                9: self.record_sha256,
                10: self.key_index,
                11: [self.epoch_size, self.cohort],
                12: self.thresholds.to_list(),
                13: self.corrupt_permille,
                14: self.drop_permille,
                15: self.bundle_sha256,
                16: self.parameters_sha256,
                17: self.dimension,
                18: self.training.to_list(),
                19: self.privacy.to_wire(),
                20: self.ledger_head,
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
        if sorted(body) != list(range(_PLAN_FIELDS)):
            raise WireError(
                "E-PLAN-FIELDS",
                f"fields 0 to {_PLAN_FIELDS - 1}",
                f"{len(body)} fields",
                "update the older side",
            )
        cohort = as_list(body[11], 2)
        if len(cohort) != 2:
            raise WireError("E-PLAN-COHORT", "size and bitmap", f"{len(cohort)} parts")
        return cls(
            fleet=as_text(body[0], 64),
            task=as_text(body[1], 64),
            round_number=as_int(body[2], 1, MAX_ATTEMPT),
            attempt=as_int(body[3], 1, MAX_ATTEMPT),
            call_id=as_bytes(body[4], DIGEST_BYTES),
            mode=_known(RoundMode, as_int(body[5], 0, 255)),
            adversary=_known(AdversaryClass, as_int(body[6], 0, 255)),
            prgs=as_int(body[7], 0, 255),
            key_epoch=as_int(body[8], 1, MAX_KEY_EPOCH),
            record_sha256=as_bytes(body[9], DIGEST_BYTES),
            key_index=as_int(body[10], 0, MAX_MASK_KEYS - 1),
            epoch_size=as_int(cohort[0], 2, MAX_COHORT),
            cohort=as_bytes(cohort[1], max_bytes=MAX_COHORT // 8),
            thresholds=Thresholds.from_value(body[12]),
            corrupt_permille=as_int(body[13], 0, _MAX_PERMILLE),
            drop_permille=as_int(body[14], 0, 1000),
            bundle_sha256=as_bytes(body[15], DIGEST_BYTES),
            parameters_sha256=as_bytes(body[16], DIGEST_BYTES),
            dimension=as_int(body[17], 1, MAX_DIMENSION),
            training=TrainingPlan.from_value(body[18]),
            privacy=PrivacyPlan.from_wire(dict(as_body(body[19]))),
            ledger_head=as_bytes(body[20], DIGEST_BYTES),
        )


@lru_cache(maxsize=4)
def session_id_of(plan: bytes) -> SessionId:
    """Return the session id of a plan's bytes."""
    return SessionId(hashlib.sha256(plan).digest())


def _known(choices: type[_Choice], number: int) -> _Choice:
    try:
        return choices(number)
    except ValueError:
        raise WireError("E-PLAN-CHOICE", f"a known {choices.__name__}", str(number)) from None


@lru_cache(maxsize=4)
def _parse_plan(payload: bytes) -> SessionPlan:
    return SessionPlan._parse(payload)  # noqa: SLF001 - the class's own parser, remembered
