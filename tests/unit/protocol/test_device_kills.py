"""A device that loses power between any two effects sends the same bytes again or none."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.reasons import AdversaryClass, Phase
from edgefl.protocol.round_messages import (
    CheckIn,
    MaskedInput,
    RevealedShares,
    SharedKeys,
    SurvivorVote,
)
from tests.device_fixtures import CURIOUS, LIAR
from tests.device_harness import Table
from tests.hostile_gateway import small, small_in
from tests.played_device import Device


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing that a device sends, and how the gateway asks for it.

    Attributes:
        phase: Where the table stands before.
        ask_other: Asks for something else instead, where there is anything.
        n_effects: Effects that the device returns, the last of which sends it. From the first one
            on it is bound to what it was asked.
    """

    kind: type[DeviceMessage]
    ask: Callable[[Table, str], object]
    ask_other: Callable[[Table, str], object] | None
    n_effects: int
    phase: Phase | None
    adversary: AdversaryClass = CURIOUS

    def table(self) -> Table:
        if self.phase is None:
            return small(self.adversary)
        return small_in(self.phase, self.adversary)

    def name(self, table: Table) -> str:
        return table.committee[0] if table.committee else "d00"

    def die(self, table: Table, device: Device, n_effects: int) -> None:
        """Let the device do its step, and take its power after so many effects."""
        device.effects_before_death = n_effects
        self.ask(table, device.name)
        assert device.effects_before_death is None, "it died"


def _other_plan(table: Table, name: str) -> None:
    plan = table.changed(ledger_head=bytes([1] * 32))
    table.devices[name].say(table.announcement(name, plan))


STEPS = [
    Step(
        kind=CheckIn,
        phase=None,
        ask=lambda table, name: table.devices[name].answer(table.call),
        ask_other=lambda table, name: table.devices[name].answer(replace(table.call, attempt=2)),
        n_effects=3,
    ),
    Step(
        kind=SharedKeys,
        phase=Phase.SHARE_KEYS,
        ask=lambda table, name: table.devices[name].say(table.announcement(name)),
        ask_other=_other_plan,
        n_effects=3,
    ),
    Step(
        kind=MaskedInput,
        phase=Phase.MASKED_INPUT,
        ask=lambda table, name: table.devices[name].say(table.routed(name)),
        ask_other=None,
        n_effects=2,
    ),
    Step(
        kind=SurvivorVote,
        phase=Phase.UNMASKING,
        ask=lambda table, name: table.devices[name].say(table.proposal()),
        ask_other=lambda table, name: table.devices[name].say(
            table.proposal(dropped=[_another(table, name)])
        ),
        n_effects=2,
        adversary=LIAR,
    ),
    Step(
        kind=RevealedShares,
        phase=Phase.UNMASKING,
        ask=lambda table, name: table.devices[name].say(table.request()),
        ask_other=lambda table, name: table.devices[name].say(
            table.request(dropped=[_another(table, name)])
        ),
        n_effects=2,
    ),
    Step(
        kind=RevealedShares,
        phase=Phase.UNMASKING,
        ask=lambda table, name: table.devices[name].say(table.request()),
        ask_other=lambda table, name: table.devices[name].say(
            table.request(dropped=[_another(table, name)])
        ),
        n_effects=2,
        adversary=LIAR,
    ),
]
DEATHS = [(step, n) for step in STEPS for n in range(step.n_effects + 1)]
IDS = [f"{step.kind.__name__}-{step.table().plan.adversary.name}-{n}" for step, n in DEATHS]


def _another(table: Table, name: str) -> str:
    return next(member for member in table.members if member != name)


@pytest.mark.parametrize(("step", "n_effects"), DEATHS, ids=IDS)
def test_the_same_bytes_come_again(step: Step, n_effects: int) -> None:
    table = step.table()
    device = table.devices[step.name(table)]
    step.die(table, device, n_effects)
    # What was stored is sent as soon as there is power again.
    assert device.sent_of(step.kind) or n_effects < step.n_effects - 1
    for _ in range(2):
        step.ask(table, device.name)
        device.restart()
    assert device.codes == []
    assert len(device.sent_of(step.kind)) > 1
    assert len(set(device.sent_of(step.kind))) == 1


@pytest.mark.parametrize(
    ("step", "n_effects"),
    [(step, n) for step, n in DEATHS if step.ask_other is not None],
    ids=[name for (step, _), name in zip(DEATHS, IDS, strict=True) if step.ask_other is not None],
)
def test_what_was_begun_is_not_done_for_something_else(step: Step, n_effects: int) -> None:
    """Asked for another thing after its death, a device gives one of both, never both."""
    table = step.table()
    device = table.devices[step.name(table)]
    step.die(table, device, n_effects)
    assert step.ask_other is not None
    step.ask_other(table, device.name)
    step.ask(table, device.name)
    assert len(set(device.sent_of(step.kind))) <= 1
    if n_effects >= 1:
        assert device.codes[:1] in (["E-CONTRADICTION"], ["E-KEY-INDEX-USED"])


@pytest.mark.parametrize("n_effects", [1, 2])
def test_rounding_and_noise_do_not_run_again_once_a_vector_is_stored(n_effects: int) -> None:
    table = small_in(Phase.MASKED_INPUT)
    device = table.devices["d00"]
    device.effects_before_death = n_effects
    device.say(table.routed("d00"))
    jobs = len(device.mask_jobs)
    device.restart()
    device.say(table.routed("d00"))
    assert len(device.mask_jobs) == jobs == 1
    assert len(set(device.sent_of(MaskedInput))) == 1


def test_a_vector_that_was_lost_before_it_was_stored_is_made_anew() -> None:
    table = small_in(Phase.MASKED_INPUT)
    device = table.devices["d00"]
    device.effects_before_death = 0
    device.say(table.routed("d00"))
    assert len(device.mask_jobs) == 2
    assert len(device.sent_of(MaskedInput)) == 1
    first, second = device.mask_jobs
    # Another update under the same masks, of which the first never left the device.
    assert first.update.tobytes() != second.update.tobytes()
