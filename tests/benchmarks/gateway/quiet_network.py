"""Loopback as if it were a cable: in a network namespace of its own, with packets of 1,500 bytes.

Loopback otherwise passes 64 KiB at a time, and the kernel's counters would miss most headers.
"""

import ctypes
import fcntl
import socket
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SIOCETHTOOL = 0x8946
_SET_TSO, _SET_GSO, _SET_GRO = 0x1F, 0x24, 0x2C
_IP_AND_TCP_BYTES = 20 + 20 + 12
"""IPv4, TCP, and its time stamps. Source: RFC 791, RFC 9293, RFC 7323."""
MTU_BYTES = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What has passed so far.

    Attributes:
        ip_bytes: IP packets of both directions.
        packets: How many.
    """

    ip_bytes: int
    packets: int


def make_a_cable() -> None:
    """Bring loopback up in this process's namespace, and have it cut packets itself."""
    words = ["ip", "link", "set", "lo", "mtu", str(MTU_BYTES), "up"]
    subprocess.run(words, check=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        for command in (_SET_TSO, _SET_GSO, _SET_GRO):
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP", b"lo", ctypes.addressof(value))
            fcntl.ioctl(handle, _SIOCETHTOOL, request)


def traffic() -> Traffic:
    """Return what the namespace's loopback has counted."""
    lines = Path("/proc/self/net/dev").read_text("ascii").splitlines()
    fields = next(line for line in lines if line.strip().startswith("lo:")).split()
    return Traffic(ip_bytes=int(fields[1]), packets=int(fields[2]))  # loopback has no frames


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What one end of a TCP connection has sent and received, as the kernel counts it.

    Attributes:
        up_bytes: IP packets sent.
        down_bytes: IP packets received.
    """

    up_bytes: int
    down_bytes: int


def sent_by(handle: socket.socket) -> Sent:
    """Return a connection's IP-level bytes by direction. Source: Linux's struct tcp_info."""
    info = handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    (received_bytes,) = struct.unpack_from("Q", info, 128)
    segments_out, segments_in = struct.unpack_from("II", info, 136)
    (sent_bytes,) = struct.unpack_from("Q", info, 200)
    return Sent(
        up_bytes=sent_bytes + segments_out * _IP_AND_TCP_BYTES,
        down_bytes=received_bytes + segments_in * _IP_AND_TCP_BYTES,
    )
