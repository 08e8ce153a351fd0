"""`edgefl roster`: the key stays private, and no sign-off can fork what devices have pinned."""

import json
import stat
from pathlib import Path

import pytest

from edgefl.protocol.roster_epoch import RosterPin
from edgefl.storage.enrolment import (
    RosterCandidate,
    create_enrolment_key,
    read_enrolment_key,
    read_leaving,
    read_request,
    read_roster,
    write_request,
)
from tests.command import Run
from tests.epoch_harness import signing_key


@pytest.fixture
def key(tmp_path: Path) -> Path:
    create_enrolment_key(tmp_path / "enrolment.key")
    return tmp_path / "enrolment.key"


def request(path: Path, *devices: str, key_label: str = "") -> Path:
    candidates = [
        RosterCandidate(
            device=device,
            identity_key=signing_key(device + key_label).public_key,
            first_seen="2026-01-02T03:04:05Z",
        )
        for device in devices
    ]
    write_request(path, candidates)
    assert read_request(path) == tuple(candidates)
    return path


def test_init_makes_a_key_that_its_owner_alone_can_read(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "key"
    ended = run("roster", "init", "--key", path, "--json")
    facts = json.loads(ended.out)
    assert ended.code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert facts["public_key"] == read_enrolment_key(path).public_key.hex()
    assert path.read_text().splitlines()[1] not in ended.out + ended.err
    run("roster", "init", "--key", path).refuses("E-ENROLMENT-KEY-EXISTS", 2)
    assert facts["public_key"] == read_enrolment_key(path).public_key.hex()


def test_init_says_what_a_key_on_the_gateway_means(run: Run, tmp_path: Path) -> None:
    assert "honest-but-curious gateway only" in run("roster", "init", "--key", tmp_path / "k").out


def test_rosters_follow_each_other(run: Run, tmp_path: Path, key: Path) -> None:
    roster_file = tmp_path / "roster"
    words = ("--key", key, "-o", roster_file)
    first = run("roster", "sign", request(tmp_path / "r1", "b", "a"), *words, "--fleet", "field")
    assert first.code == 0
    assert "added   a " in first.out
    pin = RosterPin().advance(read_roster(roster_file).headers, read_enrolment_key(key).public_key)
    again = ("--previous", roster_file)
    second = run("roster", "sign", request(tmp_path / "r2", "c"), *words, *again, "--remove", "b")
    assert second.code == 0
    assert "removed b" in second.out
    roster = read_roster(roster_file)
    assert [entry.device for entry in roster.entries] == ["a", "c"]
    assert pin.advance(roster.headers, roster.enrolment_key).number == 2
    shown = json.loads(run("roster", "show", roster_file, "--json").out)
    assert (shown["fleet"], shown["number"], shown["size"]) == ("field", 2, 2)
    assert [device["device"] for device in shown["devices"]] == ["a", "c"]
    assert shown["hash"] == roster.epoch.hash.hex()
    assert "roster 2 of fleet field: 2 devices" in run("roster", "show", roster_file).out


def test_nothing_that_would_fork_the_roster_is_signed(run: Run, tmp_path: Path, key: Path) -> None:
    r1, r2 = tmp_path / "roster1", tmp_path / "roster2"
    asked = request(tmp_path / "request", "a", "b")
    more = request(tmp_path / "more", "c")
    assert run("roster", "sign", asked, "--key", key, "-o", r1).code == 0
    assert run("roster", "sign", more, "--key", key, "--previous", r1, "-o", r2).code == 0
    content = r2.read_bytes()
    for previous in ((), ("--previous", r1)):
        ended = run("roster", "sign", more, "--key", key, *previous, "-o", r2)
        ended.refuses("E-ROSTER-PREVIOUS", 2)
    assert r2.read_bytes() == content


@pytest.mark.parametrize(
    ("devices", "label", "words", "code"),
    [
        (("a",), " set up anew", (), "E-ROSTER-CHANGED"),
        (("a", "b"), "", (), "E-ROSTER-UNCHANGED"),
        ((), "", ("--remove", "c"), "E-ROSTER-REMOVE"),
        ((), "", ("--remove", "a", "--remove", "b"), "E-ROSTER-SIZE"),
        (("c",), "", ("--fleet", "other"), "E-ROSTER-KEY"),
        (("c",), "", ("--fleet", "Other"), "E-FLEET-NAME"),
    ],
)
def test_what_cannot_be_signed(
    run: Run,
    tmp_path: Path,
    key: Path,
    devices: tuple[str, ...],
    label: str,
    words: tuple[str, ...],
    code: str,
) -> None:
    roster_file = tmp_path / "roster"
    first = request(tmp_path / "first", "a", "b")
    assert run("roster", "sign", first, "--key", key, "-o", roster_file).code == 0
    asked = request(tmp_path / "second", *devices, key_label=label)
    common = ("--key", key, "--previous", roster_file, "-o", roster_file)
    run("roster", "sign", asked, *common, *words).refuses(code, 2)
    assert read_roster(roster_file).epoch.number == 1


def test_another_key_does_not_sign_on(run: Run, tmp_path: Path, key: Path) -> None:
    roster_file, other = tmp_path / "roster", tmp_path / "other.key"
    create_enrolment_key(other)
    first = request(tmp_path / "first", "a", "b")
    assert run("roster", "sign", first, "--key", key, "-o", roster_file).code == 0
    more = request(tmp_path / "more", "c")
    words = ("--key", other, "--previous", roster_file, "-o", tmp_path / "out")
    run("roster", "sign", more, *words).refuses("E-ROSTER-KEY", 2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        "[1]",
        '[{"device": "a"}]',
        '[{"device": "a", "identity_key": "00"}]',
        '[{"device": "a", "identity_key": 7}]',
        '[{"device": 7, "identity_key": "' + "0" * 64 + '"}]',
        '[{"device": "a", "identity_key": "' + "x" * 64 + '"}]',
        '[{"device": "a", "identity_key": "' + "0" * 64 + '"}]',
        "[" * 100_000,
    ],
)
def test_requests_that_are_none(run: Run, tmp_path: Path, key: Path, text: str) -> None:
    path = tmp_path / "request"
    path.write_text(text)
    ended = run("roster", "sign", path, "--key", key, "-o", tmp_path / "roster")
    ended.refuses("E-ROSTER-REQUEST", 2)


def test_a_request_cannot_move_the_cursor(tmp_path: Path) -> None:
    path = tmp_path / "request"
    identity_key = signing_key("a").public_key.hex()
    row = {"device": "a", "identity_key": identity_key, "first_seen": "\x1b[2Jnow\n"}
    path.write_text(json.dumps([row]))
    assert read_request(path)[0].first_seen == "[2Jnow"


def test_one_device_twice_in_a_request_is_refused_if_the_keys_differ(
    run: Run, tmp_path: Path, key: Path
) -> None:
    rows = [
        {"device": "a", "identity_key": signing_key(label).public_key.hex()}
        for label in ("one", "other")
    ]
    path = tmp_path / "request"
    path.write_text(json.dumps(rows))
    ended = run("roster", "sign", path, "--key", key, "-o", tmp_path / "roster")
    ended.refuses("E-ROSTER-CHANGED", 2)


def test_key_files_that_are_none(run: Run, tmp_path: Path, key: Path) -> None:
    asked = request(tmp_path / "request", "a")

    def sign() -> str:
        ended = run("roster", "sign", asked, "--key", key, "-o", tmp_path / "roster")
        assert ended.code == 2
        return ended.error().split(":")[0]

    key.chmod(0o640)
    assert sign() == "E-ENROLMENT-KEY-MODE"
    key.chmod(0o600)
    for content in (b"", b"edgefl enrolment key 1\n", b"\xff" * 88, key.read_bytes()[:-3]):
        key.write_bytes(content)
        assert sign() == "E-ENROLMENT-KEY-FILE"
    key.write_bytes(bytes(10_000))
    assert sign() == "E-ENROLMENT-FILE"
    key.unlink()
    assert sign() == "E-ENROLMENT-FILE"


def test_a_damaged_roster_is_named(run: Run, tmp_path: Path, key: Path) -> None:
    roster_file = tmp_path / "roster"
    asked = request(tmp_path / "request", "a", "b")
    assert run("roster", "sign", asked, "--key", key, "-o", roster_file).code == 0
    content = bytearray(roster_file.read_bytes())
    content[-1] ^= 1
    roster_file.write_bytes(content)
    line = run("roster", "show", roster_file).error()
    assert str(roster_file) in line
    assert run("roster", "show", roster_file).code == 6
    run("roster", "show", tmp_path / "none").refuses("E-ENROLMENT-FILE", 2)


def test_a_request_takes_revoked_devices_out_of_the_roster(
    run: Run, tmp_path: Path, key: Path
) -> None:
    roster_file, words = tmp_path / "roster", ("--key", key)
    asked = request(tmp_path / "request", "a", "b", "c")
    assert run("roster", "sign", asked, *words, "-o", roster_file).code == 0
    # d was revoked before it was ever signed in.
    write_request(asked, [], ["b", "d"])
    assert read_request(asked) == ()
    assert read_leaving(asked) == ("b", "d")
    again = ("--previous", roster_file, "-o", roster_file)
    ended = run("roster", "sign", asked, *words, *again)
    assert "removed b (revoked at the gateway)" in ended.out
    assert [entry.device for entry in read_roster(roster_file).entries] == ["a", "c"]
    run("roster", "sign", asked, *words, *again).refuses("E-ROSTER-UNCHANGED", 2)
    for row in ({"leaves": True}, {"leaves": True, "device": "A B"}):
        asked.write_text(json.dumps([row]))
        assert run("roster", "sign", asked, *words, *again).code == 2
