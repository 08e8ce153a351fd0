"""From shares and the masked sum to the sum: reconstruct, remove masks, check."""

from collections.abc import Callable

import numpy as np

from edgefl._native import AgreementKey, CancelFlag, Mask, Seed
from edgefl.protocol.events import Unmasked, UnmaskJob
from edgefl.protocol.reasons import AbortReason
from edgefl.secagg.reconstruction import Reconstruction, SharedSecret, reconstruct


def run(job: UnmaskJob, threads: int = 1, cancel: CancelFlag | None = None) -> Unmasked:
    """Carry out an `UnmaskJob`.

    Args:
        job: Its sum is overwritten.
        threads: Worker threads.
        cancel: Ends the work early.

    Raises:
        Cancelled: By the flag.
    """
    secrets = reconstruct(_shared_secrets(job), job.plan.share_threshold)
    if secrets.missing:
        return Unmasked(total=None, failure=AbortReason.RECONSTRUCTION_FAILED, liars=secrets.liars)
    job.total.apply_masks(_masks_to_remove(job, secrets, threads), threads, cancel)
    if not job.total.checks_hold(job.session.session_id):
        return Unmasked(total=None, failure=AbortReason.SUM_CHECK_FAILED, liars=secrets.liars)
    privacy = job.plan.privacy
    is_weighted = privacy.weight_bound > 1
    values = np.frombuffer(job.total.values(privacy.padded_dimension + is_weighted), dtype="<u4")
    return Unmasked(
        total=values[: privacy.padded_dimension].astype(np.uint32),
        total_weight=int(values[-1]) if is_weighted else len(job.seed_shares),
        failure=AbortReason.NONE,
        liars=secrets.liars,
    )


def _shared_secrets(job: UnmaskJob) -> list[SharedSecret]:
    context, peers = job.session.session_id, job.session.peers
    return [
        SharedSecret(
            owner=owner, shares=shares, is_right=_is_committed(job.commitments[owner], context)
        )
        for owner, shares in job.seed_shares.items()
    ] + [
        SharedSecret(owner=owner, shares=shares, is_right=_is_published(peers[owner].mask_key))
        for owner, shares in job.key_shares.items()
    ]


def _is_committed(commitment: bytes, context: bytes) -> Callable[[Seed], bool]:
    return lambda self_seed: self_seed.commitment(context) == commitment


def _is_published(mask_key: bytes) -> Callable[[Seed], bool]:
    # The lowest three bits of an X25519 secret do not matter; nor do they to any mask.
    return lambda seed: AgreementKey.from_seed(seed).public_key == mask_key


def _masks_to_remove(job: UnmaskJob, secrets: Reconstruction, threads: int) -> list[Mask]:
    """Return the masks that turn the sum of masked vectors into the sum of vectors.

    What a dropped device would have added cancels what the survivors added for it; the lower end
    of a pair adds its mask and the upper takes it off.
    """
    session = job.session
    masks = [
        session.self_mask(secrets.secrets[survivor], survivor, removing=True)
        for survivor in job.seed_shares
    ]
    for dropped, survivors in job.masked_with.items():
        mask_key = AgreementKey.from_seed(secrets.secrets[dropped])
        masks += session.pairwise_masks(mask_key, dropped, survivors, threads=threads)
    # One end left the mask out; what it would have done undoes what the other did.
    masks += [session.pairwise_mask(seed, one, other) for (one, other), seed in job.skipped.items()]
    return masks
