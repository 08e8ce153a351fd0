"""The demo's operator: holds the enrolment key away from the gateway, and signs its roster."""

from pathlib import Path

from broker.roster_folder import REQUEST_FILE, ROSTER_FILE
from edgefl.errors import ConfigError
from edgefl.protocol.roster import sign_roster
from edgefl.protocol.roster_epoch import RosterEntry
from edgefl.storage.enrolment import (
    create_enrolment_key,
    read_enrolment_key,
    read_request,
    write_roster,
)
from edgefl.types import FleetName


class Operator:
    """Signs the roster once all devices of the demo have asked.

    Args:
        folder: Of the operator's own; the gateway does not look into it.
        gateway_state: The gateway's folder, where the two meet.
        fleet: The fleet's name.
        devices: Who is to be enrolled.
    """

    def __init__(
        self, folder: Path, *, gateway_state: Path, fleet: FleetName, devices: frozenset[str]
    ) -> None:
        """Make the enrolment key."""
        folder.mkdir(parents=True)
        self._key_file = folder / "enrolment.key"
        self.public_key = create_enrolment_key(self._key_file).public_key
        self._request = gateway_state / REQUEST_FILE
        self._roster = gateway_state / ROSTER_FILE
        self._fleet = fleet
        self._devices = devices
        self._is_done = False

    def work(self) -> bool:
        """Sign if everybody has asked; tell whether it was done now."""
        if self._is_done or not self._request.exists():
            return False
        try:
            asked = read_request(self._request)
        except ConfigError:
            return False
        # The request is not signed: an operator compares fingerprints. The demo started these
        # boards itself and takes those it knows by name.
        if {candidate.device for candidate in asked} != self._devices:
            return False
        entries = [
            RosterEntry(
                device=candidate.device, identity_key=candidate.identity_key, enrolled_day=0
            )
            for candidate in asked
        ]
        key = read_enrolment_key(self._key_file)
        write_roster(self._roster, sign_roster(None, self._fleet, entries, key))
        self._is_done = True
        return True
