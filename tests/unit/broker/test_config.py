"""`gateway.toml`: what init writes is read back, and nothing unknown or senseless is."""

from pathlib import Path

import pytest

from broker.config import CONFIG_FILE, Listening, config_text, load_config
from edgefl.errors import ConfigError
from tests.epoch_harness import signing_key

KEY = signing_key("operator").public_key.hex()


def load(folder: Path, text: str) -> object:
    (folder / CONFIG_FILE).write_text(text)
    return load_config(folder)


def test_no_file_is_a_first_run(tmp_path: Path) -> None:
    assert load_config(tmp_path) is None


def test_a_gateway_that_lost_its_settings_is_no_first_run(tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / "ca.pem").touch()
    with pytest.raises(ConfigError, match="E-GATEWAY-CONFIG"):
        load_config(tmp_path)


@pytest.mark.parametrize("key", [None, KEY])
def test_what_init_writes_is_read(tmp_path: Path, key: str | None) -> None:
    names = ("gateway.local", "192.168.1.5", "::1")
    config = load(tmp_path, config_text(fleet="home", names=names, enrolment_key=key))
    assert config.fleet == "home"
    assert config.names == names
    assert config.enrolment_key == (None if key is None else bytes.fromhex(key))
    assert config.listening == Listening()
    assert config.listening.mqtt_port is None
    assert (config.http_host, config.http_port) == ("127.0.0.1", 8484)
    assert config.brokers == ()


def test_every_line_that_is_commented_out_is_sound(tmp_path: Path) -> None:
    text = config_text(fleet="home", names=["a"], enrolment_key=None)
    commented = ("# [", "# urls", "# conn", "# upload")
    lines = [
        line.removeprefix("# ") if line.startswith(commented) else line
        for line in text.splitlines()
    ]
    config = load(tmp_path, "\n".join(lines))
    assert config.brokers == ("mqtts://broker.example:8883",)
    assert config.limits.connections == 20_000


def test_ports_can_be_closed_and_picked(tmp_path: Path) -> None:
    text = (
        'fleet = "f"\nnames = ["a"]\n[listen]\nmqtts_port = 0\nwss_port = false\nmqtt_port = 1883\n'
    )
    listening = load(tmp_path, text).listening
    assert (listening.mqtts_port, listening.wss_port, listening.mqtt_port) == (0, None, 1883)


def test_a_new_place_is_read_as_urls(tmp_path: Path) -> None:
    lines = 'fleet = "f"\nnames = ["a"]\nmoved_to = ["mqtts://b", "wss://b:8443/mqtt"]'
    (tmp_path / CONFIG_FILE).write_text(lines)
    config = load_config(tmp_path)
    assert config is not None
    assert config.moved_to == ("mqtts://b:8883", "wss://b:8443/mqtt")


BAD = [
    "",
    "fleet = 5",
    'fleet = "A B"',
    'fleet = "f"\nnames = ["a"]\nfleets = 1',
    'fleet = "f"\nnames = ["a"]\n[listen]\nport = 1',
    'fleet = "f"\nnames = ["a"]\n[listen]\nmqtts_port = 65536',
    'fleet = "f"\nnames = ["a"]\n[listen]\nmqtts_port = true',
    'fleet = "f"\nnames = ["a"]\n[listen]\nmqtts_port = "8883"',
    'fleet = "f"\nnames = ["a"]\n[limits]\nconnections = 0',
    'fleet = "f"',
    'fleet = "f"\nnames = []',
    'fleet = "f"\nnames = "a"',
    'fleet = "f"\nnames = [1]',
    'fleet = "f"\nnames = ["a"]\nenrolment_key = "00"',
    f'fleet = "f"\nnames = ["a"]\nenrolment_key = "{"00" * 32}"',
    f'fleet = "f"\nnames = ["a"]\nmoved_to = ["wss://a/{"p" * 200}"]',
    'fleet = "f"\nnames = ["a"]\nlisten = 5',
    "fleet = ",
    "\xff",
]


@pytest.mark.parametrize("text", BAD)
def test_what_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / CONFIG_FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match="E-"):
        load_config(tmp_path)
