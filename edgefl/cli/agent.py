"""`edgefl agent`: run the device agent."""

import argparse
import asyncio
from pathlib import Path

from edgefl import __version__
from edgefl._native import has_aes_hardware
from edgefl.agent.core import AgentCore
from edgefl.agent.entropy import HedgedEntropy
from edgefl.agent.identity import load_identity
from edgefl.agent.learning import LocalLearner
from edgefl.agent.models import ModelShelf
from edgefl.agent.policy_file import DEFAULT_MAX_EPSILON, LEAST_SURVIVORS, read_policy
from edgefl.agent.runtime import AgentRuntime
from edgefl.agent.settings import AgentSettings
from edgefl.cli.agent_check import add_check
from edgefl.cli.agent_predict import MODELS, add_predict
from edgefl.cli.learning_options import add_backend, add_data, asked_backends
from edgefl.cli.options import (
    DEFAULT_FLEET,
    add_common,
    add_reset_state,
    default_state_dir,
    parse_public_key,
    set_state_aside,
)
from edgefl.cli.signals import run_until_signal
from edgefl.data.source import open_source
from edgefl.errors import ConfigError
from edgefl.protocol import topics
from edgefl.protocol.policy import DevicePolicy
from edgefl.storage.sqlite import open_sqlite
from edgefl.transport.base import Will
from edgefl.transport.broker_url import parse_broker_urls
from edgefl.transport.framing import FramedTransport
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings

_STATE_FILE = "agent.sqlite"
_MOST_VALIDATION = 0.5
_LOST_BY_RESET = "this device gets a new identity, and forgets the privacy it has spent"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands."""
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    run = commands.add_parser(
        "run",
        help="take part in rounds until stopped",
        description="Take part in rounds until stopped. It may start before the broker exists, and "
        "goes on after a restart of anything.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    run.add_argument("--device", required=True, help="this board's name, unique in the fleet")
    add_data(run)
    run.add_argument(
        "--gateway",
        default="127.0.0.1:1883",
        help="where the gateway or its broker listens: HOST:PORT or a URL (mqtt, mqtts, ws, wss); "
        "several, separated by commas, are tried in turn",
    )
    run.add_argument("--fleet", default=DEFAULT_FLEET, help="the fleet's name")
    run.add_argument("--state", type=Path, help="folder for identity, spend and open round")
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
    add_reset_state(run, _LOST_BY_RESET)
    add_common(run)
    run.set_defaults(run=run_agent)
    add_check(commands)
    add_predict(commands)


def run_agent(options: argparse.Namespace) -> int:
    """Run the agent until it is stopped."""
    device = topics.parse_device_id(options.device)
    fleet = topics.parse_fleet(options.fleet)
    brokers = parse_broker_urls(options.gateway)
    enrolment_key = parse_public_key(options.enrolment_key)
    policy = _policy(options)
    mqtt = MqttSettings(brokers=brokers, client_id=f"edgefl-{fleet}-{device}", keepalive_s=20)
    source = open_source(options.data)
    state_dir = options.state or default_state_dir("agent")
    if options.reset_state:
        set_state_aside(state_dir / _STATE_FILE, _LOST_BY_RESET)
    learner = LocalLearner(
        source=source,
        shelf=ModelShelf(state_dir / MODELS),
        able=asked_backends(options),
        threads=options.threads,
        validation_share=options.validation_share,
    )
    learner.look()
    store = open_sqlite(state_dir / _STATE_FILE, namespace="agent")
    try:
        identity = load_identity(store, device)
        core = AgentCore(
            settings=AgentSettings(
                fleet=fleet,
                identity=identity,
                policy=policy,
                agent_version=__version__,
                has_aes=has_aes_hardware(),
                enrolment_key=enrolment_key,
                is_available=lambda: learner.has_data,
            ),
            store=store,
            entropy=HedgedEntropy(store.namespace("entropy"), identity.signing_key.export_seed()),
        )
        status_topic = topics.status(fleet, device)
        link = MqttTransport(mqtt, Will(topic=status_topic, payload=b"offline", retain=True))
        runtime = AgentRuntime(
            core=core,
            transport=FramedTransport(link),
            learner=learner,
            status_topic=status_topic,
            gateway=", ".join(str(address) for address in brokers),
            wait_s=options.wait_s,
        )
        return asyncio.run(run_until_signal(runtime.run()))
    finally:
        store.close()


def _policy(options: argparse.Namespace) -> DevicePolicy:
    if not 0 <= options.validation_share <= _MOST_VALIDATION:
        raise ConfigError(
            "E-VALIDATION-SHARE",
            f"a share from 0 to {_MOST_VALIDATION:g}",
            str(options.validation_share),
        )
    if options.wait_s is not None and not options.wait_s > 0:
        raise ConfigError("E-WAIT", "a time to wait above 0 s", str(options.wait_s))
    for value, code, what in (
        (options.max_epsilon, "E-MAX-EPSILON", "a largest epsilon"),
        (options.max_clip_norm, "E-MAX-CLIP-NORM", "a largest clip norm"),
    ):
        if value is not None and not value > 0:
            raise ConfigError(code, f"{what} above 0", str(value))
    if options.least_survivors is not None and options.least_survivors < LEAST_SURVIVORS:
        raise ConfigError(
            "E-POLICY-FLOOR",
            f"a least survivor floor of {LEAST_SURVIVORS} or more",
            str(options.least_survivors),
        )
    return read_policy(
        options.policy,
        {
            "adversary": options.adversary,
            "max_epsilon": options.max_epsilon,
            "max_clip_norm": options.max_clip_norm,
            "least_survivors": options.least_survivors,
        },
    )
