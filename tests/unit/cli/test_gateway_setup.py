"""`edgefl gateway init|token|ca` and `edgefl devices`: set up, hand out tokens, give orders."""

import json
import stat
import threading
import time
from pathlib import Path

import pytest

from broker.admissions import NAMESPACE
from broker.claims import read_claims
from broker.config import load_config
from broker.enrolment_events import Order, OrderDone, Verb
from broker.enrolments import Admission, EnrolmentRecord, Enrolments
from broker.gateway_identity import read_public_key
from broker.gateway_state import GatewayState
from broker.orders import AuthorityOrder, OrderFolder
from broker.tls_folder import TlsFolder
from edgefl.protocol.claim_token import ClaimToken
from edgefl.protocol.roster_epoch import fingerprint
from tests.command import Run
from tests.epoch_harness import signing_key


@pytest.fixture
def gateway(run: Run, tmp_path: Path) -> Path:
    state = tmp_path / "gateway"
    ended = run("gateway", "init", "--state", state, "--fleet", "home", "--host", "gw.local")
    assert ended.code == 0, ended.err
    return state


def token_of(run: Run, state: Path, *more: object) -> ClaimToken:
    ended = run("gateway", "token", "new", "--state", state, *more)
    assert ended.code == 0, ended.err
    return ClaimToken.from_text(ended.out)


# ---------------------------------------------------------------- init


def test_init_prints_what_was_made_and_what_comes_next(run: Run, tmp_path: Path) -> None:
    state = tmp_path / "gateway"
    ended = run("gateway", "init", "--state", state, "--host", "gw.local")
    assert fingerprint(read_public_key(state)) in ended.out
    assert TlsFolder(state).authority.fingerprint in ended.out
    for words in ("8883", "8443", "8484", "gw.local", "honest-but-curious gateway only"):
        assert words in ended.out
    steps = [
        "gateway run",
        "token new",
        "agent enrol",
        "devices accept",
        "agent run",
        "task submit",
    ]
    places = [ended.out.index(step) for step in steps]
    assert places == sorted(places)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_init_is_done_once_and_goes_on_where_it_was_interrupted(run: Run, gateway: Path) -> None:
    key, authority = read_public_key(gateway), TlsFolder(gateway).authority.fingerprint
    run("gateway", "init", "--state", gateway).refuses("E-GATEWAY-EXISTS", 2)
    (gateway / "gateway.toml").unlink()
    facts = json.loads(run("gateway", "init", "--state", gateway, "--json").out)
    assert facts["gateway_key"] == key.hex()
    assert facts["authority_fingerprint"] == authority


def test_init_with_an_enrolment_key_says_that_the_roster_is_signed_elsewhere(
    run: Run, tmp_path: Path
) -> None:
    key = signing_key("operator").public_key
    state = tmp_path / "gateway"
    ended = run("gateway", "init", "--state", state, "--enrolment-key", key.hex())
    assert "roster-request.json" in ended.out
    assert "honest-but-curious" not in ended.out
    config = load_config(state)
    assert config is not None
    assert config.enrolment_key == key
    assert token_of(run, state).enrolment_key == key


@pytest.mark.parametrize("name", ["*.local", "a b", "", "x" * 300])
def test_init_refuses_names_that_are_none(run: Run, tmp_path: Path, name: str) -> None:
    state = tmp_path / "gateway"
    run("gateway", "init", "--state", state, "--host", name).refuses("E-HOST-NAME", 2)
    assert not (state / "gateway.toml").exists()


# ---------------------------------------------------------------- tokens


def test_a_token_says_where_the_gateway_is_and_who(run: Run, gateway: Path) -> None:
    token = token_of(run, gateway)
    assert token.gateways == ("mqtts://gw.local:8883", "wss://gw.local:8443/mqtt")
    assert token.gateway_key == read_public_key(gateway)
    assert token.authorities == TlsFolder(gateway).trusted
    assert 23 * 3600 < token.expires_s - time.time() <= 24 * 3600
    named = token_of(run, gateway, "--gateway", "wss://other:443", "--expires", "30m")
    assert named.gateways == ("wss://other:443/mqtt",)
    assert named.expires_s - time.time() <= 1800


def test_a_token_is_kept_nowhere(run: Run, gateway: Path) -> None:
    token = token_of(run, gateway)
    for path in gateway.rglob("*"):
        if path.is_file():
            assert token.key not in path.read_bytes()
            assert token.key.hex().encode() not in path.read_bytes()


def test_a_token_in_a_file_is_its_owners_alone(run: Run, gateway: Path, tmp_path: Path) -> None:
    path = tmp_path / "token"
    ended = run("gateway", "token", "new", "--state", gateway, "--out", path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().strip() not in ended.out + ended.err
    words = ("gateway", "token", "new", "--state", gateway, "--out", path)
    run(*words).refuses("E-TOKEN-FILE", 2)
    assert len(read_claims(gateway)) == 1


def a_record(device: str, claim: str) -> EnrolmentRecord:
    key = signing_key(device).public_key
    return EnrolmentRecord(
        device=device,
        identity_key=key,
        admission=Admission.ACCEPTED,
        claim=claim,
        first_seen_s=1,
        certificate_request=b"",
        request_digest=bytes(32),
    )


def test_tokens_are_listed_and_revoked(run: Run, gateway: Path) -> None:
    token = token_of(run, gateway, "--uses", 3)
    words = ("gateway", "token", "list", "--state", gateway)
    (row,) = json.loads(run(*words, "--json").out)["tokens"]
    assert (row["claim"], row["uses"], row["state"]) == (token.claim, 3, "valid")
    state = GatewayState(gateway)
    enrolled = Enrolments(state.store.namespace(NAMESPACE))
    enrolled.put(a_record("kitchen-1", token.claim))
    enrolled.put(a_record("garden-1", "claim-other"))
    state.commit()
    state.close()
    said = run("gateway", "token", "revoke", token.claim, "--state", gateway).out
    assert "came with it: kitchen-1\n" in said
    said = run("gateway", "token", "revoke", token.claim, "--state", gateway, "--json").out
    assert json.loads(said)["came_with_it"] == ["kitchen-1"]
    assert f"{token.claim}  revoked" in run(*words).out
    run("gateway", "token", "revoke", "claim-none", "--state", gateway).refuses("E-NO-CLAIM", 2)
    (gateway / "claims" / "claim-bad.json").write_text("{")
    assert run(*words).out.count("claim-") == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--uses", 0), "E-TOKEN-USES"),
        (("--expires", "24"), "E-TOKEN-EXPIRES"),
        (("--expires", "0h"), "E-TOKEN-EXPIRES"),
        (("--expires", "999d"), "E-TOKEN-EXPIRES"),
        (("--fingerprint", "abc"), "E-FINGERPRINT"),
        (("--gateway", "http://x"), "E-BROKER-URL"),
    ],
)
def test_tokens_that_make_no_sense_are_refused(
    run: Run, gateway: Path, words: tuple[object, ...], code: str
) -> None:
    run("gateway", "token", "new", "--state", gateway, *words).refuses(code, 2)
    assert read_claims(gateway) == {}


def test_commands_name_a_folder_without_a_gateway(run: Run, tmp_path: Path) -> None:
    for words in (
        ("gateway", "token", "new"),
        ("gateway", "token", "list"),
        ("devices", "accept", "d1"),
    ):
        run(*words, "--state", tmp_path).refuses("E-NO-GATEWAY-CONFIG", 2)
    run("gateway", "ca", "show", "--state", tmp_path).refuses("E-TLS-FOLDER", 2)


# ---------------------------------------------------------------- orders


def test_an_order_with_a_fingerprint_that_is_none_is_not_given(run: Run, gateway: Path) -> None:
    words = ("devices", "accept", "d1", "--state", gateway, "--fingerprint", "f0f6")
    run(*words).refuses("E-FINGERPRINT", 2)
    assert list(OrderFolder(gateway).take()) == []


def test_an_order_waits_for_a_gateway_that_does_not_run(run: Run, gateway: Path) -> None:
    run("devices", "accept", "d1", "--state", gateway).refuses("E-GATEWAY-DOWN", 5)
    (order,) = OrderFolder(gateway).take()
    assert isinstance(order, Order)
    assert (order.verb, order.device, order.fingerprint) == (Verb.ACCEPT, "d1", None)


@pytest.mark.parametrize("is_done", [True, False])
def test_an_order_is_answered(run: Run, gateway: Path, is_done: bool) -> None:
    (gateway / "gateway.json").write_text("{}")
    folder, seen = OrderFolder(gateway), []

    def serve() -> None:
        while not seen:
            seen.extend(folder.take())
            time.sleep(0.01)
        done = OrderDone(order_id=seen[0].order_id, is_done=is_done, code="E-X", text="what it did")
        folder.answer(done)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    ended = run("devices", "revoke", "d1", "--state", gateway)
    thread.join(5)
    if is_done:
        assert (ended.code, ended.out) == (0, "what it did\n")
    else:
        assert "what it did" in ended.refuses("E-X", 2)
    assert folder.take() == []
    assert list((gateway / "orders").iterdir()) == []


def test_orders_about_the_authority_are_taken(run: Run, gateway: Path) -> None:
    run("gateway", "ca", "rotate", "--state", gateway).refuses("E-GATEWAY-DOWN", 5)
    run("gateway", "ca", "finish", "--force", "--state", gateway).refuses("E-GATEWAY-DOWN", 5)
    orders = OrderFolder(gateway).take()
    assert [(one.begins, one.is_forced) for one in orders if isinstance(one, AuthorityOrder)] == [
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"verb": "accept"}', '{"verb": "x", "device": "d1"}',
                '{"verb": "accept", "device": "../d1"}', '{"verb": "accept", "device": 5.5}']
)  # fmt: skip
def test_an_order_that_is_none_is_set_aside(gateway: Path, content: str) -> None:
    folder = gateway / "orders"
    folder.mkdir()
    (folder / "1.json").write_text(content)
    assert OrderFolder(gateway).take() == []
    assert [path.name for path in folder.iterdir()] == ["1.unreadable"]
