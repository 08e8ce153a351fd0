"""From an update to the packed masked input: clip, round, noise, check coordinates, masks."""

from functools import lru_cache

import numpy as np

from edgefl._native import CHECK_COORDINATES
from edgefl.codec.ring import encode_update
from edgefl.privacy.clipping import clip_update
from edgefl.protocol.events import Masked, MaskJob
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.wire import encode
from edgefl.secagg.masking import mask_and_pack, with_check_coordinates
from edgefl.secagg.session import PeerKeys, Session, advert_digest


@lru_cache(maxsize=4)
def session_of(plan: SessionPlan) -> Session:
    """Return the key context of a plan."""
    return Session(
        session_id=plan.session_id,
        suite=int(plan.suite),
        round_number=plan.round_number,
        attempt=plan.attempt,
        length=plan.dimension + CHECK_COORDINATES,
        ring_bits=plan.ring_bits,
        peers=tuple(
            PeerKeys(
                share_key=member.share_key,
                mask_key=member.mask_key,
                advert_sha256=advert_digest(encode(member.to_list())),
            )
            for member in plan.members
        ),
    )


def run(job: MaskJob, threads: int = 1) -> Masked:
    """Carry out a `MaskJob`.

    Raises:
        PrivacyError: The update is not finite.
    """
    privacy = job.plan.privacy
    clipped, _ = clip_update(np.ascontiguousarray(job.update, dtype=np.float32), privacy.clip_norm)
    values = encode_update(
        clipped,
        scale=privacy.scale,
        l2_squared_bound=privacy.l2_squared_bound,
        noise_variance=privacy.noise_share_variance,
        ring_bits=privacy.ring_bits,
        rounding_seed=job.rounding_seed,
        noise_seed=job.noise_seed,
    )
    vector = with_check_coordinates(values, privacy.ring_bits, job.session.session_id)
    return Masked(
        packed=mask_and_pack(
            job.session, job.own, vector, job.mask_secret, job.self_seed, job.neighbours, threads
        )
    )
