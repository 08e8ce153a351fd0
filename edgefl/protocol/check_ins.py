"""Who checked in to a call, and the session made of it: plan, graph, keys and announcements."""

from collections.abc import Mapping, Set

from edgefl.errors import RemoteProtocolError
from edgefl.protocol import wire
from edgefl.protocol.peer_proof import PeerProof
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.round_messages import CheckIn, PlanAnnouncement
from edgefl.protocol.round_setup import RoundSetup
from edgefl.protocol.session_graph import SessionGraph
from edgefl.protocol.session_keys import call_id_of, peer_keys, session_of
from edgefl.secagg.session import Session


class CheckIns:
    """Mask keys for one call, as they arrive.

    Args:
        setup: The gateway's decisions.
    """

    def __init__(self, setup: RoundSetup) -> None:
        """Start with nobody."""
        self._setup = setup
        self._call_id = call_id_of(setup.fleet, setup.call)
        self._proofs: dict[str, PeerProof] = {}
        self._owners: dict[bytes, str] = {}

    @property
    def devices(self) -> Set[str]:
        """Devices that checked in."""
        return self._proofs.keys()

    def take(self, device: str, message: CheckIn) -> bool:
        """Take a device's mask key, and tell whether it is news.

        The same one again is fine, one for another call is ignored.

        Raises:
            RemoteProtocolError: The device was not called, the key is not the called one of its
                bundle, a second one, or one that another device uses.
        """
        if message.call_id != self._call_id:
            return False
        if device not in self._setup.population:
            raise RemoteProtocolError("E-CHECK-IN-IDENTITY", "a device that was called", "another")
        known = self._proofs.get(device)
        if known is not None:
            if known.mask_key != message.mask_key:
                raise RemoteProtocolError("E-CHECK-IN-TWICE", "one key per call", "a second one")
            return False
        proof = self._setup.keys.require_mask_key(
            device, message.mask_key, self._setup.call.key_index
        )
        if self._owners.setdefault(message.mask_key.key, device) != device:
            raise RemoteProtocolError("E-CHECK-IN-KEYS", "a key of its own", "one that is in use")
        self._proofs[device] = proof
        return True

    def make_session(self) -> "SessionStart":
        """Fix the cohort: everybody who checked in.

        Raises:
            ConfigError: So few devices have no thresholds that the survivor floor allows.
        """
        return SessionStart(self._setup, self._call_id, self._proofs)


class SessionStart:
    """A session whose cohort is fixed.

    Attributes:
        plan: The session plan.
        graph: Who shares with whom.
        devices: Name of each member, by position in the plan.
        proofs: What proves each member's keys, by position.
    """

    def __init__(self, setup: RoundSetup, call_id: bytes, proofs: Mapping[str, PeerProof]) -> None:
        """Order the members by their positions in the key epoch."""
        names, opened = setup.keys.devices, setup.keys.epoch
        self.devices = tuple(name for name in names if name in proofs)
        self.proofs = tuple(proofs[name] for name in self.devices)
        self.plan = SessionPlan(
            fleet=setup.fleet,
            task=setup.call.task,
            round_number=setup.call.round_number,
            attempt=setup.call.attempt,
            call_id=call_id,
            mode=setup.call.mode,
            adversary=setup.adversary,
            prgs=setup.prgs,
            key_epoch=opened.key_epoch,
            record_sha256=opened.record.digest,
            key_index=setup.call.key_index,
            epoch_size=opened.size,
            cohort=wire.encode_bitmap([name in proofs for name in names]),
            thresholds=setup.thresholds(len(self.devices)),
            corrupt_permille=setup.corrupt_permille,
            drop_permille=setup.drop_permille,
            bundle_sha256=setup.bundle_sha256,
            parameters_sha256=setup.parameters_sha256,
            dimension=setup.privacy.dimension,
            training=setup.training,
            privacy=setup.privacy,
            ledger_head=setup.ledger_head,
        )
        self.graph = SessionGraph.of(self.plan, opened)

    def keys(self) -> Session:
        """Return the context of all keys of the session."""
        return session_of(
            self.plan,
            {
                position: peer_keys(proof.bundle, proof.mask_key)
                for position, proof in enumerate(self.proofs)
            },
        )

    def announcement_to(self, position: int) -> PlanAnnouncement:
        """Return the plan with the proofs of one member's neighbours."""
        return PlanAnnouncement(
            plan=self.plan.to_bytes(),
            peers=tuple((peer, self.proofs[peer]) for peer in self.graph.neighbours(position)),
        )
