"""Sign and address what a device says to its gateway."""

from edgefl.agent.settings import AgentSettings
from edgefl.protocol import topics
from edgefl.protocol.envelope import Header, seal_envelope
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.round_messages import Call
from edgefl.transport.core_events import Publish
from edgefl.types import DeviceId


class Pen:
    """The device's pen.

    Args:
        settings: Identity and fleet.
    """

    def __init__(self, settings: AgentSettings) -> None:
        """Take the identity."""
        self._key = settings.identity.signing_key
        self.device = DeviceId(settings.identity.device)
        self._uplink = topics.uplink(settings.fleet, self.device)

    def outside_of_rounds(self, message: DeviceMessage) -> Publish:
        """Return a message that belongs to no round."""
        return self.sealed(message, Header(sender=self.device))

    def in_round(
        self, message: DeviceMessage, session_id: bytes, numbers: Call | SessionPlan | Header
    ) -> Publish:
        """Return a message about a round.

        Args:
            message: What to say.
            session_id: The session, or zeros before there is a plan.
            numbers: What names the round's number and attempt.
        """
        return self.sealed(message, self.round_header(session_id, numbers))

    def round_header(self, session_id: bytes, numbers: Call | SessionPlan | Header) -> Header:
        """Return the header of a message about a round; arguments as of `in_round`."""
        return Header(
            session_id=session_id,
            round_number=numbers.round_number,
            attempt=numbers.attempt,
            sender=self.device,
        )

    def sealed(self, message: DeviceMessage, header: Header) -> Publish:
        """Return a message under a header of its own."""
        payload = seal_envelope(self._key, self._uplink, header, message)
        return Publish(topic=self._uplink, payload=payload)
