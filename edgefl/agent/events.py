"""Inputs and outputs of the agent's core."""

from dataclasses import dataclass, field

from edgefl.errors import EdgeflError
from edgefl.protocol.enrolment_messages import CertificateIssued, RenewalRequest
from edgefl.protocol.events import MaskJob
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import AbortReason, LeaveReason, Phase
from edgefl.transport.core_events import Arrived, LinkLost, LinkRestored, Publish, Woken
from edgefl.types import Update


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingEnded:
    """The result of a `RunTraining`; `update` is None where it failed.

    Attributes:
        session_id: The session that it was for.
        note: One phrase for the log; never numbers of the data.
        examples: How many examples the device has; its weight where the task is weighted.
        backend: Library and processor that ran, as onnx/cpu; empty where nothing ran.
    """

    session_id: bytes
    update: Update | None
    note: str
    examples: int = 1
    backend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskingEnded:
    """The result of a `RunMasking`; `packed` is None where the update was not usable."""

    session_id: bytes
    packed: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PresenceChanged:
    """What the settings' `presence` returns has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateWanted:
    """Ask the gateway for this device's next certificate, or tell it what is trusted."""

    request: RenewalRequest


AgentEvent = (
    LinkRestored
    | LinkLost
    | Arrived
    | Woken
    | TrainingEnded
    | MaskingEnded
    | PresenceChanged
    | CertificateWanted
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTraining:
    """Train, and feed back `TrainingEnded`."""

    plan: SessionPlan
    bundle: bytes = field(repr=False)
    parameters: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMasking:
    """Mask, and feed back `MaskingEnded`."""

    job: MaskJob


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseReached:
    """For the log: the device's phase in its round."""

    round_number: int
    attempt: int
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnded:
    """For the log: how the round ended for this device."""

    round_number: int
    attempt: int
    phase: Phase
    abort_reason: AbortReason
    left: LeaveReason | None
    counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysReady:
    """For the log: a key epoch is open, so that the device can check in to rounds."""

    key_epoch: int
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateBrought:
    """The gateway sent a certificate, or other authorities to trust."""

    message: CertificateIssued


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayMoved:
    """The gateway is reached by other URLs from now on, which are stored."""

    urls: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """For the log: something was refused or ignored, with the consequence."""

    error: EdgeflError


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The agent cannot go on: the operator must act."""

    error: EdgeflError


AgentEffect = (
    Publish
    | RunTraining
    | RunMasking
    | PhaseReached
    | RoundEnded
    | KeysReady
    | CertificateBrought
    | GatewayMoved
    | Noticed
    | Stop
)
