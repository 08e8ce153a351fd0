"""An upload whose last chunk the endpoint could not tell of is taken when its device asks."""

from broker.core import GatewayCore
from broker.events import GatewayEffect
from broker.open_gateway import GatewayEntropy
from broker.settings import GatewaySettings
from broker.uploads import stage_for
from edgefl.protocol import topics
from edgefl.protocol.bulk import split_bulky, transfer_id_of
from edgefl.protocol.enrolment_messages import RenewalRequest
from edgefl.protocol.envelope import Header, open_envelope, seal_envelope
from edgefl.protocol.messages import DeviceMessage, Message
from edgefl.protocol.service_messages import Hello
from edgefl.storage.memory import MemoryStore
from edgefl.transfer.messages import TransferGrant, TransferProgress
from edgefl.transfer.packets import pack_chunk
from edgefl.transport.core_events import Arrived, LinkRestored, Publish
from edgefl.types import DeviceId, FleetName
from firmware_sim.gateway import MemoryLedger
from tests.epoch_harness import signing_key

FLEET, DEVICE = FleetName("home"), DeviceId("d1")
HEADER = Header(sender=DEVICE)
REQUEST = RenewalRequest(certificate_request=b"", trusted_digest=bytes(32))


def said(effects: list[GatewayEffect]) -> list[Message]:
    topic = topics.downlink(FLEET, DEVICE)
    sent = [one for one in effects if isinstance(one, Publish) and one.topic == topic]
    return [open_envelope(topic, one.payload).message for one in sent]


def test_an_upload_is_done_though_nobody_told_that_it_is_whole() -> None:
    settings = GatewaySettings(
        fleet=FLEET, signing_key=signing_key("gateway"), least_agent_version="0.0.1"
    )
    stage = stage_for(settings.uploads)
    core = GatewayCore(
        settings=settings,
        store=MemoryStore(),
        ledger=MemoryLedger(),
        entropy=GatewayEntropy(),
        stage=stage,
    )
    core.handle(LinkRestored(), 0.0)

    def hear(message: DeviceMessage, now_s: float) -> list[Message]:
        topic = topics.uplink(FLEET, DEVICE)
        payload = seal_envelope(signing_key(DEVICE), topic, HEADER, message)
        return said(core.handle(Arrived(topic=topic, payload=payload), now_s))

    hear(Hello(identity_key=signing_key(DEVICE).public_key, agent_version="1.0"), 0.0)
    parts = split_bulky(REQUEST, 4096)
    (grant,) = hear(parts.offer, 1.0)
    assert isinstance(grant, TransferGrant)
    key = f"{DEVICE}/{transfer_id_of(parts.offer, HEADER).hex()}"
    assert stage.accept(key, pack_chunk(0, parts.blob)) == "whole"  # as the endpoint does
    answers = hear(parts.offer, 5.0)
    assert [one.is_done for one in answers if isinstance(one, TransferProgress)] == [True]
    assert stage.keys() == []
