"""`edgefl agent`: run the device agent."""

import argparse
import asyncio
import importlib.util
from pathlib import Path

from edgefl import __version__
from edgefl._native import has_aes_hardware
from edgefl.agent.core import AgentCore
from edgefl.agent.entropy import HedgedEntropy
from edgefl.agent.identity import load_identity
from edgefl.agent.policy_file import DEFAULT_MAX_EPSILON, LEAST_SURVIVORS, read_policy
from edgefl.agent.runtime import AgentRuntime, TrainerFactory
from edgefl.agent.settings import AgentSettings
from edgefl.cli.options import (
    DEFAULT_FLEET,
    add_common,
    add_reset_state,
    default_state_dir,
    parse_endpoint,
    parse_public_key,
    set_state_aside,
)
from edgefl.cli.signals import run_until_signal
from edgefl.data.source import load_source
from edgefl.errors import ConfigError, EnvironmentProblem
from edgefl.protocol import topics
from edgefl.protocol.policy import DevicePolicy
from edgefl.storage.sqlite import open_sqlite
from edgefl.training.base import Trainer, TrainingData
from edgefl.training.bundle import read_bundle
from edgefl.transport.base import Will
from edgefl.transport.framing import FramedTransport
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings

_STATE_FILE = "agent.sqlite"
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
    run.add_argument(
        "--data",
        required=True,
        help="training data: a .npz file with x float32 [n, ...] and y int64 [n], or "
        "spar:PERSON-ARM for the shipped recordings, for example spar:1-left",
    )
    run.add_argument("--gateway", default="127.0.0.1:1883", help="HOST:PORT of the gateway")
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
    run.add_argument("--threads", type=int, default=1, help="threads for training")
    run.add_argument(
        "--wait-s", type=float, default=None, help="give up if no gateway is heard for this long"
    )
    add_reset_state(run, _LOST_BY_RESET)
    add_common(run)
    run.set_defaults(run=run_agent)


def run_agent(options: argparse.Namespace) -> int:
    """Run the agent until it is stopped."""
    _require_training_backend()
    device = topics.parse_device_id(options.device)
    fleet = topics.parse_fleet(options.fleet)
    host, port = parse_endpoint(options.gateway)
    policy = _policy(options)
    mqtt = MqttSettings(host=host, port=port, client_id=f"edgefl-{fleet}-{device}", keepalive_s=20)
    data = load_source(options.data)
    state_dir = options.state or default_state_dir("agent")
    if options.reset_state:
        set_state_aside(state_dir / _STATE_FILE, _LOST_BY_RESET)
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
                enrolment_key=parse_public_key(options.enrolment_key),
            ),
            store=store,
            entropy=HedgedEntropy(store.namespace("entropy"), identity.signing_key.export_seed()),
        )
        status_topic = topics.status(fleet, device)
        link = MqttTransport(mqtt, Will(topic=status_topic, payload=b"offline", retain=True))
        runtime = AgentRuntime(
            core=core,
            transport=FramedTransport(link),
            data=data,
            make_trainer=_trainer_factory(options.threads),
            status_topic=status_topic,
            gateway=f"{host}:{port}",
            wait_s=options.wait_s,
        )
        return asyncio.run(run_until_signal(runtime.run()))
    finally:
        store.close()


def _policy(options: argparse.Namespace) -> DevicePolicy:
    if options.threads < 1:
        raise ConfigError("E-THREADS", "1 thread or more", str(options.threads))
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


def _require_training_backend() -> None:
    if importlib.util.find_spec("onnxruntime") is None:
        raise EnvironmentProblem(
            "E-NO-BACKEND",
            "a training backend",
            "no onnxruntime in this environment",
            "install 'edgefl-runtime[onnx]'",
        )


def _trainer_factory(threads: int) -> TrainerFactory:
    def open_trainer(bundle_bytes: bytes, data: TrainingData) -> Trainer:
        # Imported here: onnxruntime is the largest thing that an agent loads.
        from edgefl.training.fit_checks import require_fit
        from edgefl.training.onnx.runtime.trainer import OnnxTrainer

        bundle = read_bundle(bundle_bytes)
        require_fit(data, bundle.manifest)
        return OnnxTrainer(bundle, threads=threads)

    return open_trainer
