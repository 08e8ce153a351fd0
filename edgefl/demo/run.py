"""Run the demo: start the fleet, kill and revive, watch, judge, clean up."""

import asyncio
import contextlib
import json
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from broker.demo_task import against_malicious_gateway, demo_task
from broker.task import ADVERSARIES
from broker.task_folder import submit_task
from edgefl.data.spar import TRAINING_PERSONS, Arm, held_out
from edgefl.demo.central import central_accuracies, majority_share
from edgefl.demo.chaos import GATEWAY, Kill, KillPlan, Seen, make_kill_plan
from edgefl.demo.observer import observe
from edgefl.demo.operator import Operator
from edgefl.demo.outcome import Outcome
from edgefl.demo.processes import Fleet
from edgefl.demo.progress import Progress
from edgefl.demo.record import EventTail, RunRecord
from edgefl.errors import ConfigError, EnvironmentProblem
from edgefl.protocol.reasons import phases_of
from edgefl.protocol.topics import parse_fleet
from edgefl.training.bundle import read_bundle
from edgefl.training.onnx.demo_model import demo_bundle
from edgefl.training.recipe import SPAR_RECIPE

_FLEET = parse_fleet("demo")
_TASK = "demo"
_PHASE_LIMIT_S = 8.0
_START_S = 60.0
_POLL_S = 0.05
_MOST_DEVICES = 2 * len(TRAINING_PERSONS)
_LONGEST_ROUND_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the user chose.

    Attributes:
        devices: Agents, 3 to 16.
        rounds: Rounds to commit.
        seed: Seed of the central training; agents draw their own randomness.
        kills: Kill devices and the gateway.
        is_malicious: Take the gateway to be malicious: an operator signs the roster, and a
            committee certifies the survivors.
    """

    devices: int = 16
    rounds: int = 20
    seed: int = 1
    kills: bool = True
    is_malicious: bool = False

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 3 <= self.devices <= _MOST_DEVICES:
            raise ConfigError(
                "E-DEMO-DEVICES",
                f"3 to {_MOST_DEVICES} devices (one for each person and arm)",
                str(self.devices),
                "use 'edgefl sim run' for larger fleets",
            )
        if not 1 <= self.rounds <= 1000:
            raise ConfigError("E-DEMO-ROUNDS", "1 to 1000 rounds", str(self.rounds))


async def run_demo(options: DemoOptions, stream: TextIO) -> Outcome:
    """Run the demo in a temporary folder that is gone afterwards, also when it is interrupted.

    Args:
        options: What the user chose.
        stream: Where progress goes.
    """
    folder = Path(tempfile.mkdtemp(prefix="edgefl-demo-"))
    run = _DemoRun(options, folder, Progress(options.rounds, stream))
    try:
        return await run.run()
    finally:
        run.fleet.stop()
        shutil.rmtree(folder, ignore_errors=True)


class _DemoRun:
    def __init__(self, options: DemoOptions, folder: Path, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self._spec = demo_task(
            _TASK, cohort=options.devices, rounds=options.rounds, limit_s=_PHASE_LIMIT_S
        )
        if options.is_malicious:
            self._spec = against_malicious_gateway(self._spec)
        phases = phases_of(ADVERSARIES[self._spec.adversary])
        sources = {
            f"p{person:02d}-{arm.name.lower()}": f"spar:{person}-{arm.name.lower()}"
            for person in TRAINING_PERSONS
            for arm in Arm
        }
        chosen = dict(list(sources.items())[: options.devices])
        self._sources = list(chosen.values())
        self.fleet = Fleet(folder, chosen, fleet=_FLEET, max_epsilon=self._spec.epsilon_budget)
        self._operator = (
            Operator(
                folder / "operator",
                gateway_state=self.fleet.gateway_state,
                fleet=_FLEET,
                devices=frozenset(chosen),
            )
            if options.is_malicious
            else None
        )
        if self._operator is not None:
            self.fleet.enrolment_key = self._operator.public_key
        self._phases = phases
        self._record = RunRecord()
        self._tail = EventTail(self.fleet.gateway_state / "events.jsonl")
        self._plan = (
            make_kill_plan(
                rounds=options.rounds,
                devices=options.devices,
                survivor_floor=self._spec.survivor_floor,
                phases=phases,
            )
            if options.kills
            else KillPlan(wanted={}, phases=phases, gateway_deaths={})
        )
        self._dead: dict[str, int] = {}
        self._port = 0
        self._kills = 0
        self._last_event_s = time.monotonic()

    async def run(self) -> Outcome:
        started_s = time.monotonic()
        self._progress.say(
            f"edgefl demo: a gateway and {self._options.devices} agents, each a process with its "
            "own MQTT connection\nand the recordings of one person and arm; people 9 and 10 are "
            "held out for evaluation."
        )
        bundle = demo_bundle(SPAR_RECIPE.model_seed)
        submit_task(self.fleet.gateway_state, self._spec, bundle, held_out())
        self.fleet.start_gateway(0)
        self._port = await self._wait_for_port()
        self.fleet.start_agents(self._port)
        central = asyncio.create_task(
            asyncio.to_thread(
                central_accuracies, self._sources, self._options.rounds, self._options.seed
            ),
            name="central training",
        )
        observer = asyncio.create_task(observe(_FLEET, self._port, self._on_seen), name="observer")
        try:
            await self._follow(observer)
            central_curve = await central
        finally:
            observer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await observer
        self._read_memory()
        agents = self.fleet.agents.values()
        return Outcome(
            spec=self._spec,
            plan=self._spec.privacy_plan(read_bundle(bundle).manifest.dimension),
            record=self._record,
            accuracies=self._record.accuracies,
            central_accuracies=central_curve,
            majority=majority_share(),
            peak_agent_mb=max(agent.peak_memory_mb for agent in agents),
            wall_s=time.monotonic() - started_s,
            kills=self._kills,
        )

    # ------------------------------------------------------------ watching

    async def _follow(self, observer: asyncio.Task[None]) -> None:
        """Show events and revive the dead until the task has ended and its model is measured."""
        while not self._is_over():
            for event in self._tail.read_new():
                self._last_event_s = time.monotonic()
                self._record.add(event)
                self._progress.event(event)
                if event["kind"] == "round":
                    self._after_round(event)
            if observer.done():
                await observer
            if self._operator is not None and self._operator.work():
                self._progress.say("        the operator signs the roster, away from the gateway")
            self._require_progress()
            if not self.fleet.gateway.is_running:
                self._progress.say("        start the gateway again")
                self.fleet.start_gateway(self._port)
            await asyncio.sleep(_POLL_S)

    def _is_over(self) -> bool:
        if self._record.task_outcome is None:
            return False
        committed = self._record.committed
        return not committed or committed[-1]["round"] in self._record.accuracies

    def _require_progress(self) -> None:
        for agent in self.fleet.agents.values():
            if not agent.is_running and agent.name not in self._dead:
                raise EnvironmentProblem(
                    "E-DEMO-AGENT",
                    f"agent {agent.name} to keep running",
                    f"it ended by itself: {_last_line(agent.log_path)}",
                )
        if time.monotonic() - self._last_event_s > _LONGEST_ROUND_S:
            raise EnvironmentProblem(
                "E-DEMO-STUCK",
                f"progress within {_LONGEST_ROUND_S:g} s",
                f"none; the gateway's last line: {_last_line(self.fleet.gateway.log_path)}",
            )

    def _after_round(self, event: dict[str, object]) -> None:
        self._read_memory()
        number = int(str(event["round"]))
        for device, died_in in list(self._dead.items()):
            if number > died_in:
                self._progress.say(f"        start {device} again")
                self.fleet.agents[device].start()
                del self._dead[device]
                self._plan.revived(device)
        self._ask_for_missing_deaths(number)

    def _ask_for_missing_deaths(self, number: int) -> None:
        """Try again late in the run where a victim was quicker than its killer."""
        if not self._options.kills or number + 2 > self._options.rounds:
            return
        if self._spec.cohort <= self._spec.survivor_floor or self._plan.open_wishes:
            return
        seen = self._record.dropouts_by_phase(self._phases)
        for phase in self._phases:
            if seen[phase.name] == 0:
                self._plan.ask_again(phase, number + 2)

    # ------------------------------------------------------------ killing

    def _on_seen(self, seen: Seen) -> None:
        self._progress.seen(seen)
        kill = self._plan.on_seen(seen)
        if kill is not None and self._strike(kill):
            self._kills += 1
            self._progress.killed(kill)

    def _strike(self, kill: Kill) -> bool:
        if kill.victim == GATEWAY:
            return self.fleet.gateway.kill()
        killed = self.fleet.agents[kill.victim].kill()
        if killed:
            self._dead[kill.victim] = kill.round_number
        return killed

    # ------------------------------------------------------------ starting

    async def _wait_for_port(self) -> int:
        path = self.fleet.gateway_state / "gateway.json"
        deadline_s = time.monotonic() + _START_S
        while time.monotonic() < deadline_s:
            if path.exists():
                return int(json.loads(path.read_text())["port"])
            if not self.fleet.gateway.is_running:
                break
            await asyncio.sleep(_POLL_S)
        raise EnvironmentProblem(
            "E-DEMO-GATEWAY",
            f"the gateway to listen within {_START_S:g} s",
            f"it does not: {_last_line(self.fleet.gateway.log_path)}",
        )

    def _read_memory(self) -> None:
        for agent in self.fleet.agents.values():
            agent.read_memory()


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "no log"
    return lines[-1][:300] if lines else "an empty log"
