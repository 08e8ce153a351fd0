"""What the gateway decides before it calls a round."""

from dataclasses import dataclass, fields

from edgefl.errors import LocalProtocolError
from edgefl.privacy.plan import PrivacyPlan
from edgefl.privacy.sampling import ALWAYS
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.one_upload_sizes import DepositTerms, one_upload_thresholds
from edgefl.protocol.plan import Thresholds, TrainingPlan
from edgefl.protocol.reasons import ALL_PRGS, AdversaryClass, Phase, RoundMode
from edgefl.protocol.round_messages import Call
from edgefl.protocol.thresholds import LEAST_SPARSE_BASE, thresholds_for


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLimits:
    """How long each phase waits for silent devices, in seconds.

    Attributes:
        stragglers_s: How long UNMASKING goes on when it has all that it needs.
    """

    check_in_s: float = 30.0
    share_keys_s: float = 30.0
    masked_input_s: float = 120.0
    certificate_s: float = 30.0
    unmasking_s: float = 30.0
    stragglers_s: float = 2.0

    def at_least(self, other: "PhaseLimits") -> "PhaseLimits":
        """Return the longer limit for each phase."""
        return PhaseLimits(
            **{
                each.name: max(getattr(self, each.name), getattr(other, each.name))
                for each in fields(self)
            }
        )

    def of(self, phase: Phase) -> float:
        """Return the limit of an open phase."""
        return {
            Phase.CHECK_IN: self.check_in_s,
            Phase.SHARE_KEYS: self.share_keys_s,
            Phase.MASKED_INPUT: self.masked_input_s,
            Phase.CERTIFICATE: self.certificate_s,
            Phase.UNMASKING: self.unmasking_s,
        }[phase]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSetup:
    """What the gateway decides before it calls a round.

    Attributes:
        keys: The open key epoch that the call names.
        population: Members of the key epoch that may check in; with a coin, more than a cohort.
        adversary: What devices are told that the aggregator is assumed to do.
        corrupt_permille: Devices that may be corrupt, in thousandths; see `thresholds_for`.
        drop_permille: Devices that may drop out, in thousandths.
        prgs: Set of PRGs that devices may choose from.
        ledger_head: Hash of the newest ledger row.
    """

    fleet: str
    call: Call
    keys: MemberKeys
    population: frozenset[str]
    adversary: AdversaryClass
    corrupt_permille: int
    drop_permille: int
    prgs: int = ALL_PRGS
    privacy: PrivacyPlan
    training: TrainingPlan
    bundle_sha256: bytes
    parameters_sha256: bytes
    ledger_head: bytes
    limits: PhaseLimits

    def __post_init__(self) -> None:
        """Check that a round can come of it.

        Raises:
            LocalProtocolError: The population holds strangers, is larger than the ring was sized
                for, or the call names another key epoch.
            ConfigError: The survivor floor is too low for the population to be unmasked at it.
        """
        key_epoch = self.keys.epoch.key_epoch
        if self.call.key_epoch != key_epoch:
            raise LocalProtocolError(
                "E-SETUP-EPOCH", f"key epoch {key_epoch}", str(self.call.key_epoch)
            )
        if not self.is_drawn and len(self.population) > self.privacy.n_cohort:
            raise LocalProtocolError(
                "E-COHORT-SIZE",
                f"at most {self.privacy.n_cohort} devices",
                str(len(self.population)),
            )
        strangers = self.population.difference(self.keys.devices)
        if strangers:
            raise LocalProtocolError(
                "E-SETUP-POPULATION",
                f"members of key epoch {key_epoch}",
                ", ".join(sorted(strangers)),
            )
        largest = min(len(self.population), self.privacy.n_cohort)
        sizes = {largest}
        if self.call.mode is not RoundMode.ONE_UPLOAD:
            # Not all of them may check in; the largest complete graph asks for the highest floor.
            sizes.add(min(largest, LEAST_SPARSE_BASE - 1))
        for size in sizes:
            if size >= self.privacy.survivor_floor:
                self.thresholds(size)

    @property
    def is_drawn(self) -> bool:
        """Whether devices throw a coin each, and silence may mean tails."""
        return self.call.coin != ALWAYS

    @property
    def deposit_terms(self) -> DepositTerms:
        """What devices are told in the one-upload mode before they deposit shares."""
        return DepositTerms(
            adversary=self.adversary,
            corrupt_permille=self.corrupt_permille,
            drop_permille=self.drop_permille,
        )

    def thresholds(self, cohort_size: int) -> Thresholds:
        """Return the thresholds for a cohort of that size.

        Raises:
            ConfigError: The survivor floor is too low, or too many devices may be corrupt.
        """
        opened = self.keys.epoch
        if self.call.mode is RoundMode.ONE_UPLOAD:
            return one_upload_thresholds(
                self.deposit_terms,
                epoch_size=opened.size,
                cohort_size=cohort_size,
                roster_size=opened.record.roster_size,
                survivor_floor=self.privacy.survivor_floor,
            )
        is_malicious = self.adversary is AdversaryClass.MALICIOUS
        return thresholds_for(
            adversary=self.adversary,
            base_size=opened.size if is_malicious else cohort_size,
            roster_size=opened.record.roster_size,
            corrupt_permille=self.corrupt_permille,
            drop_permille=self.drop_permille,
            survivor_floor=self.privacy.survivor_floor,
        )
