"""Run one scenario in virtual time: a gateway and its devices, from first call to last model."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from broker.core import GatewaySettings
from broker.events import EvaluationEnded, Json, ModelChanged, Reported, TaskSubmitted
from broker.task import TaskSpec
from edgefl import __version__
from edgefl._native import SigningKey
from edgefl.agent.core import AgentSettings
from edgefl.privacy.plan import PrivacyPolicy
from edgefl.protocol.device import DeviceIdentity
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
        examples_per_s: Training speed of a board.
        kill_chance: Chance per device and round-trip minute to lose power for no reason.
        longest_s: Virtual seconds after which the run ends anyway.
    """

    task: TaskSpec
    bundle: bytes = field(repr=False)
    examples: dict[str, int] = field(repr=False)
    train: TrainFunction
    evaluation: TrainingData = field(repr=False)
    max_epsilon: float
    seed: int
    power: PowerProfile = field(default_factory=PowerProfile)
    link: LinkQuality = field(default_factory=LinkQuality)
    examples_per_s: float = 400.0
    deaths_per_device_hour: float = 0.0
    longest_s: float = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """What came out.

    Attributes:
        rounds: One dictionary per attempt, as in the gateway's `events.jsonl`.
        accuracies: Accuracy on the evaluation data after each committed round.
        parameters: float32 [d], the last committed model; empty if there is none.
        virtual_s: Virtual seconds that passed.
        deaths: How often a board lost power.
        outcome: How the task ended, or "time" if it did not.
    """

    rounds: list[dict[str, Json]]
    accuracies: list[float]
    parameters: NDArray[np.float32]
    virtual_s: float
    deaths: int
    outcome: str


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
        self._accuracies: list[float] = []
        self._parameters: NDArray[np.float32] = np.empty(0, dtype=np.float32)
        gateway_key = InsecureSeededEntropy(scenario.seed, "gateway identity").fresh_seed()
        self._gateway = SimulatedGateway(
            settings=GatewaySettings(
                fleet=_FLEET,
                signing_key=SigningKey.from_seed(gateway_key),
                least_agent_version=__version__,
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
        self._gateway.feed(
            TaskSubmitted(
                spec=scenario.task,
                bundle=scenario.bundle,
                initial_parameters=self._bundle.initial_params,
            )
        )
        for device in self._devices:
            self._clock.call_after(self._rng.random() * 2.0, device.boot)
            self._schedule_death(device)
        while self._gateway.ended is None and self._clock.now_s < scenario.longest_s:
            if not self._clock.run_next():
                break
        # What was due with the last commit (its evaluation) still happens.
        deadline_s = self._clock.now_s
        while self._clock.next_s is not None and self._clock.next_s <= deadline_s:
            self._clock.run_next()
        ended = self._gateway.ended
        return SimulationResult(
            rounds=self._rounds,
            accuracies=self._accuracies,
            parameters=self._parameters,
            virtual_s=self._clock.now_s,
            deaths=sum(device.deaths for device in self._devices),
            outcome="time" if ended is None else ended.outcome,
        )

    def _make_device(self, name: str) -> SimulatedDevice:
        scenario = self._scenario
        identity_seed = InsecureSeededEntropy(scenario.seed, f"{name} identity").fresh_seed()
        settings = AgentSettings(
            fleet=_FLEET,
            identity=DeviceIdentity(device=name, signing_key=SigningKey.from_seed(identity_seed)),
            policy=DevicePolicy(privacy=PrivacyPolicy(max_epsilon=scenario.max_epsilon)),
            agent_version=__version__,
        )
        charge_j = scenario.power.capacity_j * (0.3 + 0.7 * self._rng.random())
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
            device.die()
            self._schedule_death(device)

        self._clock.call_after(self._rng.expovariate(rate), die)

    def _on_model(self, effect: ModelChanged) -> EvaluationEnded:
        self._parameters = effect.parameters
        result = self._evaluator.evaluate(effect.parameters, self._scenario.evaluation)
        self._accuracies.append(result.accuracy)
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
