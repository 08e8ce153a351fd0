"""What a device derives from its session plan and its key epoch: place, graph, keys, shares."""

from collections.abc import Mapping

from edgefl._native import AgreementKey, Seed
from edgefl.errors import LocalProtocolError, RemoteProtocolError, WireError
from edgefl.protocol.device_plan import own_position
from edgefl.protocol.device_state import DeviceState
from edgefl.protocol.device_unmask import SurvivorLists, check_lists, positions_in
from edgefl.protocol.events import MaskJob
from edgefl.protocol.identity import EntropySource
from edgefl.protocol.own_keys import OwnKeys
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import AdversaryClass
from edgefl.protocol.round_messages import (
    RoutedShares,
    SharedKeys,
    SurvivorProposal,
    UnmaskRequest,
)
from edgefl.protocol.session_graph import SessionGraph
from edgefl.protocol.session_keys import call_id_of, session_of
from edgefl.secagg.session import PeerKeys
from edgefl.secagg.sharing import ShareChannels
from edgefl.types import Update


class DeviceSession:
    """One device's view of one session; holds nothing that must outlive a restart.

    Args:
        plan: The accepted plan.
        peers: What is used of this device and its neighbours, by position.
        keys: The keys that the device checked in with.

    Raises:
        RemoteProtocolError: The plan is not over this device's open key epoch.
    """

    def __init__(self, plan: SessionPlan, peers: Mapping[int, PeerKeys], keys: OwnKeys) -> None:
        """Derive what is cheap; ciphertexts are opened when they are asked for."""
        self.plan = plan
        self.own = own_position(plan, keys)
        self.graph = SessionGraph.of(plan, keys.open_epoch)
        self.neighbours = self.graph.neighbours(self.own)
        self.session = session_of(plan, peers)
        self.channels = ShareChannels(self.session, self.own, keys.share_secret, keys.pair_secrets)
        self._opened: tuple[RoutedShares, dict[int, tuple[bytes, bytes]]] | None = None

    def share_keys(
        self, mask_secret: AgreementKey, self_seed: Seed, sharing_seed: Seed
    ) -> SharedKeys:
        """Share both secrets with the neighbours.

        Args:
            mask_secret: Own one-time mask key.
            self_seed: Own seed of the self mask.
            sharing_seed: Fresh randomness for the shares; never used again.
        """
        sealed = self.channels.share_secrets(
            mask_secret,
            self_seed,
            threshold=self.plan.thresholds.neighbourhood,
            neighbours=self.neighbours,
            sharing_seed=sharing_seed,
        )
        return SharedKeys(
            commitment=self_seed.commitment(self.plan.session_id),
            sealed=tuple(sealed[position] for position in self.neighbours),
        )

    def sharers(self, routed: RoutedShares) -> tuple[int, ...]:
        """Return the neighbours that shared keys, ascending.

        Raises:
            WireError: The list of sharers is no bitmap over the plan's members.
        """
        shared = positions_in(routed.sharers, self.plan.size)
        return tuple(position for position in self.neighbours if position in shared)

    def open_shares(self, routed: RoutedShares) -> dict[int, tuple[bytes, bytes]]:
        """Open what the neighbours shared with this device.

        Returns:
            (share of the mask key, share of the self-mask seed) by the owner's position; those
            whose ciphertext does not open are left out.

        Raises:
            RemoteProtocolError: E-SHARES-COUNT, not one ciphertext for each of `sharers`.
        """
        if self._opened is None or self._opened[0] != routed:
            sharers = self.sharers(routed)
            if len(routed.sealed) != len(sharers):
                raise RemoteProtocolError(
                    "E-SHARES-COUNT", f"{len(sharers)} ciphertexts", str(len(routed.sealed))
                )
            opened = self.channels.open_all(dict(zip(sharers, routed.sealed, strict=True)))
            self._opened = (routed, opened)
        return self._opened[1]

    def require_enough(self, routed: RoutedShares) -> None:
        """Check that enough devices shared keys to hide among and to be unmasked by.

        Raises:
            WireError: The list of sharers is no bitmap over the plan's members.
            RemoteProtocolError: E-SHARES-SELF, -FEW, -COUNT or -NEIGHBOURS; -SEALED where a
                ciphertext does not open, but in HONEST_BUT_CURIOUS, where it is passed over.
        """
        thresholds = self.plan.thresholds
        shared = positions_in(routed.sharers, self.plan.size)
        if self.own not in shared:
            raise RemoteProtocolError(
                "E-SHARES-SELF", "this device among those that shared keys", "a list without it"
            )
        if len(shared) < thresholds.survivor_floor:
            raise RemoteProtocolError(
                "E-SHARES-FEW",
                f"at least {thresholds.survivor_floor} devices that shared keys",
                str(len(shared)),
            )
        opened = self.open_shares(routed)
        unopened = len(routed.sealed) - len(opened)
        if unopened and self.plan.adversary is not AdversaryClass.HONEST_BUT_CURIOUS:
            raise RemoteProtocolError(
                "E-SHARES-SEALED", "ciphertexts that open", f"{unopened} that do not"
            )
        if len(opened) < thresholds.neighbourhood:
            raise RemoteProtocolError(
                "E-SHARES-NEIGHBOURS",
                f"shares of at least {thresholds.neighbourhood} neighbours",
                f"of {len(opened)}",
            )

    def mask_job(
        self,
        update: Update,
        weight: int,
        *,
        routed: RoutedShares,
        mask_secret: AgreementKey,
        self_seed: Seed,
        entropy: EntropySource,
    ) -> MaskJob:
        """Return the job that masks an update, with fresh seeds for rounding and noise.

        Args:
            update: float32 [d], not yet clipped.
            weight: As many examples as it stands for; the plan's bound caps it.
            routed: What the neighbours shared; those whose shares opened are masked with.
            mask_secret: Own one-time mask key.
            self_seed: Own seed of the self mask.
            entropy: Fresh secrets.

        Raises:
            LocalProtocolError: E-UPDATE-SHAPE.
        """
        plan = self.plan
        if update.shape != (plan.dimension,):
            raise LocalProtocolError("E-UPDATE-SHAPE", f"({plan.dimension},)", str(update.shape))
        return MaskJob(
            plan=plan,
            session=self.session,
            own=self.own,
            update=update,
            weight=max(1, min(weight, plan.privacy.weight_bound)),
            neighbours=tuple(sorted(self.open_shares(routed))),
            mask_secret=mask_secret,
            self_seed=self_seed,
            rounding_seed=entropy.fresh_seed(),
            noise_seed=entropy.fresh_seed(),
        )

    def skipped_seeds(
        self, routed: RoutedShares, mask_secret: AgreementKey
    ) -> tuple[tuple[int, bytes], ...]:
        """Return the seeds of the pairwise masks that are left out, as no share came with them.

        Without them the other end's mask would stay in the sum. Each serves one pair in one
        session. Only in HONEST_BUT_CURIOUS are there any.

        Returns:
            (position, 32 bytes), ascending.
        """
        opened = self.open_shares(routed)
        skipped = [position for position in self.sharers(routed) if position not in opened]
        seeds = self.session.pairwise_seeds(mask_secret, self.own, skipped)
        return tuple(
            (position, seed.export_bytes()) for position, seed in zip(skipped, seeds, strict=True)
        )

    def read_lists(
        self, message: SurvivorProposal | UnmaskRequest, routed: RoutedShares
    ) -> SurvivorLists:
        """Read who survived and who dropped out, and check it (`device_unmask.check_lists`)."""
        lists = SurvivorLists.read(self.plan, message)
        sharers = positions_in(routed.sharers, self.plan.size)
        check_lists(lists, self.plan, self.graph, own=self.own, sharers=sharers)
        return lists

    def shares_for(
        self, lists: SurvivorLists, routed: RoutedShares
    ) -> tuple[tuple[int, bytes], ...]:
        """Return one share for each neighbour that gave any, of exactly one of its two secrets.

        Returns:
            (position, share of a survivor's self-mask seed or of a dropped device's mask key),
            ascending.
        """
        return tuple(
            (position, seed_share if position in lists.survivors else key_share)
            for position, (key_share, seed_share) in sorted(self.open_shares(routed).items())
        )


def require_same_session(state: DeviceState, keys: OwnKeys) -> None:
    """Check that a stored round is one of this device in the key epoch that is open now.

    Raises:
        WireError: E-SNAPSHOT, it is not.
    """
    plan, use = state.plan, keys.use_of(state.call.key_index)
    is_same = (
        state.bundle_sha256 == keys.bundle.digest
        and use is not None
        and use.call_id == call_id_of(keys.fleet, state.call)
        and keys.has_mask_secret(state.call.key_index)
    )
    if is_same and use is not None and plan is not None:
        is_same = (use.call_id, use.session_id) == (plan.call_id, plan.session_id)
        is_same = is_same and _fits(plan, state.peers, keys)
    if not is_same:
        raise WireError("E-SNAPSHOT", "a round of this device in its open key epoch", "another one")


def _fits(plan: SessionPlan, peers: Mapping[int, PeerKeys], keys: OwnKeys) -> bool:
    try:
        session = DeviceSession(plan, peers, keys)
    except RemoteProtocolError:
        return False
    return set(peers) == {session.own, *session.neighbours}
