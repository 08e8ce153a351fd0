"""The round protocol under drops, delays, duplicates, reorder, crashes and silence.

One aggregator and 3 to 8 devices. Whatever happens: the output is the exact ring sum of the
survivors' vectors, no device's both secrets are revealed, and every attempt ends.
"""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edgefl.protocol.reasons import OPEN_PHASES, AbortReason, Phase
from tests.round_harness import Device, RoundHarness, least_floor

CHOICES = st.integers(0, 10_000)


class RoundMachine(RuleBasedStateMachine):
    """Rules are what networks, batteries and operators do; the harness checks each step."""

    max_devices = 8

    @initialize(
        data=st.data(),
        seed=st.integers(0, 2**16),
        noise=st.sampled_from([0.0, 0.4]),
        calm_until=st.sampled_from(OPEN_PHASES),
        heals=st.booleans(),
        is_hasty=st.booleans(),
    )
    def open(
        self,
        *,
        data: st.DataObject,
        seed: int,
        noise: float,
        calm_until: Phase,
        heals: bool,
        is_hasty: bool,
    ) -> None:
        """Nothing goes wrong up to a drawn phase: late phases must not be rare."""
        n_devices = data.draw(st.integers(3, self.max_devices), label="devices")
        self.heals = heals
        self.is_hasty = is_hasty
        self.harness = RoundHarness(
            n_devices,
            floor=min(n_devices, least_floor(n_devices) + data.draw(st.sampled_from([0, 0, 1, 8]))),
            dimension=data.draw(st.integers(5, 20), label="dimension"),
            noise=noise,
            seed=seed,
        )
        self.harness.run_until(calm_until)

    # ------------------------------------------------------------ network

    @precondition(lambda self: self.harness.packets)
    @rule(choice=CHOICES)
    def deliver_any(self, choice: int) -> None:
        self.harness.deliver(choice % len(self.harness.packets))

    @precondition(lambda self: self.harness.packets)
    @rule(choice=CHOICES)
    def drop(self, choice: int) -> None:
        self.harness.packets.pop(choice % len(self.harness.packets))

    @precondition(lambda self: self.harness.packets)
    @rule(choice=CHOICES)
    def duplicate(self, choice: int) -> None:
        self.harness.packets.append(self.harness.packets[choice % len(self.harness.packets)])

    @rule(choice=CHOICES)
    def device_resends(self, choice: int) -> None:
        self.harness.resend(self._device(choice))

    @rule(choice=CHOICES)
    def aggregator_resends(self, choice: int) -> None:
        self.harness.ask_again(self._device(choice).name)

    @rule()
    def all_resend(self) -> None:
        for device in self.harness.devices.values():
            self.harness.ask_again(device.name)
            self.harness.resend(device)

    @rule()
    def deliver_all(self) -> None:
        self.harness.deliver_all()

    # ------------------------------------------------------------ devices

    @rule(choice=CHOICES)
    def carry_out_one_effect(self, choice: int) -> None:
        self.harness.step(self._device(choice))

    @rule(choice=CHOICES)
    def work(self, choice: int) -> None:
        self.harness.work(self._device(choice))

    @rule()
    def all_work(self) -> None:
        for device in self.harness.devices.values():
            self.harness.settle(device)
            self.harness.work(device)

    @rule(choice=CHOICES)
    def crash(self, choice: int) -> None:
        self.harness.crash(self._device(choice))

    @rule(choice=CHOICES, n_effects=st.integers(0, 3))
    def crash_after_some_effects(self, choice: int, n_effects: int) -> None:
        device = self._device(choice)
        for _ in range(n_effects):
            self.harness.step(device)
        self.harness.crash(device)
        self.harness.restart(device)

    @rule()
    def restart_all(self) -> None:
        for device in self.harness.devices.values():
            self.harness.restart(device)

    @precondition(lambda self: sum(d.is_silent for d in self.harness.devices.values()) < 3)
    @rule(choice=CHOICES)
    def fall_silent(self, choice: int) -> None:
        self.harness.silence(self._device(choice))

    @rule(choice=CHOICES)
    def notice_offline(self, choice: int) -> None:
        self.harness.say_offline(self._device(choice).name)

    @rule(choice=CHOICES)
    def notice_online(self, choice: int) -> None:
        self.harness.say_online(self._device(choice).name)

    # ------------------------------------------------------------ gateway

    @rule()
    def perfect_minute(self) -> None:
        """Nothing goes wrong for a while."""
        self.harness.run_until(Phase(min(self.harness.aggregator.phase + 1, Phase.COMMITTED)))

    @rule()
    def charge(self) -> None:
        self.harness.charge()

    @rule()
    def unmask(self) -> None:
        self.harness.unmask()

    @precondition(
        lambda self: (
            self.is_hasty or self.harness.aggregator.arrived >= self.harness.aggregator.needed
        )
    )
    @rule()
    def lose_patience(self) -> None:
        """Let a phase end without those that did not make it."""
        self.harness.fire_timer()

    @precondition(lambda self: self.harness.outcome is not None and self.harness.attempt < 3)
    @rule()
    def next_attempt(self) -> None:
        self.check_outcome()
        self.restart_all()
        self.harness.start_attempt(
            frozenset(name for name, device in self.harness.devices.items() if device.is_silent)
        )
        self.harness.run_until(Phase.SHARE_KEYS)

    # ------------------------------------------------------------ what must hold

    @invariant()
    def never_both_kinds_of_share(self) -> None:
        for (_, owner), kinds in self.harness.revealed_kinds.items():
            assert len(kinds) == 1, f"both secrets of {owner} revealed"

    @invariant()
    def one_masked_input_per_session(self) -> None:
        assert all(len(versions) == 1 for versions in self.harness.masked_versions.values())

    @invariant()
    def honest_devices_are_not_accused(self) -> None:
        assert self.harness.bad_messages == []

    @invariant()
    def nothing_is_revealed_below_the_floor(self) -> None:
        assert all(count >= self.harness.floor for count in self.harness.charged_survivors)
        outcome = self.harness.outcome
        if outcome is not None and outcome.report.outcome is Phase.ABORTED:
            assert outcome.report.abort_reason is not AbortReason.NONE
            assert outcome.total is None

    def check_outcome(self) -> None:
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
        assert report.unmasked > outcome.plan.threshold
        np.testing.assert_array_equal(outcome.total, self.harness.survivors_sum(outcome))

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        if self.heals:
            self._heal()
        self.harness.run_to_end()
        self.check_outcome()
        self._no_device_waits_for_ever()

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

    def _no_device_waits_for_ever(self) -> None:
        """A device that has power and is in the session hears of the end, when it asks."""
        for device in self.harness.devices.values():
            self.harness.restart(device)
            self.harness.ask_again(device.name)
        self.harness.deliver_all()
        for device in self.harness.devices.values():
            self.harness.settle(device)
            # One that was too late for the cohort waits for the next call.
            assert device.machine is None or device.machine.phase is Phase.CHECK_IN

    def _device(self, choice: int) -> Device:
        devices = list(self.harness.devices.values())
        return devices[choice % len(devices)]


class ManyDevicesMachine(RoundMachine):
    """The same with larger cohorts."""

    max_devices = 16


TestRounds = RoundMachine.TestCase


@pytest.mark.long
@pytest.mark.timeout(3600)
class TestManyRounds(ManyDevicesMachine.TestCase):
    """Thousands of histories, up to 16 devices."""

    settings = settings(max_examples=2000, stateful_step_count=100, deadline=None)
