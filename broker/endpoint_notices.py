"""What the endpoint tells beside messages: uploads for the core, troubles for the operator."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

from broker.events import Json, Reported, UploadMoved

if TYPE_CHECKING:  # a build for devices has none
    from edgefl._native import EndpointEvent

_REPORTED_KINDS: Final = frozenset({"refused", "taken-over", "dropped"})
_FIELDS: Final = (
    *("client_id", "identity", "address", "old_address", "new_address"),
    *("topic", "reason", "code", "detail"),
)
MOST_REPORTS: Final = 20
"""Of one kind in `REPORTS_WITHIN_S`; more are counted. Strangers must not fill the disk."""
REPORTS_WITHIN_S: Final = 60.0
_TRANSFER_ID_HEX_CHARS: Final = 16

Notice = UploadMoved | Reported


class EndpointNotices:
    """Collects notices until they are read; bounded, whatever peers do.

    Args:
        clock_s: Monotonic time.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Start empty."""
        self._clock_s = clock_s
        # A transfer is there once: what matters is what the stage holds when the core looks.
        self._moved: dict[tuple[str, bytes], None] = {}
        self._reports: list[Reported] = []
        self._counts: dict[str, int] = {}
        self._counted_since_s = clock_s()
        self._woken = asyncio.Event()
        self._is_closed = False

    def take(self, event: "EndpointEvent") -> None:
        """Note an event of the endpoint that is no message."""
        if event.kind == "upload":
            self._note_upload(event)
        elif event.kind in _REPORTED_KINDS:
            self._note_trouble(event)

    async def read(self) -> AsyncIterator[Notice]:
        """Yield notices until `close`. For one consumer only."""
        while not self._is_closed:
            await self._woken.wait()
            self._woken.clear()
            moved, self._moved = self._moved, {}
            reports, self._reports = self._reports, []
            for device, transfer_id in moved:
                yield UploadMoved(device=device, transfer_id=transfer_id)
            for report in reports:
                yield report

    def close(self) -> None:
        """End `read`."""
        self._is_closed = True
        self._woken.set()

    def _note_upload(self, event: "EndpointEvent") -> None:
        transfer = event.transfer or ""
        if event.device is None or len(transfer) != _TRANSFER_ID_HEX_CHARS:
            return  # no transfer of ours; the sender got its reason code
        try:
            transfer_id = bytes.fromhex(transfer)
        except ValueError:
            return
        self._moved[event.device, transfer_id] = None
        self._woken.set()

    def _note_trouble(self, event: "EndpointEvent") -> None:
        self._begin_period()
        count = self._counts[event.kind] = self._counts.get(event.kind, 0) + 1
        if count > MOST_REPORTS:
            return
        fields: dict[str, Json] = {
            name: value for name in _FIELDS if (value := getattr(event, name)) is not None
        }
        self._add(Reported(kind=f"mqtt-{event.kind}", fields=fields))

    def _begin_period(self) -> None:
        now_s = self._clock_s()
        if now_s - self._counted_since_s < REPORTS_WITHIN_S:
            return
        for kind, count in self._counts.items():
            if count > MOST_REPORTS:
                fields: dict[str, Json] = {
                    "more": count - MOST_REPORTS,
                    "within_s": round(now_s - self._counted_since_s),
                }
                self._add(Reported(kind=f"mqtt-{kind}", fields=fields))
        self._counts.clear()
        self._counted_since_s = now_s

    def _add(self, report: Reported) -> None:
        self._reports.append(report)
        self._woken.set()
