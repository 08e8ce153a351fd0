"""Judge a finished demo: what is printed, what is written, and whether it passed."""

import json
from dataclasses import dataclass

from broker.task import ADVERSARIES, TaskSpec
from edgefl.demo.record import RunRecord
from edgefl.privacy.epsilons import cohort_for_epsilon, epsilon_report
from edgefl.privacy.plan import PrivacyPlan
from edgefl.protocol.reasons import Phase, phases_of
from edgefl.training.recipe import SPAR_RECIPE

LEAST_ACCURACY = 0.65
LEAST_OVER_MAJORITY = 0.30
_TARGET_EPSILON = 8.0
_TRUST = {
    "honest-but-curious": "an honest-but-curious",
    "semi-malicious": "a semi-malicious",
    "malicious": "a malicious",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The numbers of one run.

    Attributes:
        accuracy: Of the last committed model, on held-out people.
        central_accuracy: Of central training with the same budget.
        majority: Accuracy of always guessing the most frequent class.
    """

    spec: TaskSpec
    plan: PrivacyPlan
    record: RunRecord
    accuracies: dict[int, float]
    central_accuracies: list[float]
    majority: float
    peak_agent_mb: float
    wall_s: float
    kills: int

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that a round of this run had."""
        return phases_of(ADVERSARIES[self.spec.adversary])

    @property
    def accuracy(self) -> float:
        """Accuracy after the last committed round; 0 without one."""
        return self.accuracies[max(self.accuracies)] if self.accuracies else 0.0

    @property
    def central_accuracy(self) -> float:
        """Accuracy of central training."""
        return self.central_accuracies[-1] if self.central_accuracies else 0.0

    @property
    def int8_accuracy(self) -> float:
        """Accuracy of the last round's model in int8; 0 if it was not measured."""
        return self.record.int8_accuracy or 0.0

    def failures(self) -> list[str]:
        """Return why the run did not pass, one phrase each."""
        record = self.record
        found = []
        if len(record.committed) < self.spec.rounds:
            found.append(f"{len(record.committed)} of {self.spec.rounds} rounds committed")
        found += [
            f"round {event['round']} kept its survivor floor and ended with {event['reason']}"
            for event in record.unexcused
        ]
        if not record.sum_check_held:
            found.append("a sum did not agree with its check coordinates")
        least = max(LEAST_ACCURACY, self.majority + LEAST_OVER_MAJORITY)
        for form, accuracy in (("float32", self.accuracy), ("int8", self.int8_accuracy)):
            if accuracy < least:
                found.append(
                    f"accuracy {accuracy:.3f} as {form} is below {least:.3f}; the recipe needs "
                    f"about {SPAR_RECIPE.rounds} rounds of 16 devices"
                )
        return found

    def to_dict(self) -> dict[str, object]:
        """Return the object that `--json` prints and `demo.json` holds."""
        record = self.record
        last = record.committed[-1] if record.committed else {}
        return {
            "accuracy": self.accuracy,
            "central_accuracy": self.central_accuracy,
            "rounds": self.spec.rounds,
            "rounds_completed": len(record.committed),
            "dropouts": record.dropouts_by_phase(self.phases),
            "exact_sum": record.sum_check_held,
            "epsilon_server": last.get("epsilon_server"),
            "epsilon_release": last.get("epsilon_release"),
            "bytes_per_device": record.bytes_per_device(),
            "wall_s": self.wall_s,
        }

    def details(self) -> dict[str, object]:
        """Return more than `to_dict`, for `demo.json`."""
        return {
            **self.to_dict(),
            "int8_accuracy": self.int8_accuracy,
            "adversary": self.spec.adversary,
            "delta": self.plan.delta,
            "ring_bits": self.plan.ring_bits,
            "dimension": self.plan.dimension,
            "survivor_floor": self.spec.survivor_floor,
            "peak_agent_mb": self.peak_agent_mb,
            "majority": self.majority,
            "kills": self.kills,
            "accuracy_by_round": {str(key): value for key, value in self.accuracies.items()},
            "central_accuracy_by_round": self.central_accuracies,
            "attempts": self.record.rounds,
        }


def format_table(outcome: Outcome) -> str:
    """Return the table of accuracies and the totals."""
    record = outcome.record
    lines = ["", " round  in sum  dropped  federated  central", f" {'-' * 43}"]
    for event in record.rounds:
        number = event["round"]
        if event["outcome"] != "COMMITTED":
            lines.append(f" {number:5d}  aborted: {event['reason']}")
            continue
        federated = outcome.accuracies.get(number)
        central = outcome.central_accuracies[number - 1 : number]
        shown = "        -" if federated is None else f"{federated:9.3f}"
        beside = f"{central[0]:7.3f}" if central else "      -"
        lines.append(
            f" {number:5d}  {event['survivors']:6d}  {len(event['dropouts']):7d}  {shown}  {beside}"
        )
    return "\n".join([*lines, "", *_totals(outcome)]) + "\n"


def _totals(outcome: Outcome) -> list[str]:
    record = outcome.record
    gap = 100 * (outcome.central_accuracy - outcome.accuracy)
    dropouts = ", ".join(
        f"{phase} {count}" for phase, count in record.dropouts_by_phase(outcome.phases).items()
    )
    aborted = len(record.rounds) - len(record.committed)
    rows = {
        "accuracy on the people held out": (
            f"{outcome.accuracy:.3f} federated, {outcome.central_accuracy:.3f} central "
            f"(gap {gap:+.1f} points), {outcome.majority:.3f} by guessing the most frequent class"
        ),
        "the federated model in int8": (
            f"{outcome.int8_accuracy:.3f} ({100 * (outcome.int8_accuracy - outcome.accuracy):+.1f} "
            "points); devices trained with its rounding in mind"
        ),
        "rounds completed": (
            f"{len(record.committed)} of {outcome.spec.rounds}; attempts aborted: {aborted}"
        ),
        "sum check": "held in every opened sum" if record.sum_check_held else "FAILED",
        "dropouts by phase": (
            f"{dropouts} (at most {record.most_dropouts_in_a_round()} in one committed round)"
        ),
        "bytes per device": (
            f"{record.bytes_per_device():,.0f} over the run both ways, "
            f"{record.uplink_bytes_per_device_round():,.0f} sent in a round"
        ),
        "peak memory of an agent": f"{outcome.peak_agent_mb:.0f} MB",
        "wall time": f"{outcome.wall_s:.0f} s",
    }
    return [f"{name:<32}  {text}" for name, text in rows.items()]


def format_privacy(outcome: Outcome) -> str:
    """Return what was spent, for whom it holds, and what it is worth."""
    plan, spec = outcome.plan, outcome.spec
    charged = sum(1 for event in outcome.record.rounds if event.get("charged"))
    report = epsilon_report(plan, charged)
    cohort = cohort_for_epsilon(
        noise_multiplier=spec.noise_multiplier,
        n_cohort=spec.cohort,
        rounds=spec.rounds,
        delta=spec.delta,
        target_epsilon=_TARGET_EPSILON,
    )
    published, two_devices = report.server_published_orders, report.two_devices
    about = _rounded(report.server)
    return "\n".join(
        [
            "privacy (unit: one device, its whole contribution added or removed; adversary:",
            f"{_TRUST[spec.adversary]} gateway with up to {spec.colluders} colluding device;",
            f"delta {spec.delta:g}; {charged} releases charged)",
            f"  epsilon {report.server:,.0f} against the gateway, {report.release:,.0f} against "
            "those who see only the models",
            "  (equal, since every device is called in every round: nothing is amplified);",
            f"  {published:,.0f} by the published whole-order bound alone.",
            f"  A person with two devices has epsilon {two_devices:,.0f} (sensitivity 2C).",
            f"  Epsilon of about {about:,} shows the mechanism and protects nobody:",
            f"  {spec.cohort} devices cannot have useful user-level privacy. With the same noise",
            f"  on the mean update, this model would reach epsilon {_TARGET_EPSILON:g}",
            f"  with a cohort of {cohort:,}.",
            "",
        ]
    )


def format_json(outcome: Outcome) -> str:
    """Return the last line of `--json`."""
    return json.dumps(outcome.to_dict())


def _rounded(value: float) -> int:
    return round(value / 100) * 100 if value >= 100 else round(value)
