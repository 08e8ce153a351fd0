"""A task that is being worked on: what a round starts from, and what it makes of the model."""

import hashlib
from dataclasses import dataclass

import numpy as np

from broker.events import ModelChanged, TaskSubmitted
from broker.server_step import ModelState, apply_step
from broker.task import ADVERSARIES, MODES, TaskSpec
from broker.task_state import RUNNING, TaskState, load_task_state
from edgefl.codec.ring import decode_sum
from edgefl.privacy.plan import PrivacyPlan
from edgefl.privacy.rotation import rotation_seed
from edgefl.protocol.events import RoundFinished
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.one_upload_sizes import DepositTerms
from edgefl.protocol.reasons import RoundMode
from edgefl.protocol.round_messages import Call
from edgefl.protocol.round_setup import PhaseLimits, RoundSetup
from edgefl.storage.base import KeyValueStore
from edgefl.types import FleetName


@dataclass(slots=True, kw_only=True)
class ActiveTask:
    """One task and where it stands.

    Attributes:
        attempts: Attempts at the next round so far.
    """

    spec: TaskSpec
    privacy: PrivacyPlan
    bundle: bytes
    bundle_sha256: bytes
    state: TaskState
    attempts: int = 0

    @property
    def needs_online(self) -> int:
        """Devices that must be online before the next round."""
        is_first = self.state.committed == 0 and self.attempts == 0
        return self.spec.quorum if is_first else self.spec.survivor_floor

    @property
    def deposit_terms(self) -> DepositTerms | None:
        """What devices are told in the one-upload mode before they deposit shares."""
        if MODES[self.spec.mode] is not RoundMode.ONE_UPLOAD:
            return None
        return DepositTerms(
            adversary=ADVERSARIES[self.spec.adversary],
            corrupt_permille=self.spec.corrupt_permille,
            drop_permille=self.spec.drop_permille,
        )

    @property
    def parameters(self) -> bytes:
        """The model as devices get it: little-endian float32 [d]."""
        return self.state.model.parameters.astype("<f4").tobytes()

    def model_changed(self) -> ModelChanged:
        """Return the newest model for the task's folder."""
        return ModelChanged(
            task=self.spec.name,
            round_number=self.state.committed,
            parameters=self.state.model.parameters,
        )

    def blobs(self) -> dict[bytes, bytes]:
        """Return what devices may ask for, by SHA-256."""
        parameters = self.parameters
        return {
            self.bundle_sha256: self.bundle,
            hashlib.sha256(parameters).digest(): parameters,
        }

    def setup(
        self,
        *,
        fleet: FleetName,
        call: Call,
        keys: MemberKeys,
        population: frozenset[str],
        ledger_head: str,
        limits: PhaseLimits,
    ) -> RoundSetup:
        """Return what the next round is opened with."""
        return RoundSetup(
            fleet=fleet,
            call=call,
            keys=keys,
            population=population,
            adversary=ADVERSARIES[self.spec.adversary],
            corrupt_permille=self.spec.corrupt_permille,
            drop_permille=self.spec.drop_permille,
            privacy=self.privacy,
            training=self.spec.training_plan(),
            bundle_sha256=self.bundle_sha256,
            parameters_sha256=hashlib.sha256(self.parameters).digest(),
            ledger_head=bytes.fromhex(ledger_head),
            limits=limits,
        )

    def commit(self, finished: RoundFinished, expected: float | None = None) -> bool:
        """Step the model by a committed round's sum; return False if there is none.

        Args:
            finished: The round.
            expected: Where coins chose the cohort, how many they bring in the mean: who came is
                chance that the amplification counts on, so nothing released may depend on it.
        """
        if finished.total is None or finished.plan is None:
            return False
        plan, privacy = finished.plan, finished.plan.privacy
        model = apply_step(
            self.state.model,
            decode_sum(
                finished.total,
                scale=privacy.scale,
                ring_bits=privacy.ring_bits,
                dimension=privacy.dimension,
                rotation_block=privacy.rotation_block,
                rotation_seed=rotation_seed(plan.session_id),
            ),
            # Unweighted: everybody in the plan, a number that no device's data decides.
            denominator=finished.total_weight
            if privacy.weight_bound > 1
            else max(1.0, plan.size if expected is None else expected),
            momentum=self.spec.server_momentum,
            server_lr=self.spec.server_lr,
        )
        self.state = TaskState(committed=finished.report.round_number, outcome=RUNNING, model=model)
        self.attempts = 0
        return True


def take_up(event: TaskSubmitted, store: KeyValueStore) -> ActiveTask:
    """Return a task where the store left it, or at its beginning.

    Raises:
        StorageError: The stored state is of another model.
        ConfigError: No privacy plan holds for the model.
    """
    spec, initial = event.spec, event.initial_parameters
    state = load_task_state(store, spec.name, initial.size)
    if state is None:
        model = ModelState(parameters=initial, velocity=np.zeros_like(initial))
        state = TaskState(committed=0, outcome=RUNNING, model=model)
    return ActiveTask(
        spec=spec,
        privacy=spec.privacy_plan(initial.size),
        bundle=event.bundle,
        bundle_sha256=hashlib.sha256(event.bundle).digest(),
        state=state,
    )
