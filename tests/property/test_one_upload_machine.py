"""The one-upload mode under drops, delays, duplicates, reorder, crashes, silence and a liar.

Rounds follow each other in one key epoch, each with the deposits that rode on the one before it.
Whatever happens: the output is the exact ring sum of the survivors' vectors, no device's both
secrets are revealed in any session of an index, one upload per session and one deposit per index
leave a device, no certificate exists for two lists, and every round ends.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from edgefl.errors import ConfigError, WireError
from edgefl.protocol.certificate import SurvivorCertificate
from edgefl.protocol.envelope import AGGREGATOR, Header
from edgefl.protocol.messages import AggregatorMessage
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import AbortReason, AdversaryClass, Phase
from edgefl.protocol.round_messages import UnmaskRequest
from edgefl.protocol.wire import encode_bitmap
from tests.one_upload_harness import OneUploadHarness
from tests.round_boards import MASK_KEYS
from tests.round_mishaps import CHOICES, RoundMishaps

SPARSE = {"corrupt_permille": 50, "drop_permille": 100}


class OneUploadMachine(RoundMishaps):
    """Rules are what networks, batteries, operators and a hostile gateway do."""

    sizes = st.integers(3, 6)

    @initialize(
        data=st.data(),
        seed=st.integers(0, 2**16),
        adversary=st.sampled_from(AdversaryClass),
        calm_until=st.sampled_from([Phase.MASKED_INPUT, Phase.CERTIFICATE, Phase.UNMASKING]),
        heals=st.booleans(),
        is_hasty=st.booleans(),
    )
    def open(
        self,
        *,
        data: st.DataObject,
        seed: int,
        adversary: AdversaryClass,
        calm_until: Phase,
        heals: bool,
        is_hasty: bool,
    ) -> None:
        """Nothing goes wrong up to a drawn phase: late phases must not be rare."""
        n_devices = data.draw(self.sizes, label="devices")
        options = SPARSE if n_devices >= 24 else {}
        names = [f"d{index:02}" for index in range(n_devices)]
        missing = data.draw(
            st.sets(st.sampled_from(names), max_size=max(0, n_devices // 4)), label="no deposit"
        )
        self.heals = heals
        self.is_hasty = is_hasty
        try:
            self.harness = OneUploadHarness(
                n_devices,
                without_deposit=missing,
                seed=seed,
                adversary=adversary,
                dimension=data.draw(st.integers(5, 20), label="dimension"),
                **options,
            )
        except (ConfigError, WireError):
            # Without their deposits the survivor floor could not be unmasked.
            self.harness = OneUploadHarness(n_devices, seed=seed, adversary=adversary, **options)
        self.harness.run_until(calm_until)

    # ------------------------------------------------------------ devices

    @precondition(lambda self: sum(d.is_silent for d in self.harness.devices.values()) < 3)
    @rule(choice=CHOICES)
    def fall_silent(self, choice: int) -> None:
        self.harness.silence(self._device(choice))

    @rule(choice=CHOICES, effects=st.sampled_from([None, 0, 1, 2, 3]))
    def deposit_outside_of_a_round(self, choice: int, effects: int | None) -> None:
        """For the next index, whether or not the upload brings one as well."""
        if self.harness.attempt >= MASK_KEYS:
            return
        device = self._device(choice)
        if device.has_power:
            call = self.harness.books[self.harness.attempt].call_to(device.name)
            self.harness.settle(device)
            self.harness.deposit(device, call, effects)

    @rule(choice=CHOICES)
    def resend_deposit(self, choice: int) -> None:
        self.harness.resend_deposit(self._device(choice))

    # ------------------------------------------------------------ gateway

    @precondition(lambda self: self.harness.outcome is not None and self.harness.can_go_on)
    @rule(calm=st.booleans())
    def next_round(self, *, calm: bool) -> None:
        self.check_outcome()
        self.restart_all()
        silent = (name for name, device in self.harness.devices.items() if device.is_silent)
        self.harness.start_attempt(frozenset(silent))
        if calm:
            self.harness.run_until(Phase.CERTIFICATE)

    # ------------------------------------------------------------ what must hold

    @invariant()
    def never_both_kinds_of_share(self) -> None:
        """In all sessions of an index together, not in each alone."""
        for (_, owner), kinds in self.harness.kinds_by_index.items():
            assert len(kinds) == 1, f"both secrets of {owner} revealed"

    @invariant()
    def no_two_certificates(self) -> None:
        for index, lists in self.harness.votes.items():
            needed = self.harness.books[index].committee.threshold
            assert sum(len(signers) >= needed for signers in lists.values()) <= 1

    @invariant()
    def one_upload_per_session_and_one_deposit_per_index(self) -> None:
        assert all(len(versions) == 1 for versions in self.harness.masked_versions.values())
        assert all(len(versions) == 1 for versions in self.harness.deposits_sent.values())

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
            self.check_reason(report.abort_reason)
            return
        assert report.charged
        assert report.sum_check_held
        assert outcome.total is not None
        assert outcome.plan is not None
        assert len(report.survivors) >= self.harness.floor
        assert report.unmasked >= outcome.plan.share_threshold
        np.testing.assert_array_equal(outcome.total, self.harness.survivors_sum(outcome))

    def check_reason(self, reason: AbortReason) -> None:
        """With honest devices the secrets fit, whatever the network did."""
        assert reason not in (
            AbortReason.RECONSTRUCTION_FAILED,
            AbortReason.SUM_CHECK_FAILED,
        )

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
        plan = self.harness.aggregator.plan
        assert plan is not None
        for device in self.harness.devices.values():
            self.harness.settle(device)
            # One of an earlier round hears of it when it says hello, which the gateway answers.
            assert device.machine is None or device.machine.plan.session_id != plan.session_id


class HostileGatewayMachine(OneUploadMachine):
    """A gateway that signs what it likes runs beside the honest one, with the same key."""

    @rule(choice=CHOICES, wrong=CHOICES)
    def propose_another_list(self, choice: int, wrong: int) -> None:
        """To one member, with whatever ciphertexts there are."""
        name = self._device(choice).name
        if self.harness.outcome is not None or name not in self.harness.committee:
            return
        plan, own = self._plan(), self.harness.position_of(name)
        dropped = {wrong % plan.size} - {own}
        lists = [position in dropped for position in range(plan.size)]
        honest = self.harness.session.proposal_to(own)
        self._inject(
            name,
            replace(
                honest,
                survivors=encode_bitmap([not is_gone for is_gone in lists]),
                dropped=encode_bitmap(lists),
            ),
        )

    @rule(choice=CHOICES, which=CHOICES)
    def ask_with_what_was_signed(self, choice: int, which: int) -> None:
        """Ask with all signatures over some list, be they enough or not."""
        votes = self.harness.votes.get(self.harness.deposits.key_index, {})
        name = self._device(choice).name
        if not votes or self.harness.outcome is not None:
            return
        survivors, dropped = sorted(votes)[which % len(votes)]
        found = votes[survivors, dropped]
        signatures = sorted(found.values(), key=lambda one: one.roster_position)
        request = UnmaskRequest(
            survivors=survivors,
            dropped=dropped,
            certificate=SurvivorCertificate(signatures=tuple(signatures)),
        )
        self._inject(name, request)

    @rule(choice=CHOICES)
    def announce_a_second_session(self, choice: int) -> None:
        """Of the same index, to whoever was not in the first."""
        name = self._device(choice).name
        if self.harness.outcome is not None or name not in self.harness.deposits.devices:
            return
        plan = replace(self._plan(), round_number=2)
        message = self.harness.session.announce_to(self.harness.position_of(name))
        self._inject(name, replace(message, plan=plan.to_bytes()), plan)

    def check_reason(self, reason: AbortReason) -> None:
        """Answers to the liar's lists may reach the honest machine."""
        assert reason is not AbortReason.NONE

    @invariant()
    def honest_devices_are_not_accused(self) -> None:
        """They are, of having signed another list."""

    def _no_device_waits_for_ever(self) -> None:
        """One in the liar's session would."""

    def _plan(self) -> SessionPlan:
        plan = self.harness.aggregator.plan
        assert plan is not None
        return plan

    def _inject(
        self, name: str, message: AggregatorMessage, plan: SessionPlan | None = None
    ) -> None:
        plan = plan or self._plan()
        header = Header(
            session_id=plan.session_id,
            round_number=plan.round_number,
            attempt=plan.attempt,
            sender=AGGREGATOR,
        )
        self.harness.inject(name, message, header)


class LargerMachine(OneUploadMachine):
    """The same with more devices."""

    sizes = st.integers(3, 10)


class SparseMachine(OneUploadMachine):
    """A graph and a committee that are not everybody."""

    sizes = st.integers(24, 40)


class TestOneUpload(OneUploadMachine.TestCase):
    """Some histories in every run."""

    settings = settings(max_examples=25, stateful_step_count=25)


class TestHostileGateway(HostileGatewayMachine.TestCase):
    """Some histories with a liar in every run."""

    settings = settings(max_examples=25, stateful_step_count=25)


@pytest.mark.long
@pytest.mark.timeout(3600)
class TestManyOneUploads(LargerMachine.TestCase):
    """Thousands of histories."""

    settings = settings(max_examples=2000, stateful_step_count=60, deadline=None)


@pytest.mark.long
@pytest.mark.timeout(3600)
class TestManyHostileGateways(HostileGatewayMachine.TestCase):
    """Thousands of histories with a liar."""

    settings = settings(max_examples=2000, stateful_step_count=60, deadline=None)


@pytest.mark.long
@pytest.mark.timeout(3600)
class TestSparseOneUploads(SparseMachine.TestCase):
    """Hundreds of histories with drawn committees, up to 40 devices."""

    settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
