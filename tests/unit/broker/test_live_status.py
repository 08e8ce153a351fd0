"""What a running gateway tells of itself: counted from its core, and never a name too many."""

import hashlib
import json
from pathlib import Path

import pytest

from broker.core import GatewayCore
from broker.events import Reported
from broker.live_status import LinkWords, LiveStatus
from broker.mended import state_mended
from broker.reports import more_report, refused_report
from broker.settings import GatewaySettings
from edgefl._native import Seed, SigningKey
from edgefl.protocol.presence import PowerBucket, Presence, PresenceKind
from edgefl.storage.memory import MemoryStore
from edgefl.transport.core_events import LinkRestored
from firmware_sim.entropy import InsecureSeededEntropy
from firmware_sim.gateway import MemoryLedger
from tests.epoch_harness import signing_key
from tests.status_facts import a_round

_BOARDS = ("secret-name-0", "secret-name-1", "secret-name-2", "secret-name-3")


def _key(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _core(enrolment_key: bytes | None = None) -> GatewayCore:
    core = GatewayCore(
        settings=GatewaySettings(
            fleet="north",
            signing_key=SigningKey.from_seed(Seed.from_bytes(bytes(32))),
            least_agent_version="0.1.0",
            enrolment_key=enrolment_key,
        ),
        store=MemoryStore("gateway"),
        ledger=MemoryLedger(),
        entropy=InsecureSeededEntropy(1, "gateway"),
    )
    for name in _BOARDS:
        core.population.pin(name, _key(name))
    for name in _BOARDS[:3]:
        core.population.is_heard(name)
        core.sightings.note_hello(name, "0.4.0", 0.0)
    low = Presence(kind=PresenceKind.ONLINE, is_available=False, bucket=PowerBucket.LOW)
    core.population.note_presence(_BOARDS[1], low)
    asleep = Presence(
        kind=PresenceKind.SLEEPING, is_available=True, bucket=PowerBucket.HIGH, wakes_in_s=60
    )
    core.population.note_presence(_BOARDS[2], asleep)
    core.population.falls_asleep(_BOARDS[2], 60, 0.0, is_counted_on=True)
    return core


def _status(core: GatewayCore, folder: Path) -> LiveStatus:
    link = LinkWords(kind="endpoint", addresses=("mqtt://127.0.0.1:1",), counters=lambda: {"a": 3})
    return LiveStatus(core, fleet="north", version="0.1.0", state_dir=folder, link=link)


def test_devices_are_counted_by_link_and_by_state(tmp_path: Path) -> None:
    status = _status(_core(), tmp_path).status()
    assert status["devices"] == {
        "known": 4, "online": 2, "asleep": 1, "offline": 1,
        "accepted": 4, "pending": 0, "rejected": 0, "revoked": 0,
    }  # fmt: skip
    assert status["is_curious_only"] is True
    assert status["broker"]["counters"]["a"] == 3
    assert "secret-name" not in json.dumps(status, allow_nan=False)


def test_an_operator_who_signs_elsewhere_has_devices_that_wait(tmp_path: Path) -> None:
    status = _status(_core(signing_key("operator").public_key), tmp_path).status()
    assert status["devices"]["pending"] == 4
    assert status["devices"]["accepted"] == 0
    assert status["trust"] == "roster signed by an operator"
    assert {problem["code"] for problem in status["problems"]} >= {"enrolment-waiting", "no-link"}


def test_the_operator_sees_each_device(tmp_path: Path) -> None:
    core = _core()
    for attempt in (1, 2, 3):
        core.history.close_round(a_round(attempt))
    live = _status(core, tmp_path)
    rows = {row["device"]: row for row in live.devices(with_rounds=False)["devices"]}
    assert [rows[name]["link"] for name in _BOARDS] == ["online", "online", "asleep", "offline"]
    assert [rows[name]["battery"] for name in _BOARDS] == ["", "low", "high", ""]
    assert [rows[name]["is_available"] for name in _BOARDS] == [None, False, True, None]
    assert [rows[name]["version"] for name in _BOARDS] == ["0.4.0"] * 3 + [""]
    assert rows[_BOARDS[3]]["heard_at_s"] is None
    assert "rounds" not in rows[_BOARDS[0]]
    assert "note" in live.devices(with_rounds=True)


def test_refusals_and_refused_tasks_are_told(tmp_path: Path) -> None:
    live = _status(_core(), tmp_path)
    live.on_report(refused_report("E-WIRE-CBOR", "x"))
    live.on_report(more_report("E-WIRE-CBOR", 120, 60.0))
    fields = {"task": "wake", "code": "E-TASK-FOLDER", "why": "no bundle"}
    live.on_report(Reported(kind="task-refused", fields=fields))
    status = live.status()
    assert status["refusals"] == {"E-WIRE-CBOR": 121}
    codes = {problem["code"] for problem in status["problems"]}
    assert codes >= {"many-refusals", "task-refused"}


def test_what_the_endpoint_could_not_note_is_a_problem(tmp_path: Path) -> None:
    for lost, expected in ((0, False), (7, True)):
        link = LinkWords(
            kind="endpoint", addresses=(), counters=lambda lost=lost: {"lost_events": lost}
        )
        live = LiveStatus(_core(), fleet="north", version="0.1.0", state_dir=tmp_path, link=link)
        problems = {problem["code"]: problem["text"] for problem in live.status()["problems"]}
        assert ("events-lost" in problems) is expected
    assert problems["events-lost"].startswith("7 connects, disconnects and uploads")


def test_a_link_that_is_there_is_no_problem(tmp_path: Path) -> None:
    core = _core()
    core.handle(LinkRestored(), 0.0)
    status = _status(core, tmp_path).status()
    assert status["broker"]["is_linked"] is True
    assert "no-link" not in {problem["code"] for problem in status["problems"]}


@pytest.mark.parametrize(("most", "wanted"), [(2, [4, 5]), (9, [1, 2, 3, 4, 5])])
def test_rounds_are_the_newest_of_a_task(tmp_path: Path, most: int, wanted: list[int]) -> None:
    core = _core()
    for attempt in range(1, 6):
        core.history.close_round(a_round(attempt))
    live = _status(core, tmp_path)
    assert [row["attempt"] for row in live.rounds("wake", most)] == wanted
    assert live.rounds("other", most) == []


def test_what_was_mended_at_the_start_is_said_for_the_whole_life(tmp_path: Path) -> None:
    status = _status(_core(), tmp_path)
    status.on_report(state_mended(tmp_path / "gateway.sqlite", tmp_path / "not-there"))
    found = {one["code"]: one["text"] for one in status.status()["problems"]}
    assert "gateway.sqlite was gone" in found["state-mended"]
