"""Who is in the roster, and who signs it: the gateway itself, or an operator away from it.

With the enrolment key on the gateway (the easy first run) every device that says hello is enrolled,
with the gateway's identity as the enrolment key. Such a fleet is safe against an honest-but-curious
gateway only, and devices refuse any stronger claim. With an enrolment key of its own the gateway
can only ask: it writes down who wants in, and takes what comes back signed.
"""

from collections.abc import Mapping

from edgefl._native import SigningKey
from edgefl.errors import ConfigError, RemoteProtocolError, StorageError, WireError
from edgefl.protocol.roster import Roster, sign_roster
from edgefl.protocol.roster_epoch import RosterEntry, RosterPin, fingerprint
from edgefl.storage.base import KeyValueStore
from edgefl.storage.read_only import ReadableStore

RESET_ADVICE = "bring back a copy of the state folder, or begin anew with --reset-state"

_ROSTER = "roster"
_DAY_S = 86_400


class Enrolment:
    """The newest roster, durable.

    Args:
        store: A durable namespace of its own.
        fleet: The fleet's name.
        signing_key: The gateway's identity.
        enrolment_key: Who signs the roster away from this gateway; None lets the gateway sign.

    Raises:
        StorageError: The stored roster is damaged, or was signed by another key.
    """

    def __init__(
        self,
        store: KeyValueStore,
        *,
        fleet: str,
        signing_key: SigningKey,
        enrolment_key: bytes | None,
    ) -> None:
        """Read the newest roster."""
        self._store = store
        self._fleet = fleet
        self._signing_key = signing_key
        self.is_automatic = enrolment_key is None
        self._enrolment_key = enrolment_key or signing_key.public_key
        self.roster = self._load()

    @property
    def identity_keys(self) -> dict[str, bytes]:
        """Identity key by device of the roster."""
        return keys_of(self.roster)

    def is_enrolled(self, device: str, identity_key: bytes) -> bool:
        """Tell whether the roster names a device with this key."""
        position = None if self.roster is None else self.roster.position_of(device)
        if self.roster is None or position is None:
            return False
        return self.roster.entries[position].identity_key == identity_key

    def is_taken(self, device: str, identity_key: bytes) -> bool:
        """Tell whether the roster names a device with another key."""
        if self.roster is None or self.roster.position_of(device) is None:
            return False
        return not self.is_enrolled(device, identity_key)

    def vouches(self, device: str, identity_key: bytes) -> bool:
        """Tell whether a device may come with another key than the one it was first seen with.

        Where an operator signs the roster, that decides: a name that it does not hold is anybody's,
        so that a board which was set up anew can be enrolled again, and nobody can take a name by
        saying hello first. Where the gateway enrols, the first key is all there is to go by.
        """
        return not self.is_automatic and not self.is_taken(device, identity_key)

    def sign(self, known: Mapping[str, bytes], wall_s: float) -> Roster:
        """Enrol everybody who is known; what is already in the roster stays as it is.

        Args:
            known: Identity key by device.
            wall_s: Seconds since 1970.

        Raises:
            ConfigError: E-ENROLMENT: this gateway does not hold the enrolment key.
        """
        if not self.is_automatic:
            raise ConfigError("E-ENROLMENT", "the enrolment key on this gateway", "an operator's")
        enrolled = {} if self.roster is None else {e.device: e for e in self.roster.entries}
        # A name that was freed and taken by another board leaves with this roster, and comes back
        # with the next: no roster may give a name another key.
        changed = {d for d, e in enrolled.items() if known.get(d, e.identity_key) != e.identity_key}
        today = max(0, int(wall_s // _DAY_S))
        taken = {entry.identity_key for entry in enrolled.values()}
        new = [
            RosterEntry(device=device, identity_key=key, enrolled_day=today)
            for device, key in known.items()
            if device not in enrolled and key not in taken
        ]
        kept = [entry for device, entry in enrolled.items() if device not in changed]
        if not kept and not new and self.roster is not None:
            return self.roster  # It cannot be empty.
        return self._keep(sign_roster(self.roster, self._fleet, [*kept, *new], self._signing_key))

    def expel(self, device: str) -> Roster | None:
        """Sign a roster without a device; None where that is not this gateway's to do.

        A roster cannot be empty: the last device stays in it, and nobody calls it.
        """
        if self.roster is None or not self.is_automatic:
            return None
        left = [entry for entry in self.roster.entries if entry.device != device]
        if not left or len(left) == self.roster.size:
            return None
        return self._keep(sign_roster(self.roster, self._fleet, left, self._signing_key))

    def take(self, content: bytes) -> Roster | None:
        """Take a roster file that the operator brought; None where it is the one that is known.

        Raises:
            ConfigError: It is damaged, another fleet's, signed by another key, or does not extend
                the newest one.
        """
        try:
            roster = Roster.from_bytes(content)
            if roster.enrolment_key != self._enrolment_key or roster.epoch.fleet != self._fleet:
                raise WireError(
                    "E-ROSTER-FILE",
                    f"a roster of {self._fleet}, signed by {fingerprint(self._enrolment_key)}",
                    f"one of {roster.epoch.fleet}, signed by {fingerprint(roster.enrolment_key)}",
                )
            if self.roster is not None:
                known = RosterPin(number=self.roster.epoch.number, hash=self.roster.epoch.hash)
                if known.advance(roster.headers, self._enrolment_key) == known:
                    return None
        except (WireError, RemoteProtocolError) as error:
            raise ConfigError(
                "E-ROSTER-FILE",
                error.expected,
                error.found,
                "sign it again with 'edgefl roster sign --previous'",
            ) from error
        return self._keep(roster)

    def _keep(self, roster: Roster) -> Roster:
        self._store.put(_ROSTER, roster.to_bytes())
        self.roster = roster
        return roster

    def _load(self) -> Roster | None:
        roster = read_stored_roster(self._store)
        if roster is None:
            return None
        if roster.enrolment_key != self._enrolment_key:
            raise StorageError(
                "E-ENROLMENT-KEY",
                "the enrolment key that this fleet was begun with",
                "another one",
                "start the gateway with the key of its roster, or begin anew with --reset-state",
            )
        return roster


def keys_of(roster: Roster | None) -> dict[str, bytes]:
    """Return the identity key by device of a roster."""
    entries = () if roster is None else roster.entries
    return {entry.device: entry.identity_key for entry in entries}


def read_stored_roster(store: ReadableStore) -> Roster | None:
    """Return the newest roster in a store, of a stopped gateway too.

    Raises:
        StorageError: It is damaged.
    """
    stored = store.get(_ROSTER)
    if stored is None:
        return None
    try:
        return Roster.from_bytes(stored)
    except (WireError, RemoteProtocolError) as error:
        raise StorageError(
            "E-STATE-DAMAGED", "a readable roster", error.found, RESET_ADVICE
        ) from error
