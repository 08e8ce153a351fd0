"""What a device has spent of its owner's privacy over all tasks, checked before every round.

Charged at the plan's own numbers, once per session, before the masked input leaves; an aborted
session stays charged.
"""

import json

from edgefl.errors import RemoteProtocolError, StorageError
from edgefl.privacy.accounting import RDP_ORDERS, compose, epsilon_from_rdp
from edgefl.privacy.plan import PrivacyPlan, PrivacyPolicy
from edgefl.storage.base import KeyValueStore

_TOTAL = "total-rdp"
_SESSION = "charged-session"
_UNKNOWN = b"unknown"
"""In the place of the total, after the account was lost; no round has room beside it."""


class DeviceSpend:
    """The device's own account.

    Args:
        store: A durable namespace of its own.
        policy: The device's caps.
    """

    def __init__(self, store: KeyValueStore, policy: PrivacyPolicy) -> None:
        """Read the account.

        Raises:
            StorageError: It is there but cannot be read; it is never taken as nothing spent.
        """
        self._store = store
        self._policy = policy
        stored = store.get(_TOTAL)
        self._is_known = stored != _UNKNOWN
        is_new = stored is None or not self._is_known
        self._total = (0.0,) * len(RDP_ORDERS) if is_new else _parse(stored or b"")

    @property
    def epsilon(self) -> float | None:
        """Spent so far, against the gateway, at the policy's delta; None where it is unknown."""
        if not self._is_known:
            return None
        return epsilon_from_rdp(RDP_ORDERS, self._total, self._policy.max_delta)

    def require_room(self, plan: PrivacyPlan) -> None:
        """Check that one more round of this plan stays within the device's cap.

        Raises:
            RemoteProtocolError: It would not.
        """
        if not self._is_known:
            raise RemoteProtocolError(
                "E-SPEND-UNKNOWN",
                "the account of the privacy that this device has spent",
                "a device whose account was lost with its state file",
                "its owner can begin a new account: edgefl agent run --forget-spend",
            )
        after = compose([self._total, plan.rdp_per_round()])
        epsilon = epsilon_from_rdp(RDP_ORDERS, after, self._policy.max_delta)
        if not epsilon <= self._policy.max_epsilon:
            raise RemoteProtocolError(
                "E-DEVICE-BUDGET",
                f"a lifetime epsilon of at most {self._policy.max_epsilon:g} on this device",
                f"{epsilon:.4g} after this round",
                "only the device's owner can raise max_epsilon",
            )

    def charge(self, plan: PrivacyPlan, session_id: bytes) -> None:
        """Charge one round, once per session, durably before it returns."""
        if self._store.get(_SESSION) == session_id:
            return
        self._total = compose([self._total, plan.rdp_per_round()])
        self._store.put_many({_TOTAL: json.dumps(list(self._total)).encode(), _SESSION: session_id})


def mark_unknown(store: KeyValueStore) -> None:
    """Note that the account was lost: from now on there is room for nothing."""
    store.put_many({_TOTAL: _UNKNOWN, _SESSION: None})


def forget(store: KeyValueStore) -> None:
    """Begin a new account, which only the device's owner may ask for."""
    store.put_many({_TOTAL: None, _SESSION: None})


def _parse(stored: bytes) -> tuple[float, ...]:
    try:
        values = tuple(float(value) for value in json.loads(stored))
    except (ValueError, TypeError):
        values = ()
    if len(values) != len(RDP_ORDERS) or not all(value >= 0 for value in values):
        raise StorageError(
            "E-SPEND-DAMAGED",
            "the device's account of spent privacy",
            "unreadable bytes",
            "the device counts as exhausted until its owner resets the state folder",
        )
    return values
