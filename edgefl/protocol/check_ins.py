"""Who checked in to a call, and the session plan made of it."""

from edgefl.errors import RemoteProtocolError
from edgefl.protocol.device import call_id_of
from edgefl.protocol.messages import CheckIn, KeyAdvert
from edgefl.protocol.plan import SessionPlan, require_sound_advert
from edgefl.protocol.reasons import AdversaryClass, Suite
from edgefl.protocol.round_setup import RoundSetup, threshold_for


class CheckIns:
    """Adverts of one call, as they arrive.

    Args:
        setup: The gateway's decisions.
    """

    def __init__(self, setup: RoundSetup) -> None:
        """Start with nobody."""
        self._setup = setup
        self._call_id = call_id_of(setup.fleet, setup.call)
        self._adverts: dict[str, KeyAdvert] = {}

    @property
    def devices(self) -> set[str]:
        """Devices that checked in."""
        return set(self._adverts)

    def take(self, device: str, message: CheckIn) -> None:
        """Take a device's advert; the same one again is fine, one for another call is ignored.

        Raises:
            RemoteProtocolError: The advert is not the sender's, not signed, not sound, a second
                one, or holds keys that another device uses.
        """
        if message.call_id != self._call_id:
            return
        advert = message.advert
        known = self._setup.population.get(device)
        if known is None or advert.device != device or advert.identity_key != known:
            raise RemoteProtocolError(
                "E-CHECK-IN-IDENTITY", "an advert of the sender", "another device's"
            )
        require_sound_advert(advert, self._call_id)
        if self._adverts.get(device, advert) != advert:
            raise RemoteProtocolError("E-CHECK-IN-TWICE", "one advert per call", "a second one")
        own = {advert.share_key, advert.mask_key}
        taken = {
            key
            for other in self._adverts.values()
            if other.device != device
            for key in (other.share_key, other.mask_key)
        }
        if len(own) != 2 or taken & own:
            raise RemoteProtocolError("E-CHECK-IN-KEYS", "fresh keys", "keys that are in use")
        self._adverts[device] = advert

    def make_plan(self) -> SessionPlan:
        """Fix the cohort: everybody who checked in."""
        setup = self._setup
        members = tuple(self._adverts[device] for device in sorted(self._adverts))
        return SessionPlan(
            fleet=setup.fleet,
            task=setup.call.task,
            round_number=setup.call.round_number,
            attempt=setup.call.attempt,
            call_id=self._call_id,
            adversary=AdversaryClass.HONEST_BUT_CURIOUS,
            suite=Suite.CHACHA20_X25519,
            members=members,
            threshold=threshold_for(len(members)),
            survivor_floor=setup.privacy.survivor_floor,
            bundle_sha256=setup.bundle_sha256,
            parameters_sha256=setup.parameters_sha256,
            dimension=setup.privacy.dimension,
            training=setup.training,
            privacy=setup.privacy,
            ledger_head=setup.ledger_head,
        )
