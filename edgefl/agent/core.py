"""The agent without its shell: takes events and the time, returns effects in order.

The same class runs on a board (`edgefl.agent.runtime`) and in the simulator (`firmware_sim`).
"""

from edgefl._native import UploadStage
from edgefl.agent.downloads import LIMITS, STAGE_BYTES, Downloads, WholeMessage
from edgefl.agent.events import (
    AgentEffect,
    AgentEvent,
    CertificateBrought,
    CertificateWanted,
    GatewayMoved,
    MaskingEnded,
    Noticed,
    PresenceChanged,
    Stop,
    TrainingEnded,
)
from edgefl.agent.gateway_pin import GatewayPin, old_gateway
from edgefl.agent.greeting import Greeting
from edgefl.agent.keys import AgentKeys
from edgefl.agent.outbox import Outbox
from edgefl.agent.pen import Pen
from edgefl.agent.post import Post
from edgefl.agent.round_driver import RoundDriver
from edgefl.agent.settings import AgentSettings
from edgefl.agent.spool import Spool, StoreSpool
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import presence, topics
from edgefl.protocol.enrolment_messages import CertificateIssued
from edgefl.protocol.envelope import Header, open_envelope, require_aggregator_message
from edgefl.protocol.epoch_messages import EPOCH_AGGREGATOR_MESSAGES
from edgefl.protocol.identity import EntropySource
from edgefl.protocol.messages import AggregatorMessage
from edgefl.protocol.one_upload_messages import DepositCall
from edgefl.protocol.reasons import Phase
from edgefl.protocol.round_messages import Call
from edgefl.protocol.service_messages import AggregatorStatus, Blob, Receipt, Rejection
from edgefl.storage.base import KeyValueStore
from edgefl.transfer.messages import TRANSFER_ANSWERS, TransferOffer
from edgefl.transfer.packets import read_down
from edgefl.transport.core_events import Arrived, LinkLost, LinkRestored, Publish

STATUS_OFFLINE = presence.OFFLINE


class AgentCore:
    """One device's agent.

    Args:
        settings: Identity, fleet, floors.
        store: Durable state; what a returned effect sends was written to it before.
        entropy: Fresh secrets.
        spool: Keeps the masked vector of the round; by default in the store.
    """

    def __init__(
        self,
        *,
        settings: AgentSettings,
        store: KeyValueStore,
        entropy: EntropySource,
        spool: Spool | None = None,
    ) -> None:
        """Read the durable state; an open round goes on when the link is up.

        Raises:
            StorageError: The state is damaged.
        """
        self._settings = settings
        self._gateway = GatewayPin(store)
        self._outbox = Outbox()
        self._pen = Pen(settings)
        self._post = Post(fleet=settings.fleet, pen=self._pen, outbox=self._outbox)
        self._downloads = Downloads(
            stage=UploadStage(STAGE_BYTES, LIMITS.offers_per_peer), pen=self._pen
        )
        self._keys = AgentKeys(
            store=store,
            entropy=entropy,
            outbox=self._outbox,
            identity=settings.identity,
            fleet=settings.fleet,
            policy=settings.policy,
            has_aes=settings.has_aes,
            enrolment_key=settings.enrolment_key,
        )
        self._greeting = Greeting(
            settings=settings,
            keys=self._keys,
            outbox=self._outbox,
            pen=self._pen,
            post=self._post,
        )
        self._rounds = RoundDriver(
            settings=settings,
            store=store,
            entropy=entropy,
            keys=self._keys,
            post=self._post,
            pen=self._pen,
            greeting=self._greeting,
            gateway=self._gateway,
            spool=StoreSpool(store.namespace("spool")) if spool is None else spool,
        )
        self._is_linked = False

    # ------------------------------------------------------------ public

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that the shell subscribes to."""
        fleet = self._settings.fleet
        return (self.downlink, topics.calls(fleet), topics.aggregator(fleet))

    @property
    def downlink(self) -> str:
        """Topic of what is for this device alone."""
        return topics.downlink(self._settings.fleet, self._pen.device)

    @property
    def phase(self) -> Phase | None:
        """The phase of the open round, if there is one."""
        return self._rounds.phase

    @property
    def has_gateway(self) -> bool:
        """Tell whether this fleet's gateway has been heard since the start."""
        return self._gateway.is_heard

    @property
    def moved_to(self) -> tuple[str, ...]:
        """URLs at which the gateway said that it is; empty where it never moved."""
        return self._gateway.moved_to

    @property
    def is_at_rest(self) -> bool:
        """Tell whether the next step is the gateway's: all receipts are here, nothing is worked."""
        is_silent = self._post.is_empty and self._downloads.is_empty
        return self.has_gateway and is_silent and not self._rounds.is_working

    @property
    def awaits_answer(self) -> bool:
        """Tell whether something that this device sent has no receipt yet."""
        return not self._post.is_empty

    @property
    def most_sleep_s(self) -> int:
        """For how long the gateway lets this device be without a link; 0 keeps the link."""
        return self._gateway.most_sleep_s

    @property
    def spent_epsilon(self) -> float | None:
        """What the device has spent over all tasks, against the gateway; None if unknown."""
        return self._rounds.spent_epsilon

    @property
    def wakeup_s(self) -> float | None:
        """When `Woken` is wanted."""
        if not self._is_linked:
            return None
        wishes = (self._post.wakeup_s, self._downloads.wakeup_s)
        return min((wish for wish in wishes if wish is not None), default=None)

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentEffect]:
        """Take one event and return what to do, in order. A peer's bytes raise nothing."""
        if isinstance(event, Arrived):
            try:
                return self._on_arrived(event, now_s)
            except (WireError, RemoteProtocolError) as error:
                return [Noticed(error=error)]
        if isinstance(event, LinkRestored):
            return self._on_link(event, now_s)
        if isinstance(event, LinkLost):
            self._is_linked = False
            return []
        if isinstance(event, TrainingEnded | MaskingEnded):
            return self._rounds.on_job_ended(event, now_s)
        if isinstance(event, PresenceChanged):
            return [self._status()] if self._is_linked else []
        if isinstance(event, CertificateWanted):
            return self._post.send(
                "certificate", event.request, Header(sender=self._pen.device), now_s
            )
        return self._on_woken(now_s) if self._is_linked else []

    def _on_woken(self, now_s: float) -> list[AgentEffect]:
        return [*self._post.due(now_s), *self._downloads.wake(now_s)]

    # ------------------------------------------------------------ link

    def _on_link(self, event: LinkRestored, now_s: float) -> list[AgentEffect]:
        self._is_linked = True
        self._post.on_link(now_s, event.max_packet_bytes)
        return [self._status(), *self._greet(now_s)]

    def _status(self) -> AgentEffect:
        return Publish(
            topic=topics.status(self._settings.fleet, self._pen.device),
            payload=self._settings.presence().to_bytes(),
            retain=True,
        )

    def _greet(self, now_s: float) -> list[AgentEffect]:
        """Say hello, and send again what may have been lost."""
        return [
            *self._greeting.say(now_s),
            *self._keys.resume(now_s),
            *self._rounds.resume(now_s),
            *self._post.due(now_s),
        ]

    # ------------------------------------------------------------ messages

    def _on_arrived(self, event: Arrived, now_s: float) -> list[AgentEffect]:
        if event.topic == topics.aggregator(self._settings.fleet):
            return self._on_aggregator_status(event, now_s) if event.payload else []
        packet = read_down(event.payload)
        if packet is not None:
            whole, effects = self._downloads.on_chunk(packet, now_s)
            return [*effects, *self._on_whole(whole, now_s)]
        envelope = open_envelope(event.topic, event.payload)
        if self._gateway.key is None:
            return []  # The retained status comes first; what comes before it is sent again.
        envelope.require_signed_by(self._gateway.key)
        message = require_aggregator_message(envelope.message)
        if event.retained:
            # Commands are never retained: somebody kept an old one, or replays it.
            raise RemoteProtocolError(
                "E-RETAINED", "a fresh message of the gateway", "a retained one, which is ignored"
            )
        if isinstance(message, TransferOffer):
            whole, effects = self._downloads.on_offer(envelope.header, message, now_s)
            return [*effects, *self._on_whole(whole, now_s)]
        if isinstance(message, TRANSFER_ANSWERS):
            received, effects = self._post.on_answer(message, now_s)
            if received is not None:
                self._rounds.settle(received)
            return effects
        return self._on_message(envelope.header, message, now_s)

    def _on_whole(self, whole: WholeMessage | None, now_s: float) -> list[AgentEffect]:
        return [] if whole is None else self._on_message(whole.header, whole.message, now_s)

    def _on_message(
        self, header: Header, message: AggregatorMessage, now_s: float
    ) -> list[AgentEffect]:
        rounds = self._rounds
        if isinstance(message, Call):
            return rounds.on_call(message, now_s)
        if isinstance(message, Receipt):
            self._post.settle(message.digest)
            rounds.settle(message.digest)
            return []
        if isinstance(message, Blob):
            return rounds.on_blob(message, now_s)
        if isinstance(message, EPOCH_AGGREGATOR_MESSAGES):
            return self._keys.handle(message, now_s, self._settings.wall_clock_s())
        if isinstance(message, DepositCall):
            return rounds.on_deposit_call(message, now_s)
        if isinstance(message, Rejection):
            return [self._on_rejection(message)]
        if isinstance(message, CertificateIssued):
            return [CertificateBrought(message=message)]
        return rounds.on_session_message(header, message, now_s)

    def _on_rejection(self, message: Rejection) -> AgentEffect:
        error = RemoteProtocolError(message.code, "a device that the gateway accepts", message.text)
        is_mine = self._greeting.is_newest(message.digest)
        return Stop(error=error) if is_mine else Noticed(error=error)

    def _on_aggregator_status(self, event: Arrived, now_s: float) -> list[AgentEffect]:
        envelope = open_envelope(event.topic, event.payload)
        message = envelope.message
        if not isinstance(message, AggregatorStatus):
            raise WireError("E-WIRE-KIND", "the aggregator's status", type(message).__name__)
        envelope.require_signed_by(message.identity_key)
        too_old = old_gateway(message, self._settings.agent_version)
        if too_old is not None:
            return [Noticed(error=too_old)]
        try:
            is_new = self._gateway.take(message)
        except RemoteProtocolError as error:
            # Once the right gateway was heard here, this is a stranger beside it.
            return [Noticed(error=error) if self.has_gateway else Stop(error=error)]
        self._post.on_gateway(message.epoch, message.chunk_bytes, now_s)
        if self._gateway.is_moving(message):
            return [GatewayMoved(urls=self._gateway.moved_to)]
        return self._greet(now_s) if is_new and self._is_linked else []
