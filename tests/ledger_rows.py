"""Rows for ledgers in tests."""

from edgefl.privacy.accounting import RDP_ORDERS
from edgefl.privacy.ledger import Release


def release(*, attempt: int = 1, session: int | None = None, rdp: float = 0.1) -> Release:
    """Return a charge; sessions are told apart by the attempt, if not by a number of their own."""
    return Release(
        task="count",
        round_number=1,
        attempt=attempt,
        session_id=f"{attempt if session is None else session:064x}",
        mechanism="skellam",
        z_effective=1.0,
        n_survivors=5,
        colluders=0,
        rdp=(rdp,) * len(RDP_ORDERS),
    )
