"""A damaged state file: the identity stays, and the account of spent privacy counts as lost."""

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.agent.clock import RELEASED_S
from edgefl.agent.entropy import HedgedEntropy
from edgefl.agent.identity import load_identity
from edgefl.agent.recovery import COPY_FILE, open_state, set_copy_aside
from edgefl.agent.spend import DeviceSpend, forget
from edgefl.cli.main import main
from edgefl.errors import RemoteProtocolError, StorageError
from edgefl.privacy.plan import PrivacyPlan, PrivacyPolicy
from edgefl.storage.sqlite import SqliteStore, open_sqlite
from edgefl.types import DeviceId
from tests.round_boards import privacy_plan

D1 = DeviceId("d1")
POLICY = PrivacyPolicy(max_epsilon=1e9)


def first_start(path: Path) -> bytes:
    """Use a device for the first time, let it spend, and return its public key."""
    store = open_state(path, wall_clock_s=RELEASED_S)
    identity = load_identity(store, D1)
    HedgedEntropy(store.namespace("entropy"), identity.signing_key.export_seed())
    store.put("gateway-key", b"g" * 32)
    DeviceSpend(store.namespace("spend"), POLICY).charge(plan(), b"s" * 32)
    store.close()
    open_state(path, wall_clock_s=RELEASED_S).close()  # the copy has the gateway's key from now on
    return identity.signing_key.public_key


def plan() -> PrivacyPlan:
    return privacy_plan(8, 4, 16, 1.0, 1)


def spend_of(path: Path) -> DeviceSpend:
    store = open_state(path, wall_clock_s=RELEASED_S)
    spend = DeviceSpend(store.namespace("spend"), POLICY)
    store.close()
    return spend


def test_the_copy_is_for_the_owner_only_and_written_once(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite"
    first_start(path)
    copy = tmp_path / COPY_FILE
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    before = copy.stat().st_mtime_ns
    open_state(path, wall_clock_s=RELEASED_S).close()
    assert copy.stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", ["garbled", "cut", "empty", "gone", "bit"])
def test_a_damaged_file_is_set_aside_and_said(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "agent.sqlite"
    public_key = first_start(path)
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[content.index(b"ggggg")] ^= 1
    damaged = {"garbled": b"\0" * len(content), "cut": content[: len(content) // 2], "empty": b""}
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(bytes(damaged.get(damage, content)))
    store = open_state(path, wall_clock_s=RELEASED_S)
    assert load_identity(store, D1).signing_key.public_key == public_key
    assert store.get("gateway-key") == b"g" * 32
    # Boots before the damage were few; those after it must not be counted like them.
    assert int.from_bytes(store.namespace("entropy").get("boots") or b"", "big") > 1_000_000
    store.close()
    assert (damage == "gone") is not (tmp_path / "agent.sqlite.damaged-1").exists()
    assert "counts as exhausted" in caplog.text

    spend = spend_of(path)
    assert spend.epsilon is None
    with pytest.raises(RemoteProtocolError) as refused:
        spend.require_room(plan())
    assert refused.value.code == "E-SPEND-UNKNOWN"
    store = open_sqlite(path, namespace="agent")
    forget(store.namespace("spend"))
    store.close()
    spend_of(path).require_room(plan())


def dies_at_write(allowed: int, path: Path) -> bool:
    """Open the state in a process that dies at a write; tell whether it did."""
    process_id = os.fork()
    if process_id == 0:
        written, left = SqliteStore.put_many, [allowed]

        def put_many(self: SqliteStore, changes: dict[str, bytes | None]) -> None:
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)
            written(self, changes)

        SqliteStore.put_many = put_many
        open_state(path, wall_clock_s=RELEASED_S)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1]) == 9


def test_a_power_cut_while_beginning_anew_leads_to_the_same_end(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite"
    public_key = first_start(path)
    path.write_bytes(b"garbage" * 1000)
    assert [dies_at_write(allowed, path) for allowed in range(4)] == [True, True, True, False]
    store = open_state(path, wall_clock_s=RELEASED_S)
    assert load_identity(store, D1).signing_key.public_key == public_key
    assert DeviceSpend(store.namespace("spend"), POLICY).epsilon is None
    store.close()


def test_without_an_intact_copy_the_agent_stops(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite"
    first_start(path)
    path.write_bytes(b"garbage" * 1000)
    copy = tmp_path / COPY_FILE
    copy.write_bytes(copy.read_bytes().replace(b"a", b"b", 1))
    with pytest.raises(StorageError) as refused:
        open_state(path, wall_clock_s=RELEASED_S)
    assert refused.value.code == "E-STATE-DAMAGED"
    assert not (tmp_path / "agent.sqlite.damaged-1").exists()


def test_an_owner_can_have_another_identity(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite"
    public_key = first_start(path)
    set_copy_aside(path)
    path.unlink()
    store = open_state(path, wall_clock_s=RELEASED_S)
    assert load_identity(store, D1).signing_key.public_key != public_key
    assert DeviceSpend(store.namespace("spend"), POLICY).epsilon == 0
    store.close()


@settings(max_examples=10)
@given(content=st.binary(max_size=200))
def test_no_bytes_of_a_copy_raise_anything(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("state")
    (folder / COPY_FILE).write_bytes(content)
    open_state(folder / "agent.sqlite", wall_clock_s=0.0).close()


def test_an_identity_has_its_copy_from_enrolment_on(tmp_path: Path, capsys) -> None:
    """What the gateway has let in must not be lost before the first run."""
    words = ["agent", "enrol", "--key-only", "--device", "d1", "--state", str(tmp_path), "--json"]
    assert main(words) == 0
    key = json.loads(capsys.readouterr().out)["identity_key"]
    (tmp_path / "agent.sqlite").write_bytes(b"no database at all" * 400)
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["identity_key"] == key
    assert (tmp_path / "agent.sqlite.damaged-1").exists()


def page_bytes(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[16:18], "big")


def test_a_new_state_has_small_pages_and_an_old_one_stays_as_it_is(tmp_path: Path) -> None:
    open_state(tmp_path / "new.sqlite", wall_clock_s=RELEASED_S).close()
    assert page_bytes(tmp_path / "new.sqlite") == 1024
    (tmp_path / "old").mkdir()
    old = tmp_path / "old" / "agent.sqlite"
    open_sqlite(old, namespace="agent").close()
    store = open_state(old, wall_clock_s=RELEASED_S)
    store.put("a", b"1")
    store.close()
    assert page_bytes(old) == 4096
