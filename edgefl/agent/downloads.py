"""What the gateway sends in chunks: model parts, and any other message above one packet."""

from collections import OrderedDict
from dataclasses import dataclass

from edgefl.agent.events import AgentEffect
from edgefl.agent.pen import Pen
from edgefl.errors import WireError
from edgefl.protocol.bulk import join_bulky, transfer_id_of
from edgefl.protocol.envelope import Header, require_aggregator_message
from edgefl.protocol.messages import AggregatorMessage
from edgefl.protocol.service_messages import Blob
from edgefl.transfer.intake import Answer, Intake, IntakeLimits
from edgefl.transfer.manifest import MAX_BLOB_BYTES
from edgefl.transfer.messages import RefusalReason, TransferOffer
from edgefl.transfer.packets import DownPacket
from edgefl.transfer.stage import Stage

_EPOCH = 0
"""A device does not count its starts for this: after its hello the gateway begins to offer anew."""
_GATEWAY = "gateway"
LIMITS = IntakeLimits(
    slots=4,
    staged_bytes=2 * MAX_BLOB_BYTES,
    blob_bytes=MAX_BLOB_BYTES,
    # Where the disk or the processor is slower than the link, so much waits in memory.
    asked_window_bytes=4 << 20,
    offers_per_peer=8,
)
_MOST_RECENT = 4
_MOST_RECENT_BYTES = 1 << 20
STAGE_BYTES = LIMITS.staged_bytes + (1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeMessage:
    """A message of the gateway that arrived in chunks.

    Attributes:
        header: Of its offer, whose signature covers the hashes of the chunks.
        message: The message.
    """

    header: Header
    message: AggregatorMessage


class Downloads:
    """Every transfer from the gateway; what has arrived lives in memory only.

    Args:
        stage: Where chunks go.
        pen: Signs and addresses the answers.
    """

    def __init__(self, *, stage: Stage, pen: Pen) -> None:
        """Begin with nothing."""
        self._intake = Intake(stage, epoch=_EPOCH, limits=LIMITS)
        self._pen = pen
        self._offers: dict[bytes, tuple[Header, TransferOffer]] = {}
        self._recent: OrderedDict[bytes, WholeMessage] = OrderedDict()

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is under way."""
        return not self._offers

    @property
    def wakeup_s(self) -> float | None:
        """When `wake` is wanted."""
        return self._intake.wakes_at_s

    @property
    def refused_chunks(self) -> int:
        """How many chunks were damaged, or of transfers that are not open."""
        return sum(self._intake.refused_chunks.values())

    def on_offer(
        self, header: Header, offer: TransferOffer, now_s: float
    ) -> tuple[WholeMessage | None, list[AgentEffect]]:
        """Take an offer whose signature was checked.

        Returns:
            The message, where it is the reminder of one that has arrived; and what to do.
        """
        transfer_id = transfer_id_of(offer, header)
        recent = self._recent.get(transfer_id)
        if recent is not None:
            done = self._intake.done_before(_GATEWAY, transfer_id, offer.manifest)
            return recent, self._say([done])
        answers = self._intake.offer(
            _GATEWAY,
            transfer_id,
            offer.manifest,
            now_s,
            asked_window_bytes=offer.window_bytes or 0,
        )
        if self._intake.knows(_GATEWAY, transfer_id):
            self._offers[transfer_id] = (header, offer)
        return None, self._say(answers)

    def on_chunk(
        self, packet: DownPacket, now_s: float
    ) -> tuple[WholeMessage | None, list[AgentEffect]]:
        """Take a chunk packet; return the message that it completes, and what to do."""
        transfer_id = packet.transfer_id
        _, answers = self._intake.chunk(_GATEWAY, transfer_id, bytes(packet.packet), now_s)
        effects = self._say(answers)
        if not self._intake.is_whole(_GATEWAY, transfer_id):
            return None, effects
        header, offer = self._offers.pop(transfer_id)
        blob = self._intake.take(_GATEWAY, transfer_id)
        try:
            message = require_aggregator_message(join_bulky(offer, blob))
        except WireError:
            # The gateway signed this; to have it again would not mend it.
            refusals = self._intake.refuse(_GATEWAY, transfer_id, RefusalReason.BROKEN)
            return None, [*effects, *self._say(refusals)]
        effects += self._say(self._intake.done(_GATEWAY, transfer_id))
        whole = WholeMessage(header=header, message=message)
        self._remember(transfer_id, whole, len(blob))
        return whole, effects

    def wake(self, now_s: float) -> list[AgentEffect]:
        """Send the receipts that are due."""
        effects = self._say(self._intake.wake(now_s))
        for transfer_id in list(self._offers):
            if not self._intake.knows(_GATEWAY, transfer_id):
                del self._offers[transfer_id]
        return effects

    def forget(self) -> None:
        """Forget what a gateway that has started anew will offer again."""
        self._intake.forget_all()
        self._offers.clear()

    def _remember(self, transfer_id: bytes, whole: WholeMessage, size_bytes: int) -> None:
        """Keep what the gateway may send again to remind; model parts are asked for instead."""
        if isinstance(whole.message, Blob) or size_bytes > _MOST_RECENT_BYTES:
            return
        self._recent[transfer_id] = whole
        while len(self._recent) > _MOST_RECENT:
            self._recent.popitem(last=False)

    def _say(self, answers: list[Answer]) -> list[AgentEffect]:
        return [self._pen.outside_of_rounds(answer.message) for answer in answers]
