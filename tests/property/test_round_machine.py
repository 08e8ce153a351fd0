"""The round protocol under drops, delays, duplicates, reorder, damage, crashes and silence.

One aggregator and up to 40 devices, all adversary classes, complete and sparse graphs, several
rounds in one key epoch. Whatever happens, the promises of `RoundWatch` hold, the output is the
exact ring sum of the survivors' vectors, and every round ends.

`pytest -m long tests/property/test_round_machine.py` tries many more histories and larger cohorts.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from edgefl.protocol.reasons import AbortReason, AdversaryClass, DropReason, Phase
from tests.round_boards import MASK_KEYS, least_floor
from tests.round_mishaps import CHOICES, RoundMishaps
from tests.watched_harness import WatchedHarness

CALM_STEPS = st.integers(0, 11)
"""About as many make a whole round."""
LEAST_SPARSE = 24


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of what kind the rounds of one history are."""

    n_devices: int
    adversary: AdversaryClass
    corrupt_permille: int = 0
    drop_permille: int = 0
    extra_floor: int = 0
    n_absent: int = 0
    weight_bound: int = 1
    noise: float = 0.0

    def harness(self, dimension: int, seed: int) -> WatchedHarness:
        is_malicious = self.adversary is AdversaryClass.MALICIOUS
        n_called = max(3, self.n_devices - self.n_absent)
        floor = least_floor(
            self.n_devices if is_malicious else n_called,
            adversary=self.adversary,
            corrupt_permille=self.corrupt_permille,
            drop_permille=self.drop_permille,
        )
        if n_called < floor:
            n_called = self.n_devices
        n_absent = self.n_devices - n_called
        return WatchedHarness(
            self.n_devices,
            floor=max(floor, min(n_called, floor + self.extra_floor)),
            dimension=dimension,
            noise=self.noise,
            weight_bound=self.weight_bound,
            seed=seed,
            adversary=self.adversary,
            corrupt_permille=self.corrupt_permille,
            drop_permille=self.drop_permille,
            absent=frozenset(f"d{index:02}" for index in range(1, 1 + n_absent)),
        )


@st.composite
def shapes(draw: st.DrawFn, complete: tuple[int, int], sparse: tuple[int, int]) -> Shape:
    """Draw a shape with a complete graph, or a sparse one where `sparse` has any size."""
    is_sparse = sparse[1] >= sparse[0] and (complete[1] < complete[0] or draw(st.booleans()))
    adversary = draw(st.sampled_from(AdversaryClass))
    has_noise = draw(st.booleans())
    return Shape(
        n_devices=draw(st.integers(*(sparse if is_sparse else complete))),
        adversary=adversary,
        corrupt_permille=draw(st.sampled_from([0, 50])) if is_sparse else 0,
        drop_permille=draw(st.sampled_from([50, 100])) if is_sparse else 0,
        extra_floor=draw(st.sampled_from([0, 0, 1, 8])),
        n_absent=draw(st.sampled_from([0, 0, 1])),
        weight_bound=1 if has_noise else draw(st.sampled_from([1, 5])),
        noise=0.4 if has_noise else 0.0,
    )


class RoundMachine(RoundMishaps):
    """Rules are what networks, batteries and operators do; the harness checks each step."""

    complete_sizes = (3, 7)
    sparse_sizes = (1, 0)
    most_rounds = 4

    @initialize(
        data=st.data(),
        seed=st.integers(0, 2**16),
        calm_steps=CALM_STEPS,
        dies_first=st.none() | CHOICES,
        heals=st.booleans(),
        is_hasty=st.booleans(),
    )
    def open(
        self,
        *,
        data: st.DataObject,
        seed: int,
        calm_steps: int,
        dies_first: int | None,
        heals: bool,
        is_hasty: bool,
    ) -> None:
        """Nothing goes wrong for some steps: late phases must not be rare."""
        shape = data.draw(shapes(self.complete_sizes, self.sparse_sizes), label="shape")
        self.heals = heals
        self.is_hasty = is_hasty
        self.harness = shape.harness(data.draw(st.integers(5, 20), label="dimension"), seed)
        self._stay_calm(calm_steps)
        if dies_first is not None:
            self.die_and_be_noticed(dies_first)

    # ------------------------------------------------------------ network

    @rule()
    def stutter(self) -> None:
        """Everything arrives twice, one right after the other."""
        self.harness.packets = [packet for packet in self.harness.packets for _ in range(2)]
        self.harness.deliver_all()

    @precondition(lambda self: self.harness.packets)
    @rule(choice=CHOICES)
    def delay(self, choice: int) -> None:
        """Everything else overtakes one packet."""
        late = self.harness.packets.pop(choice % len(self.harness.packets))
        self.harness.deliver_all()
        self.harness.packets.append(late)

    @precondition(lambda self: self.harness.packets)
    @rule(choice=CHOICES, where=CHOICES, bit=st.none() | st.integers(0, 7))
    def damage(self, choice: int, where: int, bit: int | None) -> None:
        """Flip a bit, or cut the rest off."""
        packet = self.harness.packets[choice % len(self.harness.packets)]
        if not packet.goes_up and not self.harness.devices[packet.device].has_power:
            return
        changed = bytearray(packet.payload)
        where %= len(changed)
        if bit is None:
            del changed[where:]
        else:
            changed[where] ^= 1 << bit
        self.harness.deliver_damaged(packet, bytes(changed))

    # ------------------------------------------------------------ devices

    @precondition(lambda self: self._n_silent() < max(2, len(self.harness.devices) // 4))
    @rule(choice=CHOICES)
    def fall_silent(self, choice: int) -> None:
        self.harness.silence(self._device(choice))

    @precondition(lambda self: self._n_silent() < max(2, len(self.harness.devices) // 4))
    @rule(choice=CHOICES)
    def die_and_be_noticed(self, choice: int) -> None:
        """The round goes on at once without a device: often its one-time key is revealed."""
        device = self._device(choice)
        self.harness.silence(device)
        self.harness.say_offline(device.name)
        self.harness.progress()

    # ------------------------------------------------------------ gateway

    @rule(saves_inputs=st.booleans())
    def gateway_resumes(self, saves_inputs: bool) -> None:
        """It dies between two batches, and goes on with the round."""
        if self.harness.outcome is None:
            self.harness.gateway_resumes()
        self.harness.saves_inputs = saves_inputs

    @precondition(lambda self: self.harness.outcome is None)
    @rule(choice=CHOICES)
    def gateway_dies_before_commit(self, choice: int) -> None:
        """What it did last is stored nowhere, but for a row of the ledger; nobody was told."""
        harness = self.harness
        harness.dies_before_commit = True
        if harness.charges:
            harness.charge()
        elif harness.unmask_jobs:
            harness.unmask()
        elif harness.packets:
            harness.deliver(choice % len(harness.packets))
        else:
            harness.fire_timer()
        harness.dies_before_commit = False
        harness.gateway_resumes()

    @precondition(lambda self: self.harness.attempt < self.most_rounds)
    @rule()
    def gateway_restarts(self) -> None:
        """The round in memory is lost; what was revealed in it stays revealed."""
        self.harness.gateway_restarts(self._silent())
        self.harness.run_until(Phase.SHARE_KEYS)

    @precondition(
        lambda self: self.harness.outcome is not None and self.harness.attempt < self.most_rounds
    )
    @rule(calm_steps=CALM_STEPS, are_charged=st.booleans())
    def next_round(self, calm_steps: int, are_charged: bool) -> None:
        self.output_is_the_exact_ring_sum()
        for device in self.harness.devices.values():
            device.is_silent &= not are_charged
        self.restart_all()
        self.harness.start_attempt(self._silent())
        self._stay_calm(calm_steps)

    @precondition(
        lambda self: self.harness.outcome is not None and self.harness.attempt < self.most_rounds
    )
    @rule(choice=CHOICES, calm_steps=st.integers(2, 9))
    def whole_round_with_one_death(self, choice: int, calm_steps: int) -> None:
        """Everybody has power again; one device loses it for this round."""
        self.next_round(calm_steps, are_charged=True)
        self.die_and_be_noticed(choice)
        self.harness.run_to_end()

    # ------------------------------------------------------------ what must hold

    @invariant()
    def all_promises_hold(self) -> None:
        self.harness.watch.require_all()

    @invariant()
    def honest_devices_are_not_accused(self) -> None:
        assert self.harness.bad_messages == []
        for device in self.harness.devices.values():
            assert [error.code for error in device.refused if error.code not in LATE] == []

    @invariant()
    def nothing_is_revealed_below_the_threshold(self) -> None:
        harness = self.harness
        for count in harness.charged_survivors:
            assert count >= harness.floor, "no charge below the survivor floor"
        plan = harness.aggregator.plan
        if plan is not None and not harness.was_charged:
            assert harness.watch.holders(plan.session_id) == set()
        outcome = harness.outcome
        if outcome is not None and outcome.report.outcome is Phase.ABORTED:
            assert outcome.report.abort_reason is not AbortReason.NONE
            assert outcome.total is None, "no output without enough shares"

    def output_is_the_exact_ring_sum(self) -> None:
        outcome = self.harness.outcome
        assert outcome is not None
        report = outcome.report
        if report.outcome is Phase.ABORTED:
            assert outcome.total is None
            assert report.survivors == ()
            # With honest devices the secrets fit, whatever the network did.
            assert report.abort_reason not in (
                AbortReason.RECONSTRUCTION_FAILED,
                AbortReason.SUM_CHECK_FAILED,
            )
            return
        assert report.outcome is Phase.COMMITTED
        assert report.charged
        assert report.sum_check_held
        assert outcome.total is not None
        assert len(report.survivors) >= self.harness.floor
        assert outcome.plan is not None
        assert report.unmasked > outcome.plan.share_threshold
        assert not any(drop.reason is DropReason.BAD_MESSAGE for drop in report.dropouts)
        np.testing.assert_array_equal(
            outcome.total, self.harness.survivors_sum(outcome), "exact ring sum"
        )
        assert outcome.total_weight == self.harness.survivors_weight(outcome)

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        if self.heals:
            self._heal()
        self.harness.run_to_end()
        self.output_is_the_exact_ring_sum()
        self.harness.watch.require_all()
        self.harness.watch.require_revealed_keys_open_nothing_else()
        self.no_device_waits_for_ever()

    def _heal(self) -> None:
        """Let everything that can come back do so before the timers run."""
        for _ in range(20):
            if self.harness.outcome is not None:
                return
            for device in self.harness.devices.values():
                self.harness.restart(device)
                if device.machine is not None:
                    self.harness.say_online(device.name)
                self.harness.ask_again(device.name)
                self.harness.resend(device)
            self.harness.progress()

    def no_device_waits_for_ever(self) -> None:
        """A device that has power and is in the session hears of the end, when it asks."""
        for device in self.harness.devices.values():
            self.harness.restart(device)
            self.harness.ask_again(device.name)
        self.harness.deliver_all()
        attempt = self.harness.attempt
        for device in self.harness.devices.values():
            self.harness.settle(device)
            machine = device.machine
            # One that was too late for the cohort waits for the next call, and so does one whose
            # round ended when the gateway lost its memory.
            assert (
                machine is None or machine.phase is Phase.CHECK_IN or machine.call.attempt < attempt
            ), "every run ends"

    def _stay_calm(self, n_steps: int) -> None:
        for _ in range(n_steps):
            self.harness.progress()

    def _silent(self) -> frozenset[str]:
        return frozenset(n for n, device in self.harness.devices.items() if device.is_silent)

    def _n_silent(self) -> int:
        return len(self._silent())


LATE = frozenset({"E-UNEXPECTED", "E-CONTRADICTION", "E-KEY-INDEX-USED", "E-CALL-EPOCH"})


class SparseMachine(RoundMachine):
    """The same in sparse graphs."""

    complete_sizes = (1, 0)
    sparse_sizes = (LEAST_SPARSE, 26)


class LargeMachine(RoundMachine):
    """The same with all sizes up to 40."""

    complete_sizes = (3, 23)
    sparse_sizes = (LEAST_SPARSE, 40)
    most_rounds = MASK_KEYS


@pytest.mark.timeout(600)
class TestRounds(RoundMachine.TestCase):
    """Small cohorts."""

    settings = settings(max_examples=60, stateful_step_count=50)


@pytest.mark.timeout(600)
class TestSparseRounds(SparseMachine.TestCase):
    """A few histories of larger ones."""

    settings = settings(max_examples=4, stateful_step_count=25)


@pytest.mark.long
@pytest.mark.timeout(3600)
class TestManyRounds(RoundMachine.TestCase):
    """Many histories of small cohorts."""

    settings = settings(max_examples=600, stateful_step_count=60)


@pytest.mark.long
@pytest.mark.timeout(3600)
class TestManyLargeRounds(LargeMachine.TestCase):
    """Fewer histories of up to 40 devices."""

    settings = settings(max_examples=40, stateful_step_count=40)
