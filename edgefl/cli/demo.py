"""`edgefl demo`: train a real fleet on this machine, kill devices, and show what survives."""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from edgefl.cli.options import add_common
from edgefl.cli.signals import run_until_signal
from edgefl.errors import StorageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Start a gateway with its MQTT broker and up to 16 agents as processes of this machine, "
        "train a small network on real people's shoulder exercises with secure aggregation, "
        "clipping, noise and a privacy ledger, and meanwhile kill agents in every phase, the "
        "broker and the gateway. Exit code 0 only if every round that kept its survivor floor "
        "completed with an exact sum and the model is good enough on people it never saw."
    )
    parser.add_argument("--devices", type=int, default=16, help="agents, 3 to 16 (default 16)")
    parser.add_argument("--rounds", type=int, default=20, help="rounds to commit (default 20)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the central comparison")
    parser.add_argument(
        "--adversary",
        choices=["honest-but-curious", "malicious"],
        default="honest-but-curious",
        help="what devices assume of the gateway (default honest-but-curious: it enrols them "
        "itself); malicious: an operator's key signs the roster, and a committee of devices "
        "certifies who survived before anything is unmasked",
    )
    parser.add_argument("--no-kill", action="store_true", help="kill nobody")
    parser.add_argument(
        "--json",
        action="store_true",
        help="progress on stderr, one JSON object as stdout's last line",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo-out"),
        help="folder for plot and demo.json (default demo-out)",
    )
    add_common(parser)
    parser.set_defaults(run=run_demo_command)


def run_demo_command(options: argparse.Namespace) -> int:
    """Run the demo and judge it."""
    from edgefl.demo.outcome import Outcome, format_json, format_privacy, format_table
    from edgefl.demo.plot import draw
    from edgefl.demo.run import DemoOptions, run_demo

    stream = sys.stderr if options.json else sys.stdout
    chosen = DemoOptions(
        devices=options.devices,
        rounds=options.rounds,
        seed=options.seed,
        kills=not options.no_kill,
        is_malicious=options.adversary == "malicious",
    )
    outcomes: list[Outcome] = []

    async def work() -> None:
        outcomes.append(await run_demo(chosen, stream))

    code = asyncio.run(run_until_signal(work()))
    if not outcomes:
        stream.write("edgefl: interrupted; all processes ended, temporary files removed\n")
        return code
    outcome = outcomes[0]
    stream.write(format_table(outcome) + "\n" + format_privacy(outcome))
    plot, record = options.out / "demo.png", options.out / "demo.json"
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        draw(outcome, plot)
        record.write_text(json.dumps(outcome.details(), indent=2) + "\n")
    except OSError as error:
        raise StorageError(
            "E-DEMO-OUT",
            f"room and permission to write {options.out}",
            error.strerror or type(error).__name__,
            "use --out",
        ) from error
    stream.write(f"\nplot: {plot}   record: {record}\n")
    failures = outcome.failures()
    for failure in failures:
        stream.write(f"FAILED: {failure}\n")
    stream.write("passed\n" if not failures else "")
    if options.json:
        sys.stdout.write(format_json(outcome) + "\n")
    return 1 if failures else 0
