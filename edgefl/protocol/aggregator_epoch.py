"""The aggregator's half of key epochs: a pure machine that invites, closes, and opens them.

One key epoch may be open while the next is set up; it stays open when that fails. Who is present is
known from the events that the machine is fed.
"""

from collections.abc import Callable
from typing import ClassVar, TypeVar

from edgefl.errors import LocalProtocolError, RemoteProtocolError, WireError
from edgefl.protocol.aggregator_epoch_state import AggregatorEpochState
from edgefl.protocol.epoch_events import (
    AggregatorEpochEffect,
    AggregatorEpochEvent,
    BeginEpoch,
    DeviceJoined,
    DeviceLeft,
    DeviceRefused,
    EpochAborted,
    EpochAbortReason,
    EpochDeviceSaid,
    EpochFull,
    EpochReady,
    EpochTimerFired,
    PersistEpoch,
    RosterSigned,
    SendEpochDown,
    SetEpochTimer,
)
from edgefl.protocol.epoch_messages import EpochAggregatorMessage, KeyBundleMessage, RosterUpdate
from edgefl.protocol.epoch_room import draw_invited, refuse_latecomer
from edgefl.protocol.epoch_setup import EpochSetup
from edgefl.protocol.identity import EntropySource
from edgefl.protocol.key_bundle import DEFAULT_MASK_KEYS, KeyBundle
from edgefl.protocol.key_epoch import MIN_MEMBERS
from edgefl.protocol.limits import MAX_COHORT
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.roster import Roster

_E = TypeVar("_E", DeviceJoined, DeviceLeft, EpochDeviceSaid, BeginEpoch, RosterSigned)


class AggregatorEpoch:
    """Roster and key epochs of one fleet.

    Args:
        fleet: The fleet's name.
        roster: The newest signed roster; None before there is one.
        entropy: Where the gateway's own nonces come from.
        answer_s: How long devices have for each of the two steps.
        mask_key_count: Sessions that one key epoch serves; a power of two.
        most_members: Devices that one key epoch holds.
        snapshot: The newest that was persisted; None on a new gateway.
        keys_roster: Bytes of the roster that the open key epoch belongs to, where a newer one may
            have been signed since: a round that is open goes on with it.

    Raises:
        WireError: The snapshot is damaged or of another version.
    """

    def __init__(
        self,
        *,
        fleet: str,
        roster: Roster | None,
        entropy: EntropySource,
        answer_s: float,
        mask_key_count: int = DEFAULT_MASK_KEYS,
        most_members: int = MAX_COHORT,
        snapshot: bytes | None = None,
        keys_roster: bytes | None = None,
    ) -> None:
        """Take the state. A key epoch that was being set up at a restart is given up."""
        self._fleet = fleet
        self._roster: Roster | None = None
        self._entropy = entropy
        self._answer_s = answer_s
        self._least_answer_s = 0.0
        self._mask_key_count = mask_key_count
        self._most_members = most_members
        self._present: set[str] = set()
        self._silent: set[str] = set()
        self._withheld: set[str] = set()
        self._lost: set[str] = set()
        self._setup: EpochSetup | None = None
        if roster is not None:
            self._take_roster(roster)
        state = AggregatorEpochState()
        if snapshot is not None:
            state = AggregatorEpochState.from_bytes(
                snapshot, roster=roster, keys_roster=keys_roster
            )
        self._keys = state.keys
        self._next_key_epoch = state.next_key_epoch
        self._next_index = state.next_index

    # ------------------------------------------------------------ public

    @property
    def roster(self) -> Roster | None:
        """The newest roster."""
        return self._roster

    @property
    def keys(self) -> MemberKeys | None:
        """The members of the open key epoch and their keys."""
        return self._keys

    @property
    def is_busy(self) -> bool:
        """Tell whether a key epoch is being set up."""
        return self._setup is not None

    @property
    def indices_left(self) -> int:
        """Sessions that the open key epoch can still serve."""
        if self._keys is None:
            return 0
        return self._keys.bundle_of(self._keys.devices[0]).mask_key_count - self._next_index

    @property
    def is_due(self) -> bool:
        """Tell whether rounds need a new key epoch that is not yet being set up."""
        if self._roster is None or self._setup is not None:
            return False
        is_current = self._keys is not None and self._keys.roster is self._roster
        return not is_current or self.indices_left < 1

    @property
    def outside(self) -> tuple[str, ...]:
        """Present devices of the roster that have no part in the open key epoch."""
        return tuple(sorted(self._present_in_roster() - self.members))

    @property
    def members(self) -> frozenset[str]:
        """Devices that the open key epoch can serve."""
        return frozenset(() if self._keys is None else self._keys.devices) - self._lost

    def lose(self, device: str) -> None:
        """Note that a member cannot use its keys: it needs the next key epoch."""
        self._lost.add(device)

    @property
    def newcomers(self) -> tuple[str, ...]:
        """Those outside that the next set-up would invite: the last one was not in vain for them.

        Without this a device that never answers would ask for one key epoch after the other, and
        so would those for whom there is no room.
        """
        room = max(0, self._most_members - len(self.members))
        return tuple(sorted(set(self.outside) - self._silent - self._withheld))[:room]

    def take_index(self) -> int | None:
        """Take the next key index, for one call; None where there is none left.

        Persist `snapshot()` before the call is sent: devices refuse an index that they know.
        """
        if self.indices_left < 1:
            return None
        self._next_index += 1
        return self._next_index - 1

    def snapshot(self) -> bytes:
        """Return what must survive a restart. It holds no secret."""
        state = AggregatorEpochState(
            next_key_epoch=self._next_key_epoch, next_index=self._next_index, keys=self._keys
        )
        return state.to_bytes()

    def handle(
        self, event: AggregatorEpochEvent, now_s: float
    ) -> tuple[AggregatorEpochEffect, ...]:
        """Take one event and return what to do, in order.

        Args:
            event: What happened.
            now_s: Any clock in seconds, the same for all events and timers.
        """
        return self._HANDLERS[type(event)](self, event, now_s)

    # ------------------------------------------------------------ events

    def _on_joined(
        self, event: AggregatorEpochEvent, _now_s: float
    ) -> tuple[AggregatorEpochEffect, ...]:
        joined = _expect(event, DeviceJoined)
        device, roster, setup = joined.device, self._roster, self._setup
        self._present.add(device)
        self._silent.discard(device)
        if roster is None or roster.position_of(device) is None:
            return ()
        messages: list[EpochAggregatorMessage] = []
        if joined.roster_number != roster.epoch.number:
            messages.append(self._roster_update(roster, device, joined.roster_number))
        keys = self._keys
        if (
            keys is not None
            and joined.key_epoch != keys.epoch.key_epoch
            and keys.epoch_position_of(device) is not None
        ):
            messages.append(keys.opened_message)
        refused: tuple[AggregatorEpochEffect, ...] = ()
        if setup is not None and setup.closed is None and device not in self._withheld:
            if setup.has_room_for(device, self._most_members):
                setup.invited.add(device)
                messages.append(setup.invitation)
            else:
                refused = (
                    DeviceRefused(device=device, error=refuse_latecomer(self._most_members)),
                )
        elif setup is not None and setup.closed is not None and device in setup.closed.missing:
            messages.append(setup.closed.message_for(device))
        return (*(SendEpochDown(device=device, message=message) for message in messages), *refused)

    def _on_left(
        self, event: AggregatorEpochEvent, now_s: float
    ) -> tuple[AggregatorEpochEffect, ...]:
        self._present.discard(_expect(event, DeviceLeft).device)
        return self._close_if_all_answered(now_s)

    def _on_said(
        self, event: AggregatorEpochEvent, now_s: float
    ) -> tuple[AggregatorEpochEffect, ...]:
        said = _expect(event, EpochDeviceSaid)
        self._silent.discard(said.device)
        setup, message = self._setup, said.message
        if setup is None:
            return ()
        try:
            if isinstance(message, KeyBundleMessage):
                return self._take_bundle(setup, said.device, message.bundle, now_s)
            if setup.take_nonce(said.device, message):
                return self._open(setup)
        except (RemoteProtocolError, WireError) as error:
            return (DeviceRefused(device=said.device, error=error),)
        return ()

    def _on_begin(
        self, event: AggregatorEpochEvent, now_s: float
    ) -> tuple[AggregatorEpochEffect, ...]:
        begin = _expect(event, BeginEpoch)
        needed = max(begin.needed, MIN_MEMBERS)
        if self._setup is not None:
            return ()
        number = self._next_key_epoch
        wanted = self._invitees(needed)
        invited = draw_invited(wanted, self._most_members, key_epoch=number)
        if self._roster is None or len(invited) < needed:
            return (EpochAborted(key_epoch=number, reason=EpochAbortReason.TOO_FEW_PRESENT),)
        self._next_key_epoch = number + 1
        self._least_answer_s = begin.least_answer_s
        setup = EpochSetup(
            key_epoch=number,
            roster=self._roster,
            mask_key_count=self._mask_key_count,
            needed=needed,
            invited=invited,
            deadline_s=now_s + max(self._answer_s, begin.least_answer_s),
        )
        self._setup = setup
        left_out = len(wanted) - len(invited)
        full = (EpochFull(key_epoch=number, left_out=left_out),) if left_out else ()
        return (
            # A number that was given out once must not be given out again: devices would refuse.
            PersistEpoch(snapshot=self.snapshot()),
            *(SendEpochDown(device=device, message=setup.invitation) for device in sorted(invited)),
            SetEpochTimer(at_s=setup.deadline_s),
            *full,
        )

    def _on_roster(
        self, event: AggregatorEpochEvent, _now_s: float
    ) -> tuple[AggregatorEpochEffect, ...]:
        roster = _expect(event, RosterSigned).roster
        known = 0 if self._roster is None else self._roster.epoch.number
        self._take_roster(roster)
        aborted: tuple[AggregatorEpochEffect, ...] = ()
        if self._setup is not None:
            aborted = self._abort(self._setup, EpochAbortReason.ROSTER_CHANGED, ())
        return (
            *aborted,
            *(
                SendEpochDown(device=device, message=self._roster_update(roster, device, known))
                for device in sorted(self._present_in_roster())
            ),
        )

    def _on_timer(
        self, _event: AggregatorEpochEvent, now_s: float
    ) -> tuple[AggregatorEpochEffect, ...]:
        setup = self._setup
        if setup is None:
            return ()
        if now_s < setup.deadline_s:
            return (SetEpochTimer(at_s=setup.deadline_s),)
        if setup.closed is not None:
            # A new hello or bundle does not make up for it: it could abort each set-up again.
            self._withheld.update(setup.closed.missing)
            return self._abort(setup, EpochAbortReason.MISSING_NONCES, setup.closed.missing)
        members = self._answered(setup)
        if len(members) < setup.needed:
            return self._abort(setup, EpochAbortReason.TOO_FEW_BUNDLES, setup.unanswered)
        self._silent.update(setup.unanswered)
        return self._close(setup, members, now_s)

    # ------------------------------------------------------------ steps

    def _take_bundle(
        self, setup: EpochSetup, device: str, bundle: KeyBundle, now_s: float
    ) -> tuple[AggregatorEpochEffect, ...]:
        if bundle.key_epoch != setup.key_epoch or setup.closed is not None:
            # Retained bundles of earlier key epochs come again with each subscription.
            return ()
        setup.take_bundle(device, bundle)
        return self._close_if_all_answered(now_s)

    def _close_if_all_answered(self, now_s: float) -> tuple[AggregatorEpochEffect, ...]:
        setup = self._setup
        if setup is None or setup.closed is not None:
            return ()
        members = self._answered(setup)
        is_waiting = bool(self._present & set(setup.unanswered))
        if is_waiting or len(members) < setup.needed:
            return ()
        return self._close(setup, members, now_s)

    def _answered(self, setup: EpochSetup) -> set[str]:
        """Return who can be a member: one that is gone now would most likely not show its nonce."""
        return set(setup.bundles) & self._present

    def _close(
        self, setup: EpochSetup, members: set[str], now_s: float
    ) -> tuple[AggregatorEpochEffect, ...]:
        closed = setup.close(members, self._entropy.fresh_seed().export_bytes())
        setup.deadline_s = now_s + max(self._answer_s, self._least_answer_s)
        return (
            *(
                SendEpochDown(device=device, message=closed.message_for(device))
                for device in closed.paths
            ),
            SetEpochTimer(at_s=setup.deadline_s),
        )

    def _open(self, setup: EpochSetup) -> tuple[AggregatorEpochEffect, ...]:
        if setup.closed is None:
            raise LocalProtocolError("E-EPOCH-STEP", "a closed set", "an open one")
        keys = setup.open(setup.closed)
        self._keys, self._setup, self._next_index = keys, None, 0
        self._withheld.clear()
        self._lost.clear()
        return (
            PersistEpoch(snapshot=self.snapshot()),
            *(SendEpochDown(device=device, message=keys.opened_message) for device in keys.devices),
            EpochReady(epoch=keys.epoch),
        )

    def _abort(
        self, setup: EpochSetup, reason: EpochAbortReason, silent: tuple[str, ...]
    ) -> tuple[AggregatorEpochEffect, ...]:
        self._setup = None
        self._silent.update(silent)
        return (EpochAborted(key_epoch=setup.key_epoch, reason=reason, silent=silent),)

    # ------------------------------------------------------------ helpers

    def _invitees(self, needed: int) -> set[str]:
        """Return whom to invite: better those who once kept silent than no key epoch at all."""
        present = self._present_in_roster()
        if len(present - self._silent - self._withheld) < needed:
            self._silent.clear()
        if len(present - self._withheld) < needed:
            self._withheld.clear()
        return present - self._silent - self._withheld

    def _present_in_roster(self) -> set[str]:
        roster = self._roster
        if roster is None:
            return set()
        return {device for device in self._present if roster.position_of(device) is not None}

    def _roster_update(self, roster: Roster, device: str, known: int) -> RosterUpdate:
        """Return the headers from the pinned one on, and the device's own entry."""
        position = roster.position_of(device)
        if position is None:
            raise LocalProtocolError("E-EPOCH-MEMBER", "a device of the roster", device)
        return RosterUpdate(
            enrolment_key=roster.enrolment_key,
            headers=tuple(header for header in roster.headers if header.number >= known)
            or roster.headers[-1:],
            enrolled_day=roster.entries[position].enrolled_day,
            position=position,
            path=roster.path(position),
        )

    def _take_roster(self, roster: Roster) -> None:
        known = 0 if self._roster is None else self._roster.epoch.number
        if roster.epoch.fleet != self._fleet or roster.epoch.number <= known:
            raise LocalProtocolError(
                "E-ROSTER-ORDER",
                f"a roster of {self._fleet} above number {known}",
                f"number {roster.epoch.number} of {roster.epoch.fleet}",
            )
        self._roster = roster

    _HANDLERS: ClassVar[
        dict[
            type[AggregatorEpochEvent],
            Callable[
                ["AggregatorEpoch", AggregatorEpochEvent, float],
                tuple[AggregatorEpochEffect, ...],
            ],
        ]
    ] = {
        DeviceJoined: _on_joined,
        DeviceLeft: _on_left,
        EpochDeviceSaid: _on_said,
        BeginEpoch: _on_begin,
        RosterSigned: _on_roster,
        EpochTimerFired: _on_timer,
    }


def _expect(event: AggregatorEpochEvent, kind: type[_E]) -> _E:
    if isinstance(event, kind):
        return event
    raise LocalProtocolError("E-AGGREGATOR-EVENT", kind.__name__, type(event).__name__)
