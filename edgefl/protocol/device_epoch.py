"""The device's half of roster and key epochs: a pure machine that takes messages, returns effects.

Rules that it keeps, over restarts too:
- the roster only ever grows by headers that extend the pinned one;
- one bundle per key epoch number, and one record per number whose nonce is shown;
- each key index serves one call, and one session of it, and its secret is gone once that is over;
- whatever is sent was persisted first.
"""

from collections.abc import Callable, Collection
from typing import ClassVar, TypeVar

from edgefl.errors import LocalProtocolError, RemoteProtocolError, WireError
from edgefl.protocol.device_epoch_state import DeviceEpochState, OwnKeyEpoch, PinnedRoster
from edgefl.protocol.epoch_events import (
    DeviceEpochEffect,
    EpochReady,
    EpochRefused,
    PersistEpoch,
    PublishBundle,
    SendEpochUp,
)
from edgefl.protocol.epoch_messages import (
    EpochAggregatorMessage,
    EpochClosed,
    EpochInvitation,
    EpochOpened,
    KeyBundleMessage,
    NonceReveal,
    RosterUpdate,
)
from edgefl.protocol.identity import DeviceIdentity, EntropySource
from edgefl.protocol.key_bundle import DEFAULT_MASK_KEYS
from edgefl.protocol.key_epoch import EpochRecord, OpenEpoch
from edgefl.protocol.merkle import is_leaf
from edgefl.protocol.own_keys import OwnKeys, make_own_keys
from edgefl.protocol.public_keys import WEAK_KEY, weakness_of
from edgefl.protocol.roster_epoch import RosterEntry, RosterPin

_M = TypeVar("_M", RosterUpdate, EpochInvitation, EpochClosed, EpochOpened)


class DeviceEpoch:
    """One device's roster and key epochs.

    Args:
        identity: The device.
        entropy: Fresh secrets.
        fleet: The fleet's name.
        prgs: Bitmask of the PRGs that the device declares (`key_bundle.prg_bitmask`).
        enrolment_key: Who may sign the roster, where the owner gave it; None pins the first one
            that the gateway names.
        limits_grinding: Show no more nonces than `AnsweredRecords` has room for in a day. For
            devices whose policy accepts no class but MALICIOUS.
        most_mask_keys: Largest batch that the device agrees to. The gateway picks one index of the
            batch per session, thus one of as many graphs.
        snapshot: The newest that was persisted; None on a new device.

    Raises:
        WireError: The snapshot is damaged or of another version.
        LocalProtocolError: E-ENROLMENT-KEY, the given key is not the pinned one.
    """

    def __init__(
        self,
        *,
        identity: DeviceIdentity,
        entropy: EntropySource,
        fleet: str,
        prgs: int,
        enrolment_key: bytes | None = None,
        limits_grinding: bool = False,
        most_mask_keys: int = DEFAULT_MASK_KEYS,
        snapshot: bytes | None = None,
    ) -> None:
        """Take the state. Nothing is sent before a message comes, or `resume` is called."""
        self._identity = identity
        self._entropy = entropy
        self._fleet = fleet
        self._prgs = prgs
        self._limits_grinding = limits_grinding
        self._most_mask_keys = most_mask_keys
        self._state = (
            DeviceEpochState() if snapshot is None else DeviceEpochState.from_bytes(snapshot)
        )
        if enrolment_key is not None:
            if self._state.enrolment_key not in (None, enrolment_key):
                raise LocalProtocolError(
                    "E-ENROLMENT-KEY",
                    "the enrolment key that this device has pinned",
                    "another one",
                    "give the same key, or enrol the device anew",
                )
            self._state.enrolment_key = enrolment_key
        self._keys: OwnKeys | None = None

    # ------------------------------------------------------------ public

    def snapshot(self) -> bytes:
        """Return the whole state. Security: it holds the secrets of the key epochs."""
        return self._state.to_bytes()

    @property
    def is_ready(self) -> bool:
        """Tell whether a key epoch is open, so that the device can check in to rounds."""
        return self._state.current is not None

    @property
    def enrolment_key(self) -> bytes | None:
        """Who signs the roster; None before the first one."""
        return self._state.enrolment_key

    @property
    def roster_number(self) -> int:
        """Number of the newest header; 0 before the first one."""
        return 0 if self._state.roster is None else self._state.roster.header.number

    @property
    def open_epoch(self) -> OpenEpoch | None:
        """The key epoch that rounds use."""
        return None if self._state.current is None else self._state.current.open_epoch

    @property
    def keys(self) -> OwnKeys:
        """This device's own keys in the open key epoch.

        Raises:
            LocalProtocolError: E-EPOCH-NONE, none is open.
        """
        if self._keys is None:
            self._keys = OwnKeys(self._require_current())
        return self._keys

    def reserve_index(self, index: int, call_id: bytes) -> tuple[DeviceEpochEffect, ...]:
        """Give a key index to a call, before the check-in is sent.

        Raises:
            RemoteProtocolError: E-KEY-INDEX-RANGE, or E-KEY-INDEX-USED by another call, or by this
                one, which is over.
        """
        self._require_current().reserve(index, call_id)
        return self._persist()

    def bind_index(self, index: int, session_id: bytes) -> tuple[DeviceEpochEffect, ...]:
        """Give a reserved key index to a session, before anything of the session is sent.

        Raises:
            RemoteProtocolError: E-KEY-INDEX-USED by another session, never reserved, or released.
        """
        self._require_current().bind(index, session_id)
        return self._persist()

    def release_index(self, index: int, *, key_epoch: int) -> tuple[DeviceEpochEffect, ...]:
        """Destroy the secret of a reserved key index, whose call is over for this device.

        Nothing is to be done where it was destroyed before, on its own or with its key epoch.

        Args:
            index: The key index.
            key_epoch: Whose. A round may end after the next key epoch has opened.

        Raises:
            LocalProtocolError: E-KEY-INDEX, it was never reserved.
        """
        current = self._state.current
        if current is None or current.bundle.key_epoch != key_epoch or not current.release(index):
            return ()
        return self._persist()

    def release_all_but(self, kept: Collection[int]) -> tuple[DeviceEpochEffect, ...]:
        """Destroy after a restart the secrets of all key indices whose call has no record any more.

        Args:
            kept: Indices of open rounds, and of deposits for rounds to come.
        """
        current = self._state.current
        if current is None or not current.release_all_but(kept):
            return ()
        return self._persist()

    def handle(
        self, message: EpochAggregatorMessage, now_s: float
    ) -> tuple[DeviceEpochEffect, ...]:
        """Take a message whose signature by the gateway was checked; return what to do, in order.

        A message that is refused changes nothing but the latest time seen.

        Args:
            message: From the aggregator.
            now_s: Seconds since 1970 by the device's clock, which may be wrong.
        """
        self._state.latest_s = max(self._state.latest_s, now_s)
        try:
            return self._TRANSITIONS[type(message)](self, message, now_s)
        except (RemoteProtocolError, WireError) as error:
            return (EpochRefused(error=error),)

    def resume(self) -> tuple[DeviceEpochEffect, ...]:
        """Send again after a restart or a lost link what the open set-up needs from this device."""
        pending = self._state.pending
        if pending is None:
            return ()
        publish = PublishBundle(message=KeyBundleMessage(bundle=pending.bundle))
        return (publish,) if pending.record is None else (publish, self._reveal(pending.record))

    # ------------------------------------------------------------ transitions

    def _on_roster(
        self, message: EpochAggregatorMessage, _now_s: float
    ) -> tuple[DeviceEpochEffect, ...]:
        update = _expect(message, RosterUpdate)
        if self._state.enrolment_key not in (None, update.enrolment_key):
            raise RemoteProtocolError(
                "E-ENROLMENT-KEY",
                "the enrolment key that this device has pinned",
                "another one",
                "if it was changed on purpose, enrol the device again",
            )
        weakness = weakness_of(update.enrolment_key)
        if weakness is not None:
            raise RemoteProtocolError(WEAK_KEY, "the public key of an enrolment key", weakness)
        pinned = self._state.roster
        pin = RosterPin()
        if pinned is not None:
            pin = RosterPin(number=pinned.header.number, hash=pinned.header.hash)
        pin.advance(update.headers, update.enrolment_key)
        newest = update.headers[-1]
        if newest.fleet != self._fleet:
            raise RemoteProtocolError("E-ROSTER-FLEET", f"a roster of {self._fleet}", newest.fleet)
        entry = RosterEntry(
            device=self._identity.device,
            identity_key=self._identity.signing_key.public_key,
            enrolled_day=update.enrolled_day,
        )
        newest.require_entry(entry, update.position, update.path)
        if pinned == PinnedRoster(header=newest, position=update.position):
            return ()
        self._state.enrolment_key = update.enrolment_key
        self._state.roster = PinnedRoster(header=newest, position=update.position)
        return self._persist()

    def _on_invitation(
        self, message: EpochAggregatorMessage, _now_s: float
    ) -> tuple[DeviceEpochEffect, ...]:
        invitation = _expect(message, EpochInvitation)
        roster, pending = self._state.roster, self._state.pending
        if roster is None or roster.header.hash != invitation.roster_hash:
            raise RemoteProtocolError(
                "E-EPOCH-ROSTER",
                f"the pinned roster {self.roster_number}",
                f"roster {invitation.roster_number}",
            )
        if invitation.mask_key_count > self._most_mask_keys:
            raise RemoteProtocolError(
                "E-MASK-KEY-COUNT",
                f"at most {self._most_mask_keys} mask keys",
                str(invitation.mask_key_count),
            )
        if pending is not None and pending.bundle.key_epoch == invitation.key_epoch:
            asked = (invitation.roster_hash, invitation.mask_key_count)
            if (pending.bundle.roster_hash, pending.bundle.mask_key_count) != asked:
                raise RemoteProtocolError(
                    "E-EPOCH-SECOND-BUNDLE", "one bundle per key epoch", "terms of a second one"
                )
            return (PublishBundle(message=KeyBundleMessage(bundle=pending.bundle)),)
        if invitation.key_epoch <= self._state.newest_key_epoch:
            raise RemoteProtocolError(
                "E-EPOCH-REPLAY",
                f"a key epoch above {self._state.newest_key_epoch}",
                f"key epoch {invitation.key_epoch}",
            )
        self._state.pending = make_own_keys(
            self._entropy.fresh_seed(),
            device=self._identity.device,
            signing_key=self._identity.signing_key,
            fleet=self._fleet,
            prgs=self._prgs,
            invitation=invitation,
            roster=roster,
        )
        self._state.newest_key_epoch = invitation.key_epoch
        bundle = self._state.pending.bundle
        return (*self._persist(), PublishBundle(message=KeyBundleMessage(bundle=bundle)))

    def _on_closed(
        self, message: EpochAggregatorMessage, now_s: float
    ) -> tuple[DeviceEpochEffect, ...]:
        closed = _expect(message, EpochClosed)
        record = closed.record
        if record == self._current_record():
            return ()
        pending = self._require_pending(record)
        if pending.record is not None:
            if pending.record != record:
                raise RemoteProtocolError(
                    "E-EPOCH-SECOND-RECORD", "one record per key epoch", "a second one"
                )
            return (self._reveal(record),)
        self._require_own_terms(pending, closed)
        if self._limits_grinding:
            self._state.answered.require_room(now_s)
        pending.record = record
        self._state.answered.note(record.key_epoch, self._state.latest_s)
        return (*self._persist(), self._reveal(record))

    def _on_opened(
        self, message: EpochAggregatorMessage, _now_s: float
    ) -> tuple[DeviceEpochEffect, ...]:
        opened = _expect(message, EpochOpened)
        current = self._current_record()
        if current is not None and current.digest == opened.record_hash:
            return ()
        pending = self._state.pending
        record = None if pending is None else pending.record
        if pending is None or record is None or record.digest != opened.record_hash:
            raise RemoteProtocolError(
                "E-EPOCH-UNKNOWN", "a key epoch whose record this device answered", "another one"
            )
        # Its own commitment was at its own place under the same root; hence its own nonce is too.
        open_epoch = OpenEpoch.from_nonces(record, opened.nonces, opened.gateway_nonce)
        pending.open_epoch = open_epoch
        self._state.answered.note_opened(record.key_epoch)
        self._state.current, self._state.pending = pending, None
        self._keys = None
        return (*self._persist(), EpochReady(epoch=open_epoch))

    # ------------------------------------------------------------ checks

    def _require_pending(self, record: EpochRecord) -> OwnKeyEpoch:
        pending = self._state.pending
        if pending is None or record.key_epoch != pending.bundle.key_epoch:
            raise RemoteProtocolError(
                "E-EPOCH-UNKNOWN",
                "a record of the key epoch that this device made its last bundle for",
                f"key epoch {record.key_epoch}",
            )
        return pending

    def _require_own_terms(self, pending: OwnKeyEpoch, closed: EpochClosed) -> None:
        """Check a record against what this device has pinned and committed to."""
        record, roster = closed.record, pending.roster
        pinned = (roster.header.number, roster.header.hash, roster.header.size)
        if (
            (record.roster_number, record.roster_hash, record.roster_size) != pinned
            or roster != self._state.roster
            or record.fleet != self._fleet
        ):
            raise RemoteProtocolError(
                "E-EPOCH-ROSTER",
                f"a record over the pinned roster {self.roster_number} of {self._fleet}",
                f"roster {record.roster_number} of {record.fleet}",
            )
        own = record.epoch_position_of(roster.position)
        if own is None:
            raise RemoteProtocolError(
                "E-EPOCH-SELF", "this device among the members", "a record without it"
            )
        size, root = len(record.positions), record.commitments_root
        if not is_leaf(pending.bundle.nonce_commitment, own, closed.path, size=size, root=root):
            raise RemoteProtocolError(
                "E-EPOCH-COMMITMENT", "this device's own commitment at its position", "another one"
            )

    # ------------------------------------------------------------ helpers

    def _reveal(self, record: EpochRecord) -> SendEpochUp:
        nonce = self._require_pending(record).nonce
        return SendEpochUp(message=NonceReveal(record_hash=record.digest, nonce=nonce))

    def _current_record(self) -> EpochRecord | None:
        return None if self._state.current is None else self._state.current.record

    def _require_current(self) -> OwnKeyEpoch:
        if self._state.current is None:
            raise LocalProtocolError("E-EPOCH-NONE", "an open key epoch", "none yet")
        return self._state.current

    def _persist(self) -> tuple[DeviceEpochEffect, ...]:
        return (PersistEpoch(snapshot=self.snapshot()),)

    _TRANSITIONS: ClassVar[
        dict[
            type[EpochAggregatorMessage],
            Callable[["DeviceEpoch", EpochAggregatorMessage, float], tuple[DeviceEpochEffect, ...]],
        ]
    ] = {
        RosterUpdate: _on_roster,
        EpochInvitation: _on_invitation,
        EpochClosed: _on_closed,
        EpochOpened: _on_opened,
    }


def _expect(message: EpochAggregatorMessage, kind: type[_M]) -> _M:
    if isinstance(message, kind):
        return message
    raise LocalProtocolError("E-DEVICE-EVENT", kind.__name__, type(message).__name__)
