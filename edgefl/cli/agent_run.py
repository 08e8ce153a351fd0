"""`edgefl agent run`: put the parts of an agent together, and run it until it is stopped."""

import argparse
import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from edgefl import __version__
from edgefl._native import has_aes_hardware
from edgefl.agent import clock
from edgefl.agent.config import CONFIG_FILE, AgentConfig, read_agent_config
from edgefl.agent.core import STATUS_OFFLINE, AgentCore
from edgefl.agent.enrolled import TlsFiles, read_enrolled
from edgefl.agent.entropy import HedgedEntropy
from edgefl.agent.guard import PowerGuard
from edgefl.agent.identity import load_identity
from edgefl.agent.learning import LocalLearner
from edgefl.agent.link import AgentLink
from edgefl.agent.models import ModelShelf
from edgefl.agent.policy_file import LEAST_SURVIVORS, read_policy
from edgefl.agent.power.sensors import Sensors
from edgefl.agent.recovery import NAMESPACE, keep_copy, open_state, set_copy_aside
from edgefl.agent.renewal import CertificateKeeper
from edgefl.agent.reporter import Reporter
from edgefl.agent.room import wait_for_room
from edgefl.agent.runtime import AgentRuntime
from edgefl.agent.service import ServiceManager
from edgefl.agent.settings import AgentSettings
from edgefl.agent.spend import forget
from edgefl.agent.spool import FileSpool
from edgefl.agent.status_file import AgentStatus, status_path
from edgefl.cli.agent_predict import MODELS
from edgefl.cli.learning_options import asked_backends
from edgefl.cli.options import (
    DEFAULT_FLEET,
    default_state_dir,
    parse_public_key,
    set_state_aside,
)
from edgefl.cli.signals import run_until_signal
from edgefl.data.source import open_source
from edgefl.errors import ConfigError, StorageError
from edgefl.protocol import topics
from edgefl.protocol.policy import DevicePolicy
from edgefl.storage.base import KeyValueStore
from edgefl.storage.batch import BatchStore
from edgefl.transport.base import Transport, Will
from edgefl.transport.broker_url import BrokerAddress, parse_broker_urls
from edgefl.transport.moved import with_moved
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings
from edgefl.transport.tls import TlsSettings
from edgefl.types import DeviceId, FleetName

STATE_FILE = "agent.sqlite"
SPOOL_FILE = "masked-update.spool"
LOST_BY_RESET = "this device gets a new identity, and forgets the privacy it has spent"
_DEFAULT_GATEWAY = "127.0.0.1:1883"
_MOST_VALIDATION = 0.5
_SESSION_SLEEPS = 2
"""A broker keeps a sleeper's session for so many of its longest sleeps, and a day at least."""
_DAY_S = 86_400
_SOON_S = 120.0
_LONGEST_PAUSE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wishes:
    """What command line, agent.toml and enrolment together ask for."""

    device: DeviceId
    fleet: FleetName
    brokers: tuple[BrokerAddress, ...]
    enrolment_key: bytes | None
    data: str
    policy: DevicePolicy
    state_dir: Path
    config: AgentConfig
    tls: TlsSettings | None

    @property
    def gateway(self) -> str:
        """How the gateway is called in messages."""
        return ", ".join(str(address) for address in self.brokers)


def run_agent(options: argparse.Namespace) -> int:
    """Run the agent until it is stopped."""
    wishes = _wishes(options)
    learner = LocalLearner(
        source=open_source(wishes.data),
        shelf=ModelShelf(wishes.state_dir / MODELS),
        able=asked_backends(options),
        threads=options.threads,
        validation_share=options.validation_share,
    )
    path = wishes.state_dir / STATE_FILE
    if options.reset_state:
        set_copy_aside(path)
        set_state_aside(path, LOST_BY_RESET)
    learner.look()
    store = open_state(path, wall_clock_s=time.time())
    try:
        if options.forget_spend:
            forget(store.namespace("spend"))
        return asyncio.run(run_until_signal(_run_for_ever(options, wishes, learner, store)))
    finally:
        keep_copy(path, store)
        store.close()


async def _run_for_ever(
    options: argparse.Namespace, wishes: _Wishes, learner: LocalLearner, store: KeyValueStore
) -> None:
    """Begin anew from what is stored, whenever the disk was full and has room again."""
    manager = ServiceManager()
    # Ready before the first wait: a manager gives starts only so much time.
    manager.ready()
    if wishes.brokers[0].scheme.has_tls:
        await clock.wait_until_set(time.time, manager.alive)
    pause_s = 0.0
    try:
        while True:
            started_s = time.monotonic()
            try:
                await _make_runtime(options, wishes, learner, store, manager).run()
            except StorageError as error:
                if error.code != "E-DISK-FULL":
                    raise
                # Room for the state is not yet room for an update: no training again and again.
                is_soon = time.monotonic() - started_s < _SOON_S
                pause_s = min(2 * pause_s + 1, _LONGEST_PAUSE_S) if is_soon else 0.0
                await wait_for_room(wishes.state_dir, manager.alive, pause_s=pause_s)
            else:
                return
    finally:
        manager.stopping()


def _make_runtime(
    options: argparse.Namespace,
    wishes: _Wishes,
    learner: LocalLearner,
    store: KeyValueStore,
    manager: ServiceManager,
) -> AgentRuntime:
    batched = BatchStore(store, namespace=NAMESPACE)
    identity = load_identity(batched, wishes.device)
    power = None if options.ignore_power else wishes.config.power
    guard = PowerGuard(
        policy=power,
        sensors=Sensors(wishes.state_dir, wishes.config.power.sensors),
        store=store.namespace("power"),
        state_dir=wishes.state_dir,
    )
    core = AgentCore(
        settings=AgentSettings(
            fleet=wishes.fleet,
            identity=identity,
            policy=wishes.policy,
            agent_version=__version__,
            has_aes=has_aes_hardware(),
            enrolment_key=wishes.enrolment_key,
            is_available=lambda: learner.has_data and guard.verdict().is_eligible,
            presence=guard.presence,
        ),
        store=batched,
        entropy=HedgedEntropy(batched.namespace("entropy"), identity.signing_key.export_seed()),
        spool=FileSpool(wishes.state_dir / SPOOL_FILE),
    )
    batched.batch.commit()
    keep_copy(wishes.state_dir / STATE_FILE, store)
    status_topic = topics.status(wishes.fleet, wishes.device)
    return AgentRuntime(
        core=core,
        commit=batched.batch.commit,
        link=AgentLink(
            make_transport=lambda: _make_transport(wishes, core.moved_to, status_topic),
            filters=core.topics,
            status_topic=status_topic,
        ),
        learner=learner,
        guard=guard,
        reporter=Reporter(_first_status(wishes, core), status_path(wishes.state_dir), manager),
        manager=manager,
        gateway=wishes.gateway,
        keeper=_keeper(wishes),
        wait_s=options.wait_s,
    )


def _make_transport(wishes: _Wishes, moved_to: tuple[str, ...], status_topic: str) -> Transport:
    power = wishes.config.power
    settings = MqttSettings(
        brokers=with_moved(wishes.brokers, moved_to),
        client_id=f"edgefl-{wishes.fleet}-{wishes.device}",
        tls=wishes.tls,
        keepalive_s=int(power.keepalive_s),
        session_expiry_s=max(_DAY_S, int(_SESSION_SLEEPS * power.sleep_s)),
    )
    will = Will(topic=status_topic, payload=STATUS_OFFLINE, retain=True)
    return MqttTransport(settings, will)


def _keeper(wishes: _Wishes) -> CertificateKeeper | None:
    """Return what renews the certificate that enrolment brought; others are their owner's."""
    files = TlsFiles(state_dir=wishes.state_dir)
    if wishes.tls != files.settings:
        return None
    return CertificateKeeper(files, wishes.device, time.time)


def _first_status(wishes: _Wishes, core: AgentCore) -> AgentStatus:
    return AgentStatus(
        device=wishes.device,
        fleet=wishes.fleet,
        gateway=wishes.gateway,
        version=__version__,
        started_at_s=round(time.time(), 1),
        spent_epsilon=None if core.spent_epsilon is None else round(core.spent_epsilon, 4),
        most_epsilon=wishes.policy.privacy.max_epsilon,
    )


def _wishes(options: argparse.Namespace) -> _Wishes:
    """Take each wish from the command line, else from agent.toml."""
    _check_numbers(options)
    state_dir = options.state or default_state_dir("agent")
    path = options.config or state_dir / CONFIG_FILE
    config = read_agent_config(path, is_named=options.config is not None)
    enrolled = _enrolled(state_dir)
    device = options.device or config.device or enrolled.device
    gateway = options.gateway or config.gateway or enrolled.gateway or _DEFAULT_GATEWAY
    brokers = parse_broker_urls(gateway)
    enrolment_key = options.enrolment_key or config.enrolment_key or enrolled.enrolment_key
    return _Wishes(
        device=topics.parse_device_id(_needed(device, "--device", path)),
        fleet=topics.parse_fleet(options.fleet or config.fleet or enrolled.fleet or DEFAULT_FLEET),
        brokers=brokers,
        enrolment_key=parse_public_key(enrolment_key),
        data=_needed(options.data or config.data, "--data", path),
        policy=_policy(options, config),
        state_dir=state_dir,
        config=config,
        # What goes to loopback alone has no certificates to check.
        tls=(config.tls or enrolled.tls) if brokers[0].scheme.has_tls else None,
    )


def _enrolled(state_dir: Path) -> AgentConfig:
    """Return what enrolment left on this device; nothing where there was none."""
    found = read_enrolled(state_dir)
    if found is None:
        return AgentConfig()
    return AgentConfig(
        device=found.device,
        fleet=found.fleet,
        gateway=",".join(found.gateways),
        enrolment_key=found.enrolment_key,
        tls=found.tls,
    )


def _needed(value: str | None, option: str, path: Path) -> str:
    if value is None:
        raise ConfigError("E-AGENT-OPTION", f"{option}, or {option[2:]} = ... in {path}", "neither")
    return value


def _check_numbers(options: argparse.Namespace) -> None:
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


def _policy(options: argparse.Namespace, config: AgentConfig) -> DevicePolicy:
    return read_policy(
        options.policy or config.policy,
        {
            "adversary": options.adversary,
            "max_epsilon": options.max_epsilon,
            "max_clip_norm": options.max_clip_norm,
            "least_survivors": options.least_survivors,
        },
    )
