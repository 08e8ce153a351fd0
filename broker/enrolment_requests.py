"""Ask the operator to enrol new devices, at a pace that no flood of hellos can raise.

The request file is written anew as a whole. With one write per hello, whoever reaches the broker
could wear out the gateway's flash; with one per pause, names that come meanwhile share a write. The
pause doubles while new names keep coming, and is short again after a rest.
"""

from collections.abc import Mapping
from typing import Final

from broker.enrolment import Enrolment
from broker.events import EnrolmentWanted, GatewayEffect
from broker.reports import enrolment_report

SHORTEST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0


class EnrolmentRequests:
    """Which devices the operator was asked to enrol in this life of the gateway.

    Nothing of it needs to be durable: the known devices are, and each life begins by asking anew.

    Args:
        enrolment: Who is in the roster.
    """

    def __init__(self, enrolment: Enrolment) -> None:
        """Ask at the first opportunity for those whom an earlier life knew."""
        self._enrolment = enrolment
        self._asked_for: dict[str, bytes] = {}
        self._pause_s = SHORTEST_PAUSE_S
        self._free_at_s: float | None = None
        self._is_worth_a_look = not enrolment.is_automatic

    @property
    def due_s(self) -> float | None:
        """When a look is wanted, because of devices that came within a pause."""
        return self._free_at_s if self._is_worth_a_look else None

    def note_hello(self) -> None:
        """Note that there may be a device to ask for."""
        self._is_worth_a_look = not self._enrolment.is_automatic

    def is_due(self, now_s: float) -> bool:
        """Tell whether to look now."""
        return self._is_worth_a_look and (self._free_at_s is None or now_s >= self._free_at_s)

    def look(
        self, known: Mapping[str, bytes], now_s: float, leaving: tuple[str, ...] = ()
    ) -> list[GatewayEffect]:
        """Ask for all devices that are not enrolled, if they are others than the last time.

        Args:
            known: Identity key by device.
            now_s: The time, of a clock that does not go back.
            leaving: Devices in the roster that are out.
        """
        self._is_worth_a_look = False
        taken = set(self._enrolment.identity_keys.values())
        wanted = {device: key for device, key in known.items() if key not in taken}
        asked = {**wanted, **dict.fromkeys(leaving, b"")}
        if not asked or asked == self._asked_for:
            return []
        self._asked_for = asked
        is_rested = self._free_at_s is None or now_s >= self._free_at_s + self._pause_s
        longer_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._pause_s = SHORTEST_PAUSE_S if is_rested else longer_s
        self._free_at_s = now_s + self._pause_s
        request = EnrolmentWanted(devices=wanted, leaving=leaving)
        if not leaving:
            return [request, enrolment_report(len(wanted))]
        return [request, enrolment_report(len(wanted), leaving)]
