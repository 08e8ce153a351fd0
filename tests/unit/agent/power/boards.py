"""Trees of files as the kernels of eight boards show them, made by the tests themselves."""

from collections.abc import Mapping
from pathlib import Path

Files = Mapping[str, str]

PI_THERMAL = {
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "48312\n",
    "sys/class/thermal/thermal_zone0/trip_point_0_temp": "110000\n",
    "sys/class/thermal/thermal_zone0/trip_point_0_type": "critical\n",
}
MEMORY = {
    "proc/meminfo": "MemTotal:  3884000 kB\nMemFree:  100000 kB\nMemAvailable:  512000 kB\n",
    "proc/pressure/memory": "some avg10=1.50 avg60=0 avg300=0 total=1\n"
    "full avg10=0.75 avg60=0 avg300=0 total=1\n",
    "proc/pressure/cpu": "some avg10=12.00 avg60=0 avg300=0 total=1\n",
}
ETHERNET_ROUTE = {
    "proc/net/route": "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
    "eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\n"
    "eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\n",
    "sys/class/net/eth0/uevent": "INTERFACE=eth0\nIFINDEX=2\n",
}
PI_3: Files = {**PI_THERMAL, **MEMORY, **ETHERNET_ROUTE}
PI_4: Files = {
    **PI_3,
    "sys/class/hwmon/hwmon0/name": "cpu_thermal\n",
    "sys/class/hwmon/hwmon1/name": "rpi_volt\n",
    "sys/class/hwmon/hwmon1/in0_lcrit_alarm": "1\n",
}
PI_5: Files = {
    **PI_4,
    "sys/class/hwmon/hwmon1/in0_lcrit_alarm": "0\n",
    "sys/class/thermal/thermal_zone0/trip_point_1_temp": "50000\n",
    "sys/class/thermal/thermal_zone0/trip_point_1_type": "active\n",
}
ZERO_2_W: Files = {
    **PI_THERMAL,
    "proc/meminfo": "MemTotal: 426000 kB\nMemAvailable: 48000 kB\n",
    "proc/net/route": "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
    "wwan0\t00000000\t00000000\t0001\t0\t0\t700\t00000000\n",
}
LAPTOP: Files = {
    "sys/class/power_supply/AC/type": "Mains\n",
    "sys/class/power_supply/AC/online": "0\n",
    "sys/class/power_supply/BAT1/type": "Battery\n",
    "sys/class/power_supply/BAT1/status": "Discharging\n",
    "sys/class/power_supply/BAT1/capacity": "42\n",
    "sys/class/power_supply/BAT1/power_now": "9500000\n",
    "sys/class/power_supply/hid-mouse/type": "Battery\n",
    "sys/class/power_supply/hid-mouse/scope": "Device\n",
    "sys/class/power_supply/hid-mouse/capacity": "5\n",
    "sys/class/power_supply/hid-mouse/status": "Discharging\n",
}
JETSON: Files = {
    "sys/class/hwmon/hwmon3/name": "ina3221\n",
    "sys/class/hwmon/hwmon3/in1_label": "VDD_IN\n",
    "sys/class/hwmon/hwmon3/in1_input": "5000\n",
    "sys/class/hwmon/hwmon3/curr1_input": "1200\n",
    "sys/class/hwmon/hwmon3/in2_label": "VDD_CPU_GPU_CV\n",
    "sys/class/hwmon/hwmon3/in2_input": "5000\n",
    "sys/class/hwmon/hwmon3/curr2_input": "400\n",
    "sys/class/thermal/thermal_zone0/temp": "61000\n",
    "sys/class/thermal/thermal_zone0/trip_point_0_temp": "0\n",
    "sys/class/thermal/thermal_zone0/trip_point_0_type": "passive\n",
    "sys/class/thermal/thermal_zone0/trip_point_1_temp": "99000\n",
    "sys/class/thermal/thermal_zone0/trip_point_1_type": "passive\n",
    "sys/class/thermal/thermal_zone1/temp": "-256000\n",
}
UPS_HAT: Files = {
    **PI_3,
    "sys/class/hwmon/hwmon2/name": "ina219\n",
    "sys/class/hwmon/hwmon2/in1_input": "3900\n",
    "sys/class/hwmon/hwmon2/curr1_input": "-350\n",
    "sys/class/hwmon/hwmon2/power1_input": "1365000\n",
}


def make_tree(root: Path, files: Files) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root
