"""A flood of hellos costs few request files, none of which lacks a board for long."""

from pathlib import Path

from broker.core import GatewayCore
from broker.enrolment_requests import LONGEST_PAUSE_S, SHORTEST_PAUSE_S
from broker.events import EnrolmentWanted, GatewayEffect, Reported
from broker.open_gateway import GatewayEntropy
from broker.refusals import SHORTEST_SPAN_S
from broker.roster_folder import REQUEST_FILE, RosterFolder
from broker.settings import GatewaySettings
from edgefl._native import SigningKey
from edgefl.protocol import topics
from edgefl.protocol.envelope import Header, seal_envelope
from edgefl.protocol.service_messages import Hello
from edgefl.storage.base import KeyValueStore
from edgefl.storage.enrolment import read_request
from edgefl.storage.memory import MemoryStore
from edgefl.transport.core_events import Arrived, LinkRestored, Woken
from edgefl.types import DeviceId, FleetName
from firmware_sim.gateway import MemoryLedger
from tests.epoch_harness import signing_key

FLEET = FleetName("home")
FLOOD = 1_000


class Gateway:
    """A real core over a store that outlives it, and the times at which it wrote a request."""

    def __init__(self, folder: Path, store: KeyValueStore | None = None) -> None:
        self.store = MemoryStore() if store is None else store
        self.folder = RosterFolder(folder)
        self.core = GatewayCore(
            settings=GatewaySettings(
                fleet=FLEET,
                signing_key=signing_key("gateway"),
                enrolment_key=signing_key("operator").public_key,
                least_agent_version="0.0.1",
            ),
            store=self.store,
            ledger=MemoryLedger(),
            entropy=GatewayEntropy(),
        )
        self.now_s = 1000.0
        self.written_s: list[float] = []
        self.lines = 0
        self.carry(self.core.handle(LinkRestored(), self.now_s))

    def carry(self, effects: list[GatewayEffect]) -> None:
        for effect in effects:
            if isinstance(effect, EnrolmentWanted):
                self.folder.write_request(effect.devices)
                self.written_s.append(self.now_s)
            elif isinstance(effect, Reported):
                self.lines += effect.kind == "enrolment"

    def hello(self, device: str, key: SigningKey | None = None) -> None:
        key = signing_key(device) if key is None else key
        hello = Hello(identity_key=key.public_key, agent_version="1.0")
        topic = topics.uplink(FLEET, DeviceId(device))
        payload = seal_envelope(key, topic, Header(sender=device), hello)
        self.carry(self.core.handle(Arrived(topic=topic, payload=payload), self.now_s))

    def pass_time(self, seconds: float) -> None:
        """Let time pass as the shell does, waking the core when it asks for it."""
        end_s = self.now_s + seconds
        while (wakeup_s := self.core.wakeup_s) is not None and wakeup_s <= end_s:
            assert wakeup_s > self.now_s, "a wish in the past would be granted for ever"
            self.now_s = wakeup_s
            self.carry(self.core.handle(Woken(), self.now_s))
        self.now_s = end_s


def asked(folder: Path) -> set[str]:
    return {candidate.device for candidate in read_request(folder / REQUEST_FILE)}


def test_the_first_board_is_asked_for_at_once(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    gateway.hello("d1")
    assert asked(tmp_path) == {"d1"}
    gateway.hello("d1")
    gateway.pass_time(10 * LONGEST_PAUSE_S)
    assert gateway.written_s == [1000.0]
    assert gateway.lines == 1


def test_a_flood_within_a_second_is_two_files_the_second_of_them_whole(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    for number in range(FLOOD):
        gateway.hello(f"d{number}")
    assert gateway.written_s == [1000.0]
    gateway.pass_time(SHORTEST_PAUSE_S)
    assert gateway.written_s == [1000.0, 1000.0 + SHORTEST_PAUSE_S]
    assert asked(tmp_path) == {f"d{number}" for number in range(FLOOD)}
    gateway.pass_time(SHORTEST_SPAN_S)  # The number of new devices is said once more.
    assert gateway.core.wakeup_s is None
    assert len(gateway.written_s) == 2


def test_a_flood_that_lasts_is_written_ever_less_often(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    for number in range(FLOOD):
        gateway.hello(f"d{number}")
        gateway.pass_time(1.0)
    pauses = [
        after - before
        for before, after in zip(gateway.written_s, gateway.written_s[1:], strict=False)
    ]
    assert min(pauses) >= SHORTEST_PAUSE_S
    assert max(pauses) <= LONGEST_PAUSE_S
    assert len(gateway.written_s) == gateway.lines <= FLOOD / LONGEST_PAUSE_S + 8
    gateway.pass_time(LONGEST_PAUSE_S)
    assert len(asked(tmp_path)) == FLOOD


def test_after_a_rest_a_board_is_asked_for_at_once_again(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    for number in range(100):
        gateway.hello(f"d{number}")
        gateway.pass_time(1.0)
    gateway.pass_time(3 * LONGEST_PAUSE_S)
    gateway.hello("late")
    assert gateway.written_s[-1] == gateway.now_s
    gateway.hello("later")
    gateway.pass_time(SHORTEST_PAUSE_S)
    assert asked(tmp_path) >= {"late", "later"}


def test_two_keys_in_turn_under_one_name_are_written_no_more_often(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    keys = [signing_key("one"), signing_key("other")]
    for number in range(FLOOD):
        gateway.hello("d1", keys[number % 2])
        gateway.pass_time(0.1)
    assert len(gateway.written_s) <= 8


def test_boards_that_came_right_before_a_crash_are_asked_for_by_the_next_life(
    tmp_path: Path,
) -> None:
    gateway = Gateway(tmp_path)
    gateway.hello("d1")
    gateway.hello("d2")
    assert asked(tmp_path) == {"d1"}
    Gateway(tmp_path, gateway.store)
    assert asked(tmp_path) == {"d1", "d2"}
