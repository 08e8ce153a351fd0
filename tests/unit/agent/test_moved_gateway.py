"""Which of a gateway's words about where it is from now on a device believes."""

from edgefl.agent.gateway_pin import GatewayPin
from edgefl.protocol.service_messages import AggregatorStatus
from edgefl.storage.memory import MemoryStore

HERE = ("mqtts://here.example:8883",)
THERE = ("mqtts://there.example:8883",)


def status(epoch: int, *moved_to: str) -> AggregatorStatus:
    return AggregatorStatus(
        identity_key=bytes(32), epoch=epoch, least_agent_version="0.1.0", moved_to=moved_to
    )


def test_a_later_start_is_believed_and_remembered() -> None:
    store = MemoryStore()
    pin = GatewayPin(store)
    assert pin.moved_to == ()
    assert pin.is_moving(status(3, *HERE))
    assert not pin.is_moving(status(4, *HERE)), "no news"
    assert not pin.is_moving(status(5)), "it may be there"
    again = GatewayPin(store)
    assert again.moved_to == HERE
    assert again.is_moving(status(6, *THERE))
    assert GatewayPin(store).moved_to == THERE


def test_old_words_and_two_that_name_each_other_send_nobody_to_and_fro() -> None:
    store = MemoryStore()
    pin = GatewayPin(store)
    assert pin.is_moving(status(7, *THERE))
    for device in (pin, GatewayPin(store)):
        assert not device.is_moving(status(6, *HERE))
        assert not device.is_moving(status(7, *HERE))
        assert device.moved_to == THERE
