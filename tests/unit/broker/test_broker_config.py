"""Configurations of other brokers: what must be in them, and what is refused."""

from pathlib import Path

import pytest

from broker.broker_config import (
    BrokerFiles,
    FleetNames,
    Listener,
    NatsNode,
    mosquitto_acl,
    mosquitto_config,
    nats_config,
    nats_users,
)
from edgefl.cli.main import main
from edgefl.errors import ConfigError

FILES = BrokerFiles(
    authorities=Path("/b/trusted.crt"),
    certificate=Path("/b/broker.crt"),
    key=Path("/b/broker.key"),
    revocations=Path("/b/revoked.crl"),
)
LISTENER = Listener(host="0.0.0.0", mqtt_port=8883, websocket_port=8443)  # noqa: S104


def node(index: int) -> NatsNode:
    return NatsNode(
        name=f"nats-{index}",
        listener=LISTENER,
        cluster_host=f"n{index}.example",
        cluster_port=6222,
        client_port=4222,
    )


def test_mosquitto_never_drops_by_number_and_lets_no_stranger_in():
    text = mosquitto_config(
        "fleet", LISTENER, Path("/b/data"), files=FILES, acl_file=Path("/b/acl")
    )
    lines = text.splitlines()
    for wanted in (
        "max_queued_messages 0",
        "max_queued_bytes 67108864",
        "max_packet_size 262144",
        "max_inflight_messages 64",
        "persistent_client_expiration 2d",
        "persistence true",
        "allow_anonymous false",
        "acl_file /b/acl",
        "listener 8883 0.0.0.0",
        "listener 8443 0.0.0.0",
    ):
        assert wanted in lines
    assert lines.count("require_certificate true") == 2
    assert lines.count("use_identity_as_username true") == 2


def test_mosquitto_with_certificates_needs_an_access_list():
    with pytest.raises(ConfigError, match="E-BROKER-CONFIG"):
        mosquitto_config("fleet", LISTENER, Path("/b"), files=FILES, acl_file=None)


def test_mosquittos_list_opens_own_topics_only():
    lines = mosquitto_acl("fleet").splitlines()
    written = [line.removeprefix("pattern write ") for line in lines if "pattern write" in line]
    assert all("/%u/" in topic for topic in written)
    assert "pattern read efl/1/fleet/d/%u/c" in lines
    assert not any("readwrite" in line for line in lines if line.startswith("pattern"))


@pytest.mark.parametrize("bad", ["/b/a\nallow_anonymous true", '/b/"x', "/b/\\x"])
def test_no_path_can_add_a_line(bad):
    with pytest.raises(ConfigError, match="E-BROKER-CONFIG"):
        mosquitto_config("fleet", LISTENER, Path(bad), files=None, acl_file=None)


def test_a_nats_cluster_keeps_three_copies_and_knows_its_routes():
    nodes = [node(1), node(2), node(3)]
    text = nats_config("fleet", nodes, 1, Path("/b/data"), files=FILES, users_file="users.conf")
    assert "stream_replicas: 3" in text
    assert '"nats-route://n1.example:6222", "nats-route://n3.example:6222"' in text
    assert text.count("verify_and_map: true") == 2
    assert 'include "users.conf"' in text


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_cluster_has_an_odd_number_of_nodes(count):
    nodes = [node(index) for index in range(count)]
    with pytest.raises(ConfigError, match="E-BROKER-CONFIG"):
        nats_config("fleet", nodes, 0, Path("/b"), files=None, users_file=None)


def test_nats_users_have_their_own_subjects_with_dots_as_nats_has_them():
    text = nats_users([FleetNames(fleet="fleet", devices=["dev.1"], claims=["claim-a"])])
    (device,) = [line for line in text.splitlines() if '"CN=dev.1"' in line]
    assert '"efl.1.fleet.d.dev//1.q"' in device
    assert "efl.1.fleet.>" not in device
    (claim,) = [line for line in text.splitlines() if '"CN=claim-a"' in line]
    assert ".d." not in claim
    (gateway,) = [line for line in text.splitlines() if '"CN=aggregator"' in line]
    assert gateway.count("efl.1.fleet.>") == 2


def test_shards_share_gateways_topics_but_not_devices():
    shards = [FleetNames(fleet=f"f{n}", devices=[f"d{n}"]) for n in (1, 2)]
    lines = nats_users(shards).splitlines()
    (gateway,) = [line for line in lines if '"CN=aggregator"' in line]
    assert "efl.1.f1.>" in gateway
    assert "efl.1.f2.>" in gateway
    (device,) = [line for line in lines if '"CN=d1"' in line]
    assert "efl.1.f2" not in device


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["mosquitto"], "E-BROKER-CONFIG"),
        (["mosquitto", "--trial", "--host", "192.0.2.1"], "E-PLAINTEXT-REMOTE"),
        (["nats", "--node", "a", "--node", "b", "--trial"], "E-PLAINTEXT-REMOTE"),
        (["nats", "--trial", "--port", "70000"], "E-TRANSPORT-SETTING"),
        (["nats", "--node", "a"], "E-TLS-FOLDER"),
    ],
)
def test_the_command_refuses(words, code, tmp_path, capsys):
    out, state = tmp_path / "out", tmp_path / "state"
    arguments = ["gateway", "config", *words, "--out", str(out), "--state", str(state)]
    assert main(arguments) == 2
    assert code in capsys.readouterr().err
