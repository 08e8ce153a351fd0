"""Which records of key epochs a device has answered of late: each gave the gateway new graphs.

With the last nonce a gateway knows the graphs of all key indices of a key epoch, and picks among
them. So what it can pick from in a day is bounded by the records that are answered in a day,
whether their key epochs open or not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.key_bundle import MAX_KEY_EPOCH
from edgefl.protocol.limits import MOST_RECORDS_A_DAY
from edgefl.protocol.wire import WireValue

DAY_S = 24 * 3600.0
MOST_UNOPENED = 3
"""Key epochs that a gateway may leave unopened in a day after it has seen their nonces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRecord:
    """A record that a device showed its nonce for.

    Attributes:
        at_s: Latest time that the device had ever seen by then.
        is_opened: The device learned the beacon.
    """

    key_epoch: int
    at_s: float
    is_opened: bool = False


class AnsweredRecords:
    """The newest answers, at most as many as a day may have.

    Their times ascend, since a clock that goes backward does not lower the latest time seen. What
    is left out is thus older than everything here, and counts only while all of these do, which
    are then enough by themselves.

    Args:
        answers: Oldest first.
    """

    def __init__(self, answers: Sequence[AnsweredRecord] = ()) -> None:
        """Take the answers."""
        self._answers = list(answers[-MOST_RECORDS_A_DAY:])

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._answers)

    def note(self, key_epoch: int, at_s: float) -> None:
        """Note that the record of a key epoch is answered for the first time."""
        answer = AnsweredRecord(key_epoch=key_epoch, at_s=at_s)
        self._answers = [*self._answers[1 - MOST_RECORDS_A_DAY :], answer]

    def note_opened(self, key_epoch: int) -> None:
        """Note that a key epoch whose record was answered has opened."""
        self._answers = [
            replace(answer, is_opened=True) if answer.key_epoch == key_epoch else answer
            for answer in self._answers
        ]

    def require_room(self, now_s: float) -> None:
        """Check that one more record may be answered.

        Args:
            now_s: Seconds since 1970 by the device's clock. One that went backward makes every
                difference negative, which forgives nothing.

        Raises:
            RemoteProtocolError: E-EPOCH-GRINDING.
        """
        recent = [answer for answer in self._answers if now_s - answer.at_s < DAY_S]
        unopened = sum(not answer.is_opened for answer in recent)
        if unopened >= MOST_UNOPENED:
            raise RemoteProtocolError(
                "E-EPOCH-GRINDING",
                f"at most {MOST_UNOPENED} key epochs in 24 hours that never opened",
                f"{unopened}",
                "wait a day; if it happens again, the gateway or a member aborts them on purpose",
            )
        if len(recent) >= MOST_RECORDS_A_DAY:
            raise RemoteProtocolError(
                "E-EPOCH-GRINDING",
                f"at most {MOST_RECORDS_A_DAY} key epochs in 24 hours",
                f"{len(recent)}",
                "wait a day; more rounds per key epoch need fewer of them",
            )

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array."""
        return [[answer.key_epoch, answer.at_s, int(answer.is_opened)] for answer in self._answers]

    @classmethod
    def from_value(cls, value: WireValue) -> "AnsweredRecords":
        """Read the CBOR array."""
        return cls([_read(item) for item in wire.as_list(value, MOST_RECORDS_A_DAY)])


def _read(value: WireValue) -> AnsweredRecord:
    parts = wire.as_list(value, 3)
    if len(parts) != 3:
        raise WireError("E-SNAPSHOT", "an array of 3", f"{len(parts)} parts")
    return AnsweredRecord(
        key_epoch=wire.as_int(parts[0], 1, MAX_KEY_EPOCH),
        at_s=wire.as_float(parts[1]),
        is_opened=bool(wire.as_int(parts[2], 0, 1)),
    )
