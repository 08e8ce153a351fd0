"""`edgefl privacy`: compute epsilons, and read the privacy ledger."""

import argparse
import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.cli.options import HelpFormatter, add_common, add_json, default_state_dir
from edgefl.errors import ConfigError, PrivacyError, StorageError

if TYPE_CHECKING:
    from edgefl.privacy.ledger import Ledger

_LEDGER = "ledger.jsonl"
_MOST_LEDGER_BYTES = 1 << 30
_TARGET_EPSILON = 8.0
_ANY_BUDGET = 1e12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands."""
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    _add_epsilon(commands)
    show = commands.add_parser(
        "show",
        help="show what a gateway's fleet has spent",
        description="Verify the ledger of a gateway's state folder and show what is spent. The "
        "gateway may be running.",
        formatter_class=HelpFormatter,
    )
    show.add_argument("--state", type=Path, help="the gateway's state folder")
    show.add_argument("--delta", type=float, default=1e-5, help="delta of the epsilon")
    add_json(show)
    add_common(show)
    show.set_defaults(run=run_show)
    verify = commands.add_parser(
        "verify",
        help="check a ledger's hash chain",
        description="Check every line of a privacy ledger: form, sequence, hash chain, one entry "
        "for each session. Exit code 6 if it is damaged. Nothing follows the last line that could "
        "vouch for it, and a ledger that was cut back is whole in itself: give the known --head "
        "(from 'privacy show', or a signed plan) to notice both.",
    )
    verify.add_argument("ledger", type=Path, help="a ledger.jsonl")
    verify.add_argument("--head", help="hash that the ledger must contain as its head, then or now")
    add_json(verify)
    add_common(verify)
    verify.set_defaults(run=run_verify)


def _add_epsilon(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    epsilon = commands.add_parser(
        "epsilon",
        help="compute the epsilons of a task before it runs",
        description="Compute what a task would cost its devices, against each observer.",
        formatter_class=HelpFormatter,
    )
    epsilon.add_argument("--clip-norm", type=float, default=1.0, help="L2 bound of one update")
    epsilon.add_argument(
        "--noise-multiplier", type=float, required=True, help="noise std on the sum / clip norm"
    )
    epsilon.add_argument("--rounds", type=int, required=True, help="committed rounds")
    epsilon.add_argument("--cohort", type=int, required=True, help="most devices in one round")
    epsilon.add_argument(
        "--survivor-floor", type=int, help="least survivors of a round (default: as a task's)"
    )
    epsilon.add_argument(
        "--colluders", type=int, default=1, help="devices whose noise is not counted"
    )
    epsilon.add_argument("--delta", type=float, default=1e-5, help="delta of the epsilons")
    epsilon.add_argument(
        "--dimension", type=int, required=True, help="trainable parameters of the model"
    )
    epsilon.add_argument("--ring-bits", type=int, help="bits per coordinate")
    add_json(epsilon)
    add_common(epsilon)
    epsilon.set_defaults(run=run_epsilon)


def run_epsilon(options: argparse.Namespace) -> int:
    """Compute and show the epsilons of a plan."""
    from broker.task import LEAST_COHORT, default_survivor_floor, least_survivor_floor
    from edgefl.privacy.epsilons import epsilon_report
    from edgefl.privacy.plan import make_privacy_plan

    floor = options.survivor_floor
    if floor is None:
        cohort = max(options.cohort, LEAST_COHORT)  # A smaller one is refused below.
        floor = default_survivor_floor(cohort, least_survivor_floor(cohort))
    plan = make_privacy_plan(
        clip_norm=options.clip_norm,
        noise_multiplier=options.noise_multiplier,
        n_cohort=options.cohort,
        survivor_floor=floor,
        colluders=options.colluders,
        dimension=options.dimension,
        delta=options.delta,
        # Asked is what a task costs, not whether some budget allows it.
        epsilon_budget=_ANY_BUDGET if options.noise_multiplier > 0 else math.inf,
        rounds=options.rounds,
        ring_bits=options.ring_bits,
    )
    report = epsilon_report(plan, options.rounds)
    facts: dict[str, float | int | None] = {
        "epsilon_server": _finite(report.server),
        "epsilon_release": _finite(report.release),
        "epsilon_two_devices": _finite(report.two_devices),
        "epsilon_server_published_orders": _finite(report.server_published_orders),
        "delta": report.delta,
        "survivor_floor": plan.survivor_floor,
        "ring_bits": plan.ring_bits,
        "cohort_for_epsilon_8": _cohort_for_target(options),
    }
    if options.json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return 0
    sys.stdout.write(
        f"epsilon at delta {report.delta:g} after {options.rounds} rounds, floor "
        f"{plan.survivor_floor} of {options.cohort}, {options.colluders} colluders, "
        f"{plan.ring_bits} bits:\n"
        f"  {_shown(report.server)}  against the gateway, for one device in every round\n"
        f"  {_shown(report.release)}  against readers of the models who know nothing of "
        "participation\n"
        f"  {_shown(report.two_devices)}  against the gateway, for a person with two devices\n"
        f"  {_shown(report.server_published_orders)}  against the gateway, by the published bound "
        "at whole orders alone\n"
        f"{_cohort_line(facts['cohort_for_epsilon_8'])}\n"
    )
    return 0


def _cohort_for_target(options: argparse.Namespace) -> int | None:
    """Return the cohort that reaches the target, or None where none does."""
    from edgefl.privacy.epsilons import cohort_for_epsilon

    try:
        return cohort_for_epsilon(
            noise_multiplier=options.noise_multiplier,
            n_cohort=options.cohort,
            rounds=options.rounds,
            delta=options.delta,
            target_epsilon=_TARGET_EPSILON,
        )
    except PrivacyError:
        return None


def _cohort_line(cohort: float | None) -> str:
    if cohort is None:
        return f"no cohort reaches epsilon {_TARGET_EPSILON:g} without noise"
    return (
        f"epsilon {_TARGET_EPSILON:g} would take about {cohort:.0f} devices at the same noise on "
        "the mean update"
    )


def run_show(options: argparse.Namespace) -> int:
    """Show the sum of a gateway's ledger."""
    path = (options.state or default_state_dir("gateway")) / _LEDGER
    if not 0 < options.delta < 1:
        raise ConfigError("E-DELTA", "a delta above 0 and below 1", repr(options.delta))
    ledger, torn_bytes = _read_ledger(path)
    tasks = Counter(entry.release.task for entry in ledger.entries)
    facts = {
        "ledger": str(path),
        "entries": len(ledger),
        "tasks": dict(tasks),
        "epsilon_server": _finite(ledger.epsilon(options.delta)),
        "delta": options.delta,
        "head": ledger.head,
        "torn_bytes": torn_bytes,
    }
    if options.json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return 0
    sys.stdout.write(
        f"{path}: {len(ledger)} releases, epsilon {_shown(ledger.epsilon(options.delta)).strip()} "
        f"at delta {options.delta:g} against the gateway, for a device in every round\n"
    )
    for task, count in tasks.items():
        last = [entry.release for entry in ledger.entries if entry.release.task == task][-1]
        sys.stdout.write(
            f"  {task}: {count} releases, the last for round {last.round_number} with "
            f"{last.n_survivors} survivors\n"
        )
    sys.stdout.write(f"head {ledger.head}\n{_torn_line(torn_bytes)}")
    return 0


def run_verify(options: argparse.Namespace) -> int:
    """Check a ledger file."""
    ledger, torn_bytes = _read_ledger(options.ledger)
    if options.head is not None:
        _require_head(ledger, options.head)
    if options.json:
        facts = {
            "valid": True,
            "entries": len(ledger),
            "head": ledger.head,
            "torn_bytes": torn_bytes,
        }
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        sys.stdout.write(
            f"{options.ledger}: {len(ledger)} entries, the chain holds, head {ledger.head}\n"
            f"{_torn_line(torn_bytes)}"
        )
    return 0


def _read_ledger(path: Path) -> "tuple[Ledger, int]":
    """Read and verify the complete lines; take no lock, and change nothing.

    Returns:
        The ledger, and the bytes of an unfinished last line.

    Raises:
        StorageError: E-LEDGER-MISSING or E-LEDGER-DAMAGED.
    """
    from edgefl.privacy.ledger import verify
    from edgefl.storage.files import read_file

    try:
        content = read_file(path, _MOST_LEDGER_BYTES)
    except OSError as error:
        raise StorageError(
            "E-LEDGER-MISSING",
            f"a readable privacy ledger at {path}",
            error.strerror or type(error).__name__,
            "check the path, or restore it from a backup",
        ) from error
    complete_bytes = content.rfind(b"\n") + 1
    try:
        lines = content[:complete_bytes].decode("ascii").split("\n")[:-1]
    except UnicodeDecodeError as error:
        raise StorageError(
            "E-LEDGER-DAMAGED", "ASCII lines", f"other bytes in {path}", "restore a backup"
        ) from error
    return verify(lines), len(content) - complete_bytes


def _require_head(ledger: "Ledger", head: str) -> None:
    """Check that a ledger continues one whose head is known.

    Raises:
        StorageError: E-LEDGER-ROLLED-BACK.
    """
    if not any(ledger.extends(length, head) for length in range(len(ledger) + 1)):
        raise StorageError(
            "E-LEDGER-ROLLED-BACK",
            f"a ledger that continues the head {head[:16]}",
            f"{len(ledger)} entries of another history, head {ledger.head[:16]}",
            "restore the newest backup",
        )


def _torn_line(torn_bytes: int) -> str:
    if not torn_bytes:
        return ""
    return (
        f"an unfinished last line of {torn_bytes} bytes follows, as a power cut leaves it; nothing "
        "was released on its account\n"
    )


def _finite(value: float) -> float | None:
    """Return the value, or None for infinity, which JSON cannot hold."""
    return value if math.isfinite(value) else None


def _shown(value: float) -> str:
    return f"{value:10.4g}" if math.isfinite(value) else "  infinite"
