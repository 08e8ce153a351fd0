"""What each kind of board tells, and that garbage is taken for silence."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.agent.power.hwmon import HwmonSensors
from edgefl.agent.power.kernel import KernelBattery
from edgefl.agent.power.load import free_memory_bytes, pressure_percent
from edgefl.agent.power.network import MeteredNetwork
from edgefl.agent.power.pisugar import PiSugar
from edgefl.agent.power.readings import BatteryReading, Readings, Supply
from edgefl.agent.power.sensors import Sensors, SensorSettings
from edgefl.agent.power.thermal import ThermalZones
from edgefl.agent.power.tree import Tree
from tests.unit.agent.power.boards import (
    JETSON,
    LAPTOP,
    PI_3,
    PI_4,
    PI_5,
    UPS_HAT,
    ZERO_2_W,
    Files,
    make_tree,
)

CURVE = ((3.3, 0.0), (3.7, 50.0), (4.1, 100.0))


def read(root: Path, files: Files, settings: SensorSettings | None = None) -> Readings:
    sensors = Sensors(root, settings or SensorSettings(), root=make_tree(root, files), pisugar=())
    return sensors.read(0.0)


def kernel(root: Path, files: Files) -> BatteryReading | None:
    base = "sys/class/power_supply/"
    return KernelBattery(Tree(make_tree(root, {base + n: t for n, t in files.items()}))).read()


def test_a_board_without_a_battery_counts_as_powered_from_outside(tmp_path: Path) -> None:
    readings = read(tmp_path, PI_3)
    assert readings.battery is None
    assert readings.supply is Supply.EXTERNAL
    assert readings.level_percent is None
    assert readings.heat.hottest_c == pytest.approx(48.312)
    assert readings.heat.margin_c == pytest.approx(110 - 48.312)
    assert readings.free_memory_bytes == 512_000 * 1024
    assert readings.memory_pressure_percent == 0.75
    assert readings.cpu_pressure_percent == 12.0
    assert readings.is_undervolted is None
    assert readings.is_metered is None
    assert readings.free_disk_bytes is not None
    assert readings.free_disk_bytes > 0


def test_a_pi_tells_of_a_weak_supply(tmp_path: Path) -> None:
    assert read(tmp_path / "4", PI_4).is_undervolted is True
    assert read(tmp_path / "5", PI_5).is_undervolted is False


def test_fans_are_no_reason_to_stop(tmp_path: Path) -> None:
    assert read(tmp_path, PI_5).heat.margin_c == pytest.approx(110 - 48.312)


def test_a_laptop_is_read_without_its_mouse(tmp_path: Path) -> None:
    readings = read(tmp_path, LAPTOP)
    assert readings.supply is Supply.BATTERY
    assert readings.level_percent == 42
    assert readings.draw_mw == 9500


def test_a_jetson_tells_its_draw_and_its_unused_trip_points_do_not_count(tmp_path: Path) -> None:
    readings = read(tmp_path, JETSON)
    assert readings.draw_mw == 6000
    assert readings.heat.hottest_c == 61
    assert readings.heat.margin_c == 38


def test_a_hat_with_an_ina219_is_a_battery_once_its_owner_says_so(tmp_path: Path) -> None:
    make_tree(tmp_path, UPS_HAT)
    assert read(tmp_path, {}).supply is Supply.EXTERNAL
    known = read(tmp_path, {}, SensorSettings(battery_curve=CURVE, charging_sign=1))
    assert known.supply is Supply.BATTERY
    assert known.level_percent == pytest.approx(75)
    assert known.draw_mw == 1365
    assert read(tmp_path, {}, SensorSettings(battery_curve=CURVE)).supply is Supply.UNKNOWN
    turned = SensorSettings(battery_curve=CURVE, charging_sign=-1)
    assert read(tmp_path, {}, turned).supply is Supply.NOT_DISCHARGING


@pytest.mark.parametrize(("mv", "percent"), [("100", 0.0), ("3500", 25.0), ("9000", 100.0)])
def test_a_curve_ends_at_its_ends(tmp_path: Path, mv: str, percent: float) -> None:
    files = {**UPS_HAT, "sys/class/hwmon/hwmon2/in1_input": mv}
    sensors = HwmonSensors(Tree(make_tree(tmp_path, files)))
    battery = sensors.battery(CURVE, charging_sign=0)
    assert battery is not None
    assert battery.level_percent == pytest.approx(percent)


@pytest.mark.parametrize(
    ("status", "online", "supply"),
    [
        ("Discharging", None, Supply.BATTERY),
        ("Discharging", "0", Supply.BATTERY),
        ("Discharging", "1", Supply.EXTERNAL),
        ("Charging", None, Supply.NOT_DISCHARGING),
        ("Charging", "0", Supply.NOT_DISCHARGING),  # a solar panel beside an unplugged USB port
        ("Full", "0", Supply.BATTERY),
        ("Full", None, Supply.NOT_DISCHARGING),
        ("Not charging", None, Supply.NOT_DISCHARGING),
        ("Unknown", None, Supply.UNKNOWN),
        ("Unknown", "0", Supply.BATTERY),
        ("Unknown", "1", Supply.EXTERNAL),
        ("\x00\xff", None, Supply.UNKNOWN),
    ],
)
def test_where_the_current_comes_from(
    tmp_path: Path, status: str, online: str | None, supply: Supply
) -> None:
    files = {"b/type": "Battery", "b/status": status}
    if online is not None:
        files |= {"c/type": "USB", "c/online": online}
    battery = kernel(tmp_path, files)
    assert battery is not None
    assert battery.supply is supply


@pytest.mark.parametrize(
    ("files", "percent"),
    [
        ({"capacity": "77"}, 77.0),
        ({"energy_now": "30", "energy_full": "60"}, 50.0),
        ({"charge_now": "30", "charge_full": "40"}, 75.0),
        ({"capacity": "101", "charge_now": "10", "charge_full": "40"}, 25.0),
        ({"capacity": "-1"}, None),
        ({"capacity": "nan"}, None),
        ({"charge_now": "30", "charge_full": "0"}, None),
    ],
)
def test_charge_is_read_from_what_there_is(
    tmp_path: Path, files: dict[str, str], percent: float | None
) -> None:
    battery = kernel(tmp_path, {"b/type": "Battery"} | {f"b/{n}": t for n, t in files.items()})
    assert battery is not None
    assert battery.level_percent == percent


def test_an_empty_bay_is_no_battery(tmp_path: Path) -> None:
    assert kernel(tmp_path, {"b/type": "Battery", "b/present": "0"}) is None


@given(content=st.binary(max_size=40))
def test_garbage_in_any_file_is_silence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    root = tmp_path_factory.mktemp("board")
    for board in (PI_4, LAPTOP, JETSON, UPS_HAT):
        make_tree(root, board)
    for path in root.rglob("*"):
        if path.is_file() and path.name not in ("type", "name"):
            path.write_bytes(content)
    settings = SensorSettings(battery_curve=CURVE, charging_sign=1)
    Sensors(root, settings, root=root, pisugar=(), ask_manager=lambda _: "yes").read(0.0)


def test_files_that_cannot_be_read_are_silence(tmp_path: Path) -> None:
    make_tree(tmp_path, PI_3)
    temperature = tmp_path / "sys/class/thermal/thermal_zone0/temp"
    temperature.unlink()
    os.mkfifo(temperature)  # opening it for reading would wait for ever
    (tmp_path / "proc/meminfo").unlink()
    (tmp_path / "proc/meminfo").mkdir()
    readings = read(tmp_path, {})
    assert readings.heat.hottest_c is None
    assert readings.free_memory_bytes is None


def test_memory_and_pressure_without_their_words_are_unknown(tmp_path: Path) -> None:
    tree = Tree(make_tree(tmp_path, {"proc/meminfo": "x\nMemAvailable:\n", "proc/pressure/io": ""}))
    assert free_memory_bytes(tree) is None
    assert pressure_percent(tree, "io", "some") is None
    assert pressure_percent(tree, "memory", "full") is None


def test_zones_without_trip_points_have_no_margin(tmp_path: Path) -> None:
    files = {"sys/class/thermal/thermal_zone7/temp": "70000"}
    heat = ThermalZones(Tree(make_tree(tmp_path, files))).read()
    assert (heat.hottest_c, heat.margin_c) == (70, None)


# ---------------------------------------------------------------- network


def metered(root: Path, files: Files, word: str | None = None) -> bool | None:
    return MeteredNetwork(Tree(make_tree(root, files)), lambda _: word).read()


def test_a_mobile_modem_is_metered(tmp_path: Path) -> None:
    assert metered(tmp_path, ZERO_2_W) is True
    named = {
        "proc/net/route": "head\nusb0 00000000 0 0 0 0 20 0\nwlan0 00000000 0 0 0 0 600 0\n",
        "sys/class/net/usb0/uevent": "DEVTYPE=wwan\nINTERFACE=usb0\n",
    }
    assert metered(tmp_path / "2", named) is True


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("yes", True), ("yes (guessed)", True), ("no (guessed)", False), ("no", False),
        ("unknown", None), ("", None), (None, None),
    ],
)  # fmt: skip
def test_network_manager_is_believed(
    tmp_path: Path, word: str | None, expected: bool | None
) -> None:
    assert metered(tmp_path, {**PI_3, "run/NetworkManager/no": ""}, word) is expected
    assert metered(tmp_path / "without", PI_3, word) is None


def test_an_interface_with_a_strange_name_is_not_asked_about(tmp_path: Path) -> None:
    files = {"proc/net/route": "head\n../../x 00000000 0 0 0 0 20 0\n", "run/NetworkManager/no": ""}
    assert metered(tmp_path, files, "yes") is None


# ---------------------------------------------------------------- PiSugar


@contextlib.contextmanager
def daemon(path: Path, answers: dict[str, str]) -> Iterator[None]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                while asked := connection.recv(100):
                    what = asked.decode().strip().removeprefix("get ")
                    connection.sendall(f"{answers.get(what, 'Invalid request.')}\n".encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


@pytest.mark.parametrize(
    ("answers", "supply"),
    [
        ({"battery_power_plugged": "battery_power_plugged: true"}, Supply.EXTERNAL),
        ({"battery_power_plugged": "battery_power_plugged: false"}, Supply.BATTERY),
        ({"battery_charging": "true"}, Supply.NOT_DISCHARGING),
        ({"battery_charging": "battery_charging: false"}, Supply.BATTERY),
        ({}, Supply.UNKNOWN),
    ],
)
def test_pisugar_tells_level_and_supply(
    tmp_path: Path, answers: dict[str, str], supply: Supply
) -> None:
    more = {
        "battery": "battery: 63.15",
        "battery_v": "battery_v: 3.9",
        "battery_i": "battery_i: -0.5",
        "safe_shutdown_level": "safe_shutdown_level: 8",
    }
    with daemon(tmp_path / "s", {**more, **answers}):
        reading = PiSugar([tmp_path / "no-socket", tmp_path / "s"]).read()
    assert reading == BatteryReading(
        source="pisugar",
        supply=supply,
        level_percent=63.15,
        draw_mw=1950.0,
        shutdown_percent=8.0,
    )


@pytest.mark.parametrize("answer", ["", "battery: nan", "battery: 400", "x" * 20_000])
def test_a_strange_daemon_is_no_battery(tmp_path: Path, answer: str) -> None:
    with daemon(tmp_path / "s", {"battery": answer}):
        assert PiSugar([tmp_path / "s"]).read() is None


def test_a_silent_daemon_costs_half_a_second(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        assert PiSugar([tmp_path / "s"]).read() is None


# ---------------------------------------------------------------- seldom


def test_readings_are_kept_for_ten_seconds(tmp_path: Path) -> None:
    asked: list[str] = []
    files = {**LAPTOP, **PI_3, "run/NetworkManager/no": ""}
    sensors = Sensors(
        tmp_path,
        SensorSettings(),
        root=make_tree(tmp_path, files),
        pisugar=(),
        ask_manager=lambda interface: asked.append(interface),
    )
    level = tmp_path / "sys/class/power_supply/BAT1/capacity"
    assert sensors.read(100.0).level_percent == 42
    level.write_text("41")
    assert sensors.read(109.9).level_percent == 42
    assert sensors.read(110.0).level_percent == 41
    assert sensors.read(399.0).level_percent == 41
    assert asked == ["eth0"]  # a process is started for it, so more seldom still
    sensors.read(409.0)
    assert asked == ["eth0", "eth0"]
