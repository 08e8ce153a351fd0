"""The gateway's key epochs: opened before rounds need them, durable, carried to the devices."""

from collections.abc import Callable, Collection, Iterable, Mapping

from broker.enrolment import RESET_ADVICE, Enrolment
from broker.events import GatewayEffect, Reported
from broker.mailer import Mailer
from broker.reports import (
    key_epoch_aborted_report,
    key_epoch_full_report,
    key_epoch_report,
    refused_report,
    roster_refused_report,
)
from broker.settings import GatewaySettings
from edgefl.errors import ConfigError, StorageError, WireError
from edgefl.protocol.aggregator_epoch import AggregatorEpoch
from edgefl.protocol.aggregator_epoch_state import without_key_epoch
from edgefl.protocol.epoch_events import (
    AggregatorEpochEffect,
    AggregatorEpochEvent,
    BeginEpoch,
    DeviceJoined,
    DeviceLeft,
    DeviceRefused,
    EpochAborted,
    EpochDeviceSaid,
    EpochFull,
    EpochReady,
    EpochTimerFired,
    PersistEpoch,
    RosterSigned,
    SendEpochDown,
    SetEpochTimer,
)
from edgefl.protocol.epoch_messages import EpochDeviceMessage
from edgefl.protocol.identity import EntropySource
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.reasons import LeaveReason
from edgefl.protocol.round_messages import Leave
from edgefl.protocol.service_messages import Hello
from edgefl.storage.base import KeyValueStore

_STATE = "state"
_KEYS_ROSTER = "keys-roster"
_WORTH_A_NEW_EPOCH = 20
"""A new key epoch is opened for one newcomer in as many members."""


class KeyEpochs:
    """Roster and key epochs of the gateway's fleet.

    Args:
        store: A durable namespace of its own.
        enrolment: Who is in the roster.
        fleet: The fleet's name.
        entropy: Where the gateway's nonces come from.
        mailer: Addresses the messages.
        answer_s: How long devices have for each of the two steps.
        pause_s: The pause after a key epoch that did not open.
        wall_clock_s: Seconds since 1970.
    """

    def __init__(
        self,
        store: KeyValueStore,
        *,
        enrolment: Enrolment,
        fleet: str,
        entropy: EntropySource,
        mailer: Mailer,
        answer_s: float,
        pause_s: float,
        wall_clock_s: Callable[[], float],
    ) -> None:
        """Go on with the key epoch that was open.

        Raises:
            WireError: The stored state is damaged.
        """
        self._store = store
        self._enrolment = enrolment
        self._mailer = mailer
        self._pause_s = pause_s
        self._wall_clock_s = wall_clock_s
        self._timer_s: float | None = None
        self._not_before_s = 0.0
        self._has_called = True
        self._machine = AggregatorEpoch(
            fleet=fleet,
            roster=enrolment.roster,
            entropy=entropy,
            answer_s=answer_s,
            snapshot=store.get(_STATE),
            keys_roster=store.get(_KEYS_ROSTER),
        )

    # ------------------------------------------------------------ public

    @property
    def keys(self) -> MemberKeys | None:
        """The members of the open key epoch."""
        return self._machine.keys

    @property
    def enrolment(self) -> Enrolment:
        """Who is in the roster."""
        return self._enrolment

    @property
    def members(self) -> frozenset[str]:
        """Devices that rounds can call."""
        return self._machine.members

    @property
    def wakeup_s(self) -> float | None:
        """When `wake` is wanted."""
        return self._timer_s

    @property
    def next_index(self) -> int | None:
        """The key index that is taken next; None where there is none left."""
        keys, left = self.keys, self._machine.indices_left
        if keys is None or left < 1:
            return None
        return keys.bundle_of(keys.devices[0]).mask_key_count - left

    def take_index(self) -> int | None:
        """Take the next key index, durably; None where there is none left."""
        index = self._machine.take_index()
        self._has_called = True
        self._store.put(_STATE, self._machine.snapshot())
        return index

    def on_hello(self, device: str, hello: Hello, now_s: float) -> list[GatewayEffect]:
        """Send a device what it lacks of roster and key epochs, if it is the one in the roster."""
        if self._enrolment.is_taken(device, hello.identity_key):
            return []  # The roster gives this name to another key.
        joined = DeviceJoined(
            device=device, roster_number=hello.roster_number, key_epoch=hello.key_epoch
        )
        return self._feed(joined, now_s)

    def on_gone(self, device: str, now_s: float) -> list[GatewayEffect]:
        """Note that a device is gone."""
        return self._feed(DeviceLeft(device=device), now_s)

    def expel(self, device: str, now_s: float) -> list[GatewayEffect]:
        """Go on without a device; where this gateway signs the roster, it is in it no more."""
        effects = self.on_gone(device, now_s)
        roster = self._enrolment.expel(device)
        return (
            effects
            if roster is None
            else [*effects, *self._feed(RosterSigned(roster=roster), now_s)]
        )

    def on_message(
        self, device: str, message: EpochDeviceMessage, now_s: float
    ) -> list[GatewayEffect]:
        """Take a device's bundle or nonce, whose signature was checked."""
        return self._feed(EpochDeviceSaid(device=device, message=message), now_s)

    def on_round_message(self, device: str, message: DeviceMessage) -> None:
        """Look whether a device says of the open round's call that it has not the keys for it."""
        if isinstance(message, Leave) and message.reason is LeaveReason.STATE_LOST:
            self._machine.lose(device)

    def on_roster(self, content: bytes, now_s: float) -> list[GatewayEffect]:
        """Take a roster file that the operator brought; one that does not do is reported."""
        try:
            roster = self._enrolment.take(content)
        except ConfigError as error:
            return [roster_refused_report(error)]
        return [] if roster is None else self._feed(RosterSigned(roster=roster), now_s)

    def wake(self, now_s: float) -> list[GatewayEffect]:
        """Go on where the time is up."""
        if self._timer_s is None or now_s < self._timer_s:
            return []
        self._timer_s = None
        return self._feed(EpochTimerFired(), now_s) if self._machine.is_busy else []

    def prepare(
        self,
        known: Mapping[str, bytes],
        online: Collection[str],
        needed: int,
        now_s: float,
        *,
        least_answer_s: float = 0.0,
    ) -> tuple[bool, list[GatewayEffect]]:
        """Open a key epoch if the next round needs one.

        Args:
            known: Identity key by device.
            online: Devices that are online.
            needed: Least members that must be online.
            now_s: The time.
            least_answer_s: How long devices have for each step, where some sleep.

        Returns:
            Whether a round can open now, and what to do.
        """
        if self._machine.is_busy:
            return False, []
        if not self._is_needed(known, online, needed):
            return True, []
        if len(self.eligible(known, online)) < needed:
            return False, []
        if now_s < self._not_before_s:
            self._timer_s = self._not_before_s
            return False, []
        effects: list[GatewayEffect] = []
        if self._enrolment.is_automatic and self._strangers(known, online):
            roster = self._enrolment.sign(known, self._wall_clock_s())
            effects += self._feed(RosterSigned(roster=roster), now_s)
        effects += self._feed(BeginEpoch(needed=needed, least_answer_s=least_answer_s), now_s)
        self._has_called = False
        return False, effects

    def eligible(self, known: Mapping[str, bytes], online: Collection[str]) -> set[str]:
        """Return the devices online that are in the roster, or that this gateway can enrol."""
        if self._enrolment.is_automatic:
            return set(online)
        return {device for device in online if self._enrolment.is_enrolled(device, known[device])}

    # ------------------------------------------------------------ helpers

    def _is_needed(self, known: Mapping[str, bytes], online: Collection[str], needed: int) -> bool:
        members = self.members
        if self.keys is None or self._machine.is_due or len(members & set(online)) < needed:
            return True
        if not self._has_called:
            # Whatever newcomers do, each set-up is followed by a round.
            return False
        newcomers = set(self._machine.newcomers)
        if self._enrolment.is_automatic:
            newcomers |= self._strangers(known, online)
        return len(newcomers & set(online)) >= max(1, len(members) // _WORTH_A_NEW_EPOCH)

    def _strangers(self, known: Mapping[str, bytes], online: Collection[str]) -> set[str]:
        return {
            device for device in online if not self._enrolment.is_enrolled(device, known[device])
        }

    def _feed(self, event: AggregatorEpochEvent, now_s: float) -> list[GatewayEffect]:
        return self._carry_out(self._machine.handle(event, now_s), now_s)

    def _carry_out(
        self, effects: Iterable[AggregatorEpochEffect], now_s: float
    ) -> list[GatewayEffect]:
        out: list[GatewayEffect] = []
        for effect in effects:
            if isinstance(effect, PersistEpoch):
                self._store.put(_STATE, effect.snapshot)
            elif isinstance(effect, SendEpochDown):
                out.append(self._mailer.to_device(effect.device, effect.message))
            elif isinstance(effect, SetEpochTimer):
                self._timer_s = effect.at_s
            else:
                out.append(self._report(effect, now_s))
        return out

    def _report(
        self, effect: EpochReady | EpochAborted | EpochFull | DeviceRefused, now_s: float
    ) -> Reported:
        if isinstance(effect, EpochReady):
            self._timer_s = None
            if self.keys is not None:
                self._store.put(_KEYS_ROSTER, self.keys.roster.to_bytes())
            return key_epoch_report(effect.epoch, is_automatic=self._enrolment.is_automatic)
        if isinstance(effect, EpochAborted):
            # Whatever kept it from opening gets time to pass.
            self._timer_s = self._not_before_s = now_s + self._pause_s
            return key_epoch_aborted_report(effect)
        if isinstance(effect, EpochFull):
            return key_epoch_full_report(effect)
        return refused_report(effect.error.code, effect.device)


def open_key_epochs(
    settings: GatewaySettings, store: KeyValueStore, entropy: EntropySource, mailer: Mailer
) -> KeyEpochs:
    """Return a gateway's key epochs where its store left them.

    Raises:
        StorageError: The stored state is damaged, or of another enrolment key.
    """
    enrolment = Enrolment(
        store.namespace("enrolment"),
        fleet=settings.fleet,
        signing_key=settings.signing_key,
        enrolment_key=settings.enrolment_key,
    )
    try:
        return KeyEpochs(
            store.namespace("epochs"),
            enrolment=enrolment,
            fleet=settings.fleet,
            entropy=entropy,
            mailer=mailer,
            answer_s=settings.answer_s,
            pause_s=settings.pause_s,
            wall_clock_s=settings.wall_clock_s,
        )
    except WireError as error:
        raise StorageError(
            "E-STATE-DAMAGED", "readable key epochs", error.found, RESET_ADVICE
        ) from error


def give_up_key_epoch(store: KeyValueStore, *, skipped: int) -> None:
    """Let a stored key epoch not be gone on with: its indices may be used further than stored.

    Args:
        store: Durable state of the gateway.
        skipped: Numbers of key epochs that may have been given out since.

    Raises:
        WireError: The stored state is damaged.
    """
    epochs = store.namespace("epochs")
    stored = epochs.get(_STATE)
    if stored is not None:
        epochs.put(_STATE, without_key_epoch(stored, skipped=skipped))
