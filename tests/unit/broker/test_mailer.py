"""What the gateway says to one device: which of it a broker need not keep for long."""

from broker.downloads import EXPIRY_S
from broker.mailer import Mailer
from edgefl._native import Seed, SigningKey
from edgefl.protocol.envelope import open_envelope
from edgefl.protocol.service_messages import Blob, Receipt
from edgefl.transfer.manifest import DEFAULT_CHUNK_BYTES, TRANSFER_ID_BYTES
from edgefl.transfer.messages import RefusalReason, TransferOffer, TransferRefusal
from edgefl.types import FleetName


def mailer() -> Mailer:
    return Mailer(FleetName("home"), SigningKey.from_seed(Seed.from_bytes(b"\x07" * 32)))


def test_what_a_device_is_told_anew_after_an_absence_expires() -> None:
    refusal = TransferRefusal(transfer_id=bytes(TRANSFER_ID_BYTES), reason=RefusalReason.NOT_WANTED)
    assert mailer().to_device("d1", refusal).expiry_s == EXPIRY_S
    large = Blob(content=bytes(2 * DEFAULT_CHUNK_BYTES))
    offer = mailer().to_device("d1", large)
    assert isinstance(open_envelope(offer.topic, offer.payload).message, TransferOffer)
    assert offer.expiry_s == EXPIRY_S


def test_what_is_said_once_waits_for_the_device() -> None:
    receipt = mailer().to_device("d1", Receipt(digest=bytes(32)))
    assert receipt.expiry_s is None
    assert not receipt.retain
