"""What a round has accepted, in order, so that a restarted gateway goes on where the old one died.

Masked inputs are not in it: they are in the sum, which is stored whole together with the entries of
those that it holds. So nobody is in the sum twice, and nobody who is in it is forgotten.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from edgefl.errors import WireError
from edgefl.protocol import wire
from edgefl.protocol.envelope import SESSION_ID_BYTES
from edgefl.protocol.limits import DIGEST_BYTES, MAX_COHORT
from edgefl.protocol.messages import DEVICE_MESSAGES, DeviceMessage, type_of
from edgefl.protocol.one_upload_messages import OneUpload
from edgefl.protocol.reasons import DropReason, Phase
from edgefl.protocol.report import PhaseCount
from edgefl.protocol.round_messages import MaskedInput
from edgefl.protocol.wire import WireValue

_TOOK, _REMOVED, _CLOSED, _CHARGED = 1, 2, 3, 4
_MS_PER_S = 1000
_MOST_MS = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """A phase took a device's message.

    Attributes:
        device: Who sent it.
        session_id: That it named.
        message: What it said; a masked input without its vector.
        input_digest: Of a masked input as it was, with its vector; None for other messages.
    """

    device: str
    session_id: bytes
    message: DeviceMessage
    input_digest: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A device left, or broke the protocol."""

    device: str
    reason: DropReason


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseClosed:
    """A phase was closed; the next one is open.

    Attributes:
        count: Which, and whom it had.
        session_id: Of the plan, so that a restart that would make another plan is noticed.
        dropouts: Devices that did not complete it, and why.
    """

    count: PhaseCount
    session_id: bytes
    dropouts: tuple[tuple[str, DropReason], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerCharged:
    """The ledger row is durable, and the unmask request may be sent."""


JournalEntry = Took | Removed | PhaseClosed | LedgerCharged


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPart:
    """What has to be stored in one transaction.

    Attributes:
        entries: New ones, in order.
        total: The packed sum that holds every masked input up to here; None: it is as it was.
    """

    entries: tuple[JournalEntry, ...] = ()
    total: bytes | None = field(default=None, repr=False)


class RoundJournal:
    """Entries that are not stored yet.

    Args:
        is_kept: Whether anybody stores them; else there are none.
    """

    def __init__(self, *, is_kept: bool) -> None:
        """Start empty."""
        self._is_kept = is_kept
        self._entries: list[JournalEntry] = []
        self._inputs: list[JournalEntry] = []
        self._has_new_sum = False

    @property
    def has_unsaved_inputs(self) -> bool:
        """Whether the sum holds masked inputs that the stored one does not."""
        return bool(self._inputs) or self._has_new_sum

    def note(self, entry: JournalEntry) -> None:
        """Note what was accepted; the last of a phase comes after all of its inputs."""
        if not self._is_kept:
            return
        if isinstance(entry, Took) and entry.input_digest is not None:
            self._inputs.append(entry)
            return
        if isinstance(entry, PhaseClosed):
            self._move_inputs()
        self._entries.append(entry)

    def take(self, *, with_inputs: bool) -> tuple[tuple[JournalEntry, ...], bool]:
        """Return the new entries, and whether the sum has to be stored with them.

        Args:
            with_inputs: Whether those of masked inputs are wanted now. They wait otherwise, as long
                as their phase is open, for each storing of the sum writes all of it.
        """
        if with_inputs:
            self._move_inputs()
        entries, has_new_sum = tuple(self._entries), self._has_new_sum
        self._entries, self._has_new_sum = [], False
        return entries, has_new_sum

    def _move_inputs(self) -> None:
        self._entries += self._inputs
        self._has_new_sum = self._has_new_sum or bool(self._inputs)
        self._inputs = []


def without_vector(message: DeviceMessage) -> DeviceMessage:
    """Return a masked input without its vector, which the sum holds; others as they are."""
    if not isinstance(message, MaskedInput | OneUpload):
        return message
    return replace(message, packed=b"", staged=None)


def encode_entry(entry: JournalEntry) -> bytes:
    """Return the bytes to store."""
    if isinstance(entry, Took):
        return wire.encode(
            [
                _TOOK,
                entry.device,
                entry.session_id,
                entry.message.kind,
                dict(entry.message.to_body()),
                entry.input_digest,
            ]
        )
    if isinstance(entry, Removed):
        return wire.encode([_REMOVED, entry.device, entry.reason.value])
    if isinstance(entry, PhaseClosed):
        dropouts: list[WireValue] = [[device, why.value] for device, why in entry.dropouts]
        return wire.encode([_CLOSED, _count_to_list(entry.count), entry.session_id, dropouts])
    return wire.encode([_CHARGED])


def decode_entry(content: bytes) -> JournalEntry:
    """Read one stored entry.

    Raises:
        WireError: It is none of this version.
    """
    parts = wire.as_list(wire.decode_stored(content), 6)
    kind = wire.as_int(parts[0], _TOOK, _CHARGED) if parts else 0
    if len(parts) != {_TOOK: 6, _REMOVED: 3, _CLOSED: 4, _CHARGED: 1}.get(kind, -1):
        raise _unreadable(f"{len(parts)} parts of kind {kind}")
    if kind == _TOOK:
        return _read_took(parts)
    if kind == _REMOVED:
        return Removed(device=wire.as_text(parts[1], 64), reason=_reason(parts[2]))
    if kind == _CLOSED:
        return PhaseClosed(
            count=_read_count(wire.as_list(parts[1], 6)),
            session_id=wire.as_bytes(parts[2], SESSION_ID_BYTES),
            dropouts=_read_dropouts(wire.as_list(parts[3], MAX_COHORT)),
        )
    return LedgerCharged()


def _read_took(parts: Sequence[WireValue]) -> Took:
    message = type_of(wire.as_int(parts[3], 0, 255)).from_body(wire.as_body(parts[4]))
    if not isinstance(message, DEVICE_MESSAGES):
        raise _unreadable(type(message).__name__)
    return Took(
        device=wire.as_text(parts[1], 64),
        session_id=wire.as_bytes(parts[2], SESSION_ID_BYTES),
        message=message,
        input_digest=None if parts[5] is None else wire.as_bytes(parts[5], DIGEST_BYTES),
    )


def _count_to_list(count: PhaseCount) -> list[WireValue]:
    return [
        int(count.phase),
        count.expected,
        count.needed,
        count.arrived,
        round(count.duration_s * _MS_PER_S),
        round(count.last_arrival_s * _MS_PER_S),
    ]


def _read_count(values: Sequence[WireValue]) -> PhaseCount:
    numbers = [wire.as_int(value, 0, _MOST_MS) for value in values]
    if len(numbers) != 6 or not 1 <= numbers[0] <= len(Phase):
        raise _unreadable("another count of a phase")
    phase, expected, needed, arrived, duration_ms, last_arrival_ms = numbers
    return PhaseCount(
        phase=Phase(phase),
        expected=expected,
        needed=needed,
        arrived=arrived,
        duration_s=duration_ms / _MS_PER_S,
        last_arrival_s=last_arrival_ms / _MS_PER_S,
    )


def _read_dropouts(values: Iterable[WireValue]) -> tuple[tuple[str, DropReason], ...]:
    pairs = [wire.as_list(value, 2) for value in values]
    if any(len(pair) != 2 for pair in pairs):
        raise _unreadable("dropouts without a reason")
    return tuple((wire.as_text(pair[0], 64), _reason(pair[1])) for pair in pairs)


def _reason(value: WireValue) -> DropReason:
    text = wire.as_text(value, 20)
    try:
        return DropReason(text)
    except ValueError:
        raise _unreadable(f"the reason {text}") from None


def _unreadable(found: str) -> WireError:
    return WireError("E-JOURNAL", "an entry of this version", found)
