"""Who may take part: the core's room for enrolment, revocation and what follows from them.

Without a desk (a gateway that was never set up by `gateway init`) every device that says hello may,
as the roster allows.
"""

from broker.enrolment_desk import EnrolmentDesk
from broker.enrolment_events import (
    ClaimsChanged,
    CutSession,
    EnrolmentEvent,
    OperatorSaid,
    OrderDone,
)
from broker.enrolment_requests import EnrolmentRequests
from broker.enrolments import Admission, Enrolments
from broker.events import GatewayEffect
from broker.key_epochs import KeyEpochs
from broker.mailer import Mailer
from broker.population import Population
from broker.reports import refused_report
from broker.round_driver import RoundDriver
from broker.settings import GatewaySettings
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol.enrolment_messages import RenewalRequest
from edgefl.storage.base import KeyValueStore
from edgefl.transport.core_events import Arrived

NAMESPACE = "admissions"


class Admissions:
    """Joins the desk with the rest of the core. A peer's bytes raise nothing.

    Args:
        desk: Decides; None where everybody may take part.
        population: Forgets who is out.
        key_epochs: Takes who is out from the roster, where the gateway signs it.
        requests: Asks the operator to, where somebody else does.
        rounds: Waits for them no more.
    """

    def __init__(
        self,
        desk: EnrolmentDesk | None,
        *,
        population: Population,
        key_epochs: KeyEpochs,
        requests: EnrolmentRequests,
        rounds: RoundDriver,
    ) -> None:
        """Prepare."""
        self.desk = desk
        self._population = population
        self._key_epochs = key_epochs
        self._requests = requests
        self._rounds = rounds

    @property
    def leaving(self) -> tuple[str, ...]:
        """Devices of the roster that are out, or whose key is."""
        if self.desk is None:
            return ()
        enrolments = self.desk.enrolments
        out = []
        for device, key in self._key_epochs.enrolment.identity_keys.items():
            record = enrolments.get(device)
            if record is None:
                continue
            # A name that was freed and given to another board leaves too, and comes back.
            if record.admission is Admission.REVOKED or record.identity_key != key:
                out.append(device)
        return tuple(sorted(out))

    def handle(self, event: EnrolmentEvent, now_s: float) -> list[GatewayEffect]:
        """Take what the shell tells about enrolment."""
        if self.desk is None:
            return _without_a_desk(event)
        if isinstance(event, ClaimsChanged):
            return self.desk.on_claims(event.claims)
        if not isinstance(event, OperatorSaid):
            return self.desk.on_authorities(self._population.online())
        effects = self.desk.on_order(event.order)
        for effect in tuple(effects):
            if isinstance(effect, CutSession):
                effects += self._expel(effect.device, now_s)
        return effects

    def on_arrived(self, claim: str, event: Arrived) -> list[GatewayEffect]:
        """Take a packet from a claim's topic."""
        if self.desk is None:
            return [refused_report("E-NO-ENROLMENT", event.topic)]
        try:
            return self.desk.on_request(claim, event.topic, event.payload)
        except (WireError, RemoteProtocolError) as error:
            return [refused_report(error.code, event.topic)]

    def refusal_of(self, device: str, identity_key: bytes) -> str | None:
        """Return why a device may not take part; None where it may."""
        return None if self.desk is None else self.desk.refusal_of(device, identity_key)

    def on_hello(self, device: str) -> list[GatewayEffect]:
        """Tell a device that may take part what it does not know of the authorities."""
        return [] if self.desk is None else self.desk.on_hello(device)

    def on_renewal(self, device: str, request: RenewalRequest) -> list[GatewayEffect]:
        """Take a device's request for its next certificate, whose signature was checked.

        Raises:
            RemoteProtocolError: The request is for another name, or damaged.
        """
        return [] if self.desk is None else self.desk.on_renewal(device, request)

    def _expel(self, device: str, now_s: float) -> list[GatewayEffect]:
        effects = self._rounds.expel(device, now_s)
        effects += self._key_epochs.expel(device, now_s)
        self._population.forget(device)
        self._requests.note_hello()
        return effects


def open_desk(
    settings: GatewaySettings, store: KeyValueStore, mailer: Mailer
) -> EnrolmentDesk | None:
    """Return the desk of a gateway that has an authority.

    Raises:
        StorageError: E-STATE-DAMAGED.
    """
    if settings.authority is None:
        return None
    return EnrolmentDesk(
        Enrolments(store.namespace(NAMESPACE)),
        authority=settings.authority,
        mailer=mailer,
        fleet=settings.fleet,
        wall_clock_s=settings.wall_clock_s,
    )


def _without_a_desk(event: EnrolmentEvent) -> list[GatewayEffect]:
    if not isinstance(event, OperatorSaid):
        return []
    text = "this gateway was not set up by 'edgefl gateway init': it takes in whoever says hello"
    return [
        OrderDone(order_id=event.order.order_id, is_done=False, code="E-NO-ENROLMENT", text=text)
    ]
