"""One device that does not follow the protocol, in a round whose others do."""

import numpy as np

from edgefl.protocol.envelope import NO_SESSION
from edgefl.protocol.events import DeviceSaid
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.reasons import AdversaryClass, DropReason, Phase
from edgefl.protocol.round_messages import (
    CheckIn,
    MaskedInput,
    RevealedShares,
    SharedKeys,
    SurvivorVote,
)
from tests.round_harness import RoundHarness

N_DEVICES, FLOOR = 6, 5
LIAR = "d05"
CURIOUS, SEMI, MALICIOUS = AdversaryClass
MESSAGE_OF = {
    Phase.CHECK_IN: CheckIn,
    Phase.SHARE_KEYS: SharedKeys,
    Phase.MASKED_INPUT: MaskedInput,
    Phase.CERTIFICATE: SurvivorVote,
    Phase.UNMASKING: RevealedShares,
}


def new_round(adversary: AdversaryClass = CURIOUS, n_devices: int = N_DEVICES) -> RoundHarness:
    floor = FLOOR if n_devices == N_DEVICES else None
    return RoundHarness(n_devices, floor=floor, adversary=adversary)


def own_message(harness: RoundHarness, name: str, phase: Phase) -> DeviceMessage:
    """Run up to a phase, and take back the message that a device has just sent in it."""
    harness.run_until(phase)
    device = harness.devices[name]
    for _ in range(10):
        harness.deliver_all_down()
        harness.settle(device)
        harness.work(device)
        harness.settle(device)
        harness.charge()
        if device.sent and type(device.sent[-1][1]) is MESSAGE_OF[phase]:
            break
    message = device.sent[-1][1]
    assert type(message) is MESSAGE_OF[phase]
    harness.packets = [
        packet for packet in harness.packets if packet.device != name or not packet.goes_up
    ]
    return message


def say(harness: RoundHarness, name: str, message: DeviceMessage) -> None:
    plan = harness.aggregator.plan
    session_id = NO_SESSION if plan is None else plan.session_id
    harness.tell(DeviceSaid(device=name, session_id=session_id, message=message))


def codes(harness: RoundHarness) -> list[str]:
    return [error.code for _, error in harness.bad_messages]


def goes_on_without_the_liar(harness: RoundHarness, phase: Phase) -> None:
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    assert LIAR not in outcome.report.survivors
    (dropout,) = outcome.report.dropouts
    assert (dropout.device, dropout.phase) == (LIAR, phase)
    assert dropout.reason is DropReason.BAD_MESSAGE
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))
