"""How often one board may have another certificate, so that none fills the revocation list."""

from collections import deque
from typing import Final

from broker.enrolments import MAX_CERTIFICATES, EnrolmentRecord
from edgefl.errors import RemoteProtocolError

_DAY_S: Final = 86_400.0


class CertificatePace:
    """Remembers when certificates were made, for a day; not over a restart."""

    def __init__(self) -> None:
        """Remember none."""
        self._made_at_s: dict[str, deque[float]] = {}

    def note(self, device: str, now_s: float) -> None:
        """Note that a board got one; of each, no more are remembered than it may have in a day."""
        self._made_at_s.setdefault(device, deque(maxlen=MAX_CERTIFICATES)).append(now_s)

    def require_renewal(self, record: EnrolmentRecord, now_s: float) -> None:
        """Let a board that has as many valid ones as it may renew once a day.

        Raises:
            RemoteProtocolError: E-RENEWALS.
        """
        made = self._made_at_s.get(record.device)
        if len(record.issued) < MAX_CERTIFICATES or not made:
            return
        if now_s - made[-1] < _DAY_S:
            raise RemoteProtocolError(
                "E-RENEWALS",
                f"at most one certificate a day beyond {MAX_CERTIFICATES}",
                "one more",
            )

    def require_enrolment(self, device: str, now_s: float) -> None:
        """Let a board that is in enrol again, which withdraws what it had, a few times a day.

        Raises:
            RemoteProtocolError: E-RENEWALS.
        """
        made = self._made_at_s.get(device, ())
        if sum(now_s - at_s < _DAY_S for at_s in made) >= MAX_CERTIFICATES:
            raise RemoteProtocolError(
                "E-RENEWALS", f"at most {MAX_CERTIFICATES} certificates a day", "one more"
            )
