"""Names, keys and sizes that both ends of the gateway's measurements agree on."""

import functools

import numpy as np

from edgefl import _native
from edgefl._native import Seed, SigningKey
from edgefl.protocol.envelope import Header
from edgefl.types import DeviceId, FleetName

FLEET = FleetName("lab")
RING_BITS = 20
CHUNK_BYTES = 65_536
WINDOW_CHUNKS = 4
SLOTS = 64


def device_name(number: int) -> DeviceId:
    """Return the name of a device."""
    return DeviceId(f"d{number:05}")


def client_id(number: int) -> str:
    """Return the client id that the gateway's plaintext listener takes for a device's."""
    return f"edgefl-{FLEET}-{device_name(number)}"


@functools.cache
def signing_key(number: int) -> SigningKey:
    """Return a device's identity key; the gateway's is that of -1."""
    return SigningKey.from_seed(Seed.from_bytes((number + 1).to_bytes(32, "big")))


def header(number: int, attempt: int) -> Header:
    """Return what a device's messages of a round carry."""
    return Header(
        session_id=bytes(32), round_number=attempt, attempt=attempt, sender=device_name(number)
    )


@functools.cache
def packed_vector(size_bytes: int) -> bytes:
    """Return packed ring values, as many as fill so many bytes."""
    count = coordinates(size_bytes)
    values = np.random.default_rng(1).integers(0, 1 << RING_BITS, count, dtype=np.uint32)
    return _native.pack(values, RING_BITS)


def coordinates(size_bytes: int) -> int:
    """Return how many ring values fill so many bytes."""
    return size_bytes * 8 // RING_BITS
