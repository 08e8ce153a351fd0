"""What devices send in chunks: offers get slots, blobs become messages, and `done` follows."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from broker.events import GatewayEffect
from broker.mailer import Mailer
from edgefl._native import UploadStage
from edgefl.errors import WireError
from edgefl.protocol.bulk import is_input_offer, join_bulky, join_staged, transfer_id_of
from edgefl.protocol.envelope import Header, require_device_message
from edgefl.protocol.messages import DeviceMessage, Message
from edgefl.transfer.intake import Answer, Intake, IntakeLimits
from edgefl.transfer.manifest import MAX_BLOB_BYTES
from edgefl.transfer.messages import RefusalReason, TransferOffer
from edgefl.transfer.stage import Stage

STAGE_BLOBS = 4096
ENDPOINT_WINDOW_CHUNKS = 64
ENDPOINT_RECEIPT_CHUNKS = 32
"""As many as the endpoint reports at once; half a window, so that nobody waits for a receipt."""
_MOST_REMEMBERED = 4096


def intake_limits(*, slots: int, window_bytes: int, has_endpoint: bool) -> IntakeLimits:
    """Return the bounds of what comes in, from what the gateway's owner sets.

    Args:
        slots: Uploads at a time.
        window_bytes: Sum of their sizes, and so of what may be under way.
        has_endpoint: Chunks go into the stage by the endpoint in this process: what is under way
            then waits with its sender. A broker would have to hold it, so less is granted there.
    """
    blob_bytes = min(MAX_BLOB_BYTES, window_bytes)
    limits = IntakeLimits(slots=slots, staged_bytes=window_bytes, blob_bytes=blob_bytes)
    if not has_endpoint:
        return limits
    return replace(
        limits, window_chunks=ENDPOINT_WINDOW_CHUNKS, receipt_chunks=ENDPOINT_RECEIPT_CHUNKS
    )


def stage_for(limits: IntakeLimits) -> UploadStage:
    """Return a stage with room for the blobs that the limits let in, and their lists of hashes."""
    return UploadStage(limits.staged_bytes + limits.staged_bytes // 64 + (1 << 20), STAGE_BLOBS)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeUpload:
    """A message of a device that arrived in chunks.

    Attributes:
        device: Who signed the offer.
        transfer_id: 8 bytes.
        header: Of the offer, whose signature covers the hashes of the chunks.
        message: The message; not yet judged.
    """

    device: str
    transfer_id: bytes
    header: Header
    message: DeviceMessage


class Uploads:
    """Every transfer from devices. What is staged lives in memory; `done` is what lasts.

    Args:
        stage: Where chunks go; an endpoint in this process fills it by itself.
        epoch: How often the gateway has started.
        mailer: Addresses the answers.
        limits: Slots, memory, sizes.
    """

    def __init__(self, *, stage: Stage, epoch: int, mailer: Mailer, limits: IntakeLimits) -> None:
        """Begin with nothing."""
        self._offers: dict[tuple[str, bytes], tuple[Header, TransferOffer]] = {}
        self._intake = Intake(stage, epoch=epoch, limits=limits, on_pushed_out=self._forget_offer)
        self._mailer = mailer
        self._done: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    # ------------------------------------------------------------ for reading

    @property
    def wakeup_s(self) -> float | None:
        """When `wake` is wanted."""
        return self._intake.wakes_at_s

    @property
    def active_count(self) -> int:
        """How many devices have a slot."""
        return self._intake.active_count

    @property
    def waiting_count(self) -> int:
        """How many devices wait for a slot."""
        return self._intake.waiting_count

    @property
    def refused_chunks(self) -> dict[str, int]:
        """How many chunks were refused, by the name of what was wrong with them."""
        return {verdict.value: count for verdict, count in self._intake.refused_chunks.items()}

    # ------------------------------------------------------------ what devices send

    def on_offer(
        self,
        device: str,
        header: Header,
        offer: TransferOffer,
        now_s: float,
        *,
        largest_bytes: int,
    ) -> list[GatewayEffect]:
        """Take an offer whose signature was checked, and which is wanted.

        Args:
            device: Who made it.
            header: Of the offer.
            offer: The offer.
            now_s: The time.
            largest_bytes: That a message of this kind can have now.
        """
        transfer_id = transfer_id_of(offer, header)
        if offer.manifest.size_bytes > largest_bytes:
            reason = RefusalReason.TOO_LARGE
            return self._refuse(device, transfer_id, reason, limit_bytes=largest_bytes)
        answers = self._intake.offer(device, transfer_id, offer.manifest, now_s)
        if self._intake.knows(device, transfer_id):
            self._offers[device, transfer_id] = (header, offer)
        return self._say(answers)

    def is_done(self, device: str, header: Header, offer: TransferOffer) -> bool:
        """Tell whether an offer is of a transfer that was received in this life."""
        return (device, transfer_id_of(offer, header)) in self._done

    def say_done(self, device: str, header: Header, offer: TransferOffer) -> list[GatewayEffect]:
        """Give the last receipt of a transfer once more. It must wait for what it stands for."""
        transfer_id = transfer_id_of(offer, header)
        return self._say([self._intake.done_before(device, transfer_id, offer.manifest)])

    def say_not_wanted(
        self, device: str, header: Header, offer: TransferOffer
    ) -> list[GatewayEffect]:
        """Refuse an offer of something that is of no use any more."""
        return self._refuse(device, transfer_id_of(offer, header), RefusalReason.NOT_WANTED)

    def on_chunk(
        self, device: str, transfer_id: bytes, packet: bytes, now_s: float
    ) -> list[GatewayEffect]:
        """Take a chunk packet that came through a broker."""
        return self._say(self._intake.chunk(device, transfer_id, packet, now_s)[1])

    def on_moved(self, device: str, transfer_id: bytes, now_s: float) -> list[GatewayEffect]:
        """Note that the endpoint has put chunks into the stage."""
        return self._say(self._intake.progress(device, transfer_id, now_s))

    # ------------------------------------------------------------ what becomes of them

    def take_whole(
        self, device: str, transfer_id: bytes
    ) -> tuple[WholeUpload | None, list[GatewayEffect]]:
        """Return the message of a transfer all of whose chunks are there, once."""
        if not self._intake.is_whole(device, transfer_id):
            return None, []
        header, offer = self._offers.pop((device, transfer_id))
        self._mailer.count_up(device, offer.manifest.size_bytes)
        try:
            message = require_device_message(self._joined(device, transfer_id, offer))
        except WireError:
            return None, self._refuse(device, transfer_id, RefusalReason.BROKEN)
        whole = WholeUpload(device=device, transfer_id=transfer_id, header=header, message=message)
        return whole, []

    def _joined(self, device: str, transfer_id: bytes, offer: TransferOffer) -> Message:
        if is_input_offer(offer):
            return join_staged(offer, self._intake.take_out(device, transfer_id))
        return join_bulky(offer, self._intake.take(device, transfer_id))

    def settle(self, whole: WholeUpload) -> list[GatewayEffect]:
        """Return the last receipt: carried out once what was handed on is durable."""
        place = (whole.device, whole.transfer_id)
        self._done[place] = None
        if len(self._done) > _MOST_REMEMBERED:
            self._done.popitem(last=False)
        return self._say(self._intake.done(*place))

    def let_go(self, whole: WholeUpload) -> None:
        """Forget a message that could not be kept yet: its device offers it again."""
        self._intake.forget(whole.device, whole.transfer_id)

    def keep_only(self, is_wanted: Callable[[str, int], bool]) -> None:
        """Forget, without a word, uploads that have become of no use.

        Args:
            is_wanted: Tells it by the device, and the attempt that its offer names.
        """
        for (device, transfer_id), (header, _) in list(self._offers.items()):
            if not is_wanted(device, header.attempt):
                del self._offers[device, transfer_id]
                self._intake.forget(device, transfer_id)

    # ------------------------------------------------------------ time

    def wake(self, now_s: float) -> list[GatewayEffect]:
        """Send the receipts that are due, and give free slots to those who wait."""
        return self._say(self._intake.wake(now_s))

    def _forget_offer(self, device: str, transfer_id: bytes) -> None:
        self._offers.pop((device, transfer_id), None)

    def _refuse(
        self, device: str, transfer_id: bytes, reason: RefusalReason, *, limit_bytes: int = 0
    ) -> list[GatewayEffect]:
        self._forget_offer(device, transfer_id)
        return self._say(self._intake.refuse(device, transfer_id, reason, limit_bytes))

    def _say(self, answers: Sequence[Answer]) -> list[GatewayEffect]:
        return [self._mailer.to_device(answer.peer, answer.message) for answer in answers]
