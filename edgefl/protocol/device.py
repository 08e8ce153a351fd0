"""The device's half of a round: a pure machine that takes events and returns effects.

It holds no clock, socket, file or global randomness. Its state is a value: `snapshot()` and
`restore()`.

Rules that the transitions keep:
- whatever is sent was persisted first, as the very bytes, and is sent again unchanged;
- rounding and noise never run twice under the masks of a message that may have left the device;
- one answer to one unmask request per session, persisted before it is sent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from edgefl._native import AgreementKey, Seed, SigningKey
from edgefl.errors import EdgeflError, LocalProtocolError, RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.device_state import DeviceState
from edgefl.protocol.events import (
    AggregatorSaid,
    DeviceEffect,
    DeviceEvent,
    DeviceFinished,
    Masked,
    MaskJob,
    Persist,
    PlanReceived,
    Refused,
    SendUp,
    Trained,
    TrainJob,
)
from edgefl.protocol.masked_input import session_of
from edgefl.protocol.messages import (
    Call,
    CheckIn,
    DeviceMessage,
    KeyAdvert,
    Leave,
    MaskedInput,
    RevealedShares,
    RoundClosed,
    RoutedShares,
    SharedKeys,
    UnmaskRequest,
)
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.policy import DevicePolicy, check_plan
from edgefl.protocol.reasons import AbortReason, LeaveReason, Phase
from edgefl.secagg.session import Session
from edgefl.secagg.sharing import ShareChannels

_M = TypeVar("_M", RoutedShares, UnmaskRequest, RoundClosed)


class EntropySource(Protocol):
    """Where fresh secrets come from: the OS on a device, a seeded stream in a simulator."""

    def fresh_seed(self) -> Seed:
        """Return 32 bytes that were never returned before."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceIdentity:
    """Who a device is: its id and its Ed25519 key."""

    device: str
    signing_key: SigningKey

    def __repr__(self) -> str:
        """Hide the key."""
        return f"DeviceIdentity({self.device!r})"


def call_id_of(fleet: str, call: Call) -> bytes:
    """Return the id of a call: the hash that adverts and the plan are bound to."""
    return wire.digest(["edgefl/1 call", fleet, dict(call.to_body())])


class DeviceRound:
    """One device in one attempt at one round; made by `answer` or `restore`.

    Args:
        identity: The device.
        policy: Its floors.
        entropy: Fresh secrets.
        fleet: The fleet's name.
        state: Where the round stands.
    """

    def __init__(
        self,
        *,
        identity: DeviceIdentity,
        policy: DevicePolicy,
        entropy: EntropySource,
        fleet: str,
        state: DeviceState,
    ) -> None:
        """Take the state. Nothing is sent before `begin` or `resume`."""
        self._identity = identity
        self._policy = policy
        self._entropy = entropy
        self._fleet = fleet
        self._state = state
        self._advert = self._make_advert()
        own = None if state.plan is None else state.plan.position_of(identity.device)
        self._own = -1 if own is None else own
        self._is_working = False
        self._open_channels: ShareChannels | None = None

    @classmethod
    def answer(
        cls,
        call: Call,
        *,
        identity: DeviceIdentity,
        policy: DevicePolicy,
        entropy: EntropySource,
        fleet: str,
    ) -> "DeviceRound":
        """Make fresh session keys for a call."""
        state = DeviceState(
            phase=Phase.CHECK_IN,
            call=call,
            share_secret=AgreementKey.from_seed(entropy.fresh_seed()),
            mask_secret=AgreementKey.from_seed(entropy.fresh_seed()),
            self_seed=entropy.fresh_seed(),
        )
        return cls(identity=identity, policy=policy, entropy=entropy, fleet=fleet, state=state)

    @classmethod
    def restore(
        cls,
        snapshot: bytes,
        *,
        identity: DeviceIdentity,
        policy: DevicePolicy,
        entropy: EntropySource,
        fleet: str,
    ) -> "DeviceRound":
        """Rebuild a round from its snapshot.

        Raises:
            WireError: The snapshot is damaged or of another version.
        """
        state = DeviceState.from_bytes(snapshot)
        return cls(identity=identity, policy=policy, entropy=entropy, fleet=fleet, state=state)

    # ------------------------------------------------------------ public

    @property
    def phase(self) -> Phase:
        """Where the round stands for this device."""
        return self._state.phase

    @property
    def call(self) -> Call:
        """The call that this round answers."""
        return self._state.call

    def snapshot(self) -> bytes:
        """Return the whole state. Security: it holds the session's secrets."""
        return self._state.to_bytes()

    @property
    def plan(self) -> SessionPlan | None:
        """The session plan, once accepted."""
        return self._state.plan

    @property
    def call_id(self) -> bytes:
        """The id of the call that this round answers."""
        return call_id_of(self._fleet, self._state.call)

    @property
    def left(self) -> LeaveReason | None:
        """Why the device left the round, if it did."""
        return self._state.left

    def begin(self) -> tuple[DeviceEffect, ...]:
        """Check in."""
        if self._state.phase is not Phase.CHECK_IN or self._state.plan is not None:
            raise LocalProtocolError(
                "E-DEVICE-BEGIN", "a round that has not begun", self._state.phase.name
            )
        return self._persist_and_send(self._check_in())

    def handle(self, event: DeviceEvent) -> tuple[DeviceEffect, ...]:
        """Take one event and return what to do, in order.

        A message that the phase does not expect changes nothing and is answered by `Refused`.
        """
        message_type = type(event.message) if isinstance(event, AggregatorSaid) else type(event)
        transition = self._TRANSITIONS.get((self._state.phase, message_type))
        if transition is None:
            return self._unexpected(message_type)
        try:
            return transition(self, event)
        except (RemoteProtocolError, WireError) as error:
            return (Refused(error=error), *self._leave_after_refusal())

    def leave(self, reason: LeaveReason) -> tuple[DeviceEffect, ...]:
        """Leave the round, persisted first."""
        if self._state.phase.is_final:
            return ()
        self._state.left = reason
        self._state.phase = Phase.ABORTED
        return (
            *self._persist_and_send(Leave(reason=reason)),
            self._finished(AbortReason.NONE, counted=False),
        )

    def resume(self) -> tuple[DeviceEffect, ...]:
        """Go on after a restart: send the last message again, or do the unsent work again."""
        if self._state.phase.is_final:
            return ()
        if self._state.phase is Phase.MASKED_INPUT and self._state.masked is None:
            return self._start_training()
        return (SendUp(message=self.last_message()),)

    def last_message(self) -> DeviceMessage:
        """Return the newest message of this round, for sending it again."""
        if self._state.left is not None:
            return Leave(reason=self._state.left)
        return self._state.revealed or self._state.masked or self._state.shared or self._check_in()

    # ------------------------------------------------------------ transitions

    def _on_plan(self, event: DeviceEvent) -> tuple[DeviceEffect, ...]:
        if not isinstance(event, PlanReceived):
            raise LocalProtocolError("E-DEVICE-EVENT", "PlanReceived", type(event).__name__)
        plan = SessionPlan.from_bytes(event.plan)
        self._own = check_plan(plan, self._policy, self._advert, self.call_id)
        self._state.plan = plan
        session = session_of(plan)
        self._state.shared = SharedKeys(
            commitment=self._state.self_seed.commitment(session.session_id),
            sealed=tuple(
                self._channels(session).share_secrets(
                    self._state.mask_secret,
                    self._state.self_seed,
                    plan.threshold,
                    self._entropy.fresh_seed(),
                )
            ),
        )
        self._state.phase = Phase.SHARE_KEYS
        return self._persist_and_send(self._state.shared)

    def _on_plan_again(self, event: DeviceEvent) -> tuple[DeviceEffect, ...]:
        if not isinstance(event, PlanReceived) or self._state.plan is None:
            raise LocalProtocolError("E-DEVICE-EVENT", "PlanReceived", type(event).__name__)
        if event.plan != self._state.plan.to_bytes():
            return (self._contradiction("one plan per call", "a second plan"),)
        return (
            (SendUp(message=self.last_message()),) if self._state.phase is Phase.SHARE_KEYS else ()
        )

    def _on_routed_shares(self, event: DeviceEvent) -> tuple[DeviceEffect, ...]:
        message = _message(event, RoutedShares)
        plan, session = self._require_plan()
        sharers = wire.decode_bitmap(message.sharers, len(plan.members))
        if not sharers[self._own]:
            raise RemoteProtocolError(
                "E-SHARES-SELF", "this device among those that shared keys", "a list without it"
            )
        if sum(sharers) < max(plan.threshold, plan.survivor_floor):
            raise RemoteProtocolError(
                "E-SHARES-FEW",
                f"at least {plan.survivor_floor} devices that shared keys",
                str(sum(sharers)),
            )
        if len(message.sealed) != sum(sharers):
            raise RemoteProtocolError(
                "E-SHARES-COUNT", f"{sum(sharers)} ciphertexts", str(len(message.sealed))
            )
        self._open_all(session, sharers, message)
        self._state.routed = message
        self._state.phase = Phase.MASKED_INPUT
        return (Persist(snapshot=self.snapshot()), *self._start_training())

    def _on_routed_again(self, event: DeviceEvent) -> tuple[DeviceEffect, ...]:
        if _message(event, RoutedShares) != self._state.routed:
            return (self._contradiction("one list of those that shared keys", "a second list"),)
        return () if self._state.masked is None else (SendUp(message=self._state.masked),)

    def _on_trained(self, event: DeviceEvent) -> tuple[DeviceEffect, ...]:
        if not isinstance(event, Trained):
            raise LocalProtocolError("E-DEVICE-EVENT", "Trained", type(event).__name__)
        plan, session = self._require_plan()
        update = event.update
        if update is None:
            if plan.privacy.noise_multiplier <= 0:
                return self.leave(LeaveReason.TRAINING_FAILED)
            # With noise on, leaving would make participation depend on the data: send
            # zero, with full noise.
            update = np.zeros(plan.dimension, dtype=np.float32)
        if update.shape != (plan.dimension,):
            raise LocalProtocolError("E-UPDATE-SHAPE", f"({plan.dimension},)", str(update.shape))
        return (
            MaskJob(
                plan=plan,
                session=session,
                own=self._own,
                update=update,
                neighbours=tuple(position for position in self._sharers() if position != self._own),
                mask_secret=self._state.mask_secret,
                self_seed=self._state.self_seed,
                rounding_seed=self._entropy.fresh_seed(),
                noise_seed=self._entropy.fresh_seed(),
            ),
        )

    def _on_masked(self, event: DeviceEvent) -> tuple[DeviceEffect, ...]:
        if not isinstance(event, Masked):
            raise LocalProtocolError("E-DEVICE-EVENT", "Masked", type(event).__name__)
        self._is_working = False
        if self._state.masked is not None:
            raise LocalProtocolError(
                "E-DEVICE-MASKED-TWICE", "one masked input per session", "a second one"
            )
        self._state.masked = MaskedInput(packed=event.packed)
        return self._persist_and_send(self._state.masked)

    def _on_unmask_request(self, event: DeviceEvent) -> tuple[DeviceEffect, ...]:
        message = _message(event, UnmaskRequest)
        plan, session = self._require_plan()
        if self._state.masked is None or self._state.routed is None:
            raise RemoteProtocolError(
                "E-UNMASK-EARLY", "an unmask request after the masked input", "one before it"
            )
        survivors = wire.decode_bitmap(message.survivors, len(plan.members))
        dropped = wire.decode_bitmap(message.dropped, len(plan.members))
        self._check_unmask_lists(plan, survivors, dropped)
        sharers = wire.decode_bitmap(self._state.routed.sharers, len(plan.members))
        opened = self._open_all(session, sharers, self._state.routed)
        self._state.unmask_request = message
        self._state.revealed = RevealedShares(
            shares=tuple(
                (position, opened[position][1] if survivors[position] else opened[position][0])
                for position in sorted(opened)
            )
        )
        self._state.phase = Phase.UNMASKING
        return self._persist_and_send(self._state.revealed)

    def _on_unmask_again(self, event: DeviceEvent) -> tuple[DeviceEffect, ...]:
        if (
            _message(event, UnmaskRequest) != self._state.unmask_request
            or self._state.revealed is None
        ):
            return (self._contradiction("one unmask request per session", "contradictory lists"),)
        return (SendUp(message=self._state.revealed),)

    def _on_closed(self, event: DeviceEvent) -> tuple[DeviceEffect, ...]:
        message = _message(event, RoundClosed)
        self._state.phase = message.phase
        return (self._finished(message.reason, counted=message.counted),)

    # ------------------------------------------------------------ checks

    def _check_unmask_lists(
        self, plan: SessionPlan, survivors: tuple[bool, ...], dropped: tuple[bool, ...]
    ) -> None:
        sharers = set(self._sharers())
        alive = {position for position, is_alive in enumerate(survivors) if is_alive}
        gone = {position for position, is_gone in enumerate(dropped) if is_gone}
        if alive & gone:
            raise RemoteProtocolError("E-UNMASK-BOTH", "disjoint lists", "a device in both")
        if alive | gone != sharers:
            raise RemoteProtocolError(
                "E-UNMASK-LISTS", "lists of all that shared keys", "other devices"
            )
        if self._own not in alive:
            raise RemoteProtocolError(
                "E-UNMASK-SELF", "this device among the survivors", "it named as dropped"
            )
        if len(alive) < max(plan.survivor_floor, plan.threshold):
            raise RemoteProtocolError(
                "E-UNMASK-FEW", f"at least {plan.survivor_floor} survivors", str(len(alive))
            )

    def _open_all(
        self, session: Session, sharers: tuple[bool, ...], message: RoutedShares
    ) -> dict[int, tuple[bytes, bytes]]:
        """Open every neighbour's shares: position -> (mask-key share, self-seed share)."""
        channels = self._channels(session)
        positions = [position for position, has_shared in enumerate(sharers) if has_shared]
        return {
            position: channels.open_shares(position, sealed)
            for position, sealed in zip(positions, message.sealed, strict=True)
            if position != self._own
        }

    # ------------------------------------------------------------ helpers

    def _channels(self, session: Session) -> ShareChannels:
        if self._open_channels is None:
            self._open_channels = ShareChannels(session, self._own, self._state.share_secret)
        return self._open_channels

    def _make_advert(self) -> KeyAdvert:
        unsigned = KeyAdvert(
            device=self._identity.device,
            identity_key=self._identity.signing_key.public_key,
            share_key=self._state.share_secret.public_key,
            mask_key=self._state.mask_secret.public_key,
            signature=bytes(64),
        )
        return KeyAdvert(
            device=unsigned.device,
            identity_key=unsigned.identity_key,
            share_key=unsigned.share_key,
            mask_key=unsigned.mask_key,
            signature=self._identity.signing_key.sign(unsigned.signed_bytes(self.call_id)),
        )

    def _check_in(self) -> CheckIn:
        return CheckIn(call_id=self.call_id, advert=self._advert)

    def _start_training(self) -> tuple[DeviceEffect, ...]:
        plan, _ = self._require_plan()
        if self._is_working:
            return ()
        self._is_working = True
        return (TrainJob(plan=plan),)

    def _sharers(self) -> list[int]:
        plan, _ = self._require_plan()
        if self._state.routed is None:
            return []
        bitmap = wire.decode_bitmap(self._state.routed.sharers, len(plan.members))
        return [position for position, has_shared in enumerate(bitmap) if has_shared]

    def _require_plan(self) -> tuple[SessionPlan, Session]:
        if self._state.plan is None:
            raise LocalProtocolError("E-DEVICE-NO-PLAN", "a plan", "none yet")
        return self._state.plan, session_of(self._state.plan)

    def _persist_and_send(self, message: DeviceMessage) -> tuple[DeviceEffect, ...]:
        return (Persist(snapshot=self.snapshot()), SendUp(message=message))

    def _finished(self, reason: AbortReason, *, counted: bool) -> DeviceFinished:
        return DeviceFinished(
            phase=self._state.phase, abort_reason=reason, left=self._state.left, counted=counted
        )

    def _leave_after_refusal(self) -> tuple[DeviceEffect, ...]:
        in_check_in = self._state.phase is Phase.CHECK_IN
        return self.leave(LeaveReason.PLAN_REFUSED if in_check_in else LeaveReason.REQUEST_REFUSED)

    def _contradiction(self, expected: str, found: str) -> Refused:
        return Refused(error=RemoteProtocolError("E-CONTRADICTION", expected, found))

    def _unexpected(self, message_type: type) -> tuple[DeviceEffect, ...]:
        error: EdgeflError = RemoteProtocolError(
            "E-UNEXPECTED",
            f"a message that phase {self._state.phase.name} expects",
            message_type.__name__,
        )
        return (Refused(error=error),)

    _TRANSITIONS: ClassVar[
        dict[tuple[Phase, type], Callable[["DeviceRound", DeviceEvent], tuple[DeviceEffect, ...]]]
    ] = {
        (Phase.CHECK_IN, PlanReceived): _on_plan,
        (Phase.CHECK_IN, RoundClosed): _on_closed,
        (Phase.SHARE_KEYS, PlanReceived): _on_plan_again,
        (Phase.SHARE_KEYS, RoutedShares): _on_routed_shares,
        (Phase.SHARE_KEYS, RoundClosed): _on_closed,
        (Phase.MASKED_INPUT, PlanReceived): _on_plan_again,
        (Phase.MASKED_INPUT, RoutedShares): _on_routed_again,
        (Phase.MASKED_INPUT, Trained): _on_trained,
        (Phase.MASKED_INPUT, Masked): _on_masked,
        (Phase.MASKED_INPUT, UnmaskRequest): _on_unmask_request,
        (Phase.MASKED_INPUT, RoundClosed): _on_closed,
        (Phase.UNMASKING, PlanReceived): _on_plan_again,
        (Phase.UNMASKING, RoutedShares): _on_routed_again,
        (Phase.UNMASKING, UnmaskRequest): _on_unmask_again,
        (Phase.UNMASKING, RoundClosed): _on_closed,
    }


def _message(event: DeviceEvent, kind: type[_M]) -> _M:
    if isinstance(event, AggregatorSaid) and isinstance(event.message, kind):
        return event.message
    raise LocalProtocolError("E-DEVICE-EVENT", kind.__name__, type(event).__name__)
