"""A device's identity on its own flash: made once, from the operating system's randomness."""

from edgefl._native import Seed, SigningKey
from edgefl.errors import ConfigError, StorageError
from edgefl.protocol.device import DeviceIdentity
from edgefl.storage.base import KeyValueStore
from edgefl.types import DeviceId

_SEED = "identity-seed"
_DEVICE = "device"


def load_identity(store: KeyValueStore, device: DeviceId) -> DeviceIdentity:
    """Read the identity, or make it at the first start.

    Args:
        store: Durable state.
        device: The name that the user gives; it must not change afterwards.

    Raises:
        ConfigError: The state belongs to a device of another name.
        StorageError: The stored identity is damaged.
    """
    stored, name = store.get(_SEED), store.get(_DEVICE)
    if stored is None or name is None:
        seed = Seed.generate()
        store.put_many({_SEED: seed.export_bytes(), _DEVICE: device.encode()})
        return DeviceIdentity(device=device, signing_key=SigningKey.from_seed(seed))
    if name != device.encode():
        raise ConfigError(
            "E-DEVICE-NAME",
            f"the device name {name.decode(errors='replace')!r} this state folder was made for",
            repr(device),
            "use that name, or give this device a state folder of its own",
        )
    if len(stored) != 32:
        raise StorageError("E-IDENTITY", "an identity of 32 bytes", f"{len(stored)} bytes")
    return DeviceIdentity(device=device, signing_key=SigningKey.from_seed(Seed.from_bytes(stored)))
