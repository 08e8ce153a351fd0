"""Honest devices against a gateway that signs whatever it likes, in histories of any order.

Second plans, other lists to halves of the cohort, forged certificates, swapped proofs, spoilt
shares, replayed calls and used key indices, second records of a key epoch, and power that fails
between any two effects. The gateway has as many colluders as the plan says that there may be.
`RoundWatch` says what must hold.
"""

from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edgefl._native import verify
from edgefl.errors import EdgeflError
from edgefl.protocol.certificate import certificate_statement
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import OPEN_PHASES, AbortReason, AdversaryClass, Phase
from edgefl.protocol.round_messages import Call, RoundClosed
from edgefl.protocol.wire import decode_bitmap
from tests.device_harness import Table
from tests.lying_gateway import MASK_KEYS, LyingGateway
from tests.round_boards import least_floor
from tests.round_watch import broken

CHOICES = st.integers(0, 1000)
TARGETS = st.integers(0, 8)
"""All devices, either half, or one of them: `_some`."""
FEW = st.lists(st.integers(0, 60), max_size=3)
SOME = st.lists(st.integers(0, 60), min_size=1, max_size=3)
_T = TypeVar("_T")


def make_gateway(
    n_devices: int, adversary: AdversaryClass, corrupt_permille: int, drop_permille: int
) -> LyingGateway:
    """Return a gateway with as many colluders as its plans may assume."""
    floor = least_floor(
        n_devices,
        adversary=adversary,
        corrupt_permille=corrupt_permille,
        drop_permille=drop_permille,
    )
    table = Table(
        n_devices,
        adversary=adversary,
        floor=floor,
        corrupt_permille=corrupt_permille,
        drop_permille=drop_permille,
        dimension=5,
    )
    n_corrupt = -(-n_devices * corrupt_permille // 1000)
    return LyingGateway(table, table.members[1 : 1 + n_corrupt])


class HostileMachine(RuleBasedStateMachine):
    """Rules are the gateway's choices, and failing power."""

    complete_sizes = (4, 7)
    sparse_sizes = (1, 0)

    @initialize(
        data=st.data(),
        calm_until=st.sampled_from((*OPEN_PHASES, Phase.MASKED_INPUT, Phase.MASKED_INPUT)),
        is_sparse=st.booleans(),
    )
    def open(self, *, data: st.DataObject, calm_until: Phase, is_sparse: bool) -> None:
        """Everything is honest up to a drawn phase."""
        adversary = data.draw(
            st.sampled_from([*AdversaryClass, AdversaryClass.MALICIOUS]), label="class"
        )
        is_sparse &= self.sparse_sizes[1] >= self.sparse_sizes[0]
        is_sparse |= self.complete_sizes[1] < self.complete_sizes[0]
        sizes = self.sparse_sizes if is_sparse else self.complete_sizes
        self.gateway = make_gateway(
            data.draw(st.integers(*sizes), label="devices"),
            adversary,
            data.draw(st.sampled_from([0, 50]), label="corrupt permille"),
            50 if is_sparse else 0,
        )
        self.honest_round(0, calm_until - 1)

    # ------------------------------------------------------------ check-in

    @rule(key_index=st.integers(0, MASK_KEYS), attempt=st.integers(1, 3), to=TARGETS)
    def call_some(self, key_index: int, attempt: int, to: int) -> None:
        """A new call: for a used key index, another round, or the same attempt again."""
        call = self.gateway.make_call(key_index, attempt, 1 + key_index % 3)
        for name in self._some(to):
            self.gateway.devices[name].answer(call)

    @precondition(lambda self: self._unused_indices())
    @rule(choice=st.integers(0, MASK_KEYS - 1), n_steps=st.integers(1, 4))
    def honest_round(self, choice: int, n_steps: int) -> None:
        """Call everybody for an unused key, and keep to the protocol for some steps."""
        unused = self._unused_indices()
        key_index = unused[choice % len(unused)]
        self.call_some(key_index, 1 + key_index, 0)
        self._plan(self.gateway.calls[-1], 0)
        for _ in range(n_steps):
            self.go_on_honestly(0)

    @rule(choice=CHOICES, to=TARGETS)
    def replay_a_call(self, choice: int, to: int) -> None:
        call = self._one(self.gateway.calls, choice)
        for name in self._some(3 + to):
            self.gateway.devices[name].answer(call)

    # ------------------------------------------------------------ plans

    @rule(choice=CHOICES, change=st.integers(0, 6), to=TARGETS, swapped=st.none() | CHOICES)
    def announce(self, choice: int, change: int, to: int, swapped: int | None) -> None:
        """A plan for some devices, honest or changed; proofs in each other's places or not."""
        call = self._one(self.gateway.calls, choice)
        plan = self._plan(call, change)
        if plan is not None:
            for name in self._some(to):
                self.gateway.say(name, self.gateway.announcement(call, plan, name, swapped))

    @rule(choice=CHOICES, first=st.integers(0, 6), second=st.integers(0, 6))
    def announce_two_plans(self, choice: int, first: int, second: int) -> None:
        """One plan for one half, another for the other, and then the other way round."""
        self.announce(choice, first, 1, None)
        self.announce(choice, second, 2, None)
        self.announce(choice, second, 1, None)
        self.announce(choice, first, 2, None)

    @precondition(lambda self: self.gateway.plans)
    @rule(choice=CHOICES, to=TARGETS)
    def announce_again(self, choice: int, to: int) -> None:
        call, plan = self._one(self.gateway.plans, choice)
        for name in self._some(to):
            self.gateway.say(name, self.gateway.announcement(call, plan, name))

    def _plan(self, call: Call, change: int) -> SessionPlan | None:
        gateway = self.gateway
        cohort = sorted(gateway.checked_in(call))
        changes: list[dict[str, object]] = [
            {},
            {},
            {},
            {"ledger_head": bytes([7] * 32)},
            {"key_index": (call.key_index + 1) % MASK_KEYS},
            {"parameters_sha256": bytes([9] * 32)},
        ]
        if change == len(changes):
            # Without the last one, who may be some device's neighbour.
            cohort, change = cohort[:-1], 0
        try:
            return gateway.make_plan(call, cohort, **changes[change])
        except EdgeflError:
            return None

    # ------------------------------------------------------------ lists

    @precondition(lambda self: self.gateway.plans)
    @rule(choice=CHOICES, to=TARGETS, missing=FEW, spoilt=st.none() | st.none() | CHOICES)
    def route(self, choice: int, to: int, missing: list[int], spoilt: int | None) -> None:
        _, plan = self._one(self.gateway.plans, choice)
        absent = self._chosen(plan, missing)
        for name in self._some(to):
            self.gateway.say(name, self.gateway.routed(plan, name, absent, spoilt))

    @precondition(lambda self: self.gateway.plans)
    @rule(choice=CHOICES, to=TARGETS, dropped=FEW, missing=FEW)
    def propose(self, choice: int, to: int, dropped: list[int], missing: list[int]) -> None:
        _, plan = self._one(self.gateway.plans, choice)
        lists = self.gateway.lists(
            plan, self._chosen(plan, dropped), self._chosen(plan, missing[1:])
        )
        seats = self.gateway.committee(plan) if choice % 4 else self.gateway.members(plan)
        for name in sorted(set(self._some(to)).intersection(seats)):
            self.gateway.say(name, lists)

    @precondition(lambda self: self.gateway.plans)
    @rule(choice=CHOICES, to=TARGETS, dropped=FEW, missing=FEW, is_forged=st.booleans())
    def request(
        self, choice: int, to: int, dropped: list[int], missing: list[int], is_forged: bool
    ) -> None:
        _, plan = self._one(self.gateway.plans, choice)
        lists = self.gateway.lists(
            plan, self._chosen(plan, dropped), self._chosen(plan, missing[1:])
        )
        message = self.gateway.request(plan, lists, is_forged=is_forged)
        for name in self._some(to):
            self.gateway.say(name, message)

    @precondition(lambda self: self.gateway.plans)
    @rule(choice=CHOICES, first=SOME, second=FEW, dies=CHOICES, is_fresh=st.booleans())
    def two_views(
        self, choice: int, first: list[int], second: list[int], dies: int, is_fresh: bool
    ) -> None:
        """Other lists to either half, in votes and requests; then the other way round.

        Mostly both lists are as devices want them: enough survivors, the receiver among them.
        """
        gateway = self.gateway
        if is_fresh and self._unused_indices():
            self.honest_round(choice % MASK_KEYS, 2)
        _, plan = self._one(gateway.plans, choice) if choice % 4 == 0 else gateway.plans[-1]
        most = max(0, len(gateway.sharers(plan)) - plan.thresholds.survivor_floor)
        most += choice % 5 == 0
        drops = [sorted(self._chosen(plan, view))[:most] for view in (first, second)]
        views = [gateway.lists(plan, dropped) for dropped in drops]
        everybody, voters = set(gateway.members(plan)), set(gateway.committee(plan))
        for halves in ((1, 2), (2, 1)):
            for half, lists, dropped in zip(halves, views, drops, strict=True):
                for name in sorted(voters.difference(dropped).intersection(self._some(half))):
                    gateway.say(name, lists)
            gateway.devices[self._name(dies)].restart()
        for halves in ((1, 2), (2, 1)):
            for half, lists, dropped in zip(halves, views, drops, strict=True):
                message = gateway.request(plan, lists)
                for name in sorted(everybody.difference(dropped).intersection(self._some(half))):
                    gateway.say(name, message)
            gateway.devices[self._name(dies)].restart()

    @precondition(lambda self: self.gateway.plans)
    @rule(choice=CHOICES, missing=st.integers(1, 2))
    def leave_too_few(self, choice: int, missing: int) -> None:
        """Ask the survivors of a list that is below the floor."""
        gateway = self.gateway
        _, plan = gateway.plans[-1]
        names = sorted(gateway.sharers(plan))
        names = names[choice % max(1, len(names)) :] + names[: choice % max(1, len(names))]
        alive = names[: plan.thresholds.survivor_floor - missing]
        lists = gateway.lists(plan, set(names) - set(alive))
        message = gateway.request(plan, lists)
        for name in alive[::2]:
            gateway.say(name, lists if name in gateway.committee(plan) else message)
            gateway.say(name, message)

    @precondition(lambda self: self.gateway.plans)
    @rule(choice=CHOICES, source=CHOICES, to=TARGETS)
    def request_of_another_session(self, choice: int, source: int, to: int) -> None:
        """A certificate that was made for another session."""
        _, plan = self._one(self.gateway.plans, choice)
        _, other = self._one(self.gateway.plans, source)
        message = self.gateway.request(other, self.gateway.lists(other, ()))
        if plan.size == other.size:
            for name in self._some(to):
                self.gateway.say(name, message)

    @rule(choice=CHOICES)
    def go_on_honestly(self, choice: int) -> None:
        """Give every device what an honest gateway would: the next message of its session."""
        gateway = self.gateway
        if not gateway.plans:
            self._plan(self._one(gateway.calls, choice), 0)
        if not gateway.plans:
            return
        call, plan = self._one(gateway.plans, choice)
        lists = gateway.lists(plan, ())
        made = {
            Phase.CHECK_IN: lambda name: gateway.announcement(call, plan, name),
            Phase.SHARE_KEYS: lambda name: gateway.routed(plan, name, ()),
            Phase.MASKED_INPUT: lambda name: (
                lists if name in gateway.committee(plan) else gateway.request(plan, lists)
            ),
            Phase.CERTIFICATE: lambda _: gateway.request(plan, lists),
        }
        phases = {
            name: device.machine.phase
            for name, device in gateway.devices.items()
            if device.machine is not None
        }
        for name, phase in phases.items():
            if phase in made:
                gateway.say(name, made[phase](name))

    @rule(to=TARGETS, counted=st.booleans())
    def close_the_round(self, to: int, counted: bool) -> None:
        phase = Phase.COMMITTED if counted else Phase.ABORTED
        message = RoundClosed(phase=phase, reason=AbortReason.NONE, counted=counted)
        for name in self._some(3 + to):
            self.gateway.say(name, message)

    # ------------------------------------------------------------ key epochs

    @rule(count=st.sampled_from([4, 8]))
    def invite_to_a_key_epoch(self, count: int) -> None:
        self.gateway.invite(2, count)

    @rule(key_epoch=st.sampled_from([1, 2, 2]), nonce=st.integers(0, 3), to=st.integers(0, 3))
    def close_a_key_epoch(self, key_epoch: int, nonce: int, to: int) -> None:
        self.gateway.close(key_epoch, nonce, self._some(to))

    @rule(to=TARGETS)
    def open_a_key_epoch_without_its_nonces(self, to: int) -> None:
        self.gateway.open_with_nonces_of_its_own(self._some(to))

    # ------------------------------------------------------------ power

    @rule(choice=CHOICES, n_effects=st.integers(0, 2))
    def lose_power_in_the_next_answer(self, choice: int, n_effects: int) -> None:
        self.gateway.devices[self._name(choice)].effects_before_death = n_effects

    @rule(choice=CHOICES, loses_round=st.booleans())
    def lose_power(self, choice: int, loses_round: bool) -> None:
        self.gateway.devices[self._name(choice)].restart(loses_round=loses_round)

    # ------------------------------------------------------------ what must hold

    @invariant()
    def all_promises_hold(self) -> None:
        gateway = self.gateway
        gateway.watch.require_all(gateway.colluding_neighbours, gateway.colluding_signers())

    @invariant()
    def shares_leave_for_sound_lists_alone(self) -> None:
        """No reveal below the survivor floor, and none without enough true signatures."""
        gateway = self.gateway
        for name, device in gateway.honest.items():
            for session_id, message in device.answered:
                plan = gateway.watch.plans[session_id]
                alive = decode_bitmap(message.survivors, plan.size)
                dropped = decode_bitmap(message.dropped, plan.size)
                if sum(alive) < plan.thresholds.survivor_floor:
                    broken("no reveal below the threshold", f"{sum(alive)} survivors, to {name}")
                if any(a and d for a, d in zip(alive, dropped, strict=True)):
                    broken("lists are disjoint", name)
                if not alive[gateway.members(plan).index(name)]:
                    broken("a device that reveals is a survivor", name)
                self._require_certificate(plan, message, name)

    def _require_certificate(self, plan: SessionPlan, message: object, name: str) -> None:
        if not plan.thresholds.committee:
            return
        certificate = message.certificate  # type: ignore[attr-defined]
        statement = certificate_statement(plan.session_id, message.survivors, message.dropped)  # type: ignore[attr-defined]
        signers = {
            self.gateway.keys.devices[self.gateway.keys.epoch.members.index(s.roster_position)]
            for s in certificate.signatures
            if verify(s.entry.identity_key, statement, s.signature)
        }
        found = len(signers.intersection(self.gateway.committee(plan)))
        if found < plan.thresholds.certificate:
            broken("no share without a certificate", f"{found} signatures, to {name}")

    @invariant()
    def one_record_and_one_bundle_per_key_epoch(self) -> None:
        for name, device in self.gateway.honest.items():
            for records in device.records.values():
                if len(records) > 1:
                    broken("one record per key epoch", f"{len(records)}, by {name}")
            for bundles in device.bundles.values():
                if len(bundles) > 1:
                    broken("one bundle per key epoch", f"{len(bundles)}, by {name}")

    @invariant()
    def nobody_opens_a_key_epoch_alone(self) -> None:
        for device in self.gateway.honest.values():
            assert device.epoch.open_epoch == self.gateway.keys.epoch

    def teardown(self) -> None:
        if not hasattr(self, "gateway"):
            return
        for name, device in self.gateway.devices.items():
            message = RoundClosed(phase=Phase.ABORTED, reason=AbortReason.CANCELLED, counted=False)
            device.effects_before_death = None
            self.gateway.say(name, message)
            if device.machine is not None and not device.machine.phase.is_final:
                broken("every run ends", f"{name} waits in {device.machine.phase.name}")
        self.all_promises_hold()
        self.gateway.watch.require_revealed_keys_open_nothing_else()

    # ------------------------------------------------------------ choices

    def _unused_indices(self) -> list[int]:
        used = {call.key_index for call in self.gateway.calls}
        return [index for index in range(MASK_KEYS) if index not in used]

    def _name(self, choice: int) -> str:
        return self._one(list(self.gateway.devices), choice)

    def _some(self, choice: int) -> list[str]:
        """Return all devices, either half, or one."""
        names = list(self.gateway.devices)
        halves = [names, names[::2], names[1::2]]
        return halves[choice] if choice < len(halves) else [names[choice % len(names)]]

    def _chosen(self, plan: SessionPlan, choices: list[int]) -> set[str]:
        members = self.gateway.members(plan)
        return {members[choice % len(members)] for choice in choices}

    @staticmethod
    def _one(items: list[_T], choice: int) -> _T:
        """Return one of the newest items more often than an old one."""
        return items[-1 - choice % len(items)] if choice % 3 else items[-1]


class SparseHostileMachine(HostileMachine):
    """The same in sparse graphs."""

    complete_sizes = (1, 0)
    sparse_sizes = (24, 25)


class LargeHostileMachine(HostileMachine):
    """The same with all sizes up to 40."""

    complete_sizes = (4, 20)
    sparse_sizes = (24, 40)


@pytest.mark.timeout(600)
class TestHostileGateway(HostileMachine.TestCase):
    """Small cohorts."""

    settings = settings(max_examples=30, stateful_step_count=30)


@pytest.mark.timeout(600)
class TestHostileGatewaySparse(SparseHostileMachine.TestCase):
    """A few histories of larger ones."""

    settings = settings(max_examples=4, stateful_step_count=20)


@pytest.mark.long
@pytest.mark.timeout(3600)
class TestManyHostileGateways(HostileMachine.TestCase):
    """Many histories of small cohorts."""

    settings = settings(max_examples=600, stateful_step_count=40)


@pytest.mark.long
@pytest.mark.timeout(3600)
class TestManyLargeHostileGateways(LargeHostileMachine.TestCase):
    """Fewer histories of up to 40 devices."""

    settings = settings(max_examples=25, stateful_step_count=30)
