"""From shares and the masked sum to the sum: reconstruct, remove masks, check."""

import numpy as np

from edgefl._native import CHECK_COORDINATES
from edgefl.errors import ShareError
from edgefl.protocol.events import Unmasked, UnmaskJob
from edgefl.protocol.reasons import AbortReason
from edgefl.secagg.masking import remove_masks, sum_is_consistent
from edgefl.secagg.sharing import reconstruct_mask_key, reconstruct_self_seed


def run(job: UnmaskJob, threads: int = 1) -> Unmasked:
    """Carry out an `UnmaskJob`."""
    threshold, session = job.plan.threshold, job.session
    try:
        self_seeds = {
            position: reconstruct_self_seed(
                shares, threshold, job.commitments[position], session.session_id
            )
            for position, shares in job.seed_shares.items()
        }
        mask_secrets = {
            position: reconstruct_mask_key(shares, threshold, session.peers[position].mask_key)
            for position, shares in job.key_shares.items()
        }
    except ShareError:
        return Unmasked(total=None, failure=AbortReason.RECONSTRUCTION_FAILED)
    remove_masks(session, job.total, self_seeds, mask_secrets, threads)
    if not sum_is_consistent(job.total, session.ring_bits, session.session_id):
        return Unmasked(total=None, failure=AbortReason.SUM_CHECK_FAILED)
    return Unmasked(
        total=np.ascontiguousarray(job.total[:-CHECK_COORDINATES]), failure=AbortReason.NONE
    )
