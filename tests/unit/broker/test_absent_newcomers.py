"""Devices that say hello and take no part in key epochs do not keep a fleet from its rounds."""

from broker.enrolment import Enrolment
from broker.events import GatewayEffect
from broker.key_epochs import KeyEpochs
from broker.mailer import Mailer
from edgefl._native import SigningKey
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.envelope import open_envelope
from edgefl.protocol.epoch_events import PublishBundle, SendEpochUp
from edgefl.protocol.epoch_messages import EPOCH_AGGREGATOR_MESSAGES, KeyBundleMessage
from edgefl.protocol.identity import DeviceIdentity
from edgefl.protocol.key_bundle import prg_bitmask
from edgefl.protocol.service_messages import Hello
from edgefl.protocol.topics import device_of
from edgefl.storage.memory import MemoryStore
from edgefl.transport.core_events import Publish
from edgefl.types import FleetName
from tests.epoch_harness import CountedSeeds, signing_key

FLEET = FleetName("home")
HONEST = ("d1", "d2", "d3")
ANSWER_S = 10.0


class Fleet:
    """A gateway that enrols by itself, honest devices, and one of which only some messages come."""

    def __init__(self, *, shows_bundles: bool) -> None:
        gateway = signing_key("gateway")
        store = MemoryStore()
        self.shows_bundles = shows_bundles
        self.opened = self.aborted = 0
        self.now_s = 100.0
        self.keys: dict[str, SigningKey] = {name: signing_key(name) for name in (*HONEST, "odd")}
        self.devices = {name: self._device(name, key) for name, key in self.keys.items()}
        self.epochs = KeyEpochs(
            store.namespace("epochs"),
            enrolment=Enrolment(
                store.namespace("enrolment"),
                fleet=FLEET,
                signing_key=gateway,
                enrolment_key=None,
            ),
            fleet=FLEET,
            entropy=CountedSeeds(b"gateway"),
            mailer=Mailer(FLEET, gateway),
            answer_s=ANSWER_S,
            pause_s=2.0,
            wall_clock_s=lambda: 1e9,
        )
        for name in self.keys:
            self.say_hello(name)

    def _device(self, name: str, key: SigningKey) -> DeviceEpoch:
        return DeviceEpoch(
            identity=DeviceIdentity(device=name, signing_key=key),
            entropy=CountedSeeds(name.encode()),
            fleet=FLEET,
            prgs=prg_bitmask(),
        )

    def say_hello(self, name: str) -> None:
        hello = Hello(identity_key=self.keys[name].public_key, agent_version="1.0")
        self.carry(self.epochs.on_hello(name, hello, self.now_s))

    def carry(self, effects: list[GatewayEffect]) -> None:
        """Bring messages to the devices, and their answers back."""
        for effect in effects:
            if isinstance(effect, Publish):
                self._deliver(effect)
            else:
                kind = getattr(effect, "kind", "")
                self.opened += kind == "key-epoch"
                self.aborted += kind == "key-epoch-aborted"

    def _deliver(self, sent: Publish) -> None:
        name = device_of(sent.topic)
        message = open_envelope(sent.topic, sent.payload).message
        assert isinstance(message, EPOCH_AGGREGATOR_MESSAGES)
        for answer in self.devices[name].handle(message, self.now_s):
            if not isinstance(answer, PublishBundle | SendEpochUp):
                continue
            is_bundle = isinstance(answer.message, KeyBundleMessage)
            if name != "odd" or (self.shows_bundles and is_bundle):
                self.carry(self.epochs.on_message(name, answer.message, self.now_s))

    def can_open(self) -> bool:
        """Ask for a round, as the gateway does at every event."""
        known = {name: key.public_key for name, key in self.keys.items()}
        can, effects = self.epochs.prepare(known, known.keys(), len(HONEST), self.now_s)
        self.carry(effects)
        return can

    def run(self, seconds: int, *, with_hellos: bool) -> int:
        """Let time pass, and return how many rounds could be called."""
        rounds = 0
        for _ in range(seconds):
            self.now_s += 1.0
            if with_hellos:
                self.say_hello("odd")
            self.carry(self.epochs.wake(self.now_s))
            if self.can_open():
                assert self.epochs.take_index() is not None
                rounds += 1
        return rounds


def test_one_silent_device_costs_one_wait_and_no_more() -> None:
    fleet = Fleet(shows_bundles=False)
    rounds = fleet.run(60, with_hellos=False)
    assert (fleet.opened, fleet.aborted) == (1, 0)
    assert rounds >= 60 - ANSWER_S - 2


def test_a_silent_device_that_says_hello_again_and_again_does_not_stop_rounds() -> None:
    fleet = Fleet(shows_bundles=False)
    assert fleet.run(60, with_hellos=True) >= 3


def test_a_device_that_withholds_its_nonce_again_and_again_does_not_stop_rounds() -> None:
    fleet = Fleet(shows_bundles=True)
    assert fleet.run(100, with_hellos=True) >= 3
    assert fleet.opened >= 1
