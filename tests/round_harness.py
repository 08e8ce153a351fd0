"""Drive device rounds and one aggregator round through their effects, packet by packet or whole.

The caller decides what the network does with each packet, when a device dies, and which effect was
the last one that it carried out.
"""

import numpy as np
from numpy.typing import NDArray

from edgefl.protocol.events import RoundFinished
from edgefl.protocol.reasons import Phase
from tests.round_boards import Device
from tests.round_network import RoundNetwork


class RoundHarness(RoundNetwork):
    """A round that is run as a test wants it; the arguments are those of `RoundNetwork`."""

    # ------------------------------------------------------------ single acts

    def silence(self, device: Device) -> None:
        """Take away power for good."""
        self.crash(device)
        device.is_silent = True

    def resend(self, device: Device) -> None:
        """Let a device send its newest message again, as it does without a receipt."""
        if device.machine is not None and not device.machine.phase.is_final:
            self.settle(device)
            if device.machine is not None:
                self._send_up(device, device.machine.last_message())

    def ask_again(self, name: str) -> None:
        """Let the aggregator send again what a device should have by now."""
        message = self.aggregator.message_for(name)
        if message is not None:
            self._send_down(name, message)

    # ------------------------------------------------------------ whole runs

    def progress(self) -> bool:
        """Deliver, work and charge once around; tell whether there was anything to do."""
        before = (len(self.packets), self.aggregator.phase)
        had_work = bool(self.packets or self.charges or self.unmask_jobs)
        self.deliver_all()
        for device in self.devices.values():
            self.settle(device)
            had_work |= bool(device.jobs)
            self.work(device)
            self.settle(device)
        self.charge()
        self.unmask()
        return had_work or before != (len(self.packets), self.aggregator.phase)

    def run_until(self, phase: Phase) -> None:
        """Run a perfect network until the aggregator has reached a phase or ended."""
        for _ in range(100):
            if self.aggregator.phase >= phase or not self.progress():
                return
        raise AssertionError("the round does not come to rest")

    def run_to_end(self) -> RoundFinished:
        """Run a perfect network, and the timers where it comes to rest."""
        for _ in range(300):
            if self.outcome is not None:
                return self.outcome
            if not self.progress() and not self.fire_timer():
                break
        raise AssertionError(f"no end from {self.aggregator.phase.name}")

    def packed_by(self, outcome: RoundFinished) -> list[bytes]:
        """Return the masked inputs of the survivors."""
        assert outcome.plan is not None
        found = []
        for name in outcome.report.survivors:
            (packed,) = self.masked_versions[outcome.plan.session_id, name]
            found.append(packed)
        return found

    def survivors_sum(self, outcome: RoundFinished) -> NDArray[np.uint32]:
        """Return the exact ring sum of the vectors that the survivors hid."""
        total = np.zeros(self.privacy.padded_dimension, dtype=np.uint64)
        for packed in self.packed_by(outcome):
            total += self.vectors[packed]
        return (total & np.uint64((1 << self.privacy.ring_bits) - 1)).astype(np.uint32)

    def survivors_weight(self, outcome: RoundFinished) -> int:
        """Return the sum of the weights that the survivors hid."""
        return sum(self.hidden[packed][1] for packed in self.packed_by(outcome))

    def position_of(self, name: str) -> int:
        """Return a device's position in the plan."""
        plan, member = self.aggregator.plan, self.keys.epoch_position_of(name)
        assert plan is not None
        assert member is not None
        position = plan.position_of(member)
        assert position is not None
        return position

    def name_of(self, position: int) -> str:
        """Return the device at a position in the plan."""
        plan = self.aggregator.plan
        assert plan is not None
        return self.keys.devices[plan.epoch_positions[position]]
