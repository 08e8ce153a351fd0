"""What people see of a real gateway: in a real browser, in the terminal, in Prometheus' parser."""

import json
import re
import shutil
import stat
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edgefl.cli.main import main
from tests.integration.real import LiveFleet, Process, devices_seen, wait_until

ROUNDS = 3
_NAMES = ("d0", "d1", "d2")


@dataclass(slots=True)
class Seen:
    """A fleet that ran its task, and what was looked at while it stood."""

    fleet: LiveFleet
    url: str
    token: str
    followed: Process
    events: list[dict] = field(default_factory=list)

    @property
    def closed(self) -> list[dict]:
        return [event for event in self.events if event["kind"] == "round"]

    @property
    def measured(self) -> list[dict]:
        return [event for event in self.events if event["kind"] == "evaluated"]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:  # noqa: S310 - loopback
            return answer.read().decode()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("page")
    with LiveFleet(folder, devices=3) as fleet:
        words = json.loads((fleet.state / "gateway.json").read_text())
        followed = Process(
            folder / "follow", "rounds", "--follow", "--json", "--task", "wake", "--state",
            fleet.state,
        )  # fmt: skip
        try:
            wait_until(lambda: len(devices_seen(fleet)) == 3, "three devices")
            fleet.submit("wake", "--rounds", ROUNDS)
            fleet.wait_for_line(f"round {ROUNDS} accuracy")
            yield Seen(
                fleet=fleet,
                url=words["http"],
                token=words["token"],
                followed=followed,
                events=fleet.events(),
            )
        finally:
            followed.stop()


class _Text(HTMLParser):
    """Collects the text of elements by id, and every address that the page names."""

    def __init__(self) -> None:
        super().__init__()
        self.by_id: dict[str, list[str]] = {}
        self.addresses: list[str] = []
        self.rows: list[list[str]] = []
        self._open: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.addresses += [found[name] or "" for name in ("src", "href") if name in found]
        if tag not in {"meta", "link", "img", "line", "circle", "rect", "polyline", "polygon"}:
            self._open.append((tag, found.get("id")))
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] in {"td", "th"}:
            self.rows[-1].append(data)
        for _, name in self._open:
            if name is not None:
                self.by_id.setdefault(name, []).append(data)

    def text(self, name: str) -> str:
        return " ".join(" ".join(self.by_id.get(name, [])).split())


def _browse(url: str, folder: Path) -> tuple[_Text, str]:
    """Return what a real browser makes of the page, and what it complains of."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    assert browser is not None, "a browser is part of the tests' set-up (scripts/lib.sh)"
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={folder}", "--virtual-time-budget=3000", "--dump-dom", url,
        ],
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    page = _Text()
    page.feed(done.stdout)
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return page, "\n".join(complaints)


def test_a_browser_shows_the_true_figures(seen: Seen, tmp_path: Path) -> None:
    page, complaints = _browse(seen.url, tmp_path)
    assert complaints == ""
    committed = [event for event in seen.closed if event["outcome"] == "COMMITTED"]
    assert len(committed) == ROUNDS
    assert page.text("fleet") == "fleet"
    assert page.text("chip") == "running"
    assert "honest-but-curious gateway only" in page.text("trust")
    assert page.text("devices").startswith("3 online of 3")
    spent = float(f"{committed[-1]['epsilon_server']:.3g}")
    assert f"wake epsilon {spent:g} of" in page.text("privacy")
    newest = seen.measured[-1]
    assert page.text("model").startswith(f"{newest['accuracy']:.3f} accuracy after round {ROUNDS}")
    called = sum(event["phases"][0]["expected"] for event in seen.closed)
    assert f"called {called} (100 %)" in page.text("funnel")
    in_sum = sum(event["survivors"] for event in committed)
    assert re.search(rf"update in the sum {in_sum} \(\d+ %\)", page.text("funnel"))
    assert f"committed {ROUNDS} aborted {len(seen.closed) - ROUNDS}" in page.text("times")
    heads, *rows = page.rows
    assert heads[:3] == ["task", "round", "attempt"]
    assert [row[:3] for row in rows] == [
        [event["task"], str(event["round"]), str(event["attempt"])] for event in seen.closed[::-1]
    ]
    assert rows[0][-1] == "committed"


def test_the_page_names_no_device_and_no_other_origin(seen: Seen, tmp_path: Path) -> None:
    page, _ = _browse(seen.url, tmp_path)
    shown = " ".join(text for texts in page.by_id.values() for text in texts)
    assert not any(re.search(rf"\b{name}\b", shown) for name in _NAMES)
    assert page.addresses
    assert all(address.startswith(("/", "#")) for address in page.addresses), page.addresses
    for path in ("", "status.json", "rounds.json", "metrics"):
        content = seen.get(path)
        assert seen.token not in content
        assert not any(f'"{name}"' in content for name in _NAMES)


def test_prometheus_reads_the_metrics(seen: Seen) -> None:
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(seen.get("metrics"))
        for sample in family.samples
    }
    done = (("outcome", "COMMITTED"), ("reason", "NONE"), ("task", "wake"))
    assert samples["edgefl_rounds_total", done] == ROUNDS
    up = sum(event["up_bytes"] for event in seen.closed)
    assert samples["edgefl_round_payload_bytes_total", (("direction", "up"),)] == up > 0
    assert samples["edgefl_devices", (("state", "online"),)] == 3
    spent = (("observer", "server"), ("task", "wake"))
    assert samples["edgefl_epsilon_spent", spent] == seen.closed[-1]["epsilon_server"]
    assert samples["edgefl_process_resident_memory_bytes", ()] > 10_000_000


def test_rounds_are_followed_until_the_task_ends(seen: Seen) -> None:
    ended = seen.followed.wait()
    assert ended.code == 0, ended.err
    events = [json.loads(line) for line in ended.out.splitlines()]
    assert "task-ended" in {event["kind"] for event in events[-2:]}
    opened = [event["phase"] for event in events if event["kind"] == "phase"]
    told = [event["phase"] for event in seen.events if event["kind"] == "phase"]
    assert opened == told
    assert not any(f'"{name}"' in ended.out for name in _NAMES)


def test_the_operators_file_is_the_operators(seen: Seen) -> None:
    path = seen.fleet.state / "gateway.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert seen.token not in (seen.fleet.state / "events.jsonl").read_text()


def _run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = main([str(word) for word in words])
    return code, capsys.readouterr().out


def test_commands_tell_the_same_while_it_runs_and_after(
    seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    state = seen.fleet.state
    code, out = _run(capsys, "gateway", "status", "--state", state)
    assert code == 0
    assert "3 known: 3 online" in out
    assert f"task wake done: {ROUNDS} of {ROUNDS} rounds" in out
    _, out = _run(capsys, "devices", "--state", state, "--who", "--json")
    live = json.loads(out)
    assert "weakens epsilon_release" in live["note"]
    assert {row["device"]: row["link"] for row in live["devices"]} == dict.fromkeys(
        _NAMES, "online"
    )
    counts = {row["device"]: row["rounds"] for row in live["devices"]}
    assert sum(counts.values()) == sum(event["survivors"] for event in seen.closed)
    _, out = _run(capsys, "rounds", "--state", state, "--json")
    rounds = json.loads(out)["rounds"]
    assert [row["attempt"] for row in rounds] == [event["attempt"] for event in seen.closed]
    assert rounds[-1]["accuracy"] == seen.measured[-1]["accuracy"]

    # Killed without a word: the file says it runs, and nobody answers.
    seen.fleet.gateway._process.kill()
    seen.fleet.gateway._process.wait()
    code, out = _run(capsys, "gateway", "status", "--state", state, "--json")
    status = json.loads(out)
    assert (code, status["is_running"], status["fleet"]) == (5, False, "fleet")
    assert status["problems"][0]["code"] == "not-running"
    assert status["tasks"][0]["committed"] == ROUNDS
    _, out = _run(capsys, "rounds", "--state", state, "--json")
    assert json.loads(out)["rounds"] == rounds
    _, out = _run(capsys, "devices", "--state", state, "--who", "--json")
    after = json.loads(out)
    assert {row["device"]: row["rounds"] for row in after["devices"]} == counts
    assert {row["fingerprint"] for row in after["devices"]} == {
        row["fingerprint"] for row in live["devices"]
    }
