"""From an update to the packed masked input: clip, rotate, round, noise, check, mask, pack."""

from edgefl._native import CancelFlag, encode_and_mask
from edgefl.privacy.rotation import rotation_seed
from edgefl.protocol.events import Masked, MaskJob


def run(job: MaskJob, threads: int = 1, cancel: CancelFlag | None = None) -> Masked:
    """Carry out a `MaskJob`.

    Raises:
        PrivacyError: The update is not finite.
    """
    privacy, session = job.plan.privacy, job.session
    masks = [
        session.self_mask(job.self_seed, job.own),
        *session.pairwise_masks(job.mask_secret, job.own, job.neighbours, threads=threads),
    ]
    return Masked(
        packed=encode_and_mask(
            job.update,
            clip_norm=privacy.clip_norm,
            scale=privacy.scale,
            l2_squared_bound=privacy.l2_squared_bound,
            noise_variance=privacy.noise_share_variance,
            ring_bits=privacy.ring_bits,
            rotation_block=privacy.rotation_block,
            rotation_seed=rotation_seed(session.session_id),
            weight=job.weight,
            weight_bound=privacy.weight_bound,
            session_id=session.session_id,
            rounding_seed=job.rounding_seed,
            noise_seed=job.noise_seed,
            masks=masks,
            rounding_prg=session.own_prg(job.own),
            threads=threads,
            cancel=cancel,
        )
    )
