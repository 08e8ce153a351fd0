"""Inputs and outputs of the gateway's core."""

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from broker.enrolment_events import EnrolmentEffect, EnrolmentEvent
from broker.task import TaskSpec
from broker.task_wishes import TaskWish
from edgefl.protocol.events import Unmasked, UnmaskJob
from edgefl.transport.core_events import (
    Acknowledge,
    Arrived,
    LinkLost,
    LinkRestored,
    Publish,
    Woken,
)

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSubmitted:
    """A task whose bundle was verified.

    Attributes:
        bundle: The bundle's bytes, as devices get them.
        initial_parameters: float32 [d], used if the task has no stored state.
    """

    spec: TaskSpec
    bundle: bytes = field(repr=False)
    initial_parameters: NDArray[np.float32] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWished:
    """The operator wants something else of a task."""

    task: str
    wish: TaskWish


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmaskingEnded:
    """The result of a `RunUnmasking`."""

    attempt: int
    result: Unmasked


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationEnded:
    """How well a committed model does on the task's evaluation data.

    Attributes:
        int8_accuracy: Of the last round's model in int8; None before, or without an int8 form.
    """

    task: str
    round_number: int
    accuracy: float | None
    loss: float
    examples: int
    int8_accuracy: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterBrought:
    """The operator put a roster file into the gateway's folder."""

    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadMoved:
    """The endpoint has put chunks of an upload into the stage.

    Attributes:
        device: Who sends.
        transfer_id: 8 bytes.
    """

    device: str
    transfer_id: bytes


GatewayEvent = (
    LinkRestored
    | LinkLost
    | Arrived
    | Woken
    | TaskSubmitted
    | TaskWished
    | UnmaskingEnded
    | EvaluationEnded
    | RosterBrought
    | UploadMoved
    | EnrolmentEvent
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentWanted:
    """Devices that are not in the roster, for the operator who signs it.

    Attributes:
        devices: Identity key by device.
        leaving: Devices in the roster that are out.
    """

    devices: dict[str, bytes]
    leaving: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUnmasking:
    """Unmask, and feed back `UnmaskingEnded`."""

    attempt: int
    job: UnmaskJob


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChanged:
    """A round was committed: keep the model where its owner finds it, and evaluate it."""

    task: str
    round_number: int
    parameters: NDArray[np.float32] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnded:
    """A task is over.

    Attributes:
        outcome: "done", "budget", "cancelled" or "failed".
        reason: One phrase.
    """

    task: str
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """One line for the operator and for `events.jsonl`."""

    kind: str
    fields: dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendChunks:
    """Let a link that cuts chunks by itself send some, as fast as the device takes them.

    Attributes:
        topic: The device's.
        transfer_id: 8 bytes.
        blob: What the transfer carries; whoever fetches the same shares it.
        chunk_bytes: Size of each chunk but the last.
        indices: Which chunks, in their order; they follow those that were asked for before.
        expiry_s: Time after which a chunk that was cut is of no use any more.
    """

    topic: str
    transfer_id: bytes
    blob: bytes = field(repr=False)
    chunk_bytes: int
    indices: tuple[int, ...]
    expiry_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopChunks:
    """Send no more chunks of a transfer than are under way."""

    topic: str
    transfer_id: bytes


GatewayEffect = (
    Publish
    | SendChunks
    | StopChunks
    | Acknowledge
    | RunUnmasking
    | ModelChanged
    | TaskEnded
    | EnrolmentWanted
    | EnrolmentEffect
    | Reported
)
