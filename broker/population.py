"""The devices that a gateway knows: their pinned keys, and who is online.

A key is pinned at first use. Where the gateway itself enrols, that is safe only where no stranger
can reach the broker; where an operator signs the roster, a pin holds what the roster says.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Set
from types import MappingProxyType

from broker.sleep_log import SleepLog
from edgefl.errors import RemoteProtocolError
from edgefl.protocol.limits import MAX_POPULATION
from edgefl.protocol.presence import Presence
from edgefl.storage.base import KeyValueStore
from edgefl.storage.read_only import ReadableStore

_PREFIX = "device/"
_SLEEPERS_GRACE_S = 10.0
"""Radios take their time to find a network again, and handshakes theirs."""
_OVERSLEEP_SHARE = 0.1


def read_known(store: ReadableStore) -> dict[str, bytes]:
    """Return the pinned identity key by device, of a stopped gateway too."""
    return {key.removeprefix(_PREFIX): store.get(key) or b"" for key in store.keys(_PREFIX)}


class Population:
    """Known devices.

    Args:
        store: A durable namespace of its own.
        grace_s: How long a device may be gone before it counts as offline.
        wall_clock_s: Seconds since 1970, for sleeps that outlast this process.
    """

    def __init__(
        self,
        store: KeyValueStore,
        *,
        grace_s: float,
        wall_clock_s: Callable[[], float] = time.time,
    ) -> None:
        """Read the pinned keys; nobody is online yet."""
        self._store = store
        self._grace_s = grace_s
        self._keys = read_known(store)
        self._names = {key: device for device, key in self._keys.items()}
        self._online: set[str] = set()
        self._ready: set[str] = set()
        self._wakes_at_s: dict[str, float] = {}
        self._presences: dict[str, Presence] = {}
        self._leaves_at_s: dict[str, float] = {}
        self._backends: dict[str, str] = {}
        self._has_sleepers = False
        self._sleep_log = SleepLog(store.namespace("sleep"), wall_clock_s)

    @property
    def keys(self) -> Mapping[str, bytes]:
        """Identity key by device: a view, which follows what is pinned."""
        return MappingProxyType(self._keys)

    def key_of(self, device: str) -> bytes | None:
        """Return the identity key of a device; None for one that is not known."""
        return self._keys.get(device)

    def online(self) -> Set[str]:
        """Return the devices that are online, or gone for less than the grace; it changes later."""
        return self._online

    def ready(self) -> Set[str]:
        """Return the devices that would answer a call: online, awake, and not away."""
        return self._ready

    @property
    def has_sleepers(self) -> bool:
        """Tell whether some device has slept since the start, and needs phases to be long."""
        return self._has_sleepers

    def asleep(self) -> set[str]:
        """Return the devices that sleep and have not overslept."""
        sleepers = self._wakes_at_s.keys() & self._leaves_at_s.keys()
        return sleepers - self._online

    def presence_of(self, device: str) -> Presence | None:
        """Return what a device last said of itself; None before it said anything."""
        return self._presences.get(device)

    def pin(self, device: str, identity_key: bytes, *, is_vouched_for: bool = False) -> bool:
        """Pin a device's key at first use.

        Args:
            device: Its name.
            identity_key: The key that it shows.
            is_vouched_for: The key may replace another one.

        Returns:
            True if the device, or its key, is new.

        Raises:
            RemoteProtocolError: The device was first seen with another key, or another device
                with this one, or there are too many.
        """
        pinned = self._keys.get(device)
        if pinned == identity_key:
            return False
        # A roster with one key twice, or with too many devices, could never be signed.
        if identity_key in self._names:
            raise RemoteProtocolError(
                "E-DEVICE-KEY-TWICE",
                "a key of its own for each device",
                f"the key of {self._names[identity_key]}",
                "start each board with a state folder of its own",
            )
        if pinned is None and len(self._keys) >= MAX_POPULATION:
            raise RemoteProtocolError(
                "E-POPULATION",
                f"at most {MAX_POPULATION} devices",
                "one more",
                "split the fleet over several gateways",
            )
        if pinned is not None and not is_vouched_for:
            raise RemoteProtocolError(
                "E-DEVICE-KEY",
                f"the key that {device} was first seen with",
                "another key",
                "give each board its own --device name; a board that was set up anew needs a new "
                "name, or a roster without the old one ('edgefl roster sign --remove')",
            )
        self._keep(device, identity_key)
        return True

    def follow(self, enrolled: Mapping[str, bytes]) -> None:
        """Let the roster decide which key a known device has.

        A stranger may have said hello in the name of a board that is enrolled only now.

        Args:
            enrolled: Identity key by device.
        """
        for device in self._keys.keys() & enrolled.keys():
            if self._keys[device] != enrolled[device]:
                self._keep(device, enrolled[device])

    def _keep(self, device: str, identity_key: bytes) -> None:
        self._store.put(_PREFIX + device, identity_key)
        self._names.pop(self._keys.get(device, b""), None)
        self._keys[device], self._names[identity_key] = identity_key, device

    def forget(self, device: str) -> None:
        """Know a device no more."""
        key = self._keys.pop(device, None)
        if key is None:
            return
        self._names.pop(key, None)
        self._presences.pop(device, None)
        self._leaves_at_s.pop(device, None)
        self._backends.pop(device, None)
        self._online.discard(device)
        self._ready.discard(device)
        self._sleep_log.wake(device)
        self._store.delete(_PREFIX + device)

    def is_heard(self, device: str) -> bool:
        """Note a sign of life of a known device; return True if it was not online."""
        if device not in self._keys:
            return False
        self._leaves_at_s.pop(device, None)
        self._sleep_log.wake(device)
        is_news = device not in self._online
        self._online.add(device)
        presence = self._presences.get(device)
        if presence is None or presence.is_available:
            self._ready.add(device)
        return is_news

    def note_presence(self, device: str, presence: Presence) -> None:
        """Note what a device says of itself; whoever is away is not counted on for a call."""
        # A status may come before the first hello; strangers' names must not fill the memory.
        if device not in self._keys and len(self._presences) >= MAX_POPULATION:
            return
        self._presences[device] = presence
        if not presence.is_available:
            self._ready.discard(device)

    def falls_asleep(
        self, device: str, wakes_in_s: int, now_s: float, *, is_counted_on: bool
    ) -> None:
        """Let a device sleep; an open round waits for it.

        Args:
            device: Its name.
            wakes_in_s: When it wants to be back.
            now_s: The time.
            is_counted_on: It is back in time for a call that is made now.
        """
        if device not in self._keys:
            return
        self._sleep_log.note(device, wakes_in_s, is_counted_on=is_counted_on)
        self._has_sleepers = True
        self._online.discard(device)
        self._wakes_at_s[device] = now_s + wakes_in_s
        grace_s = max(self._grace_s, _SLEEPERS_GRACE_S + _OVERSLEEP_SHARE * wakes_in_s)
        self._leaves_at_s[device] = now_s + wakes_in_s + grace_s
        if is_counted_on:
            self._ready.add(device)
        else:
            self._ready.discard(device)

    def recall_sleepers(self, now_s: float) -> None:
        """Let those sleep on who slept when the gateway ended, and have said nothing since."""
        for device, (rest_s, is_counted_on) in self._sleep_log.left().items():
            if device not in self._online and device not in self._wakes_at_s:
                self.falls_asleep(device, rest_s, now_s, is_counted_on=is_counted_on)

    def keep_sleepers(self, now_s: float) -> None:
        """Store who sleeps, now and then."""
        self._sleep_log.keep(now_s)

    def count_on_sleepers_until(self, latest_s: float) -> None:
        """Count no longer on sleepers that are back only later, for other phases are shorter."""
        for device, wakes_at_s in self._wakes_at_s.items():
            if device not in self._online and wakes_at_s > latest_s:
                self._ready.discard(device)

    def note_backend(self, device: str, backend: str) -> None:
        """Note what a known device says that it trains with."""
        if device in self._keys:
            self._backends[device] = backend

    def backends(self, devices: Iterable[str]) -> dict[str, str]:
        """Return what each of these devices said that it trains with; empty for not yet."""
        known = self._keys
        return {device: self._backends.get(device, "") for device in devices if device in known}

    def is_leaving(self, device: str, now_s: float) -> None:
        """Start the grace of a device that the broker says is gone."""
        if device in self._online:
            self._leaves_at_s.setdefault(device, now_s + self._grace_s)

    def presume(self, devices: Iterable[str], now_s: float, patience_s: float) -> None:
        """Take devices for online until they had time to come back to a restarted gateway."""
        unheard = (self._keys.keys() & set(devices)) - self._online - self.asleep()
        self._online |= unheard
        self._leaves_at_s.update(dict.fromkeys(unheard, now_s + patience_s))

    def doubt_all(self, now_s: float, patience_s: float) -> None:
        """Start a grace for everyone, after a time without a link to the broker."""
        self._leaves_at_s.update(dict.fromkeys(self._online, now_s + patience_s))

    @property
    def wakeup_s(self) -> float | None:
        """When the next grace ends, or who sleeps is to be stored."""
        ends = [*self._leaves_at_s.values()]
        kept_s = self._sleep_log.wakeup_s
        return min(ends if kept_s is None else [*ends, kept_s], default=None)

    def take_gone(self, now_s: float) -> list[str]:
        """Return the devices whose grace has ended, now offline."""
        gone = sorted(device for device, ends_s in self._leaves_at_s.items() if ends_s <= now_s)
        for device in gone:
            del self._leaves_at_s[device]
            self._online.discard(device)
            self._ready.discard(device)
        return gone
