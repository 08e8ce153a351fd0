"""What both sides derive a session's keys from: the call's id, public keys, the plan's numbers."""

from collections.abc import Mapping

from edgefl.protocol import wire
from edgefl.protocol.key_bundle import KeyBundle, MaskKeyProof
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import Prg
from edgefl.protocol.round_messages import Call
from edgefl.secagg.session import PeerKeys, Session


def call_id_of(fleet: str, call: Call) -> bytes:
    """Return the id of a call: the hash that check-ins and the plan are bound to."""
    return wire.digest(["edgefl/1 call", fleet, dict(call.to_body())])


def peer_keys(bundle: KeyBundle, mask_key: MaskKeyProof) -> PeerKeys:
    """Return what the others use of a member whose bundle and mask key were checked."""
    return PeerKeys(
        share_key=bundle.share_key,
        mask_key=mask_key.key,
        bundle_sha256=bundle.digest,
        has_aes=bundle.declares(Prg.AES_128_CTR),
    )


def session_of(plan: SessionPlan, peers: Mapping[int, PeerKeys]) -> Session:
    """Return the context of a session's keys.

    Args:
        plan: The session plan.
        peers: Keys by position; a device needs its own and its neighbours' only.
    """
    return Session(
        session_id=plan.session_id,
        round_number=plan.round_number,
        attempt=plan.attempt,
        length=plan.privacy.vector_length,
        ring_bits=plan.ring_bits,
        allows_aes=bool(plan.prgs & Prg.AES_128_CTR.bit),
        peers=peers,
    )
