"""The status of a gateway that runs, read from its core and from what it reported."""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from broker.core import GatewayCore
from broker.device_list import (
    DeviceFact,
    DeviceLink,
    DeviceState,
    Standing,
    count_states,
    device_fingerprint,
    devices_document,
    rounds_by_device,
    standings_of,
)
from broker.disk_room import disk_fact
from broker.events import Json, Reported
from broker.mended import MENDED, mended_problems
from broker.open_round import OpenRound
from broker.problems import (
    Problem,
    device_problems,
    disk_problems,
    overload_problems,
    refusal_problems,
    round_problems,
    spend_problems,
)
from broker.round_record import RoundSpend, spend_of
from broker.status import (
    PAUSED,
    BrokerFact,
    GatewayFacts,
    OpenRoundFact,
    TaskFact,
    WaitFact,
    measured_round,
    status_document,
)
from broker.task import TaskSpec
from broker.task_state import RUNNING
from edgefl.protocol.presence import PowerBucket


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkWords:
    """How the gateway is reached, for people.

    Attributes:
        kind: "endpoint" or "external".
        addresses: URLs.
        counters: Of the endpoint, where it has any.
    """

    kind: str
    addresses: tuple[str, ...]
    counters: Callable[[], Mapping[str, int]] = field(default=dict)


class LiveStatus:
    """Looks at a running gateway. It only reads, and is called from the gateway's own loop.

    Args:
        core: The gateway.
        fleet: Its fleet.
        version: Of edgefl.
        state_dir: Where its state lies.
        link: How it is reached.
    """

    def __init__(
        self, core: GatewayCore, *, fleet: str, version: str, state_dir: Path, link: LinkWords
    ) -> None:
        """Begin to look."""
        self._core = core
        self._fleet = fleet
        self._version = version
        self._state_dir = state_dir
        self._link = link
        self._started_at_s = time.time()
        self._phase: tuple[Json, Json] = (None, None)
        self._phase_since_s = time.monotonic()
        self._refusals: Counter[str] = Counter()
        self._refused_tasks: dict[str, str] = {}
        self._mended: list[Reported] = []

    # ------------------------------------------------------------ what happens

    def on_report(self, report: Reported) -> None:
        """Take what the gateway tells its operator."""
        fields = report.fields
        if report.kind == "phase":
            self._phase = (fields["attempt"], fields["phase"])
            self._phase_since_s = time.monotonic()
        elif report.kind == "refused":
            self._refusals[str(fields["code"])] += 1
        elif report.kind == "refused-more":
            more = fields["more"]
            self._refusals[str(fields["code"])] += more if isinstance(more, int) else 0
        elif report.kind == "task-refused":
            self._refused_tasks[str(fields["task"])] = str(fields["why"])
        elif report.kind == MENDED:
            self._mended.append(report)

    # ------------------------------------------------------------ documents

    def status(self) -> dict[str, Json]:
        """Return the status; no device's name is in it."""
        return status_document(self.facts())

    def rounds(self, task: str | None, most: int) -> list[Json]:
        """Return the newest closed rounds whole, newest last; no device's name is in them."""
        history = self._core.history
        wanted = [record for record in history.recent if task is None or record.task == task]
        return [
            measured_round(record, history.metrics(record.task))
            for record in wanted[max(0, len(wanted) - most) :]
        ]

    def devices(self, *, with_rounds: bool) -> dict[str, Json]:
        """Return the devices by name, for the operator."""
        devices = self._devices()
        if not with_rounds:
            return devices_document(devices, rounds_remembered=None)
        members = self._core.history.reader.members()
        counts = rounds_by_device(members)
        counted = [replace(one, rounds=counts.get(one.name, 0)) for one in devices]
        return devices_document(counted, rounds_remembered=len(members))

    def facts(self) -> GatewayFacts:
        """Gather what a status is made of."""
        core = self._core
        counts = self._counts()
        tasks = self._tasks()
        rounds = tuple(core.history.recent)
        disk = disk_fact(self._state_dir)
        keys = core.key_epochs.keys
        return GatewayFacts(
            fleet=self._fleet,
            version=self._version,
            at_s=time.time(),
            started_at_s=self._started_at_s,
            process_id=os.getpid(),
            is_automatic=core.key_epochs.enrolment.is_automatic,
            broker=BrokerFact(
                kind=self._link.kind,
                addresses=self._link.addresses,
                is_linked=core.is_linked,
                counters={**core.transfer_counts(), **self._link.counters()},
            ),
            devices=counts,
            key_epoch_members=None if keys is None else len(keys.devices),
            open_round=self._open_round(core.open_round),
            waiting=self._waiting(),
            tasks=tasks,
            rounds=rounds,
            disk=disk,
            refusals=dict(self._refusals),
            problems=[
                *device_problems(
                    known=counts["known"],
                    reached=counts["online"] + counts["asleep"],
                    pending=counts[DeviceState.PENDING.value],
                    has_task=bool(core.tasks),
                    is_linked=core.is_linked,
                ),
                *round_problems(rounds),
                *spend_problems(
                    {
                        task.name: (task.spend.server, task.epsilon_budget)
                        for task in tasks
                        if task.outcome in {RUNNING, PAUSED} and task.spend is not None
                    }
                ),
                *self._task_problems(),
                *refusal_problems(self._refusals),
                *overload_problems(self._link.counters().get("lost_events", 0)),
                *disk_problems(disk.free_bytes),
                *mended_problems(self._mended),
            ],
        )

    # ------------------------------------------------------------ helpers

    def _task_problems(self) -> list[Problem]:
        return [
            Problem(code="task-refused", text=f"task {name} is refused: {why}")
            for name, why in sorted(self._refused_tasks.items())
        ]

    def _devices(self) -> list[DeviceFact]:
        population, now_s, wall_s = self._core.population, time.monotonic(), time.time()
        backends, asleep = population.backends(population.keys), population.asleep()
        facts = []
        for name, standing in self._standings().items():
            seen, presence = self._core.sightings.of(name), population.presence_of(name)
            bucket = PowerBucket.UNKNOWN if presence is None else presence.bucket
            facts.append(
                DeviceFact(
                    name=name,
                    state=standing.state,
                    link=self._link_of(name, asleep),
                    fingerprint=device_fingerprint(standing.identity_key),
                    heard_at_s=None if seen is None else wall_s - (now_s - seen.heard_at_s),
                    backend=backends.get(name, ""),
                    version="" if seen is None else seen.agent_version,
                    battery="" if bucket is PowerBucket.UNKNOWN else bucket.value,
                    is_available=None if presence is None else presence.is_available,
                    claim=standing.claim,
                )
            )
        return facts

    def _link_of(self, device: str, asleep: Set[str]) -> DeviceLink:
        population = self._core.population
        if device in population.online():
            return DeviceLink.ONLINE
        return DeviceLink.ASLEEP if device in asleep else DeviceLink.OFFLINE

    def _counts(self) -> dict[str, int]:
        """Count devices by link and by state; every look at the page does, so names cost nothing.

        Only where devices had to be let in, or a roster comes from elsewhere, each is looked at.
        """
        core, population = self._core, self._core.population
        if core.enrolments is None and core.key_epochs.enrolment.is_automatic:
            states = count_states({})
            states |= {"known": len(population.keys), "accepted": len(population.keys)}
        else:
            states = count_states(self._standings())
        online, asleep = len(population.online()), len(population.asleep())
        return {
            **states,
            DeviceLink.ONLINE.value: online,
            DeviceLink.ASLEEP.value: asleep,
            DeviceLink.OFFLINE.value: states["known"] - online - asleep,
        }

    def _standings(self) -> dict[str, Standing]:
        core = self._core
        enrolment, enrolments = core.key_epochs.enrolment, core.enrolments
        return standings_of(
            known=core.population.keys,
            roster=enrolment.identity_keys,
            records=() if enrolments is None else enrolments.records,
            is_automatic=enrolment.is_automatic and enrolments is None,
        )

    def _open_round(self, current: OpenRound | None) -> OpenRoundFact | None:
        if current is None:
            return None
        call, machine = current.call, current.machine
        is_current = self._phase == (call.attempt, machine.phase.name)
        return OpenRoundFact(
            task=call.task,
            round_number=call.round_number,
            attempt=call.attempt,
            phase=machine.phase,
            expected=machine.expected,
            needed=machine.needed,
            arrived=machine.arrived,
            since_s=time.monotonic() - self._phase_since_s if is_current else None,
        )

    def _waiting(self) -> WaitFact | None:
        notice = self._core.waiting
        if notice is None:
            return None
        have, need = notice.fields["have"], notice.fields["need"]
        if not isinstance(have, int) or not isinstance(need, int):
            return None
        return WaitFact(what=str(notice.fields["for"]), have=have, need=need)

    def _tasks(self) -> list[TaskFact]:
        core = self._core
        ended = [
            self._task_fact(task.spec, task.committed, task.outcome, task.reason, None)
            for task in core.ended_tasks
        ]
        running = [
            self._task_fact(
                task.spec,
                task.state.committed,
                PAUSED if core.is_paused(task.spec.name) else RUNNING,
                "",
                spend_of(task.spec, task.privacy, core.ledger),
            )
            for task in core.tasks
        ]
        return [*ended, *running]

    def _task_fact(
        self, spec: TaskSpec, committed: int, outcome: str, reason: str, spend: RoundSpend | None
    ) -> TaskFact:
        history = self._core.history
        if spend is None:  # Over: what stood after its last round.
            mine = [record.spend for record in history.recent if record.task == spec.name]
            spend = next((one for one in reversed(mine) if one is not None), None)
        return TaskFact(
            name=spec.name,
            outcome=outcome,
            reason=reason,
            committed=committed,
            wanted=spec.rounds,
            spend=spend,
            epsilon_budget=spec.epsilon_budget,
            delta=spec.delta,
            metrics=history.metrics(spec.name),
        )
