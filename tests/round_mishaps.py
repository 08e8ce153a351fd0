"""What happens to a round in any mode: the rules that machines over a round harness share.

Networks lose, double and reorder; batteries die and come back; operators lose patience.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from edgefl.protocol.reasons import Phase
from tests.round_boards import Device
from tests.round_harness import RoundHarness

CHOICES = st.integers(0, 10_000)


class RoundMishaps(RuleBasedStateMachine):
    """Rules that only need a harness.

    Attributes:
        harness: Made by the rule that begins.
        is_hasty: Whether phases may end although more answers are needed.
    """

    harness: RoundHarness
    is_hasty: bool

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

    @rule(choice=CHOICES, n_effects=st.integers(0, 3))
    def crash_after_some_effects(self, choice: int, n_effects: int) -> None:
        device = self._device(choice)
        for _ in range(n_effects):
            self.harness.step(device)
        self.harness.crash(device)
        self.harness.restart(device)

    @rule(choice=CHOICES)
    def crash(self, choice: int) -> None:
        self.harness.crash(self._device(choice))

    @rule()
    def restart_all(self) -> None:
        for device in self.harness.devices.values():
            self.harness.restart(device)

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

    def _device(self, choice: int) -> Device:
        devices = list(self.harness.devices.values())
        return devices[choice % len(devices)]
