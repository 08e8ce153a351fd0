"""A training task as its owner submits it, checked when it is read."""

import json
import math
from dataclasses import asdict, dataclass, fields

from edgefl.errors import ConfigError, EdgeflError
from edgefl.privacy.plan import PrivacyPlan, make_privacy_plan
from edgefl.protocol.limits import MAX_COHORT
from edgefl.protocol.one_upload_sizes import DepositTerms, one_upload_thresholds
from edgefl.protocol.plan import TrainingPlan
from edgefl.protocol.reasons import AdversaryClass, RoundMode
from edgefl.protocol.round_setup import PhaseLimits
from edgefl.protocol.thresholds import thresholds_for
from edgefl.protocol.topics import parse_fleet

ADVERSARIES = {
    "honest-but-curious": AdversaryClass.HONEST_BUT_CURIOUS,
    "semi-malicious": AdversaryClass.SEMI_MALICIOUS,
    "malicious": AdversaryClass.MALICIOUS,
}
MODES = {"secagg": RoundMode.SECAGG, "one-upload": RoundMode.ONE_UPLOAD}
SELECTIONS = ("auto", "coin", "gateway")
DEADLINES = ("learned", "fixed")
LEAST_COHORT = 3
"""With two devices, each one's update is the sum less the other's own."""

DEFAULT_WEIGHT_BOUND = 256
"""Examples beyond this do not raise a device's weight, where the task names no other bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """What to train, with whom, under which privacy.

    Attributes:
        name: 1 to 64 characters a-z 0-9 . _ -.
        rounds: Committed rounds to reach.
        cohort: Most devices in one round.
        quorum: Devices that must be online before the first round.
        survivor_floor: Least survivors for which a round is released.
        colluders: Devices whose noise is not counted.
        clip_norm: L2 bound of one device's update, in update units.
        noise_multiplier: Noise std on the sum / clip norm; 0 turns privacy off.
        epsilon_budget: The task stops before its epsilon against the aggregator crosses this.
        delta: Of the epsilon.
        ring_bits: Bits per coordinate; None picks the fewest that suffice.
        prox_mu: FedProx weight; 0 for none.
        max_gradient_norm: L2 bound of a step's gradient; 0 for none.
        example_clip: L2 bound of each example's gradient; 0 for bundles that do not clip examples.
        server_momentum: Share of the last step that is kept, 0 to below 1.
        server_lr: Factor on the step.
        max_attempts: Attempts at one round before the task fails.
        rotation: Rotate updates where that makes the masked input smaller.
        weighted: Weigh each update by its device's number of examples; without noise only.
        weight_bound: Largest weight, 1 unless `weighted`.
        adversary: What the gateway is assumed to do: "honest-but-curious", "semi-malicious" or
            "malicious"; sizes graph, thresholds and committee, and devices check it.
        corrupt_permille: Devices that may collude with the gateway, in thousandths.
        drop_permille: Devices that may drop out in a round, in thousandths.
        mode: "secagg", or the experimental "one-upload".
        selection: "coin" lets each device throw its own coin, "gateway" lets the gateway choose,
            "auto" throws coins where there is noise and their amplification can be claimed.
        goal: Survivors wanted in a round: as many more are called as usually drop out. None calls
            a whole cohort. Only where the gateway chooses.
        deadlines: "learned" takes the limits below for the first rounds only, "fixed" for all.
    """

    name: str
    rounds: int
    cohort: int
    quorum: int
    survivor_floor: int
    colluders: int
    clip_norm: float
    noise_multiplier: float
    epsilon_budget: float
    delta: float = 1e-5
    ring_bits: int | None = None
    local_epochs: int = 1
    batch_size: int = 16
    learning_rate: float = 0.05
    prox_mu: float = 0.0
    max_gradient_norm: float = 0.0
    example_clip: float = 0.0
    server_momentum: float = 0.0
    server_lr: float = 1.0
    check_in_s: float = 30.0
    share_keys_s: float = 30.0
    masked_input_s: float = 120.0
    unmasking_s: float = 30.0
    max_attempts: int = 10
    rotation: bool = True
    weighted: bool = False
    weight_bound: int = 1
    adversary: str = "honest-but-curious"
    corrupt_permille: int = 0
    drop_permille: int = 250
    mode: str = "secagg"
    selection: str = "auto"
    goal: int | None = None
    deadlines: str = "learned"

    @property
    def shortest_phase_s(self) -> float:
        """How long the shortest phase waits for a silent device."""
        return min(self.check_in_s, self.share_keys_s, self.masked_input_s, self.unmasking_s)

    def __post_init__(self) -> None:
        """Check what the privacy plan does not."""
        self._check_name()
        self._check_adversary()
        self._check_cohort()
        self._check_selection()
        if not (_is_number(self.server_momentum) and 0 <= self.server_momentum < 1):
            raise ConfigError(
                "E-TASK-MOMENTUM", "a server momentum from 0 to below 1", repr(self.server_momentum)
            )
        if not (_is_number(self.server_lr) and 0 < self.server_lr <= 100):
            raise ConfigError(
                "E-TASK-SERVER-LR",
                "a server learning rate above 0, at most 100",
                repr(self.server_lr),
            )
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise ConfigError("E-TASK-ATTEMPTS", "1 attempt or more", repr(self.max_attempts))
        for name in ("check_in_s", "share_keys_s", "masked_input_s", "unmasking_s"):
            value = getattr(self, name)
            if not (_is_number(value) and 0 < value <= 86_400):
                raise ConfigError("E-TASK-LIMIT", f"{name} above 0, at most a day", repr(value))
        self._check_weights()
        self._check_training()

    def _check_name(self) -> None:
        try:
            parse_fleet(self.name)  # names of tasks and fleets follow one rule
        except EdgeflError as error:
            expected = error.expected.replace("a fleet name", "a task name")
            raise ConfigError("E-TASK-NAME", expected, error.found, error.advice) from error

    def _check_cohort(self) -> None:
        if type(self.cohort) is not int or self.cohort < LEAST_COHORT:
            raise ConfigError(
                "E-COHORT",
                f"a cohort of {LEAST_COHORT} devices or more",
                repr(self.cohort),
                "a sum over fewer hides nothing; enrol more devices",
            )
        least = self._least_survivor_floor()
        if type(self.survivor_floor) is not int or not least <= self.survivor_floor <= self.cohort:
            raise ConfigError(
                "E-SURVIVOR-FLOOR",
                f"a survivor floor from {least} to the cohort of {self.cohort}",
                repr(self.survivor_floor),
                "fewer answers cannot rebuild the secrets, more than the cohort never arrive",
            )
        if type(self.quorum) is not int or not self.survivor_floor <= self.quorum <= self.cohort:
            raise ConfigError(
                "E-QUORUM",
                f"a quorum from the survivor floor {self.survivor_floor} to {self.cohort}",
                repr(self.quorum),
            )

    def _check_adversary(self) -> None:
        for name, known in (
            ("adversary", ADVERSARIES),
            ("mode", MODES),
            ("selection", SELECTIONS),
            ("deadlines", DEADLINES),
        ):
            if getattr(self, name) not in known:
                raise ConfigError(
                    "E-TASK-CHOICE", f"{name}: {', '.join(known)}", repr(getattr(self, name))
                )
        for name, most in (("corrupt_permille", 500), ("drop_permille", 1000)):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= most:
                raise ConfigError("E-TASK-SHARE", f"{name} from 0 to {most}", repr(value))

    def _check_selection(self) -> None:
        if self.selection == "coin" and (self.mode != "secagg" or self.noise_multiplier == 0):
            raise ConfigError(
                "E-TASK-SELECTION",
                "coins in a task with noise, in the secagg mode",
                f"mode {self.mode}, noise multiplier {self.noise_multiplier!r}",
                "leave --selection away; without noise there is nothing that coins amplify",
            )
        is_goal = type(self.goal) is int and self.survivor_floor <= self.goal <= self.cohort
        if self.goal is not None and not is_goal:
            raise ConfigError(
                "E-TASK-GOAL",
                f"a goal from the survivor floor {self.survivor_floor} to {self.cohort}",
                repr(self.goal),
            )
        if self.goal is not None and self.selection == "coin":
            raise ConfigError(
                "E-TASK-GOAL",
                "no goal where coins decide who takes part",
                repr(self.goal),
                "nobody may be called or turned away for a number; choose --selection gateway",
            )

    def _least_survivor_floor(self) -> int:
        return least_survivor_floor(
            self.cohort,
            adversary=ADVERSARIES[self.adversary],
            corrupt_permille=self.corrupt_permille,
            drop_permille=self.drop_permille,
            mode=MODES[self.mode],
        )

    def _check_weights(self) -> None:
        for name in ("rotation", "weighted"):
            if type(getattr(self, name)) is not bool:
                raise ConfigError("E-TASK-FLAG", f"{name} as yes or no", repr(getattr(self, name)))
        is_bound = type(self.weight_bound) is int and self.weight_bound >= 1
        if not is_bound or self.weighted != (self.weight_bound > 1):
            raise ConfigError(
                "E-TASK-WEIGHTS",
                "a weight bound of 2 or more for a weighted task, and none for any other",
                f"weighted {self.weighted}, weight bound {self.weight_bound!r}",
            )

    def _check_training(self) -> None:
        try:
            self.training_plan()
        except EdgeflError as error:
            raise ConfigError("E-TASK-TRAINING", error.expected, error.found) from error

    def training_plan(self) -> TrainingPlan:
        """Return what devices are told about training."""
        return TrainingPlan(
            local_epochs=self.local_epochs,
            batch_size=self.batch_size,
            learning_rate=float(self.learning_rate),
            prox_mu=float(self.prox_mu),
            max_gradient_norm=float(self.max_gradient_norm),
            example_clip=float(self.example_clip),
        )

    def privacy_plan(self, dimension: int) -> PrivacyPlan:
        """Return the privacy plan for a model of `dimension` trainable parameters.

        Raises:
            ConfigError: No plan keeps the promises.
        """
        return make_privacy_plan(
            clip_norm=self.clip_norm,
            noise_multiplier=self.noise_multiplier,
            n_cohort=self.cohort,
            survivor_floor=self.survivor_floor,
            colluders=self.colluders,
            dimension=dimension,
            delta=self.delta,
            epsilon_budget=self.epsilon_budget,
            rounds=self.rounds,
            ring_bits=self.ring_bits,
            rotation=None if self.rotation else False,
            weight_bound=self.weight_bound,
        )

    def limits(self) -> PhaseLimits:
        """Return how long each phase waits."""
        return PhaseLimits(
            check_in_s=self.check_in_s,
            share_keys_s=self.share_keys_s,
            masked_input_s=self.masked_input_s,
            certificate_s=self.unmasking_s,
            unmasking_s=self.unmasking_s,
        )

    def to_json(self) -> str:
        """Return the task as JSON text."""
        values = asdict(self)
        if math.isinf(self.epsilon_budget):
            values["epsilon_budget"] = None
        return json.dumps(values, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "TaskSpec":
        """Read a task.

        Raises:
            ConfigError: The text is not a task, or a value is out of range.
        """
        try:
            values = json.loads(text)
        except ValueError as error:
            raise ConfigError("E-TASK-FILE", "a task in JSON", str(error)) from error
        known = {field.name for field in fields(cls)}
        if not isinstance(values, dict) or not set(values) <= known:
            unknown = sorted(set(values) - known) if isinstance(values, dict) else [type(values)]
            raise ConfigError("E-TASK-FILE", "only known fields", f"{unknown}")
        if values.get("epsilon_budget", 0) is None:
            values["epsilon_budget"] = math.inf
        try:
            return cls(**values)
        except TypeError as error:
            raise ConfigError("E-TASK-FILE", "every required field", str(error)) from error


def least_survivor_floor(
    cohort: int,
    *,
    adversary: AdversaryClass = AdversaryClass.HONEST_BUT_CURIOUS,
    corrupt_permille: int = 0,
    drop_permille: int = 0,
    mode: RoundMode = RoundMode.SECAGG,
) -> int:
    """Return the least survivor floor with which a cohort of that size can be unmasked.

    Raises:
        ConfigError: No graph over so few devices withstands so many corrupt ones, or they are more
            than a plan can name.
    """
    if cohort > MAX_COHORT:
        raise ConfigError(
            "E-COHORT",
            f"a cohort of at most {MAX_COHORT} devices",
            repr(cohort),
            "split the fleet over several gateways",
        )
    if mode is RoundMode.ONE_UPLOAD:
        terms = DepositTerms(
            adversary=adversary, corrupt_permille=corrupt_permille, drop_permille=drop_permille
        )
        thresholds = one_upload_thresholds(
            terms,
            epoch_size=cohort,
            cohort_size=cohort,
            roster_size=cohort,
            survivor_floor=cohort,
        )
        # A holder has a share of its own secrets, but every survivor needs neighbours.
        return max(thresholds.neighbourhood + 1, thresholds.certificate)
    thresholds = thresholds_for(
        adversary=adversary,
        base_size=cohort,
        roster_size=cohort,
        corrupt_permille=corrupt_permille,
        drop_permille=drop_permille,
        survivor_floor=cohort,
    )
    # Nobody holds a share of its own secrets.
    return max(thresholds.neighbourhood + 1, thresholds.certificate)


def default_survivor_floor(cohort: int, least: int) -> int:
    """Return a floor that leaves room for three devices in eight to drop out.

    Args:
        cohort: Most devices in one round.
        least: What `least_survivor_floor` says.
    """
    return max(least, math.ceil(5 * cohort / 8))


def _is_number(value: object) -> bool:
    is_plain = isinstance(value, int | float) and not isinstance(value, bool)
    return is_plain and math.isfinite(float(value))  # type: ignore[arg-type]
