"""`edgefl agent`: run the device agent, as a program or as a service, and look after it."""

import argparse
from pathlib import Path

from edgefl.agent.policy_file import DEFAULT_MAX_EPSILON
from edgefl.cli.agent_check import add_check
from edgefl.cli.agent_enrol import add_enrol
from edgefl.cli.agent_install import add_install
from edgefl.cli.agent_predict import add_predict
from edgefl.cli.agent_run import LOST_BY_RESET, run_agent
from edgefl.cli.agent_status import add_status
from edgefl.cli.learning_options import add_backend, add_data
from edgefl.cli.options import HelpFormatter, add_common, add_reset_state


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands."""
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    _add_run(commands)
    add_enrol(commands)
    add_install(commands)
    add_status(commands)
    add_check(commands)
    add_predict(commands)


def _add_run(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    run = commands.add_parser(
        "run",
        help="take part in rounds until stopped",
        description="Take part in rounds until stopped. It may start before the broker exists, and "
        "goes on after a restart of anything. What is not said here is taken from agent.toml, then "
        "from what 'edgefl agent enrol' wrote.",
        formatter_class=HelpFormatter,
    )
    run.add_argument("--device", help="this board's name, unique in the fleet")
    add_data(run, is_required=False)
    run.add_argument(
        "--gateway",
        help="where the gateway or its broker listens: HOST:PORT or a URL (mqtt, mqtts, ws, wss); "
        "several, separated by commas, are tried in turn [127.0.0.1:1883]",
    )
    run.add_argument("--fleet", help="the fleet's name [fleet]")
    run.add_argument("--state", type=Path, help="folder for identity, spend and open round")
    run.add_argument(
        "--config", type=Path, help="a TOML file (docs/boards.md) [agent.toml in the state folder]"
    )
    _add_floors(run)
    run.add_argument(
        "--ignore-power",
        action="store_true",
        help="take part whatever power, heat, hours, network and room are like; without it, "
        "rounds are declined on a draining battery and more (docs/boards.md)",
    )
    add_backend(run)
    run.add_argument(
        "--validation-share",
        type=float,
        default=0.0,
        help="share of the examples, 0 to 0.5, that is not trained on but measured with, to decide "
        "which models are kept; with 0 they are measured on what they were trained on",
    )
    run.add_argument(
        "--wait-s", type=float, default=None, help="give up if no gateway is heard for this long"
    )
    run.add_argument(
        "--forget-spend",
        action="store_true",
        help="begin a new account of spent privacy, as the device's owner: after its account was "
        "lost with a damaged state file, or for a new owner",
    )
    add_reset_state(run, LOST_BY_RESET)
    add_common(run)
    run.set_defaults(run=run_agent)


def _add_floors(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--policy",
        type=Path,
        help="TOML file with this device's own floors: adversary class, least survivors, age of "
        "identities and more (docs/threat-model.md); the options below come before it",
    )
    run.add_argument(
        "--adversary",
        choices=["honest-but-curious", "semi-malicious", "malicious"],
        help="what the gateway must at least be assumed to be; 'malicious' takes part only with "
        "a roster signed off the gateway and a survivor certificate",
    )
    run.add_argument(
        "--enrolment-key",
        help="hex public key that signs the roster (edgefl roster show); "
        "without it the first one heard is pinned",
    )
    run.add_argument(
        "--max-epsilon",
        type=float,
        help="most that this device's owner will spend, over all tasks, against the gateway "
        f"[{DEFAULT_MAX_EPSILON:g}]",
    )
    run.add_argument("--max-clip-norm", type=float, help="largest clip norm that is accepted [100]")
    run.add_argument(
        "--least-survivors",
        type=int,
        help="least number of devices that this device's update must be hidden among [3]",
    )
