"""The gateway's durable notes of rounds: the one that is open, and how the last ones closed."""

from dataclasses import dataclass

from edgefl.errors import StorageError, WireError
from edgefl.privacy.ledger import Release, make_release
from edgefl.protocol import wire
from edgefl.protocol.events import Charge
from edgefl.protocol.reasons import AbortReason, Phase
from edgefl.protocol.report import RoundReport
from edgefl.protocol.round_messages import Call, RoundClosed
from edgefl.storage.base import KeyValueStore

OPEN_ROUND = "open-round"
_CLOSED = "closed/"
_REMEMBERED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRecord:
    """A round that was open when the gateway died."""

    task: str
    round_number: int
    attempt: int
    phase: Phase


def encode_open(call: Call, phase: Phase) -> bytes:
    """Return the note of an open round."""
    return wire.encode({0: call.task, 1: call.round_number, 2: call.attempt, 3: int(phase)})


def load_open(store: KeyValueStore) -> OpenRecord | None:
    """Read the note of a round that was left open.

    Raises:
        StorageError: It is there but unreadable.
    """
    stored = store.get(OPEN_ROUND)
    if stored is None:
        return None
    try:
        body = wire.as_body(wire.decode(stored))
        return OpenRecord(
            task=wire.as_text(wire.field(body, 0)),
            round_number=wire.as_int(wire.field(body, 1), 0, 2**31),
            attempt=wire.as_int(wire.field(body, 2), 0, 2**31),
            phase=Phase(wire.as_int(wire.field(body, 3), 1, len(Phase))),
        )
    except WireError as error:
        raise StorageError(
            "E-STATE-DAMAGED", "a readable note of the open round", error.found
        ) from error


def closing_changes(report: RoundReport) -> dict[str, bytes | None]:
    """Return the changes that close a round in the store."""
    closing = wire.encode(
        {0: int(report.outcome), 1: int(report.abort_reason), 2: list(report.survivors)}
    )
    return {
        OPEN_ROUND: None,
        f"{_CLOSED}{report.attempt}": closing,
        f"{_CLOSED}{report.attempt - _REMEMBERED}": None,
    }


def closing_of(store: KeyValueStore, attempt: int, device: str) -> RoundClosed:
    """Return how an earlier attempt ended for a device.

    An attempt without a note was ended by a restart of the gateway, or is long gone.
    """
    stored = store.get(f"{_CLOSED}{attempt}")
    if stored is None:
        return RoundClosed(phase=Phase.ABORTED, reason=AbortReason.GATEWAY_RESTARTED, counted=False)
    body = wire.as_body(wire.decode(stored))
    return RoundClosed(
        phase=Phase(wire.as_int(wire.field(body, 0), 1, len(Phase))),
        reason=AbortReason(wire.as_int(wire.field(body, 1), 0, 255)),
        counted=device in wire.as_list(wire.field(body, 2), 2**16),
    )


def release_of(charge: Charge, sampling_rate: float) -> Release:
    """Return the ledger's row for a round that is about to be unmasked.

    Args:
        charge: What the round asks for.
        sampling_rate: Of the devices' coins, as far as it may be claimed.
    """
    plan = charge.plan
    return make_release(
        plan.privacy,
        task=plan.task,
        round_number=plan.round_number,
        attempt=plan.attempt,
        session_id=plan.session_id,
        n_survivors=charge.n_survivors,
        sampling_rate=sampling_rate,
    )
