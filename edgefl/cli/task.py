"""`edgefl task`: hand training tasks to a gateway, list them, fetch their models."""

import argparse
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.cli.options import HelpFormatter, add_common, add_json, default_state_dir
from edgefl.cli.task_control import add_control
from edgefl.cli.task_merge import add_merge
from edgefl.errors import ConfigError

if TYPE_CHECKING:
    from broker.task import TaskSpec
    from edgefl.training.base import TrainingData

_DEMO_MODEL = "spar"
_FIRST_LIMIT_S = 30.0
_SET_BY_DEMO = (
    "quorum",
    "survivor_floor",
    "colluders",
    "clip_norm",
    "noise_multiplier",
    "epsilon_budget",
    "delta",
    "ring_bits",
    "no_rotation",
    "weighted",
    "weight_bound",
    "epochs",
    "batch_size",
    "lr",
    "server_momentum",
    "server_lr",
)
"""Options that the demo's recipe decides."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands."""
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    _add_submit(commands)
    add_control(commands)
    listing = commands.add_parser(
        "list", help="list the tasks of a gateway", description="List the tasks of a gateway."
    )
    _add_state(listing)
    add_json(listing)
    add_common(listing)
    listing.set_defaults(run=run_list)
    result = commands.add_parser(
        "result",
        help="fetch a task's newest model",
        description="Fetch a task's newest committed model, saved after every round. It comes "
        "as float and as int8, for ONNX Runtime and for LiteRT, as far as the bundle was prepared "
        "for that.",
    )
    result.add_argument("name", help="the task's name")
    result.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="file that ends in .onnx, .int8.onnx, .tflite or .int8.tflite; or a folder, for every "
        "form that there is",
    )
    _add_state(result)
    add_json(result)
    add_common(result)
    result.set_defaults(run=run_result)
    add_merge(commands)


def _add_submit(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    submit = commands.add_parser(
        "submit",
        help="hand a task to a gateway",
        description="Hand a task to the gateway of a state folder, which need not be running yet. "
        "The privacy plan is checked now; every device checks it again.",
        formatter_class=HelpFormatter,
    )
    submit.add_argument(
        "model",
        help="a bundle made by 'edgefl model prepare' (.efl), a model (.onnx), or spar for the "
        "demo's model and data",
    )
    submit.add_argument("--name", default="task", help="the task's name")
    submit.add_argument(
        "--evaluation", type=Path, help="a .npz that committed models are measured on"
    )
    submit.add_argument("--cohort", type=int, required=True, help="most devices in one round")
    submit.add_argument("--rounds", type=int, default=20, help="committed rounds to reach")
    submit.add_argument(
        "--quorum", type=int, help="devices online before the first round (default: cohort)"
    )
    submit.add_argument("--survivor-floor", type=int, help="least survivors of a released round")
    submit.add_argument(
        "--colluders", type=int, default=1, help="devices whose noise is not counted"
    )
    submit.add_argument("--clip-norm", type=float, default=1.0, help="L2 bound of one update")
    submit.add_argument(
        "--noise-multiplier",
        type=float,
        default=1.0,
        help="noise std on the sum / clip norm; 0 is no privacy",
    )
    submit.add_argument(
        "--epsilon-budget",
        type=float,
        default=8.0,
        help="stop before this epsilon; ignored without noise",
    )
    submit.add_argument("--delta", type=float, default=1e-5, help="delta of the epsilon")
    submit.add_argument(
        "--ring-bits", type=int, help="bits per coordinate (default: fewest that suffice)"
    )
    _add_sum(submit)
    _add_adversary(submit)
    _add_selection(submit)
    submit.add_argument("--epochs", type=int, default=1, help="local passes over a device's data")
    submit.add_argument("--batch-size", type=int, default=16, help="rows per local step")
    submit.add_argument("--lr", type=float, default=0.05, help="learning rate on the device")
    submit.add_argument(
        "--prox-mu",
        type=float,
        default=0.0,
        help="FedProx: pull local training towards the received model by this weight",
    )
    submit.add_argument(
        "--max-gradient-norm", type=float, default=0.0, help="L2 bound of a local step; 0 for none"
    )
    submit.add_argument(
        "--example-clip",
        type=float,
        default=0.0,
        help="L2 bound of each example's gradient; for bundles prepared with --clip-examples",
    )
    submit.add_argument(
        "--server-momentum", type=float, default=0.0, help="share of the last step kept"
    )
    submit.add_argument("--server-lr", type=float, default=1.0, help="factor on the server's step")
    submit.add_argument(
        "--phase-limit-s",
        type=float,
        help="how long each phase waits for silent devices; without it, 30 s in the first rounds, "
        "and then what the rounds before have taught",
    )
    _add_state(submit)
    add_json(submit)
    add_common(submit)
    untouched = {name: submit.get_default(name) for name in _SET_BY_DEMO}
    submit.set_defaults(run=run_submit, untouched=untouched)


def _add_sum(submit: argparse.ArgumentParser) -> None:
    submit.add_argument(
        "--no-rotation",
        action="store_true",
        help="never rotate updates; a rotation spreads them evenly over the coordinates, so that "
        "fewer bits hold their sum, and is used where that makes uploads smaller",
    )
    submit.add_argument(
        "--weighted",
        action="store_true",
        help="weigh each update by its device's number of examples; of the weights the gateway "
        "learns the sum alone; needs --noise-multiplier 0, as the noise is sized for weights of 1",
    )
    submit.add_argument(
        "--weight-bound",
        type=int,
        help="with --weighted: examples beyond this do not count, 256 unless given; doubling it "
        "costs one more bit per coordinate",
    )


def _add_selection(submit: argparse.ArgumentParser) -> None:
    submit.add_argument(
        "--selection",
        choices=["auto", "coin", "gateway"],
        default="auto",
        help="who takes part where there are more devices than a cohort has room for; coin: each "
        "device throws its own coin, and nobody selects afterwards, which amplifies privacy "
        "against those who see the released models only; gateway: devices that are fed, reliable "
        "and waited longest, and no amplification is claimed; auto: coin where there is noise and "
        "its amplification can be claimed",
    )
    submit.add_argument(
        "--goal",
        type=int,
        help="survivors wanted in a round, where the gateway selects: as many more are called as "
        "usually drop out, up to the cohort (default: a whole cohort is called)",
    )


def _add_adversary(submit: argparse.ArgumentParser) -> None:
    submit.add_argument(
        "--adversary",
        choices=["honest-but-curious", "semi-malicious", "malicious"],
        default="honest-but-curious",
        help="what devices shall assume of the gateway; the stronger, the larger graph and "
        "thresholds; 'malicious' needs a roster signed off the gateway, and adds a certificate by "
        "a committee before anything is unmasked ('edgefl secagg sizes' shows the numbers)",
    )
    submit.add_argument(
        "--corrupt-permille",
        type=int,
        help="devices that may collude with the gateway, in thousandths; 0, or 50 against a "
        "malicious one, unless given (devices ask for that much then)",
    )
    submit.add_argument(
        "--drop-permille",
        type=int,
        default=250,
        help="devices that may drop out of a round, in thousandths",
    )
    submit.add_argument(
        "--mode",
        choices=["secagg", "one-upload"],
        default="secagg",
        help="EXPERIMENTAL one-upload: each device publishes once in a round and a committee "
        "unmasks; its security argument is not complete (docs/threat-model.md), and devices "
        "refuse it unless their policy file says allow_experimental = true",
    )


def _add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", type=Path, help="the gateway's state folder")


def run_submit(options: argparse.Namespace) -> int:
    """Check and hand in a task."""
    from broker.task_folder import submit_task
    from edgefl.data.npz import load_npz
    from edgefl.training.bundle import read_bundle
    from edgefl.training.fit_checks import require_fit

    bundle_bytes, spec, evaluation = _task_of(options)
    if options.evaluation is not None:
        evaluation = load_npz(options.evaluation)
        require_fit(evaluation, read_bundle(bundle_bytes).manifest)
    folder = submit_task(_state(options), spec, bundle_bytes, evaluation)
    plan = spec.privacy_plan(read_bundle(bundle_bytes).manifest.dimension)
    if options.json:
        line = {
            "task": spec.name,
            "folder": str(folder),
            "dimension": plan.dimension,
            "ring_bits": plan.ring_bits,
            "rotation_block": plan.rotation_block,
            "weight_bound": plan.weight_bound,
            "epsilon_planned": None if math.isinf(plan.epsilon_declared) else plan.epsilon_declared,
        }
        sys.stdout.write(json.dumps(line) + "\n")
    else:
        sys.stdout.write(
            f"task {spec.name}: {spec.rounds} rounds of up to {spec.cohort} devices, floor "
            f"{spec.survivor_floor}, {plan.dimension} parameters in {plan.ring_bits} bits, epsilon "
            f"{plan.epsilon_declared:.4g} at delta {plan.delta:g} against the gateway\n"
        )
    if math.isinf(plan.epsilon_declared):
        sys.stderr.write(
            "edgefl: warning: without noise one round spends every budget: this fleet's ledger "
            "will refuse every later task that has one\n"
        )
    return 0


def run_list(options: argparse.Namespace) -> int:
    """List the tasks."""
    from broker.task_folder import list_tasks, read_summary

    state = _state(options)
    rows = [{"task": name, **read_summary(state, name)} for name in list_tasks(state)]
    if options.json:
        sys.stdout.write(json.dumps(rows) + "\n")
        return 0
    for row in rows:
        accuracy = row.get("accuracy")
        measured = f", accuracy {accuracy:.3f}" if isinstance(accuracy, float) else ""
        sys.stdout.write(f"{row['task']}: {row.get('rounds_committed', 0)} rounds{measured}\n")
    return 0


def run_result(options: argparse.Namespace) -> int:
    """Write the newest model, in the forms that were asked for."""
    from broker.task_result import write_result

    summary = write_result(_state(options), options.name, options.output)
    if options.json:
        sys.stdout.write(json.dumps(summary) + "\n")
        return 0
    files = summary["files"]
    for path in files if isinstance(files, list) else []:
        sys.stdout.write(
            f"{path}: model after {summary['rounds_committed']} of {summary['rounds']} rounds\n"
        )
    for name, what in (("accuracy", "float"), ("int8_accuracy", "int8")):
        if isinstance(summary.get(name), float):
            sys.stdout.write(f"accuracy of the {what} model: {summary[name]:.3f}\n")
    return 0


def _state(options: argparse.Namespace) -> Path:
    return options.state or default_state_dir("gateway")


def _corrupt_permille(options: argparse.Namespace) -> int:
    """Return what was asked for, or what the devices of that class ask for."""
    from edgefl.agent.policy_file import MALICIOUS_CORRUPT_PERMILLE

    chosen: int | None = options.corrupt_permille
    if chosen is not None:
        return chosen
    return MALICIOUS_CORRUPT_PERMILLE if options.adversary == "malicious" else 0


def _task_of(
    options: argparse.Namespace,
) -> "tuple[bytes, TaskSpec, TrainingData | None]":
    from broker.task import (
        ADVERSARIES,
        DEFAULT_WEIGHT_BOUND,
        LEAST_COHORT,
        MODES,
        TaskSpec,
        default_survivor_floor,
        least_survivor_floor,
    )

    if options.model == _DEMO_MODEL:
        return _demo_task_of(options)
    floor = options.survivor_floor
    if floor is None:
        cohort = max(options.cohort, LEAST_COHORT)  # A smaller one is refused below.
        least = least_survivor_floor(
            cohort,
            adversary=ADVERSARIES[options.adversary],
            corrupt_permille=_corrupt_permille(options),
            drop_permille=options.drop_permille,
            mode=MODES[options.mode],
        )
        floor = default_survivor_floor(cohort, least)
    usual_bound = DEFAULT_WEIGHT_BOUND if options.weighted else 1
    spec = TaskSpec(
        name=options.name,
        rounds=options.rounds,
        cohort=options.cohort,
        quorum=options.cohort if options.quorum is None else options.quorum,
        survivor_floor=floor,
        colluders=options.colluders,
        clip_norm=options.clip_norm,
        noise_multiplier=options.noise_multiplier,
        epsilon_budget=options.epsilon_budget if options.noise_multiplier > 0 else math.inf,
        delta=options.delta,
        ring_bits=options.ring_bits,
        rotation=not options.no_rotation,
        weighted=options.weighted,
        weight_bound=usual_bound if options.weight_bound is None else options.weight_bound,
        adversary=options.adversary,
        corrupt_permille=_corrupt_permille(options),
        drop_permille=options.drop_permille,
        mode=options.mode,
        local_epochs=options.epochs,
        batch_size=options.batch_size,
        learning_rate=options.lr,
        prox_mu=options.prox_mu,
        max_gradient_norm=options.max_gradient_norm,
        example_clip=options.example_clip,
        server_momentum=options.server_momentum,
        server_lr=options.server_lr,
        check_in_s=_limit_s(options),
        share_keys_s=_limit_s(options),
        masked_input_s=_limit_s(options),
        unmasking_s=_limit_s(options),
        deadlines=_deadlines(options),
        selection=options.selection,
        goal=options.goal,
    )
    return _bundle_bytes(Path(options.model)), spec, None


def _demo_task_of(
    options: argparse.Namespace,
) -> "tuple[bytes, TaskSpec, TrainingData | None]":
    """Return the demo's model, recipe and held-out people.

    Raises:
        ConfigError: An option was given that the recipe decides.
    """
    from broker.demo_task import demo_task
    from edgefl.data.spar import held_out
    from edgefl.training.onnx.demo_model import demo_bundle
    from edgefl.training.recipe import SPAR_RECIPE

    for name, untouched in options.untouched.items():
        if getattr(options, name) != untouched:
            raise ConfigError(
                "E-DEMO-OPTION",
                "the demo's own recipe with the model spar",
                f"--{name.replace('_', '-')} {getattr(options, name)}",
                "leave the option out, or hand in a model of your own",
            )
    bundle = demo_bundle(SPAR_RECIPE.model_seed)
    recipe = demo_task(
        options.name, cohort=options.cohort, rounds=options.rounds, limit_s=_limit_s(options)
    )
    spec = replace(
        recipe,
        adversary=options.adversary,
        corrupt_permille=_corrupt_permille(options),
        drop_permille=options.drop_permille,
        mode=options.mode,
        deadlines=_deadlines(options),
        selection=options.selection,
        goal=options.goal,
    )
    return bundle, spec, held_out()


def _limit_s(options: argparse.Namespace) -> float:
    limit_s: float | None = options.phase_limit_s
    return _FIRST_LIMIT_S if limit_s is None else limit_s


def _deadlines(options: argparse.Namespace) -> str:
    return "learned" if options.phase_limit_s is None else "fixed"


def _bundle_bytes(path: Path) -> bytes:
    if not path.is_file():
        raise ConfigError(
            "E-MODEL-MISSING",
            "a bundle (.efl), an ONNX model (.onnx), or spar",
            f"no file {str(path)!r}",
            "check the path, or make a bundle with 'edgefl model prepare'",
        )
    if path.suffix == ".onnx":
        from edgefl.training.onnx.compile.bundle import compile_bundle
        from edgefl.training.onnx.compile.normalize import load_model

        return compile_bundle(load_model(path)).bundle_bytes
    return path.read_bytes()
