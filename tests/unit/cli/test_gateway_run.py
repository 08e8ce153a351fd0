"""`edgefl gateway run`: what options and gateway.toml together come to."""

from pathlib import Path

import pytest

from broker.config import config_text, load_config
from edgefl.cli import gateway_run
from edgefl.errors import ConfigError


@pytest.fixture
def config(tmp_path: Path) -> object:
    text = config_text(fleet="home", names=["gw.local", "::1"], enrolment_key=None)
    (tmp_path / "gateway.toml").write_text(text)
    return load_config(tmp_path)


def test_a_first_run_is_plaintext_on_loopback_alone() -> None:
    listening = gateway_run._listening(None, None)
    assert (listening.mqtt_port, listening.mqtts_port, listening.wss_port) == (1883, None, None)
    assert gateway_run._listening(0, None).mqtt_port == 0
    assert gateway_run._fleet(None, None) == "fleet"


def test_a_gateway_that_was_set_up_has_no_plaintext_port_unless_asked(config: object) -> None:
    listening = gateway_run._listening(None, config)
    assert (listening.mqtt_port, listening.mqtts_port, listening.wss_port) == (None, 8883, 8443)
    assert gateway_run._listening(1883, config).mqtt_port == 1883


def test_the_fleet_cannot_be_another_one(config: object) -> None:
    assert gateway_run._fleet(None, config) == "home"
    assert gateway_run._fleet("home", config) == "home"
    with pytest.raises(ConfigError, match="E-GATEWAY-FLEET"):
        gateway_run._fleet("other", config)


def test_the_status_page_goes_where_the_settings_say(config: object, tmp_path: Path) -> None:
    http = gateway_run._http_settings(None, config, tmp_path)
    assert http is not None
    assert (http.host, http.port, http.is_port_fixed) == ("127.0.0.1", 8484, True)
    assert gateway_run._http_settings("off", config, tmp_path) is None
    picked = gateway_run._http_settings("0", config, tmp_path)
    assert picked is not None
    assert picked.port == 0
    for port in ("x", "-1", "99999", "٣"):
        with pytest.raises(ConfigError, match="E-PORT"):
            gateway_run._http_settings(port, config, tmp_path)


def test_options_come_before_the_settings_brokers(config: object) -> None:
    assert gateway_run._brokers(None, config) == ()
    (address,) = gateway_run._brokers("mqtts://broker:8883", config)
    assert address.host == "broker"
