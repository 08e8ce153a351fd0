"""MQTT topic names; at most six slashes, and no device may read another device's topics."""

import re

from edgefl.errors import ConfigError, WireError
from edgefl.types import DeviceId, FleetName

PREFIX = "efl/1"
AGGREGATOR = "aggregator"
"""The sender name of the aggregator, which no device may have."""
CLAIM_PREFIX = "claim-"
"""How the names of claims begin, which no device may have."""
_TRANSFER = re.compile(r"[0-9a-f]{16}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def parse_device_id(text: str) -> DeviceId:
    """Check a device id.

    Raises:
        ConfigError: It is not 1 to 64 characters of a-z, 0-9, dot, underscore and hyphen, or it
            is a name that the aggregator or a claim token connects under.
    """
    if text == AGGREGATOR or text.startswith(CLAIM_PREFIX):
        raise ConfigError(
            "E-DEVICE-ID", "a device id that is not the gateway's own or a claim's", repr(text)
        )
    return DeviceId(_parse_name(text, "E-DEVICE-ID", "a device id"))


def parse_fleet(text: str) -> FleetName:
    """Check a fleet name; the same characters as a device id."""
    return FleetName(_parse_name(text, "E-FLEET-NAME", "a fleet name"))


def is_name(text: str) -> bool:
    """Tell whether a text has the form of names of devices, fleets and tasks."""
    return _NAME.fullmatch(text) is not None


def is_claim(text: str) -> bool:
    """Tell whether a text has the form of a claim's name."""
    return text.startswith(CLAIM_PREFIX) and is_name(text)


def _parse_name(text: str, code: str, what: str) -> str:
    if not is_name(text):
        raise ConfigError(
            code,
            f"{what} of 1 to 64 characters a-z 0-9 . _ - that starts with a letter or digit",
            repr(text[:80]),
        )
    return text


def status(fleet: FleetName, device: DeviceId) -> str:
    """Retained status of a device; its will says offline."""
    return f"{PREFIX}/{fleet}/d/{device}/st"


def uplink(fleet: FleetName, device: DeviceId) -> str:
    """Messages from a device to the aggregator."""
    return f"{PREFIX}/{fleet}/d/{device}/q"


def downlink(fleet: FleetName, device: DeviceId) -> str:
    """Messages from the aggregator to a device."""
    return f"{PREFIX}/{fleet}/d/{device}/c"


def upload(fleet: FleetName, device: DeviceId, transfer: str) -> str:
    """Chunks of one transfer from a device; its id as 16 hex digits."""
    return f"{PREFIX}/{fleet}/d/{device}/up/{transfer}"


def all_uploads(fleet: FleetName) -> str:
    """Filter for every device's chunks."""
    return f"{PREFIX}/{fleet}/d/+/up/+"


def upload_of(topic: str) -> tuple[DeviceId, bytes] | None:
    """Return the device and the transfer (8 bytes) named in a topic of chunks, or None."""
    parts = topic.split("/")
    is_upload = len(parts) == 7 and parts[3] == "d" and parts[5] == "up"
    if not is_upload or not is_name(parts[4]) or not _TRANSFER.fullmatch(parts[6]):
        return None
    return DeviceId(parts[4]), bytes.fromhex(parts[6])


def key_bundle(fleet: FleetName, device: DeviceId) -> str:
    """Retained: a device's key bundle of the newest key epoch."""
    return f"{PREFIX}/{fleet}/d/{device}/kb"


def all_key_bundles(fleet: FleetName) -> str:
    """Filter for every device's key bundle."""
    return f"{PREFIX}/{fleet}/d/+/kb"


def calls(fleet: FleetName) -> str:
    """Calls for check-in, to all devices; not retained."""
    return f"{PREFIX}/{fleet}/r/all/call"


def aggregator(fleet: FleetName) -> str:
    """Retained status of the aggregator; its will says offline."""
    return f"{PREFIX}/{fleet}/agg"


def all_status(fleet: FleetName) -> str:
    """Filter for every device's status."""
    return f"{PREFIX}/{fleet}/d/+/st"


def all_uplinks(fleet: FleetName) -> str:
    """Filter for every device's messages to the aggregator."""
    return f"{PREFIX}/{fleet}/d/+/q"


def claim_uplink(fleet: FleetName, claim: str) -> str:
    """Requests of boards that want in, to the aggregator."""
    return f"{PREFIX}/{fleet}/enrol/{claim}/q"


def claim_downlink(fleet: FleetName, claim: str) -> str:
    """Answers to boards that want in; all boards with one claim may read them."""
    return f"{PREFIX}/{fleet}/enrol/{claim}/c"


def claim_of(topic: str) -> str | None:
    """Return the claim named in a topic of `claim_uplink`; None for any other topic."""
    parts = topic.split("/")
    is_one = len(parts) == 6 and parts[3] == "enrol" and parts[5] == "q" and is_claim(parts[4])
    return parts[4] if is_one else None


def device_of(topic: str) -> DeviceId:
    """Return the device named in a device topic.

    Raises:
        WireError: The topic is not a device topic.
    """
    parts = topic.split("/")
    if len(parts) != 6 or parts[3] != "d" or not _NAME.fullmatch(parts[4]):
        raise WireError("E-WIRE-TOPIC", f"{PREFIX}/FLEET/d/DEVICE/KIND", repr(topic[:80]))
    return DeviceId(parts[4])


def of_aggregator(fleet: FleetName) -> tuple[str, ...]:
    """Return the filters that an aggregator subscribes to."""
    return (
        all_status(fleet),
        all_key_bundles(fleet),
        all_uplinks(fleet),
        all_uploads(fleet),
        aggregator(fleet),
        claim_uplink(fleet, "+"),
    )
