"""Run one scenario in virtual time: a gateway and its devices, from first call to last model."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from broker.events import EvaluationEnded, Json, ModelChanged, Reported, TaskSubmitted
from broker.settings import GatewaySettings
from broker.task import TaskSpec
from edgefl import __version__
from edgefl._native import SigningKey, has_aes_hardware
from edgefl.agent.settings import AgentSettings
from edgefl.errors import ConfigError
from edgefl.privacy.plan import PrivacyPolicy
from edgefl.protocol.identity import DeviceIdentity
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.topics import parse_fleet
from edgefl.training.base import TrainingData
from edgefl.training.bundle import read_bundle
from edgefl.training.evaluate import Evaluator
from firmware_sim.battery import Battery, PowerProfile
from firmware_sim.clock import VirtualClock
from firmware_sim.device import SimulatedDevice, TrainFunction
from firmware_sim.entropy import InsecureSeededEntropy
from firmware_sim.gateway import SimulatedGateway
from firmware_sim.network import LinkQuality, VirtualNetwork

_FLEET = parse_fleet("simulated")
_BOOT_SPREAD_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDeath:
    """One SIGKILL of the gateway.

    Attributes:
        at_s: Virtual time.
        outage_s: Time until it is started again.
    """

    at_s: float
    outage_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is simulated.

    Attributes:
        task: The task, with its cohort and its rounds.
        bundle: The training bundle's bytes.
        examples: Rows of local data by device name.
        train: The local training.
        evaluation: Data that the committed models are measured on.
        max_epsilon: What the devices' owners accept.
        seed: Everything random follows from it.
        power: Of every board.
        charge_share: Charge at the start / capacity, by device name; 0.3 to 1 at random otherwise.
        link: Of every board and of the gateway.
        examples_per_s: Training speed of a board.
        deaths_per_device_hour: How often a board loses power for no reason of its own.
        mean_outage_s: Mean time without power after such a death.
        gateway_deaths: When the gateway is killed, and for how long.
        longest_s: Virtual seconds after which the run ends anyway.
        allows_experimental: The boards' owners accept the one-upload mode.
    """

    task: TaskSpec
    bundle: bytes = field(repr=False)
    examples: dict[str, int] = field(repr=False)
    train: TrainFunction
    evaluation: TrainingData = field(repr=False)
    max_epsilon: float
    seed: int
    power: PowerProfile = field(default_factory=PowerProfile)
    charge_share: Mapping[str, float] = field(default_factory=dict)
    link: LinkQuality = field(default_factory=LinkQuality)
    examples_per_s: float = 400.0
    deaths_per_device_hour: float = 0.0
    mean_outage_s: float = 5.0
    gateway_deaths: tuple[GatewayDeath, ...] = ()
    longest_s: float = 24 * 3600.0
    allows_experimental: bool = False

    def __post_init__(self) -> None:
        """Check the numbers that a user gives; NaN is in no range."""
        if not 0 <= self.deaths_per_device_hour <= 3600:
            raise ConfigError(
                "E-SIM-DEATHS",
                "0 to 3600 deaths per device and hour",
                repr(self.deaths_per_device_hour),
            )
        if not (self.examples_per_s > 0 and self.mean_outage_s > 0 and self.longest_s > 0):
            raise ConfigError("E-SIM-SCENARIO", "speeds and times above 0", "another number")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """What came out; equal seeds give equal results, byte for byte.

    Attributes:
        outcome: How the task ended, or "time" if it did not.
        rounds: One dictionary per attempt, as in the gateway's `events.jsonl`.
        accuracies: Accuracy on the evaluation data by committed round.
        parameters: Little-endian float32 [d], the newest committed model, or else the first one.
        transcript_sha256: Over every message that was published, with its time.
        ledger_entries: Releases charged.
        ledger_head: Hash of the privacy ledger's last line.
        virtual_s: Virtual seconds that passed.
        deaths: How often a board lost power.
        empty_battery_deaths: Those of them with an empty battery.
        transmissions_lost: Transmissions that the air swallowed.
        noticed: What the boards refused or ignored, by error code.
        stopped: Error code by board that stopped for good.
    """

    outcome: str
    rounds: list[dict[str, Json]]
    accuracies: dict[int, float]
    parameters: bytes = field(repr=False)
    transcript_sha256: str
    ledger_entries: int
    ledger_head: str
    virtual_s: float
    deaths: int
    empty_battery_deaths: int
    transmissions_lost: int
    noticed: dict[str, int]
    stopped: dict[str, str]


def run_scenario(
    scenario: Scenario, on_report: Callable[[Reported], None] = lambda _: None
) -> SimulationResult:
    """Run a scenario to its end.

    Args:
        scenario: What to simulate.
        on_report: Called with each line for the operator, while the run goes on.
    """
    return _Run(scenario, on_report).run()


class _Run:
    def __init__(self, scenario: Scenario, on_report: Callable[[Reported], None]) -> None:
        self._scenario = scenario
        self._tell = on_report
        self._clock = VirtualClock()
        self._rng = random.Random(scenario.seed)  # noqa: S311 - virtual weather, no secret
        self._network = VirtualNetwork(self._clock, self._rng, scenario.link)
        self._bundle = read_bundle(scenario.bundle)
        self._evaluator = Evaluator(self._bundle)
        self._rounds: list[dict[str, Json]] = []
        self._accuracies: dict[int, float] = {}
        self._parameters: NDArray[np.float32] = self._bundle.initial_params
        gateway_key = InsecureSeededEntropy(scenario.seed, "gateway identity").fresh_seed()
        self._gateway = SimulatedGateway(
            settings=GatewaySettings(
                fleet=_FLEET,
                signing_key=SigningKey.from_seed(gateway_key),
                least_agent_version=__version__,
                wall_clock_s=lambda: self._clock.now_s,
            ),
            clock=self._clock,
            network=self._network,
            seed=scenario.seed,
            on_model=self._on_model,
            on_report=self._on_report,
        )
        self._devices = [self._make_device(name) for name in sorted(scenario.examples)]

    def run(self) -> SimulationResult:
        scenario = self._scenario
        self._gateway.start()
        for device in self._devices:
            self._clock.call_after(self._rng.random() * _BOOT_SPREAD_S, device.boot)
            self._schedule_death(device)
        task = TaskSubmitted(
            spec=scenario.task,
            bundle=scenario.bundle,
            initial_parameters=self._bundle.initial_params,
        )
        # Once all are up: the first round then has its cohort, whatever its quorum.
        self._clock.call_at(_BOOT_SPREAD_S + 0.5, lambda: self._gateway.submit(task))
        for death in scenario.gateway_deaths:
            self._schedule_gateway_death(death)
        while self._gateway.ended is None and self._clock.now_s < scenario.longest_s:
            if not self._clock.run_next():
                break
        # What was due with the last commit (its evaluation) still happens.
        deadline_s = self._clock.now_s
        while self._clock.next_s is not None and self._clock.next_s <= deadline_s:
            self._clock.run_next()
        return self._result()

    def _result(self) -> SimulationResult:
        ended, ledger = self._gateway.ended, self._gateway.ledger.ledger
        noticed: Counter[str] = Counter()
        for device in self._devices:
            noticed += device.noticed
        return SimulationResult(
            outcome="time" if ended is None else ended.outcome,
            rounds=self._rounds,
            accuracies=self._accuracies,
            parameters=self._parameters.astype("<f4").tobytes(),
            transcript_sha256=self._network.transcript_sha256,
            ledger_entries=len(ledger),
            ledger_head=ledger.head,
            virtual_s=self._clock.now_s,
            deaths=sum(device.deaths for device in self._devices),
            empty_battery_deaths=sum(device.empty_battery_deaths for device in self._devices),
            transmissions_lost=self._network.transmissions_lost,
            noticed=dict(sorted(noticed.items())),
            stopped={
                device.name: device.stopped_by
                for device in self._devices
                if device.stopped_by is not None
            },
        )

    def _make_device(self, name: str) -> SimulatedDevice:
        scenario = self._scenario
        identity_seed = InsecureSeededEntropy(scenario.seed, f"{name} identity").fresh_seed()
        settings = AgentSettings(
            fleet=_FLEET,
            identity=DeviceIdentity(device=name, signing_key=SigningKey.from_seed(identity_seed)),
            policy=DevicePolicy(
                privacy=PrivacyPolicy(max_epsilon=scenario.max_epsilon),
                allows_experimental=scenario.allows_experimental,
            ),
            agent_version=__version__,
            has_aes=has_aes_hardware(),
            wall_clock_s=lambda: self._clock.now_s,
        )
        share = 0.3 + 0.7 * self._rng.random()
        charge_j = scenario.power.capacity_j * scenario.charge_share.get(name, share)
        return SimulatedDevice(
            settings=settings,
            clock=self._clock,
            network=self._network,
            battery=Battery(scenario.power, charge_j=charge_j, now_s=0.0),
            train=scenario.train,
            examples_per_s=scenario.examples_per_s,
            examples=scenario.examples[name],
            seed=scenario.seed,
        )

    def _schedule_death(self, device: SimulatedDevice) -> None:
        """Let a board lose power now and then, at times of an exponential clock."""
        rate = self._scenario.deaths_per_device_hour / 3600.0
        if rate <= 0:
            return

        def die() -> None:
            device.die(outage_s=self._rng.expovariate(1 / self._scenario.mean_outage_s))
            self._schedule_death(device)

        self._clock.call_after(self._rng.expovariate(rate), die)

    def _schedule_gateway_death(self, death: GatewayDeath) -> None:
        self._clock.call_at(death.at_s, lambda: self._gateway.die(outage_s=death.outage_s))

    def _on_model(self, effect: ModelChanged) -> EvaluationEnded:
        self._parameters = effect.parameters
        result = self._evaluator.evaluate(effect.parameters, self._scenario.evaluation)
        if result.accuracy is not None:
            self._accuracies[effect.round_number] = result.accuracy
        return EvaluationEnded(
            task=effect.task,
            round_number=effect.round_number,
            accuracy=result.accuracy,
            loss=result.loss,
            examples=result.examples,
        )

    def _on_report(self, report: Reported) -> None:
        if report.kind == "round":
            self._rounds.append(report.fields)
        self._tell(report)
