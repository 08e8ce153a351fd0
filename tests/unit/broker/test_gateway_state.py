"""A damaged state file gives way to its copy, and nothing that devices have seen comes again."""

from pathlib import Path

import pytest

from broker.gateway_state import GatewayState, require_state, skip_what_may_be_used
from broker.key_epochs import give_up_key_epoch
from broker.round_opening import LAST_ATTEMPT
from edgefl.cli.main import main
from edgefl.errors import StorageError
from edgefl.privacy.ledger import Ledger
from edgefl.protocol import wire
from edgefl.storage.memory import MemoryStore
from edgefl.storage.state_copy import previous_of
from tests.ledger_rows import release


def opened(folder: Path) -> GatewayState:
    return GatewayState(folder)


def begin(folder: Path) -> Path:
    """Store something, have it copied, and store more that is not."""
    state = opened(folder)
    state.store.put("kept", b"1")
    state.commit()
    state.store.put("newer", b"2")
    state.commit()
    state.close()
    return state.path


def test_the_first_commit_makes_a_copy_and_a_new_roster_makes_another(tmp_path: Path) -> None:
    state = opened(tmp_path)
    assert not previous_of(state.path).exists()
    state.store.put("a", b"1")
    state.commit()
    first = previous_of(state.path).read_bytes()
    state.store.put("b", b"2")
    state.commit()
    assert previous_of(state.path).read_bytes() == first, "not with every batch"
    state.store.namespace("enrolment").put("roster", b"3")
    state.commit()
    assert previous_of(state.path).read_bytes() != first
    assert previous_of(state.path).stat().st_mode & 0o077 == 0
    state.close()


def test_what_a_round_has_changed_is_copied_at_the_end_at_the_latest(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.commit()
    state.store.namespace("history").put("round", b"1")
    state.commit()
    state.close()
    state.path.unlink()
    state = opened(tmp_path)
    assert state.store.namespace("history").get("round") == b"1"
    state.close()


def test_a_round_is_copied_when_the_last_copy_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = opened(tmp_path)
    state.commit()
    monkeypatch.setattr("broker.gateway_state.COPY_PAUSE_S", 0.0)
    state.store.namespace("history").put("round", b"1")
    state.commit()
    content = previous_of(state.path).read_bytes()
    state.store.put("only the round's own", b"1")
    state.commit()
    assert previous_of(state.path).read_bytes() == content
    state.close()


@pytest.mark.parametrize("damage", ["bits", "empty", "gone", "other"])
def test_a_damaged_state_gives_way_to_its_copy_and_is_kept(tmp_path: Path, damage: str) -> None:
    path = begin(tmp_path)
    content = path.read_bytes()
    if damage == "bits":
        at = content.rindex(b"kept")
        path.write_bytes(content[:at] + b"k3pt" + content[at + 4 :])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"nothing that SQLite knows" * 200)
    damaged = path.read_bytes() if path.exists() else None

    state = opened(tmp_path)

    assert state.aside is not None
    assert state.aside.name == "gateway.sqlite.damaged-1"
    assert (state.store.get("kept"), state.store.get("newer")) == (b"1", None)
    assert state.mended is not None
    text = str(state.mended.fields["text"])
    if damaged is not None:
        assert state.aside.read_bytes() == damaged
        assert "is kept as gateway.sqlite.damaged-1" in text
    else:
        assert "was gone" in text
        assert "kept as" not in text, "there is no such file"
    state.close()


def test_a_whole_state_is_opened_as_it_is(tmp_path: Path) -> None:
    begin(tmp_path)
    state = opened(tmp_path)
    assert (state.aside, state.store.get("newer")) == (None, b"2")
    state.close()


def test_where_the_copy_is_damaged_too_the_gateway_does_not_start(tmp_path: Path) -> None:
    path = begin(tmp_path)
    for file in (path, previous_of(path)):
        file.write_bytes(file.read_bytes()[:5000])
    before = path.read_bytes()
    with pytest.raises(StorageError, match="E-STATE-DAMAGED"):
        opened(tmp_path)
    assert path.read_bytes() == before, "nothing is moved"


def test_a_state_that_another_process_has_open_is_not_set_aside(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.store.put("a", b"1")
    state.commit()
    with pytest.raises(StorageError, match="E-STATE-LOCKED"):
        opened(tmp_path)
    assert state.path.exists()
    state.close()


# ------------------------------------------------------------ what may be used already


def older_state() -> MemoryStore:
    store = MemoryStore("gateway")
    store.put_many({LAST_ATTEMPT: (5).to_bytes(8, "big"), "epoch": (2).to_bytes(8, "big")})
    store.namespace("epochs").put("state", wire.encode({0: 1, 1: 7, 2: 3, 3: [1, 2]}))
    store.namespace("draws").put("task", wire.encode(4))
    store.namespace("round").put("opening", b"x")
    return store


def ledger_up_to(attempt: int) -> Ledger:
    ledger = Ledger()
    for number in range(1, attempt + 1):
        ledger.append(release(attempt=number))
    return ledger


def test_an_older_state_skips_attempts_key_epochs_and_draws() -> None:
    store = older_state()
    assert skip_what_may_be_used(store, ledger_up_to(9), is_older=True)
    assert int.from_bytes(store.get(LAST_ATTEMPT) or b"", "big") == 1009
    assert int.from_bytes(store.get("epoch") or b"", "big") == 1002
    epochs = wire.as_body(wire.decode(store.namespace("epochs").get("state") or b""))
    assert dict(epochs) == {0: 1, 1: 1007, 2: 0, 3: None}
    assert store.namespace("draws").keys() == []
    assert store.namespace("round").keys() == []


def test_a_ledger_that_is_ahead_tells_that_the_state_is_older() -> None:
    store = older_state()
    assert skip_what_may_be_used(store, ledger_up_to(6), is_older=False)
    assert int.from_bytes(store.get(LAST_ATTEMPT) or b"", "big") == 1006


def test_a_state_that_is_as_new_as_its_ledger_stays_as_it_is() -> None:
    store = older_state()
    assert not skip_what_may_be_used(store, ledger_up_to(5), is_older=False)
    assert store.namespace("round").keys() == ["opening"]
    assert int.from_bytes(store.get(LAST_ATTEMPT) or b"", "big") == 5


def test_a_state_without_key_epochs_has_none_to_give_up() -> None:
    store = MemoryStore("gateway")
    give_up_key_epoch(store, skipped=10)
    assert store.namespace("epochs").keys() == []


def test_a_state_that_is_gone_with_its_copy_is_no_new_gateway(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gateway"
    assert main(["gateway", "init", "--state", str(folder), "--host", "localhost"]) == 0
    require_state(folder)
    key = (folder / "gateway.pub").read_bytes()
    path = folder / "gateway.sqlite"
    path.rename(previous_of(path))
    require_state(folder)
    previous_of(path).unlink()
    assert main(["gateway", "run", "--state", str(folder)]) == 6
    assert "E-STATE-MISSING" in capsys.readouterr().err
    assert (folder / "gateway.pub").read_bytes() == key
    assert not path.exists()
